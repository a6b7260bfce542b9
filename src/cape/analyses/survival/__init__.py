"""Times to an event: Kaplan-Meier and incidence curves, log-rank tests, Cox, Weibull and exponential
regressions, each with its sensitivity and the noise in its intervals and P values.

Not here: what all regressions share, such as coefficients and formulas (`regression`).
"""
