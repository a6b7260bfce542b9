"""Means, variances, standard deviations and sums of numeric columns, all from the same joint release."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from cape.analyses.columns import OfColumns
from cape.analyses.custom import CustomSum
from cape.analyses.moments import NORMAL, Sums, Weights, by_missing, kurtosis
from cape.analyses.tree import level_axes
from cape.arrays import Floats
from cape.blocks import Block, Counts, Moments
from cape.data import Number, Schema
from cape.engine.estimates import warn_of_unknown
from cape.engine.query import Answer, Estimate, Neighbours, Query

__all__ = ["Mean", "StandardDeviation", "Sum", "Variance"]

_BINS = 16  # enough to estimate a kurtosis


class _FromMoments(OfColumns):
    """One number per column from its count, sum and sum of squares, and counts in a few bins if asked for.

    Columns that never miss a cell go into a block of their own. Under replace-one their count is public
    and moves nothing; under add-remove all of them count the same rows, so their counts are averaged.

    **Sensitivity.** The root of the sum over columns of `Weights.moved`: columns move independently, so the
    supremum of the sum is the sum of the suprema, and it is attained.
    """

    @abstractmethod
    def weights(self, neighbours: Neighbours, missing: bool, columns: int) -> Weights:
        """Return the weights of the sums of each of `columns` columns."""

    @abstractmethod
    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        """Return the estimate that the sums of a column give."""

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the moments of the columns, and their counts in bins."""
        blocks: list[Block] = []
        scales: list[tuple[float, ...]] = []
        moved = 0.0
        for part in by_missing(self.columns, schema):
            missing = schema.number(part[0]).missing
            weights = self.weights(neighbours, missing, len(part))
            blocks.append(Moments(part))
            scales.append(weights.scales)
            moved += len(part) * weights.moved(neighbours, missing)
            if weights.tables:
                blocks += [Counts((level_axes(name, schema.number(name), _BINS)[-1],)) for name in part]
                scales += [(1 / math.sqrt(weights.tables),)] * len(part)
        return Query(tuple(blocks), tuple(scales), math.sqrt(moved))

    def finish(self, answer: Answer) -> list[Estimate]:
        found: dict[str, Estimate] = {}
        blocks = zip(answer.sums, answer.noise, strict=True)
        for part in by_missing(self.columns, answer.schema):
            missing = answer.schema.number(part[0]).missing
            (counts, first, second), (count_noise, first_noise, second_noise) = next(blocks)
            if not missing:
                counts, count_noise = _common(counts, count_noise, answer.rows)
            for i, name in enumerate(part):
                kurt = NORMAL
                if self.weights("replace-one", missing, len(part)).tables:
                    (in_bins,), (bin_noise,) = next(blocks)
                    kurt = kurtosis(in_bins, bin_noise)
                sums = Sums(
                    float(counts[i]),
                    float(first[i]),
                    float(second[i]),
                    count_noise,
                    first_noise,
                    second_noise,
                    kurt,
                )
                found[name] = self.estimate(name, answer.schema.number(name), sums)
        estimates = [found[name] for name in self.columns]
        warn_of_unknown(estimates)
        return estimates

    def units(self, schema: Schema) -> Sequence[float]:
        return [schema.number(name).half for name in self.columns]


def _common(counts: Floats, noise: float, rows: int | None) -> tuple[Floats, float]:
    """Return the count of columns that count the same rows: public, or the average."""
    if rows is not None:
        return np.full(len(counts), float(rows)), 0.0
    return np.full(len(counts), counts.mean()), noise / math.sqrt(len(counts))


class Mean(_FromMoments):
    """The population's mean of each column, over the cells that are not missing.

    The sampling error comes from the same release, which asks for t and t² and the count together.

    **Sensitivity** 2 sqrt(columns) under replace-one, that of the sum of t alone: the sum of squares
    (weight 1, or 11/4 where no cell is missing) and the count (weight 2) are free, see `moments`: 11/4 <=
    phi⁵/4 and 1 + 1 + 2 <= 4. Under add-remove sqrt(2 columns): weights 1, 1/4, 3/4 add up to 2; k columns
    that are never missing share the work of counting, 3/4 / sqrt(k) each.
    """

    kind: ClassVar[str] = "mean"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"]}

    def weights(self, neighbours: Neighbours, missing: bool, columns: int) -> Weights:
        if neighbours == "add-remove":
            return Weights(1.0, 0.25, 0.75 if missing else 0.75 / math.sqrt(columns))
        return Weights(1.0, 1.0, 2.0) if missing else Weights(1.0, 2.75, 1.0)

    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        return sums.mean_estimate(name, column)


class Variance(_FromMoments):
    """The population's variance of each column, over the cells that are not missing.

    The estimate is unbiased up to the cut at 0. How far a sample's variance lies from the population's
    depends on the kurtosis: it comes from counts in 16 equal bins, which are asked for with little weight,
    since it matters only where there are many rows. Where noise hides it, that of a normal population is
    taken.

    **Sensitivity** sqrt(4.5 columns) under replace-one and sqrt(4.25 columns) under add-remove: weights 1,
    5/2 and 1/2 on the sums of t, of t² and the count add up to 4, 5/2 <= phi⁵/4 (11/4 where the count is
    public), and the bins have 1/4 (see `moments`): 4 + 2/4 >= 4 + 1/4.
    """

    kind: ClassVar[str] = "variance"
    example: ClassVar[dict[str, Any]] = {"columns": ["age"]}
    shape_matters: ClassVar[bool] = True

    def weights(self, neighbours: Neighbours, missing: bool, columns: int) -> Weights:
        public = neighbours == "replace-one" and not missing
        return Weights(1.0, 2.75, 1.0, 0.25) if public else Weights(1.0, 2.5, 0.5, 0.25)

    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        return sums.variance_estimate(name, column)

    def title(self, label: str, schema: Schema) -> str:
        unit = schema.number(label).unit
        return f"{schema.label(label)} ({unit}²)" if unit else schema.label(label)

    def units(self, schema: Schema) -> Sequence[float]:
        return [half**2 for half in super().units(schema)]


class StandardDeviation(_FromMoments):
    """The population's standard deviation of each column: the root of `Variance`."""

    kind: ClassVar[str] = "standard-deviation"
    example: ClassVar[dict[str, Any]] = {"columns": ["chol"]}
    shape_matters: ClassVar[bool] = True
    weights = Variance.weights

    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        return sums.deviation_estimate(name, column)


class Sum(OfColumns):
    """The sum of each column over the people in the tables; a missing cell adds nothing.

    sum(x) = half sum(t) + middle count, from two sums that every kind of table can compute. Like a count it
    is about the people in the tables and has no sampling error. `Sum.of` sums any function of a row.

    **Sensitivity** 2 sqrt(columns) under replace-one, sqrt(columns) under add-remove. Let a and c be the
    weights of sum(t) and of the count and r = |middle| / half. One row moves a column by a + c under
    add-remove, and under replace-one by max(4 a, a + c) (see `moments`, with b = 0), or 4 a if no cell is
    missing.

    *Choice.* The noise of the sum is proportional to (one row's move) (half² / a + middle² / c). Under
    add-remove a = 1 / (1 + r), c = r / (1 + r) makes that (half + |middle|)² (Cauchy-Schwarz), which is the
    largest |x| squared: what noise on sum(x) itself would have cost. Under replace-one the same with
    4 a and 4 c if r >= 3, and a = 1, c = 3 if not: then sum(x) itself would be better by at most 4/3 in
    variance (at r = 1, bounds such as (0, b)), but only tables that can run a function could add it up.
    If no cell is missing the count is public, and half sum(t) is best.
    """

    kind: ClassVar[str] = "sum"
    example: ClassVar[dict[str, Any]] = {"columns": ["age"]}
    of: ClassVar[type[CustomSum]] = CustomSum
    """The sum over rows of any function of a row, each row clipped to an L2 norm."""

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the first moments of each column, shared out by its own bounds."""
        blocks, scales, moved = [], [], 0.0
        for name in self.columns:
            column = schema.number(name)
            weights = _sum_weights(column, neighbours)
            blocks.append(Moments((name,), squares=False))
            scales.append((1 / math.sqrt(weights.count), 1 / math.sqrt(weights.first)))
            moved += weights.moved(neighbours, column.missing)
        return Query(tuple(blocks), tuple(scales), math.sqrt(moved))

    def finish(self, answer: Answer) -> list[Estimate]:
        estimates = []
        for name, sums, noise in zip(self.columns, answer.sums, answer.noise, strict=True):
            (counts, first), (count_noise, first_noise) = sums, noise
            column = answer.schema.number(name)
            count = float(counts[0])
            if answer.rows is not None and not column.missing:
                count, count_noise = float(answer.rows), 0.0
            estimates.append(
                Estimate(
                    name,
                    column.half * float(first[0]) + column.middle * count,
                    0.0,
                    math.hypot(column.half * first_noise, column.middle * count_noise),
                )
            )
        return estimates

    def units(self, schema: Schema) -> Sequence[float]:
        return [schema.number(name).half for name in self.columns]


_LEAST_RATIO = 2.0**-10  # a count that does not matter still needs a scale; it costs 0.1%


def _sum_weights(column: Number, neighbours: Neighbours) -> Weights:
    ratio = max(abs(column.middle) / column.half, _LEAST_RATIO)
    if neighbours == "add-remove":
        return Weights(1 / (1 + ratio), 0.0, ratio / (1 + ratio))
    if ratio < 3 or not column.missing:
        return Weights(1.0, 0.0, 3.0)
    return Weights(4 / (1 + ratio), 0.0, 4 * ratio / (1 + ratio))
