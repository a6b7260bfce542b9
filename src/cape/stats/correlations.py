"""Correlations of noisy sums, or of ranks in noisy tables: tests and intervals that count the noise.

Claim. For independent columns U, the sum of products about the means (of values, or of ranks), over the root
of its estimated variance, is as large as it is found with probability P.
Reason. Sampling leaves U the variance S = Q Q' / (n - 1) with Q and Q' the sums of squares about the means,
whatever the distributions (the permutation variance). Noise adds

- to U of values the variance N² = p² + (m² + m'²) s² + (m m' c)² + (s² / n)², p, s and c the noise in the sum
  of products, in sums and in the count, m and m' the means;
- to U of ranks N² = s² sum(r²) sum(r'²), s the noise in each cell, r and r' the mid-ranks of bins less their
  mean, over n. Noise in the margins moves the ranks of a whole bin, which under independence changes U in
  second order only; the noise of a cell moves its own bin's rank, and U by -2 s² sum(r) sum(r') / n in the
  mean, which is taken off.

Q and Q' are known through noise. P is the mean, over Q and Q' as noise draws them with a fixed seed, of the
chance that a normal U exceeds what was found: N² is known, and an estimate of N² + S is never far below it.
Without noise P is that of Student's t with n - 2 degrees of freedom, as everywhere.
Tested in tests/unit/stats/test_correlations.py, tests/unit/analyses/compare/test_correlation_test.py and by
compare.size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtr

from cape.core.arrays import Floats
from cape.stats.estimates import Estimate, unknown
from cape.stats.independence import Independence
from cape.stats.moments import edge, enough
from cape.stats.product_sums import ProductSums
from cape.stats.proportions import quantile
from cape.stats.simulation import normals

__all__ = ["CorrelationInterval", "Products", "rank_products"]

_SEED = 21


def products(matrix: ProductSums) -> Products | None:
    """Return the products of two columns about their means; None if there are no more than three rows."""
    if matrix.count <= 3:
        return None
    n, (one, other) = matrix.count, (matrix.column(i) for i in range(2))
    means = one.first / n, other.first / n
    noise = math.hypot(
        matrix.cross_noise,
        math.hypot(*means) * matrix.first_noise,
        means[0] * means[1] * matrix.count_noise,
        matrix.first_noise**2 / n,
    )
    variances = one.variance, other.variance
    slopes = 0.0
    if min(variances) > 0:
        root = math.sqrt(variances[0] * variances[1])
        value = float(matrix.cross[0]) / n - means[0] * means[1]
        at = min(max(value / root, -1.0), 1.0)
        slopes = matrix.noise(0, 1, 1 / root, (-at / (2 * variances[0]), -at / (2 * variances[1])))
    return Products(
        float(matrix.cross[0]) - n * means[0] * means[1],
        n,
        ((n - 1) * one.variance, (n - 1) * other.variance),
        ((n - 1) * one.likely_variance, (n - 1) * other.likely_variance),
        ((n - 1) * one.variance_noise, (n - 1) * other.variance_noise),
        noise,
        slopes,
    )


def rank_products(counts: Floats, noise: float) -> Products | None:
    """Return the products of mid-ranks about their mean, over n, of a table of counts.

    None if noise hides how many rows there are, or there are no more than three.
    """
    n = float(counts.sum())
    if n <= 3 or not enough(n, noise * math.sqrt(counts.size)):
        return None
    margins = [counts.sum(axis=1 - axis) / n for axis in (0, 1)]
    ranks = [np.cumsum(margin) - margin / 2 - 0.5 for margin in margins]
    shift = -2 * noise**2 / n * math.prod(float(rank.sum()) for rank in ranks)
    product = float(ranks[0] @ counts @ ranks[1]) - shift
    spreads, blurs, slopes = [], [], []
    for axis, margin in enumerate(margins):
        cubes = float((margin**3).sum())
        slope = (cubes - margin**2) / 4 / n  # of the variance of ranks, by one more row in a bin
        spreads.append(max((1 - cubes) / 12, 0.0))
        blurs.append(noise * math.sqrt(counts.shape[1 - axis]) * float(np.linalg.norm(slope)))
        slopes.append(slope)
    blurred = noise * float(np.linalg.norm(ranks[0])) * float(np.linalg.norm(ranks[1]))
    squares = n * spreads[0], n * spreads[1]
    error = _rank_error(counts, ranks, spreads, slopes, noise) if min(spreads) > 0 else 0.0
    return Products(product, n, squares, squares, (n * blurs[0], n * blurs[1]), blurred, error, ranked=True)


def _rank_error(
    counts: Floats, ranks: Sequence[Floats], spreads: Sequence[float], slopes: Sequence[Floats], noise: float
) -> float:
    """Return the privacy error of a rank correlation, to first order.

    One more row in a cell adds the product of its ranks, moves the ranks of all bins, and the variances.
    """
    n = float(counts.sum())
    held = counts @ ranks[1], counts.T @ ranks[0]
    moved = []
    for own, rank in zip(held, ranks, strict=True):
        above = own.sum() - np.cumsum(own) + own / 2
        moved.append((above - float(own @ (rank + 0.5))) / n)
    root = math.sqrt(spreads[0] * spreads[1])
    value = float(ranks[0] @ counts @ ranks[1]) / (n * root)
    product = np.outer(*ranks) + moved[0][:, None] + moved[1][None, :]
    by_size = 1 / n + slopes[0][:, None] / (2 * spreads[0]) + slopes[1][None, :] / (2 * spreads[1])
    return noise * float(np.linalg.norm(product / (n * root) - value * by_size))


@dataclass(frozen=True)
class Products:
    """The sum of products of two columns about their means, and what is known of it.

    Attributes:
        squares: the sums of squares about the means; `likely` are those that sampling errors count on.
        doubt: the noise in them.
        noise: in the sum of products, for independent columns.
        error: the privacy error of the correlation.
    """

    product: float
    count: float
    squares: tuple[float, float]
    likely: tuple[float, float]
    doubt: tuple[float, float]
    noise: float
    error: float
    ranked: bool = False

    @property
    def value(self) -> float | None:
        """The correlation; None if noise could have made a sum of squares."""
        if any(square <= 2 * doubt for square, doubt in zip(self.squares, self.doubt, strict=True)):
            return None
        return min(max(self.product / math.sqrt(math.prod(self.squares)), -1.0), 1.0)

    def estimate(self, label: str) -> Estimate:
        """Return the correlation, unknown where noise could have made a sum of squares."""
        value = self.value
        if value is None:
            return unknown(label, -1.0, 1.0)
        at = _Fisher(value, self.error, self.count, self.ranked)
        return Estimate(label, value, at.sampling, self.error, (-1.0, 1.0), at)

    @property
    def test(self) -> Independence | None:
        """The test that the columns are independent; None if nothing varies."""
        drawn = math.prod(self.squares) / (self.count - 1)
        if self.noise == 0:
            if drawn <= 0:
                return None
            value = self.product / math.sqrt(math.prod(self.squares))
            t = value * math.sqrt((self.count - 2) / max(1 - value**2, 1e-300))
            return Independence(t * t, 1, float(2 * stdtr(self.count - 2, -abs(t))))
        known = self.noise**2
        statistic = self.product**2 / (known + drawn)
        blurred = self.likely + np.array(self.doubt) * normals(_SEED, 2)
        estimated = known + np.maximum(blurred, 0.0).prod(axis=1) / (self.count - 1)
        true = known + math.prod(self.likely) / (self.count - 1)
        p = float(np.mean(2 * ndtr(-np.sqrt(statistic * estimated / true))))
        return Independence(statistic, 1, p)


@dataclass(frozen=True)
class _Fisher:
    """The correlations from which sampling, by Fisher's z, and noise lead to the one that was found.

    From r, sampling leads within q / sqrt(n - 3) of atanh r (for ranks sqrt(1 + r²/2) times that, r as it was
    found: Bonett and Wright), and noise adds its own distance, in squares. Without noise that is Fisher's
    interval.
    """

    value: float
    noise: float
    count: float
    ranked: bool

    def __call__(self, level: float) -> tuple[float, float]:
        q = quantile(level)

        def holds(r: float) -> bool:
            there = math.copysign(1.0, self.value - r)
            drawn = self._reach(r, there * q) - r
            return abs(self.value - r) <= math.hypot(drawn, q * self.noise)

        return edge(holds, self.value, -1.0), edge(holds, self.value, 1.0)

    @property
    def sampling(self) -> float:
        """The sampling error."""
        return (self._reach(self.value, 1.0) - self._reach(self.value, -1.0)) / 2

    def _reach(self, r: float, q: float) -> float:
        if abs(r) >= 1:
            return r
        wider = math.sqrt(1 + self.value**2 / 2) if self.ranked else 1.0
        return math.tanh(math.atanh(r) + q * wider / math.sqrt(max(self.count - 3, 1.0)))


@dataclass(frozen=True)
class CorrelationInterval:
    """The correlations r with |value - r| <= z sqrt(factor² (1 - r²)² / (count - 1) + noise²).

    The sampling error is taken at r, as in Fisher's z, and noise, which does not shrink near 1, is counted
    beside it.
    """

    value: float
    noise: float
    factor: float  # how many times as large the sampling error is as a normal population's
    count: float

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the interval at a level."""
        z = float(ndtri((1 + level) / 2))

        def holds(r: float) -> bool:
            sampled = self.factor * (1 - r * r) / math.sqrt(self.count - 1)
            return abs(self.value - r) <= z * math.hypot(sampled, self.noise)

        return edge(holds, self.value, -1.0), edge(holds, self.value, 1.0)
