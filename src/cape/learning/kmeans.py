"""Clusters of rows: k-means, of which every step is one joint release of sums and counts.

Claim. At given centres, a row x with ||x|| <= 1 is counted to its nearest centre: counts n_j and sums S_j of
x. With equal noise on both, one row moves all of them together, in the L2 norm, by at most 2 under
replace-one and sqrt(2) under add-remove, for any centres and however many.
Reason. Let x and z be a row before and after it is replaced, both complete.

- *Same cluster*: counts stay, and one sum moves by ||x - z||² <= 4, squared.
- *Different clusters*: two sums move, by ||x||² + ||z||² <= 2, and two counts, by 1 + 1: 4 in all. Under
  replace-one counts are therefore free: they cost no more than the sums alone.
- *An incomplete row in the place of one, or a row added or removed*: ||x||² + 1 <= 2.

Both bounds are attained. With a weight w on counts, 1 over their scale, different clusters give 2 + 2 w², and
a row added 1 + w²: 1 is the most that is free. Centres of a later step are made of what was released before,
so the steps add up: mu² = sum of mu_i².

Claim, Laplace noise. With a weight w on counts, one row moves all of them together, in the L1 norm, by at
most 2 (sqrt(m) + w) under replace-one and sqrt(m) + w under add-remove, for m columns.
Reason. A column is one entry of x, or the indicators of a category, of which at most one is not 0: the L1
norm of its entries is their L2 norm. Over m columns |x|_1 <= sqrt(m) ||x|| <= sqrt(m) (Cauchy-Schwarz),
however many entries x has; with a norm or without, a row with all columns at their bounds attains it.

- *Same cluster*: counts stay, and |x - z|_1 <= 2 sqrt(m).
- *Different clusters*: |x|_1 + |z|_1 + 2 w. Counts are not free here.
- *An incomplete row in the place of one, or a row added or removed*: |x|_1 + w.

Bounds are attained where two rows at all bounds differ. The epsilons of the steps add up.
Tested in tests/unit/learning/test_kmeans.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from cape.blocks import Nearest, typical
from cape.blocks.design import Design
from cape.blocks.terms import quoted
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.schema import Column
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.learning.kmeans_estimate import Clusters, Sizes, clear, label, reach, share_noise, summarise
from cape.learning.kmeans_model import KMeansModel
from cape.learning.seeds import (
    Spread,
    cluster,
    cluster_effort,
    halves,
    made_up,
    nearest,
    public_stream,
    spread,
    spread_effort,
)
from cape.show.numbers import count
from cape.stats.law import GAUSSIAN, Law

__all__ = ["KMeans", "sensitivity", "sensitivity_l1"]


_SEEDS = 128  # enough to tell ten clusters apart in ten dimensions; fewer rows in a cell are lost in noise
_SEEDS_EACH = 8  # for each cluster at least
_RESTARTS = 30  # on the summary, where they are free
_SEEN = 2.0  # and that rows must exceed in the first release for clusters to be looked for
_TYPICAL = 1 << 11  # rows, for plans
_HALVED_FROM = 3  # columns: with fewer, cells are so small that two clusters seldom share one
_PARTS = 1.0, 1.0, 1.0, 2.0  # of the seeds, of halves, of a step, of the last step
_PARTS_L1 = 1.0, 0.75, 0.5, 2.0  # the same for Laplace noise, as parts of epsilon
_SEED_WEIGHT = 2.0  # of counts in the first release, under Laplace noise
_MIDDLE = 1 / 3  # the squared length of a centre, on average, if rows fill their bounds evenly
_MOST_CLUSTERS = 1000
_MOST_NUMBERS = 1 << 20  # of the points of the first release


def sensitivity(neighbours: Neighbours, weight: float = 1.0) -> float:
    """Return the most that one row moves sums and counts together: proof at the head of the module.

    `weight` is 1 over the scale of counts, where that of sums is 1.
    """
    return math.sqrt(max(4.0, 2 + 2 * weight**2) if neighbours == "replace-one" else 1 + weight**2)


def sensitivity_l1(neighbours: Neighbours, columns: int, weight: float) -> float:
    """Return the same in the L1 norm, with a weight on counts: proof at the head of the module."""
    return (2.0 if neighbours == "replace-one" else 1.0) * (math.sqrt(columns) + weight)


@lru_cache(maxsize=64)
def _densest(analysis: KMeans, columns: tuple[tuple[str, Column, Any], ...]) -> float:
    """Return the largest share of typical rows at one of the places that the first release looks at.

    What is expected of the columns stands beside them, because equal columns may differ in it.
    """
    schema = Schema({name: column for name, column, _ in columns})
    points = _places(analysis, tuple((name, column) for name, column, _ in columns))
    x = typical.rows(analysis.design, schema, _TYPICAL)
    return float(np.bincount(nearest(x, points)).max()) / _TYPICAL


@lru_cache(maxsize=16)
def _places(analysis: KMeans, columns: tuple[tuple[str, Column], ...]) -> Floats:
    """Return the points of the first release, which do not depend on what is expected."""
    return analysis.places(Schema(dict(columns))).points


@dataclass(frozen=True, init=False)
class KMeans(Analysis):
    """Centres of clusters, and how many of the rows belong to each: k-means over complete rows.

    >>> consortium.release(KMeans(["age", "chol"], 3), share=0.2).model.centres

    Rows are compared with every number in units of half its bounds, and with a category as 0 or 1 for each
    value but its first. The first stage is a coarse summary: sums and counts for many points that are spread
    over what the schema allows. k-means++ with many restarts on that summary finds where to start, and
    costs nothing, where restarts on the tables would each take their part of the budget. With three columns
    or more two clusters may share a cell of the summary, so that no start can part them: every cluster is
    then asked for in two halves, cut at random, and the start is found again, from these. A few of Lloyd's
    steps follow. Their noise is known, so that a centre is moved as far as the rows of its cluster can be
    seen, and averaged over steps once these have settled. One cluster is one release, of the mean.

    **Sensitivity** 2 under replace-one, sqrt(2) under add-remove, for each stage: sums and counts together,
    in the head of the module.

    *Choice.* A step's noise in a centre has a variance proportional to 1 / part. Steps are averaged, so a
    part spent on an early step is lost only as far as rows still change sides; the last gets the most, twice
    as much, since no later one can make up for it. The summary decides which clusters are found at all, and
    needs to be no better than that: its part is that of a step. What else was tried is in docs/kmeans.md.

    *Laplace noise.* 2 (sqrt(m) + w) under replace-one and sqrt(m) + w under add-remove, in the L1 norm, for m
    columns and a weight w on counts. The variance of a centre is proportional to (sqrt(m) + w)² (d + r²/w²),
    summed over its d entries, r its length: least at w³ = r² sqrt(m) / d, with r² = 1/3, that of a row
    anywhere in its bounds. The first release has to tell which cells are filled, so that its counts weigh
    more. Variance is proportional to 1 / part² here: an early step, of which little is left in the end, gets
    half as much as it would of mu², and halves a little less.

    Estimates are about the rows in the tables, those nearest to the centres of the last step; that a
    table is a sample is not counted.

    Args:
        columns: numeric columns, or categories.
        clusters: how many, k.
        steps: Lloyd's steps; more where clusters overlap, and noise allows it.
        norm: the length, in units of half the bounds, that longer rows are shortened to; by default none is.
        seed: where public randomness starts: which points are tried, not noise.
    """

    kind: ClassVar[str] = "k-means"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"], "clusters": 2, "steps": 1}
    columns: tuple[str, ...]
    clusters: int
    steps: int
    norm: float | None
    seed: int

    def __init__(
        self,
        columns: Sequence[str] | str,
        clusters: int,
        *,
        steps: int = 2,
        norm: float | None = None,
        seed: int = 0,
    ) -> None:
        self._set(
            columns=names((columns,) if isinstance(columns, str) else columns),
            clusters=check.integer("clusters", clusters, least=1, most=_MOST_CLUSTERS),
            steps=check.integer("steps", steps, least=1, most=100),
            norm=None if norm is None else check.real("norm", norm, above=0.0),
            seed=check.integer("seed", seed, least=0, most=2**64 - 1),
        )
        _ = self.design  # refuses a norm that is too small

    @property
    def design(self) -> Design:
        return Design(tuple(map(quoted, self.columns)), norm=self.norm)

    def stages(self) -> tuple[float, ...]:
        """Return the parts of the seeds, of halves, of each step, and of the last one."""
        if self.clusters == 1:
            return (1.0,)
        seeds, parted, step, last = self._parts
        return (seeds, *[parted] * self._halved, *[step] * (self.steps - 1), last)

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return the time for the places of the first release, and for clusters of its summary."""
        if self.clusters == 1:
            return 0.0
        width = self.design.width(schema)
        found = spread_effort(self._many_places(schema), width)
        if results:
            found += (1 + self._halved) * cluster_effort(
                self._many_places(schema), self.clusters, width, _RESTARTS
            )
        return found + 1e-3 * len(results)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return a step at centres that do not depend on data: plans are made with it."""
        if self._many_places(schema) * self.design.width(schema) > _MOST_NUMBERS:
            raise InvalidInput(
                f"{self.clusters:,} clusters of rows with {self.design.width(schema):,} entries need more "
                f"than {_MOST_NUMBERS:,} numbers in one release; use fewer clusters, or fewer columns"
            )
        return self._ask(schema, self._start(schema), neighbours, "")

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for the summary, and step after step."""
        units = Units(self.design, schema)
        many, width = self.clusters, len(units.names)
        centres = np.zeros((1, width))
        if many > 1:
            stream = public_stream(self.seed, "restarts")
            seeds = self.places(schema)
            answer = yield self._ask(
                schema, seeds.points, neighbours, f"{len(seeds.points)} places looked at", seeds=True
            )
            centres = cluster(*summarise(seeds, *self._read(answer)), many, stream, _RESTARTS)
            if self._halved:
                parts = halves(centres, float(seeds.variance.mean()), stream)
                answer = yield self._ask(schema, parts.points, neighbours, f"{many} clusters halved")
                centres = cluster(*summarise(parts, *self._read(answer)), many, stream, _RESTARTS)
            centres = units.within(centres)
        found = Clusters(centres, np.full((many, width), 1 / width))  # rows are no longer than 1
        for step in range(1 if many == 1 else self.steps):
            answer = yield self._ask(schema, found.centres, neighbours, f"step {step + 1}")
            found = found.step(*self._read(answer)).within(units)
        return self._finding(found, answer)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what one step from the centres of `query` says."""
        units = Units(self.design, answer.schema)
        start = self._start(answer.schema)
        found = Clusters(start, np.full(start.shape, 1 / len(units.names))).step(*self._read(answer))
        return self._finding(found.within(units), answer)

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of the last step alone, for clusters of equal size in the middle of the bounds.

        Where noise hides typical rows from the first release, which looks for the clusters, nothing is known.
        """
        units = Units(self.design, schema)
        (count_noise, sum_noise), k = noise[0], self.clusters
        public = neighbours == "replace-one" and not self.design.missing(schema)
        size = rows / k
        sizes = min(100 * share_noise(1 / k, k, public) * count_noise / max(rows, 1), 50.0)
        half = (units.high - units.low) / 2
        law = Law(1.0) if self.laplace else GAUSSIAN
        seen = bool(clear(np.array([size]), count_noise, law)[0]) and self._found(
            schema, count_noise, rows, law
        )
        errors = np.minimum(units.unit * sum_noise / size, half) if seen else half
        expected: dict[str, float] = {}
        for i in range(k):
            expected[label(i, "% of rows")] = sizes
            expected |= {label(i, name): float(e) for name, e in zip(units.names, errors, strict=True)}
        return expected

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return half of what is possible: of a share, and of each coordinate of a centre."""
        units = Units(self.design, schema)
        half = dict(zip(units.names, ((units.high - units.low) / 2).tolist(), strict=True)) | {
            "% of rows": 50.0
        }
        return {label(i, name): each for i in range(self.clusters) for name, each in half.items()}

    def smaller(self, schema: Schema) -> Iterator[KMeans]:
        """Yield the same with fewer clusters."""
        for clusters in range(self.clusters - 1, 1, -1):
            yield self.changed(clusters=clusters)

    def describe(self) -> str:
        return f"{count(self.clusters, 'cluster')} of rows by {joined(self.columns)} (k-means)"

    def _found(self, schema: Schema, count_noise: float, rows: int, law: Law) -> bool:
        """Return whether typical rows stand out of the noise where the first release counts most of them."""
        if self.clusters == 1:
            return True
        stated = tuple((name, schema[name], schema[name].expected) for name in self.columns)
        most = _densest(self, stated) * rows
        seeds, *_, last = self._parts
        first = math.sqrt(last / seeds)
        if self.laplace:
            of_seeds, of_step = (self._weight(schema, seeds=each) for each in (True, False))
            root = math.sqrt(len(self.columns))
            first = last / seeds * (root / of_seeds + 1) / (root / of_step + 1)
        return bool(most > reach(law, _SEEN) * count_noise * first)

    @property
    def _parts(self) -> tuple[float, float, float, float]:
        return _PARTS_L1 if self.laplace else _PARTS

    def _weight(self, schema: Schema, *, seeds: bool) -> float:
        """Return the weight of counts beside sums: 1 over their scale."""
        if not self.laplace:
            return 1.0
        if seeds:
            return _SEED_WEIGHT
        return math.cbrt(_MIDDLE * math.sqrt(len(self.columns)) / self.design.width(schema))

    @property
    def _halved(self) -> bool:
        return len(self.columns) >= _HALVED_FROM

    def places(self, schema: Schema) -> Spread:
        """Return the points whose neighbourhoods the first release counts."""
        many = self._many_places(schema)
        return spread(self.design, schema, many, public_stream(self.seed, f"spread {many}"))

    def _many_places(self, schema: Schema) -> int:
        """Return how many points the first release has, at most."""
        return max(_SEEDS if self.design.width(schema) > 1 else 0, _SEEDS_EACH * self.clusters)

    def _start(self, schema: Schema) -> Floats:
        return made_up(self.design, schema, self.clusters, public_stream(self.seed, "start"))

    def _ask(
        self, schema: Schema, centres: Floats, neighbours: Neighbours, note: str, *, seeds: bool = False
    ) -> Query:
        points = tuple(tuple(map(float, centre)) for centre in centres)
        block, weight = Nearest(self.design, points), self._weight(schema, seeds=seeds)
        moved = sensitivity_l1(neighbours, len(self.columns), weight)
        return Query((block,), ((1 / weight, 1.0),), sensitivity(neighbours, weight), l1=moved, note=note)

    def _rows(self, answer: Answer) -> int | None:
        """Return how many complete rows there are, if that is public."""
        return None if self.design.missing(answer.schema) else answer.rows

    def _read(self, answer: Answer) -> tuple[Floats, Floats, tuple[float, float], Law]:
        """Return counts, which add up to the number of rows if that is public, sums, noise and its law."""
        (counts, sums), (count_noise, sum_noise) = answer.sums[0], answer.noise[0]
        rows = self._rows(answer)
        if rows is not None:
            counts = counts - (counts.sum() - rows) / len(counts)
            count_noise *= math.sqrt(1 - 1 / len(counts))
        return counts, sums, (count_noise, sum_noise), answer.law

    def _finding(self, found: Clusters, answer: Answer) -> AnalysisResult:
        counts, _, (count_noise, _), law = self._read(answer)
        units = Units(self.design, answer.schema)
        sizes = Sizes(counts, count_noise, answer.noise[0][0], law, self._rows(answer))
        estimates = tuple(sizes.estimates(found, units))
        sizes.warn()
        order = sizes.order
        centres = found.centres[order]
        model = KMeansModel(
            self.design,
            answer.schema,
            units.names,
            units.back(centres),
            100 * sizes.shares[order],
            sizes.seen[order],
            estimates,
            centres,
        )
        return AnalysisResult(estimates, model)
