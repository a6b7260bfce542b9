"""Comparisons: differences of means between groups, associations of categories, tests of ranks and of
correlations.

Not here: comparisons adjusted for other columns (`regression`), and of survival (`survival`).
"""
