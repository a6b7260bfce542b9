"""Noisy counts made whole numbers that add up, as a table in print must.

With equal noise in each count, the nearest counts that are not negative and add up to a total are
`added_up`: least squares over a simplex, the most likely counts given the noise. Where some rows may be in
none of the cells, the total is only a limit, and what it leaves is the rest. `whole` rounds such numbers so
that their sum stays: each down, and those with the largest remainders up.
All of it is post-processing of released numbers.
Tested in tests/unit/stats/test_integer_totals.py.
"""

from __future__ import annotations

import numpy as np

from cape.core.arrays import Floats, Integers

__all__ = ["added_up", "at_most", "whole"]


def added_up(counts: Floats, total: float) -> Floats:
    """Return the nearest numbers that are not negative and add up to a total of at least 0."""
    falling = np.sort(counts)[::-1]
    above = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(falling > above)[-1]) if (falling > above).any() else 0
    found: Floats = np.maximum(counts - above[last], 0.0)
    return found * (total / found.sum()) if found.sum() > 0 else np.full(len(counts), total / len(counts))


def at_most(counts: Floats, total: float) -> Floats:
    """Return the nearest numbers that are not negative and add up to at most a total."""
    positive: Floats = np.maximum(counts, 0.0)
    return positive if positive.sum() <= total else added_up(counts, total)


def whole(numbers: Floats) -> Integers:
    """Return whole numbers next to these, whose sum is next to theirs."""
    down = np.floor(numbers + 1e-9)
    short = round(float(numbers.sum() - down.sum()))
    found = down.astype(np.int64)
    if short > 0:
        found[np.argsort(down - numbers, kind="stable")[:short]] += 1
    return found
