"""Noisy sums of columns, of their squares and of the products of each two: variances and covariances.

Columns are scaled to [-1, 1], and all sums are over the same rows. The noise of a covariance or a correlation
is that of its sums to first order. Tested in tests/unit/stats/test_product_sums.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cape.core.arrays import Floats
from cape.stats.matrices import nearest_positive, symmetric
from cape.stats.moments import Sums

__all__ = ["ProductSums"]

_CLEAR = 2.0  # noise in a variance, in standard deviations, that it must exceed for a correlation


@dataclass(frozen=True)
class ProductSums:
    """Noisy sums of scaled columns, and the noise in each array.

    Attributes:
        count: how many rows there are.
        first, square, cross: the sums of t, of t², and of the products above the diagonal, row by row.
        spreads: the variances of influences of rows on covariances, by pair, where they were asked for.
    """

    count: float
    first: Floats
    square: Floats
    cross: Floats
    count_noise: float
    first_noise: float
    square_noise: float
    cross_noise: float
    spreads: dict[tuple[int, int], float] = field(default_factory=dict)

    def column(self, i: int) -> Sums:
        """Return the sums of one column."""
        return Sums(
            self.count,
            float(self.first[i]),
            float(self.square[i]),
            self.count_noise,
            self.first_noise,
            self.square_noise,
        )

    def box(self, i: int) -> tuple[float, float]:
        """Return where a column lies about its mean."""
        return -1.0 - float(self.means[i]), 1.0 - float(self.means[i])

    def fitted(self, i: int) -> Sums:
        """Return the sums of one column with the t² that give the variance of the fitted matrix.

        Its kurtosis is what the variance of the influence says, where that was asked for.
        """
        column = self.column(i)
        spread = float(self.covariance[i, i]) * (1 - 1 / self.count)
        mean, bias = column.first / self.count, (self.first_noise / self.count) ** 2
        fitted = replace(column, second=self.count * (spread + mean**2 - bias))
        if (i, i) not in self.spreads or fitted.likely_variance <= 0:
            return fitted
        return replace(fitted, kurtosis=1 + self.spreads[i, i] / fitted.likely_variance**2)

    @property
    def means(self) -> Floats:
        """The means, within [-1, 1]."""
        return np.clip(self.first / self.count, -1.0, 1.0)

    @cached_property
    def covariance(self) -> Floats:
        """The nearest covariance matrix: unbiased estimates, negative eigenvalues put to 0."""
        above = np.triu_indices(len(self.first), 1)
        products = self.cross / self.count - self.means[above[0]] * self.means[above[1]]
        variances = np.array([self.column(i).variance for i in range(len(self.first))])
        return nearest_positive(symmetric(variances, products * self.count / (self.count - 1)))

    def noise(self, i: int, j: int, product: float, slopes: tuple[float, float]) -> float:
        """Return the noise of f = product cov(i, j) + slopes · (var(i), var(j)), to first order."""
        mi, mj = float(self.means[i]), float(self.means[j])
        a, b = slopes
        at = self.cross[_place(i, j, len(self.first))] / self.count
        squares = self.square[[i, j]] / self.count
        by_count = product * (2 * mi * mj - at) + a * (2 * mi**2 - squares[0]) + b * (2 * mj**2 - squares[1])
        return (
            math.hypot(
                product * self.cross_noise,
                (product * mj + 2 * a * mi) * self.first_noise,
                (product * mi + 2 * b * mj) * self.first_noise,
                a * self.square_noise,
                b * self.square_noise,
                float(by_count) * self.count_noise,
            )
            / self.count
        )

    def clear(self, i: int, j: int) -> bool:
        """Return whether the variances of both columns stand out from their noise."""
        columns = [self.column(k) for k in (i, j)]
        return all(each.variance > max(_CLEAR * each.variance_noise, 1e-12) for each in columns)

    def correlated(self, i: int, j: int) -> tuple[float, float, float]:
        """Return two variances and the correlation."""
        vi, vj, product = (float(self.covariance[place]) for place in ((i, i), (j, j), (i, j)))
        return vi, vj, min(max(product / math.sqrt(vi * vj), -1.0), 1.0)


def _place(i: int, j: int, width: int) -> int:
    """Return where the product of columns i < j stands above the diagonal, row by row."""
    return i * width - i * (i + 1) // 2 + j - i - 1
