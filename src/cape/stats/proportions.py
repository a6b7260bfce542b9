"""The share of a count in a total where both are noisy: intervals that count sampling and privacy noise.

For a true share p, a - p N has mean 0 and the variance N p (1 - p) from sampling plus A - 2 B p + C p² from
noise, where A and C are the variances of the noise in a and in N and B is their covariance. The p for which
a - p N lies within q standard errors solve a quadratic: without noise it is Wilson's interval, without
sampling Fieller's. Where noise could make N zero, the interval is [0, 1].
Tested in tests/unit/stats/test_proportions.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtri

from cape.stats.laplace_tails import stretched
from cape.stats.law import GAUSSIAN, Law

__all__ = ["Share", "apart", "proportion_error", "quantile"]


def quantile(level: float) -> float:
    """Return how many standard errors a normal interval reaches."""
    return float(ndtri((1 + level) / 2))


@dataclass(frozen=True)
class Share:
    """A noisy count `part` among the noisy `whole`, with the variances and the covariance of their noise."""

    part: float
    whole: float
    of_part: float
    of_both: float
    of_whole: float
    law: Law = GAUSSIAN

    @classmethod
    def of(
        cls,
        part: float,
        whole: float,
        noise: float,
        cells: int,
        table: int | None = None,
        law: Law = GAUSSIAN,
    ) -> Share:
        """Return the share of one cell among `cells` that add up to `whole`, with this noise in each.

        `table` is the number of cells of a table that was brought to a public total: the noise s² I of its
        cells is then s² (I - J / table), J the matrix of ones.
        """
        tied = 0.0 if table is None else 1 / table
        square = noise**2
        p = min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.5
        return cls(
            min(max(part, 0.0), whole),
            whole,
            square * (1 - tied),
            square * (1 - cells * tied),
            square * cells * (1 - cells * tied),
            law.combined(1 - p, *[p] * (cells - 1)) if p < 1 else law,
        )

    @property
    def value(self) -> float:
        """The share, which lies in [0, 1]."""
        return self.part / self.whole

    @property
    def noise(self) -> float:
        """Its privacy error, that of a ratio, to first order."""
        p = self.value
        return math.sqrt(max(self.of_part - 2 * self.of_both * p + self.of_whole * p * p, 0.0)) / self.whole

    @property
    def sampling(self) -> float:
        """Its sampling error."""
        return proportion_error(self.value, self.whole)

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the interval of the population's share: Wilson's, with noise."""
        return self._solved(self._reach(level, self.sampling), self.whole)

    def noisy(self, level: float) -> tuple[float, float]:
        """Return the interval of the share among these very people, which counts noise only: Fieller's."""
        return self._solved(self._reach(level, 0.0), 0.0)

    def _reach(self, level: float, sampling: float) -> float:
        """Return how many standard errors an interval reaches."""
        return quantile(level) * float(stretched(self.law, level, self.noise, sampling))

    def _solved(self, q: float, drawn: float) -> tuple[float, float]:
        """Return the p with (part - p whole)² <= q² (drawn p (1 - p) + noise)."""
        a, n, q2 = self.part, self.whole, q * q
        leading = n * n + q2 * (drawn - self.of_whole)
        if leading <= 0:
            return 0.0, 1.0
        middle = (a * n + q2 * (drawn / 2 - self.of_both)) / leading
        rest = (a * a - q2 * self.of_part) / leading
        reach = math.sqrt(max(middle * middle - rest, 0.0))
        low, high = max(middle - reach, 0.0), min(middle + reach, 1.0)
        return min(low, self.value), max(high, self.value)


def apart(
    one: Share,
    other: Share,
    level: float,
    of: Callable[[float], float],
    drawn: Callable[[Share], float],
    correlation: float = 0.0,
) -> tuple[float, float]:
    """Return an interval of of(p) - of(p') for a rising function of the shares of two groups.

    The distances of each end from the estimate add up in squares (Zou and Donner's MOVER). That of a group is
    q sqrt(drawn) from sampling, the usual one, and from noise what `Share.noisy` makes of it: no ratio of
    normals is approximated. An end that noise leaves open is infinite. `correlation` is that of the noise in
    the two shares: distances x and y from noise are then x² + y² - 2 correlation x y.
    """
    q = quantile(level)
    sampled = q * q * (drawn(one) + drawn(other))

    def reach(end: float, other_end: float) -> float:
        x, y = abs(_at(of, end) - of(one.value)), abs(_at(of, other_end) - of(other.value))
        both = 2 * correlation * x * y if correlation else 0.0
        return math.inf if math.isinf(x + y) else math.sqrt(max(sampled + x * x + y * y - both, sampled))

    apart = of(one.value) - of(other.value)
    (low, high), (other_low, other_high) = one.noisy(level), other.noisy(level)
    return apart - reach(low, other_high), apart + reach(high, other_low)


def _at(of: Callable[[float], float], end: float) -> float:
    """Return of(end), infinite where a logarithm of 0 is."""
    try:
        return of(end)
    except (ValueError, ZeroDivisionError):
        return -math.inf if end < 0.5 else math.inf


def proportion_error(proportion: float, count: float) -> float:
    """Return the sampling error of a proportion, never 0: two more of each kind (Agresti and Coull)."""
    drawn = (count * proportion + 2) / (count + 4)
    return math.sqrt(drawn * (1 - drawn) / (count + 4))
