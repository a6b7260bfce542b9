"""Means, variances, standard deviations and sums of numeric columns, all from the same joint release."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.by_group import ByGroup
from cape.analyses.columns import OfColumns
from cape.analyses.describe.custom import CustomSum
from cape.analyses.influence import STAGES, Influence, spreads, squares
from cape.analyses.moments import Weights, apart, by_missing
from cape.blocks import Block, Design, Form, Moments
from cape.blocks.terms import quoted
from cape.core.arrays import Floats
from cape.data import Number, Schema
from cape.engine.query import Answer, Conversation, Neighbours, Query
from cape.stats.estimates import Estimate, warn_of_unknown
from cape.stats.laplace_tails import coarse
from cape.stats.moments import Sums

__all__ = ["Mean", "StandardDeviation", "Sum", "Variance"]


@dataclass(frozen=True, init=False)
class _FromMoments(ByGroup, OfColumns):
    """One number per column from its count, sum and sum of squares.

    Columns that never miss a cell go into a block of their own. Under replace-one their count is public
    and moves nothing; under add-remove all of them count the same rows, so their counts are averaged.

    **Sensitivity.** The root of the sum over columns of `Weights.moved`: columns move independently, so the
    supremum of the sum is the sum of the suprema, and it is attained. So it is in the L1 norm, with
    `Weights.moved_l1`; where a later stage has no bound in that norm, none is stated for the first.
    """

    @abstractmethod
    def weights(self, neighbours: Neighbours, missing: bool, columns: int) -> Weights:
        """Return the weights of the sums of each of `columns` columns."""

    @abstractmethod
    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        """Return the estimate that the sums of a column give."""

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the moments of the columns."""
        blocks: list[Block] = []
        scales: list[tuple[float, ...]] = []
        moved, l1 = 0.0, 0.0
        for part in by_missing(self.columns, schema):
            missing = schema.number(part[0]).missing
            weights = self.weights(neighbours, missing, len(part))
            blocks.append(Moments(part))
            scales.append(weights.scales)
            moved += len(part) * weights.moved(neighbours, missing)
            l1 += len(part) * weights.moved_l1(neighbours, missing)
        return Query(
            tuple(blocks), tuple(scales), math.sqrt(moved), l1=l1 if len(self.stages()) == 1 else None
        )

    def apart(self, query: Query) -> float:
        return apart(query) or super().apart(query)  # of a later stage's squares

    def finish(self, answer: Answer) -> list[Estimate]:
        return self.estimates(self.sums(answer), answer.schema)

    def estimates(self, sums: Mapping[str, Sums], schema: Schema) -> list[Estimate]:
        """Return the estimate of each column, and warn of those that noise hides."""
        estimates = [self.estimate(name, schema.number(name), sums[name]) for name in self.columns]
        warn_of_unknown(estimates)
        return estimates

    def sums(self, answer: Answer) -> dict[str, Sums]:
        """Return the noisy sums of each column."""
        found: dict[str, Sums] = {}
        blocks = zip(answer.sums, answer.noise, strict=True)
        for part in by_missing(self.columns, answer.schema):
            missing = answer.schema.number(part[0]).missing
            (counts, first, second), (count_noise, first_noise, second_noise) = next(blocks)
            if not missing:
                counts, count_noise = _common(counts, count_noise, answer.rows)
            for i, name in enumerate(part):
                found[name] = Sums(
                    float(counts[i]),
                    float(first[i]),
                    float(second[i]),
                    count_noise,
                    first_noise,
                    second_noise,
                    law=answer.law,
                )
        return found

    def units(self, schema: Schema) -> Sequence[float]:
        return [schema.number(name).half for name in self.columns]


def _common(counts: Floats, noise: float, rows: int | None) -> tuple[Floats, float]:
    """Return the count of columns that count the same rows: public, or the average."""
    if rows is not None:
        return np.full(len(counts), float(rows)), 0.0
    return np.full(len(counts), counts.mean()), noise / math.sqrt(len(counts))


class Mean(_FromMoments):
    """The population's mean of each column, over the cells that are not missing.

    >>> consortium.release(Mean("age", "chol"), share=0.1).interval(0.95)["age"]
    >>> consortium.release(Mean("chol", by="sex"), share=0.1).plot()

    The sampling error comes from the same release, which asks for t and t² and the count together.

    **Sensitivity** 2 sqrt(columns) under replace-one, that of the sum of t alone: the sum of squares
    (weight 1, or 11/4 where no cell is missing) and the count (weight 2) are free, see `moments`: 11/4 <=
    phi⁵/4 and 1 + 1 + 2 <= 4. Under add-remove sqrt(2 columns): weights 1, 1/4, 3/4 add up to 2; k columns
    that are never missing share the work of counting, 3/4 / sqrt(k) each.

    *Laplace noise.* In the L1 norm, with one over the scales as weights, squares are free up to half the
    weight of the sum if no cell is missing, and squares and the count together up to its weight: 1/4 and
    3/4. The sensitivity is 2 columns, again that of the sum alone. Under add-remove nothing is free: (u + w
    + v)² (1/u² + m²/(k v²)), the variance of a mean m if k columns share the count, is least at v = u
    (m²/k)^(1/3). With v = 0.6 k^(-1/3), right half way to a bound (m = 1/2), and w = 0.2 it is 1.8 columns.
    """

    kind: ClassVar[str] = "mean"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"]}

    def weights(self, neighbours: Neighbours, missing: bool, columns: int) -> Weights:
        if self.laplace and neighbours == "add-remove":
            return Weights.of_l1(1.0, 0.2, 0.6 if missing else 0.6 / columns ** (1 / 3))
        if self.laplace:
            return Weights.of_l1(1.0, 0.25, 0.75) if missing else Weights.of_l1(1.0, 0.5, 1.0)
        if neighbours == "add-remove":
            return Weights(1.0, 0.25, 0.75 if missing else 0.75 / math.sqrt(columns))
        return Weights(1.0, 1.0, 2.0) if missing else Weights(1.0, 2.75, 1.0)

    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        return sums.mean_estimate(name, column)


class _Spread(_FromMoments):
    """A number that depends on how far a column spreads: asked for in two stages.

    How far a sample's variance lies from the population's depends on the fourth moment about the mean, which
    the second stage asks for: see `influence`.

    **Sensitivity** 2 sqrt(columns) under both adjacencies: weights 1, 5/2 and 1/2 on the sums of t, of t² and
    the count add up to 4, and 5/2 <= phi⁵/4 (11/4 where the count is public): see `moments`.
    """

    decisive: ClassVar[int] = 0

    def weights(self, neighbours: Neighbours, missing: bool, columns: int) -> Weights:
        public = neighbours == "replace-one" and not missing
        return Weights(1.0, 2.75, 1.0) if public else Weights(1.0, 2.5, 0.5)

    def stages(self) -> tuple[float, ...]:
        return STAGES

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for the moments, then for the fourth moment about the mean that was released."""
        answer = yield self.query(schema, neighbours)
        sums = self.sums(answer)
        asked = {name: each for name, each in sums.items() if each.enough}
        if asked:
            influences = {name: _influence(each) for name, each in asked.items()}
            last = yield squares(
                [
                    (Design((quoted(name),), cube=True), [asked[name].mean], [influences[name]])
                    for name in asked
                ]
            )
            for block, (name, each) in enumerate(asked.items()):
                (spread,) = spreads(last, block, [influences[name]], each.count)
                sums[name] = each.with_spread(spread)
        return self.estimates(sums, schema)


def _influence(sums: Sums) -> Influence:
    """Return how a row moves the variance: by the square of its distance from the mean."""
    bound = (1 + abs(sums.mean)) ** 2
    return Influence(Form(((0, 0, 1.0),), bound), sums.variance, sums.likely_variance)


class Variance(_Spread):
    """The population's variance of each column, over the cells that are not missing.

    >>> consortium.release(Variance("chol"), share=0.1).value

    The estimate is unbiased up to the cut at 0.
    """

    kind: ClassVar[str] = "variance"
    example: ClassVar[dict[str, Any]] = {"columns": ["age"]}

    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        return sums.variance_estimate(name, column)

    def title(self, label: str, schema: Schema) -> str:
        unit = schema.number(label).unit
        return f"{schema.label(label)} ({unit}²)" if unit else schema.label(label)

    def units(self, schema: Schema) -> Sequence[float]:
        return [half**2 for half in super().units(schema)]


class StandardDeviation(_Spread):
    """The population's standard deviation of each column: the root of `Variance`.

    >>> consortium.release(StandardDeviation("chol"), share=0.1).value
    """

    kind: ClassVar[str] = "standard-deviation"
    example: ClassVar[dict[str, Any]] = {"columns": ["chol"]}

    def estimate(self, name: str, column: Number, sums: Sums) -> Estimate:
        return sums.deviation_estimate(name, column)


@dataclass(frozen=True, init=False)
class Sum(ByGroup, OfColumns):
    """The sum of each column over the people in the tables; a missing cell adds nothing.

    >>> Sum("chol"), Sum("age", "chol", by="sex")

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

    *Laplace noise.* With u and v one over the scales, one row moves a column by u + v under add-remove in
    the L1 norm, and by max(2 u, u + v) under replace-one, or 2 u if no cell is missing. The noise of the sum
    has a variance proportional to (one row's move)² (half² / u² + middle² / v²): least at v = u r^(2/3)
    (Hölder), and under replace-one at v = u if r <= 1. Each column moves by 2, or by 1 under add-remove.
    """

    kind: ClassVar[str] = "sum"
    example: ClassVar[dict[str, Any]] = {"columns": ["age"]}
    of: ClassVar[type[CustomSum]] = CustomSum
    """The sum over rows of any function of a row, each row clipped to an L2 norm."""

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the first moments of each column, shared out by its own bounds."""
        blocks, scales, moved, l1 = [], [], 0.0, 0.0
        for name in self.columns:
            column = schema.number(name)
            weights = (_sum_weights_l1 if self.laplace else _sum_weights)(column, neighbours)
            blocks.append(Moments((name,), squares=False))
            scales.append((1 / math.sqrt(weights.count), 1 / math.sqrt(weights.first)))
            moved += weights.moved(neighbours, column.missing)
            l1 += weights.moved_l1(neighbours, column.missing)
        return Query(tuple(blocks), tuple(scales), math.sqrt(moved), l1=l1)

    def apart(self, query: Query) -> float:
        return apart(query)

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
                    law=coarse(
                        answer.law.combined(column.half * first_noise, abs(column.middle) * count_noise)
                    ),
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


def _sum_weights_l1(column: Number, neighbours: Neighbours) -> Weights:
    ratio = max(abs(column.middle) / column.half, _LEAST_RATIO) ** (2 / 3)
    if neighbours == "replace-one" and (ratio < 1 or not column.missing):
        return Weights.of_l1(1.0, 0.0, 1.0)
    moved = 1.0 if neighbours == "add-remove" else 2.0
    return Weights.of_l1(moved / (1 + ratio), 0.0, moved * ratio / (1 + ratio))
