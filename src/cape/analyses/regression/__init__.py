"""Regressions: the sums they need, how far one row moves them, and what noise leaves of them."""
