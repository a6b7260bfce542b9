"""Whether values tend to be larger in one group than in another: rank tests from private histograms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import chdtrc

from cape.analyses.describe.histogram import one_hot
from cape.blocks import Axis, Counts
from cape.blocks.bins import rising
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import names
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Query
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import count, p_said
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate, unknown, warn_of_unknown
from cape.stats.independence import Independence, group_contrasts
from cape.stats.moments import enough, present

__all__ = ["RankTest", "RankTestModel"]

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

    *The test.* With the mid-rank R_b of each bin in the table of all groups, over n, the contrasts of mean
    ranks between groups are those of `independence` with one column of scores: under equal distributions
    they have mean 0, covariance I from sampling, and a known covariance from noise. Noise in a bin also
    moves its mid-rank, which shifts a contrast with coefficients l_g by noise² sum(l) sum_b (1/2 - R_b) /
    n: it is taken off. Without noise the statistic is that of Kruskal and Wallis, with ties, or for two
    groups the square of that of Mann and Whitney.

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
                _larger(label, counts[j], counts[i], noise)
                if known[i] and known[j]
                else unknown(label, 0.0, 1.0)
            )
        warn_of_unknown(estimates)
        there = all(present(float(row.sum()), noise * math.sqrt(counts.shape[1])) for row in counts)
        test = ranked(counts, noise) if there else None
        model = RankTestModel(self.column, self.by, answer.schema, tuple(estimates), test)
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


def ranked(table: Floats, noise: float) -> Independence | None:
    """Return the test that all groups have the same distribution; None if nothing varies."""
    total = float(table.sum())
    shares, by_group = table.sum(axis=0) / total, table.sum(axis=1) / total
    places = np.cumsum(shares) - shares / 2
    centred = places - shares @ places
    spread = float(shares @ centred**2)
    left = group_contrasts(by_group)
    freedom = left.shape[1]
    blurred = noise**2 * float(centred @ centred)
    if spread <= 0 or total <= 1:
        return None
    shift = noise**2 * float((0.5 - places).sum()) / total * left.sum(axis=0)
    contrast = (left.T @ (table @ centred) - shift) * math.sqrt((total - 1) / (total**2 * spread))
    covariance = np.eye(freedom) + blurred / (total * spread) * (left.T @ left)
    statistic = float(contrast @ np.linalg.solve(covariance, contrast))
    return Independence(statistic, freedom, float(chdtrc(freedom, statistic)))


def _larger(label: str, one: Floats, other: Floats, noise: float) -> Estimate:
    """Return the probability that a value of one group exceeds one of another, ties counting half.

    Its sampling error is that of the mean placements of both groups (DeLong). Noise counts to first order,
    and so does the product of the noise in both groups.
    """
    n, m = float(one.sum()), float(other.sum())
    below = (np.cumsum(other) - other / 2) / m  # of the other group, for each bin
    above = 1 - (np.cumsum(one) - one / 2) / n
    value = float(one @ below) / n
    of_one, of_other = (
        max(float(each @ (place - value) ** 2) / size, 0.0)
        for each, place, size in ((one, below, n), (other, above, m))
    )
    sampling = math.sqrt(of_one / max(n - 1, 1.0) + of_other / max(m - 1, 1.0))
    linear = float(((below - value) ** 2).sum()) / n**2 + float(((above - value) ** 2).sum()) / m**2
    bins = len(one)
    square = (bins * (bins - 1) / 2 + bins / 4) * noise**2 / (n * m) ** 2
    return Estimate(
        label, min(max(value, 0.0), 1.0), sampling, noise * math.sqrt(linear + square), (0.0, 1.0)
    )


@dataclass(frozen=True, repr=False)
class RankTestModel(Shown):
    """A rank test, and how often a value of one group exceeds one of another."""

    column: str
    by: str
    schema: Schema
    estimates: tuple[Estimate, ...]
    test: Independence | None

    @property
    def p_value(self) -> float | None:
        """The P value, which counts the noise; None if noise hides a group."""
        return None if self.test is None else self.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return the probabilities."""
        return [listed(self.estimates)]

    def figures(self) -> Sequence[Figure]:
        """Return the probabilities about one half."""
        marks = tuple(Mark.of(estimate) for estimate in self.estimates)
        return [Figure((Intervals(marks, self.schema.title(self.column), line=0.5),), DOTS)]

    def notes(self) -> Sequence[str]:
        """Return the test."""
        name = f"{'Mann–Whitney' if len(self.estimates) == 1 else 'Kruskal–Wallis'} test"
        if self.test is None:
            return [f"There is too much noise for the {name}."]
        return [
            f"{name} of {self.schema.label(self.column)}, ties and privacy noise counted: chi-square = "
            f"{self.test.statistic:.2f} with {count(self.test.freedom, 'degree')} of freedom, "
            f"{p_said(self.test.p_value)}."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        test = None if self.test is None else vars(self.test)
        return plain({"column": self.column, "by": self.by, "test": test})
