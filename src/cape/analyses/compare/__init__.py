"""Comparisons: differences between groups, associations, tests of ranks and of correlations.

Regressions compare too, adjusted for other columns: `regression`.
"""
