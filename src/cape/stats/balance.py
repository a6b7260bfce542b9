"""How groups differ in a column: a P value and a standardised mean difference, both with noise counted.

A number is compared by Welch's test (`welch`), a category by the chi-square test of `independence`.
The standardised difference of a number is over the root of the mean of both variances. That of k categories
is the root of d' S^-1 d, d the difference of both groups' shares of all categories but the first and S the
mean of their covariance matrices (Yang and Dalton): with two categories the same as that of a number. Noise
adds the trace of S^-1 V to the square, V its covariance in d; it is given back. Intervals are those of a
ratio (`Standardised`), and of that square. Of more than two groups it is the largest of each two.
Tested in tests/unit/stats/test_balance.py and tests/unit/analyses/describe/test_table_one.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from cape.core.arrays import Floats
from cape.stats.independence import contrasts
from cape.stats.moments import Sums, edge, enough, present
from cape.stats.welch import Group, Pair, equal

__all__ = ["Balance", "of_categories", "of_numbers"]


_LEVEL = 0.95
_MOST = 1e3


@dataclass(frozen=True, order=True)
class _Distance:
    """A standardised difference without its sign, its standard error, and the ends of its interval."""

    value: float
    error: float
    low: float
    high: float


@dataclass(frozen=True)
class Balance:
    """How groups differ in one column; None for what noise hides.

    Attributes:
        column: its name.
        test: which test P is of.
        p_value: small if the groups differ.
        smd: the standardised mean difference, without a sign; of several groups the largest of each two.
        error: its standard error, from sampling and noise.
        interval: its 95% interval, which starts at 0 where the groups may be alike.
    """

    column: str
    test: str
    p_value: float | None
    smd: float | None
    error: float | None
    interval: tuple[float, float] | None = None


def of_numbers(column: str, sums: Sequence[Sums]) -> Balance:
    """Return how the groups with these sums differ."""
    known = [Group(each) for each in sums if present(each.count, each.count_noise)]
    overall = equal(known) if len(known) == len(sums) > 1 else None
    found: list[_Distance] = []
    for one, other in itertools.combinations(sums, 2):
        if not (one.enough and other.enough):
            continue
        ratio = Pair(Group(one), Group(other)).standardised
        if ratio is not None and ratio(_LEVEL)[1] < math.inf:
            error = math.hypot(
                ratio.error(ratio.sampled, ratio.drawn), ratio.error(ratio.blurred, ratio.noise)
            )
            low, high = ratio(_LEVEL)
            found.append(_Distance(abs(ratio.value), error, max(low, -high, 0.0), max(-low, high)))
    test = "Welch's t-test" if len(sums) == 2 else "Welch's F-test"
    p = None if overall is None else overall.p_value
    return _balance(column, test, p, found, len(sums))


def of_categories(column: str, table: Floats, noise: float) -> Balance:
    """Return how groups differ, given their counts in each category with this noise."""
    tested = contrasts(table, noise) if min(table.shape) > 1 else None
    found: list[_Distance] = []
    for one, other in itertools.combinations(table, 2):
        each = _distance(one, other, noise)
        if each is not None:
            found.append(each)
    return _balance(
        column, "chi-square test", None if tested is None else tested.test.p_value, found, len(table)
    )


def _balance(column: str, test: str, p: float | None, found: Sequence[_Distance], groups: int) -> Balance:
    if not found or len(found) < groups * (groups - 1) // 2:
        return Balance(column, test, p, None, None)
    largest = max(found)
    ends = max(each.low for each in found), max(each.high for each in found)
    return Balance(column, test, p, largest.value, largest.error, ends)


def _distance(one: Floats, other: Floats, noise: float) -> _Distance | None:
    """Return the standardised difference of shares of categories.

    Sampling and noise add the trace of S^-1 V to the square of the true one, V the covariance of d, and leave
    the variance 2 tr (S^-1 V)² in it, besides that of first order: one more share p_i of a group moves the
    square by 2 a_i - (a_i² - 2 (a'p) a_i) / 2, a = S^-1 d with the sign of the group, the second part because
    S moves too. The interval is that of the square.
    """
    cells = len(one)
    sizes = float(one.sum()), float(other.sum())
    if cells < 2 or not all(enough(size, noise * math.sqrt(cells)) for size in sizes):
        return None
    shares = [np.maximum(each, 0.0) / np.maximum(each, 0.0).sum() for each in (one, other)]
    apart = (one / sizes[0] - other / sizes[1])[1:]
    spread, blurred = np.zeros((2, cells - 1, cells - 1))
    errors = []
    for share, size in zip(shares, sizes, strict=True):
        sampled = (np.diag(share) - np.outer(share, share))[1:, 1:]
        moved = np.eye(cells)[1:] - share[1:, None]  # of the shares, by one more row in each cell
        noisy = noise**2 / size**2 * (moved @ moved.T)
        spread += sampled / 2
        blurred += noisy
        errors.append(sampled / size + noisy)
    if np.linalg.cond(spread) > 1e9:
        return None
    inverse = np.linalg.inv(spread)
    square = float(apart @ inverse @ apart)
    distance = math.sqrt(max(square - float(np.trace(inverse @ blurred)), 0.0))
    pull, steep = inverse @ apart, 0.0  # the variance of the square over the square
    for sign, share, error in zip((1, -1), shares, errors, strict=True):
        slope = 2 * sign * pull - pull**2 / 2 + float(pull @ share[1:]) * pull
        steep += float(slope @ error @ slope) / square if square > 0 else 0.0
    whole = inverse @ sum(errors)
    centre = max(square - float(np.trace(whole)), 0.0)
    bend = 2 * float(np.trace(whole @ whole))
    reach = float(ndtri((1 + _LEVEL) / 2)) ** 2

    def holds(other: float) -> bool:
        return (centre - other**2) ** 2 <= reach * (steep * other**2 + bend)

    inside, error = math.sqrt(centre), math.sqrt(steep) / 2
    return _Distance(distance, error, edge(holds, inside, 0.0), edge(holds, inside, _MOST))
