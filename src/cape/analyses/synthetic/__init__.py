"""Synthetic rows: which tables are measured, the model that is fitted to them, its card and its check.

Intervals of what users compute from synthetic rows are `cape.synthetic`.
"""
