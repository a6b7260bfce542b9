"""The paper's preprocessing: columns by their largest magnitude, then rows by the largest norm.

Claim: none about privacy. Both numbers are computed from the rows, so the scaled data is not covered by any
guarantee that is spent on it afterwards; the paper says so too. Studies use the public bounds of a schema.
"""

from __future__ import annotations

import numpy as np

from reproduction.datasets.dataset import Floats

__all__ = ["as_in_the_paper", "columns_scaled", "rows_scaled"]


def as_in_the_paper(X: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return X with entries in [-1, 1] and rows no longer than 1, and y in [-1, 1]."""
    return rows_scaled(columns_scaled(X), y)


def columns_scaled(X: Floats) -> Floats:
    """Return each column over its largest magnitude; a column of zeros stays."""
    largest = np.abs(X).max(axis=0)
    return np.asarray(X / np.where(largest > 0, largest, 1.0))


def rows_scaled(X: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return all rows over the largest norm, and y over its largest magnitude."""
    norm = float(np.linalg.norm(X, axis=1).max(initial=0.0)) or 1.0
    scaled = X / norm
    # division may leave the longest row one rounding above 1
    longest = np.linalg.norm(scaled, axis=1).max(initial=0.0)
    if longest > 1.0:
        scaled = scaled * (1 - 2.0**-51)
    return np.asarray(scaled), np.asarray(y / (float(np.abs(y).max(initial=0.0)) or 1.0))
