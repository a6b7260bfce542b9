"""How groups differ in a column: a P value and a standardised mean difference, both with noise counted.

A number is compared by Welch's test (`welch`), a category by the chi-square test of `independence`.
The standardised difference of a number is over the root of the mean of both variances. That of k categories
is the root of d' S^-1 d, d the difference of both groups' shares of all categories but the first and S the
mean of their covariance matrices (Yang and Dalton): with two categories the same as that of a number. Noise
adds the trace of S^-1 V to the square, V its covariance in d; it is given back. Of more than two groups it is
the largest of each two.
Tested in tests/unit/stats/test_balance.py and tests/unit/analyses/describe/test_table_one.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.core.arrays import Floats
from cape.stats.independence import contrasts
from cape.stats.moments import Sums, enough, present
from cape.stats.welch import Group, Pair, equal

__all__ = ["Balance", "of_categories", "of_numbers"]


@dataclass(frozen=True)
class Balance:
    """How groups differ in one column; None for what noise hides.

    Attributes:
        column: its name.
        test: which test P is of.
        p_value: small if the groups differ.
        smd: the standardised mean difference, without a sign; of several groups the largest of each two.
        error: its standard error, from sampling and noise.
    """

    column: str
    test: str
    p_value: float | None
    smd: float | None
    error: float | None


def of_numbers(column: str, sums: Sequence[Sums]) -> Balance:
    """Return how the groups with these sums differ."""
    known = [Group(each) for each in sums if present(each.count, each.count_noise)]
    overall = equal(known) if len(known) == len(sums) > 1 else None
    found: list[tuple[float, float]] = []
    for one, other in itertools.combinations(sums, 2):
        if not (one.enough and other.enough):
            continue
        ratio = Pair(Group(one), Group(other)).standardised
        if ratio is not None and ratio(0.95)[1] < math.inf:
            error = math.hypot(
                ratio.error(ratio.sampled, ratio.drawn), ratio.error(ratio.blurred, ratio.noise)
            )
            found.append((abs(ratio.value), error))
    test = "Welch's t-test" if len(sums) == 2 else "Welch's F-test"
    p = None if overall is None else overall.p_value
    return _balance(column, test, p, found, len(sums))


def of_categories(column: str, table: Floats, noise: float) -> Balance:
    """Return how groups differ, given their counts in each category with this noise."""
    tested = contrasts(table, noise) if min(table.shape) > 1 else None
    found: list[tuple[float, float]] = []
    for one, other in itertools.combinations(table, 2):
        each = _distance(one, other, noise)
        if each is not None:
            found.append(each)
    return _balance(
        column, "chi-square test", None if tested is None else tested.test.p_value, found, len(table)
    )


def _balance(
    column: str, test: str, p: float | None, found: Sequence[tuple[float, float]], groups: int
) -> Balance:
    if not found or len(found) < groups * (groups - 1) // 2:
        return Balance(column, test, p, None, None)
    smd, error = max(found)
    return Balance(column, test, p, smd, error)


def _distance(one: Floats, other: Floats, noise: float) -> tuple[float, float] | None:
    """Return the standardised difference of shares of categories, and its error."""
    cells = len(one)
    sizes = float(one.sum()), float(other.sum())
    if cells < 2 or not all(enough(size, noise * math.sqrt(cells)) for size in sizes):
        return None
    shares = [np.maximum(each, 0.0) / np.maximum(each, 0.0).sum() for each in (one, other)]
    apart = (one / sizes[0] - other / sizes[1])[1:]
    spread, doubt, blurred = np.zeros((3, cells - 1, cells - 1))
    for share, size in zip(shares, sizes, strict=True):
        sampled = (np.diag(share) - np.outer(share, share))[1:, 1:]
        moved = np.eye(cells)[1:] - share[1:, None]  # of the shares, by one more row in each cell
        spread += sampled / 2
        doubt += sampled / size
        blurred += noise**2 / size**2 * (moved @ moved.T)
    if np.linalg.cond(spread) > 1e9:
        return None
    inverse = np.linalg.inv(spread)
    square = float(apart @ inverse @ apart)
    distance = math.sqrt(max(square - float(np.trace(inverse @ blurred)), 0.0))
    slope = inverse @ apart / math.sqrt(square) if square > 0 else np.zeros(cells - 1)
    return distance, math.sqrt(float(slope @ (doubt + blurred) @ slope))
