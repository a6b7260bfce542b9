"""Regressions of a column on others: linear, logistic, generalised linear, multinomial, any polynomial
loss; formulas, coefficients with their errors and tests.

Not here: targets that are times to an event (`survival`), and effects that vary by site (`sites`).
"""
