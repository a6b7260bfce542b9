"""Synthetic rows: which tables are measured, the distribution that is fitted to them, its card and its check.

Not here: intervals of what users compute from synthetic rows (`cape.synthetic`).
"""
