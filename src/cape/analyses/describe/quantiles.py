"""Distribution functions and quantiles, from counts at several resolutions made consistent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cape.analyses.by_group import ByGroup
from cape.analyses.describe import quantile_search as search
from cape.analyses.describe.tree_axes import level_axes
from cape.blocks import Axis, Counts
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import digits_apart, joined, names, written
from cape.engine.query import Answer, Conversation, Neighbours, Query
from cape.engine.result import Release
from cape.show import Figure, Intervals, Line, Mark
from cape.show.figures import DOTS, dots
from cape.stats.distribution import Curve
from cape.stats.estimates import Estimate, unknown, warn_of_unknown
from cape.stats.moments import enough
from cape.stats.proportions import proportion_error
from cape.stats.ranks import Counted, Ranks
from cape.stats.tree import Tree, check_bins, sizes

__all__ = ["ECDF", "MOST_SEARCHED", "Quantiles"]

MOST_SEARCHED = 9
"""How many quantiles are searched for. The last stage of a search leaves noise that grows with the root of
their number; from about 12 (Gaussian) or 15 (Laplace) on, counts in bins are better."""
_HALF_STEP = 0.5
_BINS = 256
_MOST_BINS = 1 << 22  # of all columns

_CURVE = "The share of people below each value; the band is the 95% interval at each point."


@dataclass(frozen=True, init=False)
class _FromTree(ByGroup):
    """A distribution function per column.

    **Sensitivity.** With L levels of scale 1 and, where the number of rows is private, the total with
    weight w (one over its squared scale): a row is counted once on each level.

    - add-remove: L + w per column, squared; w = 1.
    - replace-one: a row that moves to another part on every level changes two counts on each and not the
      total: 2 L. One that goes missing changes one count on each and the total: L + w. So the total is free
      with w = L, and 2 L is attained by a row that moves from one end of the bounds to the other.

    Columns move independently, so their squares add: sqrt(2 L columns) or sqrt((L + 1) columns).

    In the L1 norm, with v one over the scale of the total, the same rows move a column by L + v under
    add-remove and by max(2 L, L + v) = 2 L under replace-one, with v = L. Under Laplace noise v = 1/4 under
    add-remove: the total matters little to shares, and the levels' own counts say it too.
    """

    columns: tuple[str, ...]
    bins: int

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        if len(self.columns) * self.bins > _MOST_BINS:
            raise InvalidInput(
                f"{len(self.columns):,} columns in {self.bins:,} bins each have more than {_MOST_BINS:,} "
                "together; use fewer bins, or fewer columns"
            )
        levels = len(sizes(self.bins, self.laplace))
        if neighbours == "replace-one":
            total = 1 / levels if self.laplace else 1 / math.sqrt(levels)
        else:
            total = 4.0 if self.laplace else 1.0
        blocks, scales = [], []
        for name in self.columns:
            column = schema.number(name)
            if column.missing or neighbours == "add-remove":
                blocks.append(Counts((Axis(name, (column.low, column.high)),)))
                scales.append((total,))
            blocks += [Counts((axis,)) for axis in level_axes(name, column, self.bins, self.laplace)]
            scales += [(1.0,)] * levels
        many = len(self.columns)
        squared = max(2.0 * levels, levels + total**-2) if neighbours == "replace-one" else levels + total**-2
        l1 = 2.0 * levels if neighbours == "replace-one" else levels + 1 / total
        return Query(tuple(blocks), tuple(scales), math.sqrt(squared * many), l1=l1 * many)

    def curves(self, answer: Answer) -> list[Curve | None]:
        """Return the distribution function of each column, None where there is too much noise."""
        found = zip(answer.sums, answer.noise, strict=True)
        curves = []
        for name in self.columns:
            column = answer.schema.number(name)
            levels, noise = [], []
            if answer.rows is not None and not column.missing:
                levels, noise = [np.array([float(answer.rows)])], [0.0]
            while len(levels) <= len(sizes(self.bins, self.laplace)):
                (counts,), (std,) = next(found)
                levels.append(counts)
                noise.append(std)
            edges = np.linspace(column.low, column.high, self.bins + 1)
            curves.append(Curve.of(edges.tolist(), Tree.fit(levels, noise), answer.law))
        return curves


class ECDF(_FromTree):
    """The share of the population below each of the inner edges of `bins` equal parts of the bounds.

    >>> consortium.release(ECDF("age"), share=0.1)

    Sensitivity as for `Quantiles`: sqrt(2 L columns) under replace-one, sqrt((L + 1) columns) under
    add-remove, with bins = 4^L. Proof: `_FromTree`.
    """

    kind: ClassVar[str] = "ecdf"
    example: ClassVar[dict[str, Any]] = {"columns": ["chol"], "bins": 16}

    def __init__(self, *columns: str, bins: int = 64) -> None:
        self._set(columns=names(columns), bins=check_bins(bins))

    def finish(self, answer: Answer) -> list[Estimate]:
        estimates = []
        for name, curve in zip(self.columns, self.curves(answer), strict=True):
            column = answer.schema.number(name)
            edges = np.linspace(column.low, column.high, self.bins + 1).tolist()
            digits = digits_apart(edges)
            labels = [f"{name} < {written(edge, digits)}" for edge in edges[1:-1]]
            if curve is None:
                estimates += [unknown(label, 0.0, 1.0) for label in labels]
                continue
            noise = curve.noise(curve.shares)
            for label, share, privacy in zip(labels, curve.shares[1:-1], noise[1:-1], strict=True):
                sampling = proportion_error(float(share), curve.count)
                estimates.append(Estimate(label, float(share), sampling, float(privacy), (0.0, 1.0)))
        warn_of_unknown(estimates)
        return estimates

    def describe(self) -> str:
        return f"distribution of {joined(self.columns)}, at {self.bins - 1} points"

    def figures(self, release: Release) -> Sequence[Figure]:
        panels, inner = [], self.bins - 1
        for i, name in enumerate(self.columns):
            column = release.schema.number(name)
            edges = np.linspace(column.low, column.high, self.bins + 1)[1:-1].tolist()
            some = release.estimates[i * inner : (i + 1) * inner]
            marks = tuple(Mark.of(each, release.title(each.label)) for each in some)
            panels.append(Line(tuple(edges), marks, release.schema.title(name), "share below", (0.0, 1.0)))
        return [Figure(tuple(panels), _CURVE)]


@dataclass(frozen=True, init=False)
class Quantiles(_FromTree):
    """Quantiles of each column in the population, by a search in three stages or from counts in equal bins.

    >>> consortium.release(Quantiles("chol", probs=[0.25, 0.5, 0.75]), share=0.1).to_polars()

    Up to nine quantiles are searched for: each stage asks for few counts, at edges that the answers before it
    choose (`search`). More of them, or any number where `bins` are given, are read off counts in `bins` equal
    parts of the bounds at several resolutions, whose errors are the same everywhere. Intervals end at edges.

    **Sensitivity.** *Search*: in each stage a row is counted in one cell of each column, whatever its edges
    are: sqrt(2 columns) under replace-one and sqrt(columns) under add-remove, 2 columns and columns in the
    L1 norm (proof: `search`, `one_hot`). The last stage asks for one count of a column of which one quantile
    is wanted and the number of rows is public: that moves by 1. *Bins*: sqrt(2 L columns) under replace-one
    and sqrt((L + 1) columns) under add-remove, with bins = 4^L, however many quantiles are asked for. Proof:
    `_FromTree`.
    """

    kind: ClassVar[str] = "quantiles"
    example: ClassVar[dict[str, Any]] = {"columns": ["age"], "bins": 16}
    probs: tuple[float, ...]

    def __init__(
        self, *columns: str, probs: Iterable[float] = (0.25, 0.5, 0.75), bins: int | None = None
    ) -> None:
        found = _probs(probs)
        if bins is None and len(found) > MOST_SEARCHED:
            bins = _BINS
        self._set(columns=names(columns), probs=found, bins=0 if bins is None else check_bins(bins))

    @property
    def searches(self) -> bool:
        """Whether it searches in stages, rather than count in bins."""
        return not self.bins

    def stages(self) -> tuple[float, ...]:
        return search.PARTS[self.laplace] if self.searches else (1.0,)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the counts in bins; of a search the last stage, as typical rows would make it."""
        if not self.searches:
            return super().query(schema, neighbours)
        return self._asked([self._typical_cut(name, schema, neighbours) for name in self.columns], neighbours)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask in stages, or for all bins at once."""
        if not self.searches:
            return (yield from super().conduct(schema, neighbours))
        parts, number = self.stages(), schema.number
        cuts = [search.first(name, number(name)) for name in self.columns]
        ranks = {name: Ranks(number(name).low, number(name).high) for name in self.columns}
        for stage in range(len(parts)):
            answer = yield self._asked(cuts, neighbours)
            released = zip(cuts, answer.sums, answer.noise, strict=True)
            for cut, (counts,), (noise,) in released:
                ranks[cut.name] = _told(ranks[cut.name], cut.counted(counts, noise), answer, cut.column)
            if stage + 1 == len(parts):
                return self._found(ranks, answer.schema)
            later = parts[stage] / parts[stage + 1]
            noise = max(noise for (noise,) in answer.noise) * (later if self.laplace else math.sqrt(later))
            made = search.last if stage else search.brackets
            cuts = [
                made(name, number(name), ranks[name], self.probs, noise, _public(schema, name, neighbours))
                for name in self.columns
            ]
        raise AssertionError("the last stage returns")

    def finish(self, answer: Answer) -> list[Estimate]:
        """Return what counts in bins say; of a search what its last stage would, after typical ones."""
        if self.searches:
            return self._found(self._typically(answer), answer.schema)
        estimates = []
        for name, curve in zip(self.columns, self.curves(answer), strict=True):
            column = answer.schema.number(name)
            for prob in self.probs:
                label = f"{name} quantile {prob:g}"
                missing = unknown(label, column.low, column.high)
                estimates.append(missing if curve is None else curve.quantile(label, prob))
        warn_of_unknown(estimates)
        return estimates

    def _asked(self, cuts: Sequence[search.Cut], neighbours: Neighbours) -> Query:
        l1 = sum(cut.l1(neighbours) for cut in cuts)
        squared = sum(cut.l2(neighbours) ** 2 for cut in cuts)
        return Query(tuple(cut.block for cut in cuts), ((1.0,),) * len(cuts), math.sqrt(squared), l1=l1)

    def _found(self, ranks: Mapping[str, Ranks], schema: Schema) -> list[Estimate]:
        estimates = []
        for name in self.columns:
            column, known = schema.number(name), ranks[name]
            clear = enough(known.count, known.count_noise)
            for prob in self.probs:
                label = f"{name} quantile {prob:g}"
                hidden = unknown(label, column.low, column.high)
                estimates.append(known.estimate(label, prob) if clear else hidden)
        warn_of_unknown(estimates)
        return estimates

    def _typical_cut(self, name: str, schema: Schema, neighbours: Neighbours) -> search.Cut:
        """Return the last stage's cut of typical rows."""
        column = schema.number(name)
        search.first(name, column)  # refuses bounds that are too far apart
        edges = np.linspace(column.low, column.high, _BINS + 1)
        below = np.append(0.0, np.cumsum(Axis(name, _cut(edges)).fractions(schema)))
        inner = search.inner(np.interp(self.probs, below, _cut(edges)).tolist(), column.low, column.high)
        public = _public(schema, name, neighbours) and len(inner) == 1
        return search.Cut(name, column, inner, public)

    def _typically(self, answer: Answer) -> dict[str, Ranks]:
        """Return what is known after a last stage, if the earlier ones saw typical rows."""
        schema, parts = answer.schema, self.stages()
        neighbours: Neighbours = "add-remove" if answer.rows is None else "replace-one"
        earlier = parts[-1] / parts[-2]
        ranks = {}
        for name, (counts,), (noise,) in zip(self.columns, answer.sums, answer.noise, strict=True):
            column, cut = schema.number(name), self._typical_cut(name, schema, neighbours)
            edges = _cut(np.linspace(column.low, column.high, 65))
            rows = float(np.sum(counts)) if answer.rows is None else float(answer.rows)
            typical = rows * Axis(name, edges).fractions(schema)
            before = noise * (earlier if self.laplace else math.sqrt(earlier))
            known = Counted(edges[1:-1], typical, before)
            begun = Ranks(column.low, column.high, (known,))
            ranks[name] = _told(begun, cut.counted(counts, noise), answer, column)
        return ranks

    def between(self, schema: Schema) -> dict[str, float]:
        """Return half a step for whole numbers: noise decides where between two of them a quantile is put."""
        whole = [name for name in self.columns if schema.number(name).integer]
        return {f"{name} quantile {prob:g}": _HALF_STEP for name in whole for prob in self.probs}

    def describe(self) -> str:
        how = "a search in three stages" if self.searches else f"counts in {self.bins} bins"
        named = {(0.5,): "median", (0.25, 0.75): "quartiles", (0.25, 0.5, 0.75): "median and quartiles"}
        what = named.get(self.probs) or f"quantiles {joined([f'{prob:g}' for prob in self.probs])}"
        asked = f"{what} of {joined(self.columns)}"
        return f"{asked}, by {how}" if self.searches else f"{asked}, from {how}"

    def keys(self) -> dict[str, Any]:
        return {key: value for key, value in super().keys().items() if key != "bins" or value}

    def figures(self, release: Release) -> Sequence[Figure]:
        marks, many = dots(release.estimates, release.title), len(self.probs)
        panels = tuple(Intervals(marks[i : i + many]) for i in range(0, len(marks), many))
        return [Figure(panels, DOTS)]

    def title(self, label: str, schema: Schema) -> str:
        unit = schema.number(label.rpartition(" quantile ")[0]).unit
        return schema.title(label) + (f" ({unit})" if unit else "")


def _probs(given: Any) -> tuple[float, ...]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        given = (given,)
    probs = tuple(check.probability("probs", prob) for prob in given)
    if not probs or len({f"{prob:g}" for prob in probs}) != len(probs):
        raise InvalidInput(
            f"probs must be different and at least one, as in (0.25, 0.5), not {list(probs)!r}"
        )
    return probs


def _public(schema: Schema, name: str, neighbours: Neighbours) -> bool:
    """Return whether everyone knows how many rows have a value of a column."""
    return neighbours == "replace-one" and not schema.number(name).missing


def _told(ranks: Ranks, counted: Counted, answer: Answer, column: Number) -> Ranks:
    total = None if answer.rows is None or column.missing else float(answer.rows)
    return replace(ranks, counted=(*ranks.counted, counted), total=total, law=answer.law)


def _cut(edges: Floats) -> Floats:
    """Return edges that rise, where bounds are so near each other that some coincide."""
    return np.unique(edges)
