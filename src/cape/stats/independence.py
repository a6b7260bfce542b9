"""Tests of independence of two columns that count privacy noise in the table that they are made from.

Claim. With margins r and c, and orthonormal u ⟂ sqrt(r), v ⟂ sqrt(c), the contrasts z = sum X_ij u_i v_j /
sqrt(n r_i c_j) of a table X with noise of this standard deviation in each cell are, under independence,
normal with mean 0 and covariance I plus that of the noise, (noise² / n) (U' diag(1/r) U) x (V' diag(1/c) V).
So z' cov^-1 z is chi-square; without noise it is Pearson's statistic. Noise of another covariance, a sum of
Kronecker products R x C, has that of (U' D R D U) x (V' E C E V) / n in the same way, D = diag(1/sqrt(r)).
Reason. Sampling leaves I (Pearson), the noise is independent of it, and its variance is known. Estimating r
and c changes z in second order only: under independence the mean of z is a product of two terms that both
vanish at the true margins.
With scores s_i and t_j of ordered categories, u_i = (s_i - mean) sqrt(r_i) / SD and v alike give one contrast
with the same covariance. Its square is n times the squared correlation of the scores: the test for trend of
Cochran and Armitage if one column has two categories.
Tested in tests/unit/stats/test_independence.py, tests/unit/analyses/test_coverage.py,
tests/unit/analyses/compare/test_association.py and by compare.size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chndtrinc

from cape.core.arrays import Floats
from cape.stats.estimates import Estimate, unknown
from cape.stats.laplace_tails import chi_square
from cape.stats.law import GAUSSIAN, Law
from cape.stats.moments import enough

__all__ = [
    "STRENGTH",
    "Contrasts",
    "Independence",
    "Strength",
    "Terms",
    "contrasts",
    "group_contrasts",
    "strength",
]

STRENGTH = "Cramer's V"
"""Its label in results."""

Terms = Sequence[tuple[Floats, Floats]]
"""The covariance of the noise in a table: a sum of products of a matrix of rows and one of columns."""


@dataclass(frozen=True)
class Independence:
    """A test of independence between two columns: a small p-value speaks against it."""

    statistic: float
    freedom: int
    p_value: float


@dataclass(frozen=True)
class Contrasts:
    """What a noisy table says of independence: contrasts, and the covariance of the noise in them.

    Attributes:
        z: the contrasts, whose covariance from sampling is 1.
        noise: the covariance of the noise in them.
        count: the sum of the table.
        least: the smaller number of categories, less one.
        more: what noise with heavier tails than a Gaussian adds to the variance of the statistic.
    """

    z: Floats
    noise: Floats
    count: float
    least: int
    more: float = 0.0

    @property
    def test(self) -> Independence:
        """The test, whose distribution under independence counts the noise."""
        statistic, freedom = self.statistic, self.z.size
        return Independence(statistic, freedom, chi_square(freedom, statistic, self.more))

    @property
    def statistic(self) -> float:
        """z' cov^-1 z."""
        return float(self.z @ np.linalg.solve(np.eye(self.z.size) + self.noise, self.z))

    @property
    def strength(self) -> float:
        """Cramér's V; what noise adds to z'z is known and given back."""
        square = float(self.z @ self.z - np.trace(self.noise))
        return min(math.sqrt(max(square, 0.0) / (self.count * self.least)), 1.0)

    @property
    def interval(self) -> Strength:
        """The interval of V."""
        values = 1 + np.linalg.eigvalsh(self.noise)
        unit = 1 / (self.count * self.least)
        ends = float(values[0]) * unit, float(values[-1]) * unit
        return Strength(self.strength, self.statistic, self.z.size, ends)


def strength(found: Contrasts | None) -> Estimate:
    """Return Cramér's V; errors are those of one contrast."""
    if found is None:
        return unknown(STRENGTH, 0.0, 1.0)
    unit = 1 / math.sqrt(found.count * found.least)
    noise = unit * math.sqrt(float(np.trace(found.noise)) / found.z.size)
    return Estimate(STRENGTH, found.strength, unit, noise, (0.0, 1.0), found.interval)


@dataclass(frozen=True)
class Strength:
    """The interval of V that the noncentrality of the statistic gives.

    That is V² over `units`, which are equal if there is no noise. With noise it lies between V² over the
    largest and over the smallest variance of a contrast; each end takes the one that widens the interval.
    """

    value: float
    statistic: float
    freedom: int
    units: tuple[float, float]

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the interval at a level."""
        tail = (1 - level) / 2
        low, high = self._end(1 - tail, self.units[0]), self._end(tail, self.units[1])
        return min(low, self.value), max(high, self.value)

    def _end(self, below: float, unit: float) -> float:
        """Return the V for which a statistic is below the one that was found with this probability."""
        if self.statistic <= 0 or chdtr(self.freedom, self.statistic) <= below:
            return 0.0
        found = float(chndtrinc(self.statistic, self.freedom, below))
        return min(math.sqrt(max(found, 0.0) * unit), 1.0)


def contrasts(
    table: Floats, noise: float | Terms, *, trend: bool = False, law: Law = GAUSSIAN
) -> Contrasts | None:
    """Return the contrasts of a table of counts, of all categories or of their order.

    `noise` is that of each cell, or the covariance of all as a sum of Kronecker products. None if noise
    leaves a row or a column of the table without a clear count, or a column has one category.

    If noise of each cell has an excess kurtosis k, the variance of the statistic is 2 freedom + k sum over
    cells of (b' cov^-1 b)², b the contrasts of one unit of noise in that cell.
    """
    shape, count = table.shape, float(table.sum())
    terms = noise if not isinstance(noise, float) else [(noise**2 * np.eye(shape[0]), np.eye(shape[1]))]
    of_margins = (
        sum(down.sum() * np.diag(across) for down, across in terms),
        sum(np.diag(down) * across.sum() for down, across in terms),
    )
    clear = all(
        enough(float(margin), math.sqrt(max(square, 0.0)))
        for axis in (0, 1)
        for margin, square in zip(table.sum(axis=axis), np.atleast_1d(of_margins[axis]), strict=True)
    )
    if not clear or min(shape) < 2:
        return None
    by_row, by_column = table.sum(axis=1) / count, table.sum(axis=0) / count
    left, right = (_scores(each) if trend else group_contrasts(each) for each in (by_row, by_column))
    z = (left.T @ table @ right / math.sqrt(count)).reshape(-1)
    blurred = sum(np.kron(left.T @ down @ left, right.T @ across @ right) for down, across in terms) / count
    more = 0.0
    if isinstance(noise, float) and not law.gaussian:
        each = noise / math.sqrt(count) * np.kron(left, right)
        own = np.linalg.solve(np.eye(z.size) + blurred, each.T)
        more = 3 / law.shape * float((np.einsum("ck,kc->c", each, own) ** 2).sum())
    return Contrasts(z, np.asarray(blurred, np.float64), count, min(shape) - 1, more)


def group_contrasts(margin: Floats) -> Floats:
    """Return columns u / sqrt(margin), for orthonormal u orthogonal to sqrt(margin)."""
    root = np.sqrt(margin)
    _, _, vectors = np.linalg.svd(root[None, :])
    return np.asarray(vectors[1:].T / root[:, None])


def _scores(margin: Floats) -> Floats:
    """Return one column: the places 0, 1, 2... with mean 0 and variance 1 under the margin."""
    places = np.arange(len(margin), dtype=np.float64)
    places -= margin @ places
    return np.asarray(places / math.sqrt(margin @ places**2))[:, None]
