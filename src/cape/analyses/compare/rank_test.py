"""Whether values tend to be larger in one group than in another: rank tests from private histograms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.compare.rank_test_model import RankTestModel
from cape.analyses.describe.histogram import one_hot
from cape.blocks import Axis, Counts
from cape.blocks.bins import rising
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import names
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Query
from cape.stats.estimates import unknown, warn_of_unknown
from cape.stats.moments import enough, present
from cape.stats.rank_tests import larger, ranked

__all__ = ["RankTest"]

_BINS = 16
_MOST_BINS = 1 << 12


@dataclass(frozen=True, init=False)
class RankTest(Analysis):
    """Whether values tend to be larger in some groups: the Mann–Whitney or the Kruskal–Wallis test.

    >>> RankTest("crp", by="arm"), RankTest("crp", by="arm", edges=[0, 5, 10, 20, 50, 100, 300])

    Values count by the bin of public edges that they fall into; those of one bin are ties, which the test
    counts exactly. `bins` cuts the bounds into equal parts; give edges where the column is skewed. For each
    two groups, the probability that a value of the later category exceeds one of the earlier, ties counting
    half.

    Without noise the statistic is that of Kruskal and Wallis, with ties, or for two groups the square of
    that of Mann and Whitney; what noise does to it is in `stats/rank_tests.py`.

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove: `one_hot` has the proof.
    """

    kind: ClassVar[str] = "rank-test"
    example: ClassVar[dict[str, Any]] = {"column": "age", "by": "sex", "bins": 4}
    column: str
    by: str
    edges: tuple[float, ...] | None
    bins: int

    def __init__(
        self, column: str, *, by: str, edges: Iterable[float] | None = None, bins: int | None = None
    ) -> None:
        name, group = names((column, by))
        if edges is not None and bins is not None:
            raise InvalidInput("either edges or bins must be given, not both")
        if edges is not None and (isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable)):
            raise InvalidInput(f"edges must be numbers that rise, as in [0, 5, 10, 50], not {edges!r}")
        found = None if edges is None else tuple(rising(name, edges).tolist())
        if found is not None and len(found) < 3:
            raise InvalidInput("edges must be at least three numbers: ranks need two bins or more")
        cut = _BINS if bins is None else check.integer("bins", bins, least=2, most=_MOST_BINS)
        self._set(column=name, by=group, edges=found, bins=cut)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        if len(schema.category(self.by).values) < 2:
            raise InvalidInput(
                f"column {self.by!r} has one category in the schema, and a rank test needs two groups"
            )
        block = Counts((Axis(self.by), self._axis(schema.number(self.column))))
        return Query((block,), ((1.0,),), math.sqrt(one_hot(neighbours, block.arrays(schema)[0].size)))

    def finish(self, answer: Answer) -> AnalysisResult:
        ((table,),), ((noise,),) = answer.sums, answer.noise
        counts = np.asarray(table, np.float64)
        values = answer.schema.category(self.by).values
        known = [enough(float(row.sum()), noise * math.sqrt(counts.shape[1])) for row in counts]
        estimates = []
        for i, j in itertools.combinations(range(len(values)), 2):
            label = f"P({self.by}={values[j]} > {values[i]})"
            estimates.append(
                larger(label, counts[j], counts[i], noise)
                if known[i] and known[j]
                else unknown(label, 0.0, 1.0)
            )
        warn_of_unknown(estimates)
        there = all(present(float(row.sum()), noise * math.sqrt(counts.shape[1])) for row in counts)
        test = ranked(counts, noise) if there else None
        rows = noise * math.sqrt(counts.shape[1])
        sizes = tuple((value, float(row.sum()), rows) for value, row in zip(values, counts, strict=True))
        model = RankTestModel(self.column, self.by, answer.schema, tuple(estimates), test, sizes)
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        return f"rank test of {self.column} by {self.by}"

    def title(self, label: str, schema: Schema) -> str:
        return label

    def keys(self) -> dict[str, Any]:
        cut = {"bins": self.bins} if self.edges is None else {"edges": list(self.edges)}
        return {"column": self.column, "by": self.by, **cut}

    def _axis(self, column: Number) -> Axis:
        edges = np.linspace(column.low, column.high, self.bins + 1) if self.edges is None else self.edges
        return Axis(self.column, edges)
