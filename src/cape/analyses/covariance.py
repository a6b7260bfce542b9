"""Covariances and correlations of numeric columns, over the rows where none of them is missing.

Claim. With k columns, weight 1 on each sum of t and of t², weight 2 on each sum of products (so that both
halves of the symmetric matrix count) and weight c on the number of rows, one row moves the sums, each
divided by its scale, by at most the root of `moved`.
Reason. Let x, y in [-1, 1]^k be two rows, A = ||x||² <= k, B = ||y||² <= k and s = x·y. The sums of t move by
||x - y||² = A + B - 2 s, squared; those of products, off-diagonals counted twice, by the Frobenius norm
||xx' - yy'||² = A² + B² - 2 s².

- *Replaced*: A + B + A² + B² - 2 s - 2 s² <= 2 k + 2 k² + 1/2 = 2 (k + 1/2)², the last two terms being
  largest at s = -1/2. Two corners of the cube have s of the parity of k, so s = 0 or s = -1 reaches 2 k + 2
  k²: the bound is loose by 1/4 in (k + 1/2)², 2% of the sensitivity at k = 2 and less above.
- *Added or removed, or replaced by an incomplete row*: A + A² + c <= k + k² + c, at a corner. Under
  replace-one the count is therefore free with c = k² + k + 1/2. If no cell is ever missing the count is
  public.

*Choice.* A covariance is (sum of products) / n - (product of the means); for weight a on the first moments
its noise variance is proportional to (one row's move) (1/2 + (m_i² + m_j²) / a). With a = 1 that is near its
least for means of t around 0.3 to 0.5, and (1 + 1 / (2 k))² times its least for means of 0.
Rounding toward zero maps the cube into itself. Tested in tests/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from cape.analyses.columns import OfColumns
from cape.analyses.matrices import nearest_positive, symmetric
from cape.analyses.moments import Sums, likely
from cape.arrays import Floats
from cape.blocks import Gram
from cape.data import Schema
from cape.engine.estimates import unknown, warn_of_unknown
from cape.engine.query import Answer, Estimate, Neighbours, Query

__all__ = ["Correlation", "Covariance", "moved"]


_CLEAR = 2.0  # noise in a variance, in standard deviations, that it must exceed for a correlation
_HALVINGS = 60


def moved(columns: int, neighbours: Neighbours) -> float:
    """Return the most that one row changes the sums, squared: proof at the head of the module."""
    return 2 * (columns + 0.5) ** 2 if neighbours == "replace-one" else columns**2 + columns + 1.0


def _count_weight(columns: int, neighbours: Neighbours) -> float:
    return columns**2 + columns + 0.5 if neighbours == "replace-one" else 1.0


@dataclass(frozen=True)
class _Matrix:
    """Noisy moments of scaled columns, and the noise in each array."""

    count: float
    first: Floats
    square: Floats
    cross: Floats
    count_noise: float
    first_noise: float
    square_noise: float
    cross_noise: float

    def column(self, i: int) -> Sums:
        return Sums(
            self.count,
            float(self.first[i]),
            float(self.square[i]),
            self.count_noise,
            self.first_noise,
            self.square_noise,
        )

    def fitted(self, i: int) -> Sums:
        """Return the sums of one column with the t² that give the variance of the fitted matrix."""
        column = self.column(i)
        spread = float(self.covariance[i, i]) * (1 - 1 / self.count)
        mean, bias = column.first / self.count, (self.first_noise / self.count) ** 2
        return replace(column, second=self.count * (spread + mean**2 - bias))

    @property
    def means(self) -> Floats:
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


def _place(i: int, j: int, width: int) -> int:
    """Return where the product of columns i < j stands above the diagonal, row by row."""
    return i * width - i * (i + 1) // 2 + j - i - 1


class _FromGram(OfColumns):
    least: ClassVar[int] = 2

    @abstractmethod
    def pair(self, matrix: _Matrix | None, i: int, j: int, schema: Schema) -> Estimate:
        """Return the estimate for two columns, or for one if both are the same."""

    @property
    @abstractmethod
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of columns, by place, that are reported."""

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        for name in self.columns:
            schema.number(name)
        width = len(self.columns)
        scales = (1 / math.sqrt(_count_weight(width, neighbours)), 1.0, 1.0, 1 / math.sqrt(2))
        return Query((Gram(self.columns),), (scales,), math.sqrt(moved(width, neighbours)))

    def finish(self, answer: Answer) -> list[Estimate]:
        count, count_noise = answer.complete_rows(self.columns)
        (_, first, square, cross), (_, *noise) = answer.sums[0], answer.noise[0]
        matrix = _Matrix(count, first, square, cross, count_noise, *noise)
        known = matrix if matrix.column(0).enough else None
        estimates = [self.pair(known, i, j, answer.schema) for i, j in self.pairs]
        warn_of_unknown(estimates)
        return estimates

    def title(self, label: str, schema: Schema) -> str:
        first, between, second = label.partition(", ")
        return f"{schema.label(first)}, {schema.title(second)}" if between else schema.title(label)


class Covariance(_FromGram):
    """The population's covariance matrix, over the rows where no named column is missing.

    The estimate is made positive semidefinite by setting negative eigenvalues, which only noise can cause,
    to 0: this is the nearest such matrix. Sampling errors are those of a normal population.

    **Sensitivity** sqrt(2) (k + 1/2) for k columns under replace-one, sqrt(k² + k + 1) under add-remove:
    `moved`.
    """

    kind: ClassVar[str] = "covariance"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"]}
    shape_matters: ClassVar[bool] = True

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations_with_replacement(range(len(self.columns)), 2))

    def pair(self, matrix: _Matrix | None, i: int, j: int, schema: Schema) -> Estimate:
        a, b = (schema.number(self.columns[k]) for k in (i, j))
        unit = a.half * b.half
        label = (
            f"{self.columns[i]} variance" if i == j else f"{self.columns[i]}, {self.columns[j]} covariance"
        )
        if matrix is None:
            return unknown(label, 0.0 if i == j else -unit, unit)
        if i == j:
            return matrix.fitted(i).variance_estimate(label, a)
        value = min(max(float(matrix.covariance[i, j]), -1.0), 1.0)
        spread = matrix.column(i).likely_variance * matrix.column(j).likely_variance + value**2
        sampling = math.sqrt(spread / (matrix.count - 1))
        privacy = math.hypot(matrix.noise(i, j, 1.0, (0.0, 0.0)), (matrix.first_noise / matrix.count) ** 2)
        return Estimate(label, unit * value, unit * sampling, unit * privacy, (-unit, unit))

    def units(self, schema: Schema) -> list[float]:
        halves = [schema.number(name).half for name in self.columns]
        return [halves[i] * halves[j] for i, j in self.pairs]


class Correlation(_FromGram):
    """The population's correlations, over the rows where no named column is missing.

    From the same release as `Covariance`, and positive semidefinite like it. The interval holds the
    correlations r with |estimate - r| <= z sqrt((1 - r²)² / (n - 1) + noise²): the sampling error is taken
    at r, as in Fisher's z, and noise, which does not shrink near 1, is counted beside it.

    **Sensitivity** sqrt(2) (k + 1/2) for k columns under replace-one, sqrt(k² + k + 1) under add-remove:
    `moved`.
    """

    kind: ClassVar[str] = "correlation"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"]}
    shape_matters: ClassVar[bool] = True

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.columns)), 2))

    def pair(self, matrix: _Matrix | None, i: int, j: int, schema: Schema) -> Estimate:
        label = f"{self.columns[i]}, {self.columns[j]} correlation"
        if matrix is None or not all(
            matrix.column(k).variance > max(_CLEAR * matrix.column(k).variance_noise, 1e-12) for k in (i, j)
        ):
            return unknown(label, -1.0, 1.0)
        covariance = matrix.covariance
        vi, vj = float(covariance[i, i]), float(covariance[j, j])
        root = math.sqrt(vi * vj)
        value = min(max(float(covariance[i, j]) / root, -1.0), 1.0)
        noise = matrix.noise(i, j, 1 / root, (-value / (2 * vi), -value / (2 * vj)))
        apart = likely(1 - abs(value), noise)  # from 1, which noise may have cut it to
        sampling = apart * (2 - apart) / math.sqrt(matrix.count - 1)
        return Estimate(
            label, value, sampling, noise, (-1.0, 1.0), _CorrelationInterval(value, noise, matrix.count)
        )


@dataclass(frozen=True)
class _CorrelationInterval:
    value: float
    noise: float
    count: float

    def __call__(self, level: float) -> tuple[float, float]:
        z = float(ndtri((1 + level) / 2))

        def holds(r: float) -> bool:
            sampled = (1 - r * r) / math.sqrt(self.count - 1)
            return abs(self.value - r) <= z * math.hypot(sampled, self.noise)

        return _edge(holds, self.value, -1.0), _edge(holds, self.value, 1.0)


def _edge(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return where a condition that holds at `inside` ceases to, on the way to `outside`."""
    if holds(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
