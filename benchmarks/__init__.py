"""Measurements with a bar: each beside its reference, in one run, as a ratio where that makes sense."""
