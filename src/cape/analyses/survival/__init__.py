"""Times to an event: survival curves, tests that compare them, and regressions."""
