"""Regressions of a column on others: linear, logistic, generalised linear, multinomial, any polynomial loss.

Targets that are times to an event are in `survival`, effects that vary by site in `sites`.
"""
