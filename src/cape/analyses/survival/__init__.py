"""Times to an event: Kaplan-Meier and incidence curves, log-rank tests, Cox and parametric regressions.

What all regressions share (coefficients, formulas, tests) is in `regression`.
"""
