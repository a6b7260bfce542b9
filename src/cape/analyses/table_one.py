"""The first table of a clinical paper, overall and by group, from one joint release.

*How the release is shared.* When a row moves from one group to another, median [IQR] and n (%) move by at
most 4 each, squared; mean (SD), which are two numbers, by 5.5; the numbers of people at the head of the
columns by 1.

| line | arrays | weights (one over the squared scale) |
|---|---|---|
| mean (SD) | sums of t, of t², count | 1, 3/2, 1/4; without groups, replace-one: 1, 11/4, 9/4 |
| median [IQR] | counts on L levels | 2 / L each, 2 in all |
| n (%) | counts of categories | 2 |
| n | people in each group | 1/2 |

An SD is harder to estimate than a mean: noise e in the mean of t² leaves e / (2 SD) in the SD, twice as
much for an SD of 1/4. Hence 3/2; a larger weight would make all other lines noisier.
The count of the first line is also the root of the tree of the second, and the better for it; the tree's
counts give the kurtosis that the error of the SD needs.

Claim. One row moves the sums, each divided by its scale, by at most the root of `TableOne.moved`.
Reason. Let R be the most that one row holds, squared: the sum of 1 + w + c + 2 over numeric columns (w and
c the weights of t² and of the count), of 2 over category columns, and 1/2 for its group. A complete row with
|t| = 1 attains it.

- *Added or removed*: R.
- *Replaced, in the same group* (or without groups): columns move independently, so the suprema add. A
  numeric column moves by 4 + 2 · 2 (t = 1 against t' = -1, which differ on every level), or by 1 + w + c + 2
  against a missing cell: `Weights.moved`. A category column moves by 2 · 2. The group's size stays.
- *Replaced, into another group*: groups share no number, so the squares of the two rows add: 2 R.
- *Replaced, group missing*: such a row adds nothing: R.
- *Replaced by a row that does not count* (the schema is open): R; without groups the size is then asked for.

Without groups the second moment and the count are free while 1 + w + c + 2 <= 8 and w <= phi⁵/4.
Tested in tests/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cape.analyses.histogram import one_hot
from cape.analyses.moments import Sums, Weights, enough, kurtosis
from cape.analyses.quantiles import Curve, proportion_error
from cape.analyses.tree import Tree, check_bins, depth, level_axes
from cape.arrays import Floats
from cape.blocks import Axis, Block, Counts, Moments
from cape.data import Number, Schema
from cape.engine.arguments import joined, names
from cape.engine.estimates import unknown, warn_of_unknown
from cape.engine.query import Analysis, Answer, Estimate, Neighbours, Query
from cape.engine.result import Release
from cape.show import Figure, Intervals, Mark, Table
from cape.show.figures import DOTS, extent
from cape.show.numbers import rounded
from cape.show.tables import listed

__all__ = ["TableOne"]


_MEDIAN = 2.0
_CATEGORY = 2.0
_SIZE = 0.5
_PERCENT = 100.0
_LEAST_NOISE = 1e-9  # in place of 0, so that an exact count outweighs all others
_QUARTILES = (("Q1", 0.25), ("median", 0.5), ("Q3", 0.75))
_STEMS = ("mean", "SD", *(stem for stem, _ in _QUARTILES))


@dataclass(frozen=True)
class _Noisy:
    """Sums with the noise in each entry; the first axis is that of groups, until it is taken off."""

    values: Floats
    noise: float

    def of(self, group: int) -> _Noisy:
        return _Noisy(self.values[group], self.noise)

    @property
    def total(self) -> _Noisy:
        """The sums over all groups."""
        return _Noisy(self.values.sum(axis=0), self.noise * math.sqrt(len(self.values)))

    @property
    def within(self) -> _Noisy:
        """The sum over each group's entries."""
        cells = math.prod(self.values.shape[1:])
        return _Noisy(self.values.reshape(-1, cells).sum(axis=1), self.noise * math.sqrt(cells))


@dataclass(frozen=True)
class _Arrays:
    """What was released: people, moments of numbers, and the levels or the counts of each column."""

    size: _Noisy
    moments: tuple[_Noisy, ...]
    columns: dict[str, tuple[_Noisy, ...]]

    def each(self, pick: Callable[[_Noisy], _Noisy]) -> _Arrays:
        """Return the same of one group, or of all."""
        columns = {name: tuple(map(pick, arrays)) for name, arrays in self.columns.items()}
        return _Arrays(self.size, tuple(map(pick, self.moments)), columns)


@dataclass(frozen=True, init=False)
class TableOne(Analysis):
    """Mean (SD) and median [IQR] of numeric columns, n (%) of categories, for everyone and by group.

    >>> TableOne("age", "chol", "sex", by="disease")

    With `by`, "everyone" are the people whose group is known. Percentages are of those whose category is
    known. Counts have no sampling error, everything else does. All that counts the people of a group (its
    size, and each column that misses no cell) makes one number, and the counts of such columns are brought
    to it; overall it is the public number of rows, if no group is missing. `layout` makes the table.

    **Sensitivity**, squared: with g numeric and q category columns, 8 g + 4 q under replace-one without
    groups, 9.5 g + 4 q + 1 with them; under add-remove 4.75 g + 2 q + 1/2. Proof at the head of the module.
    """

    kind: ClassVar[str] = "table-one"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "sex"], "by": "disease"}
    columns: tuple[str, ...]
    by: str | None
    bins: int

    def __init__(self, *columns: str, by: str | None = None, bins: int = 64) -> None:
        names(columns if by is None else (*columns, by))
        self._set(columns=names(columns), by=by, bins=check_bins(bins))

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        if self.by is not None:
            schema.category(self.by)
        group = () if self.by is None else (Axis(self.by),)
        sized = self._sized(schema, neighbours)
        numeric, weights = self._numeric(schema), _weights(sized)
        blocks: list[Block] = []
        scales: list[tuple[float, ...]] = []
        if sized:
            blocks.append(Counts(group))
            scales.append((1 / math.sqrt(_SIZE),))
        if numeric:
            blocks.append(Moments(numeric, by=self.by))
            scales.append(weights.scales)
        for name in self.columns:
            column = schema[name]
            if isinstance(column, Number):
                blocks += [Counts((*group, axis)) for axis in level_axes(name, column, self.bins)]
                scales += [(math.sqrt(depth(self.bins) / _MEDIAN),)] * depth(self.bins)
            else:
                blocks.append(Counts((*group, Axis(name))))
                scales.append((1 / math.sqrt(_CATEGORY),))
        return Query(tuple(blocks), tuple(scales), math.sqrt(self.moved(schema, neighbours)))

    def moved(self, schema: Schema, neighbours: Neighbours) -> float:
        """Return the most that one row changes the sums, squared: proof at the head of the module."""
        sized = self._sized(schema, neighbours)
        weights, size = _weights(sized), _SIZE if sized else 0.0
        held, within = size, 0.0
        for name in self.columns:
            column = schema[name]
            if isinstance(column, Number):
                held += weights.norm
                within += weights.moved("replace-one", column.missing)
            else:
                held += _CATEGORY
                within += _CATEGORY * one_hot("replace-one", len(column.values))
        if neighbours == "add-remove":
            return held
        if self.by is None:
            return max(within, held) if schema.open else within
        return max(within, 2 * held if len(schema.category(self.by).values) > 1 else held)

    def finish(self, answer: Answer) -> list[Estimate]:
        estimates = []
        for group, arrays in self._groups(answer):
            estimates += self._column(answer, f" | {group}" if self.by else "", arrays)
        warn_of_unknown(estimates)
        return estimates

    def describe(self) -> str:
        return f"table one of {joined(self.columns)}" + (f", by {self.by}" if self.by else "")

    def tables(self, release: Release) -> Sequence[Table]:
        paper = self.layout(release.estimates, release.schema)
        return [paper, listed(release.estimates, release.title, folded=True)]

    def layout(self, estimates: Sequence[Estimate], schema: Schema) -> Table:
        """Return the table as a paper prints it.

        Digits that the standard error makes meaningless are left out. An SD whose interval starts at 0
        is given by its end, as in "< 12".
        """
        found = {estimate.label: estimate for estimate in estimates}
        groups = [label[4:] for label in found if label.startswith("n | ")] if self.by else [""]
        ends = [f" | {group}" if group else "" for group in groups]
        columns = [""]
        for group, end in zip(groups, ends, strict=True):
            columns.append(f"{schema.title(group) or 'overall'} (n = {_shown(found['n' + end], 0)})")
        rows: list[tuple[str, ...]] = []
        for name in self.columns:
            column = schema[name]
            if isinstance(column, Number):
                ours = [[found[f"{name} {stem}{end}"] for stem in _STEMS] for end in ends]
                middle = [_quartiles(quartiles) for _, _, *quartiles in ours]
                rows.append((schema.title(name),))
                rows.append(("mean (SD)", *(f"{_shown(m)} ({_shown_sd(sd)})" for m, sd, *_ in ours)))
                rows.append(("median [IQR]", *middle))
                continue
            rows.append((f"{schema.label(name)}, n (%)",))
            for value in column.values:
                stem = f"{name}={value}"
                rows.append(
                    (str(value), *(_share(found[f"{stem} n{e}"], found[f"{stem} %{e}"]) for e in ends))
                )
        return Table(tuple(columns), tuple(rows))

    def figures(self, release: Release) -> Sequence[Figure]:
        panels: dict[str, list[Mark]] = {}
        for e in release.estimates:
            stem, _, group = e.label.partition(" | ")
            if stem.endswith((" mean", " %")):
                mark = Mark.of(e, release.schema.title(group) or "everyone")
                panels.setdefault(stem, []).append(mark)
        percent = extent([m for stem, marks in panels.items() if stem.endswith(" %") for m in marks])
        drawn = tuple(
            Intervals(tuple(marks), release.title(stem), ends=tuple(percent) if stem.endswith(" %") else None)
            for stem, marks in panels.items()
        )
        return [Figure(drawn, DOTS)]

    def keys(self) -> dict[str, Any]:
        by = {} if self.by is None else {"by": self.by}
        return {"columns": list(self.columns), **by, "bins": self.bins}

    def _numeric(self, schema: Schema) -> tuple[str, ...]:
        return tuple(name for name in self.columns if isinstance(schema[name], Number))

    def _sized(self, schema: Schema, neighbours: Neighbours) -> bool:
        return self.by is not None or schema.open or neighbours == "add-remove"

    def _groups(self, answer: Answer) -> Iterator[tuple[str, _Arrays]]:
        """Yield the arrays of everyone, then of each group."""
        groups = 1 if self.by is None else len(answer.schema.category(self.by).values)
        flat = iter(
            _Noisy(array if self.by is not None else array[None], std)
            for arrays, stds in zip(answer.sums, answer.noise, strict=True)
            for array, std in zip(arrays, stds, strict=True)
        )
        head = [next(flat)] if self.by is not None or answer.rows is None else []
        moments = tuple(itertools.islice(flat, 3 if self._numeric(answer.schema) else 0))
        columns = {
            name: tuple(
                itertools.islice(flat, depth(self.bins) if isinstance(answer.schema[name], Number) else 1)
            )
            for name in self.columns
        }
        size = self._sizes(answer, groups, [*head, *self._counted(answer.schema, moments, columns)])
        known = self.by is None or not answer.schema.category(self.by).missing
        all_of_them = size.total
        if answer.rows is not None and known:
            all_of_them = _Noisy(np.asarray(float(answer.rows)), 0.0)
        arrays = _Arrays(size, moments, columns)
        yield "overall", replace(arrays.each(lambda array: array.total), size=all_of_them)
        if self.by is not None:
            for i, value in enumerate(answer.schema.category(self.by).values):
                of_group = arrays.each(lambda array, i=i: array.of(i))  # type: ignore[misc]
                yield f"{self.by}={value}", replace(of_group, size=size.of(i))

    def _counted(
        self, schema: Schema, moments: Sequence[_Noisy], columns: Mapping[str, Sequence[_Noisy]]
    ) -> Iterator[_Noisy]:
        """Yield the sizes of groups as columns that miss no cell count them."""
        numeric = self._numeric(schema)
        for name in self.columns:
            if schema[name].missing:
                continue
            if name in numeric:
                yield _Noisy(moments[0].values[:, numeric.index(name)], moments[0].noise)
            else:
                yield columns[name][0].within

    def _sizes(self, answer: Answer, groups: int, counted: Sequence[_Noisy]) -> _Noisy:
        """Return how many people are in each group: an average of all counts of them, by their noise.

        Where the number of rows is public and no group is missing, the sizes add up to it: the nearest that
        do have 1 - 1/groups of the variance.
        """
        known = self.by is None or not answer.schema.category(self.by).missing
        if answer.rows is not None and known and groups == 1:
            return _Noisy(np.array([float(answer.rows)]), 0.0)
        weights = [1 / max(each.noise, _LEAST_NOISE) ** 2 for each in counted]
        sizes = np.average([each.values for each in counted], axis=0, weights=weights)
        noise = 0.0 if all(each.noise == 0 for each in counted) else 1 / math.sqrt(sum(weights))
        if answer.rows is not None and known:
            sizes = sizes + (answer.rows - sizes.sum()) / groups
            noise *= math.sqrt(1 - 1 / groups)
        return _Noisy(sizes, noise)

    def _column(self, answer: Answer, end: str, arrays: _Arrays) -> list[Estimate]:
        """Return the estimates of one column of the table."""
        schema, size = answer.schema, arrays.size
        estimates = [_count(f"n{end}", float(size.values), size.noise, answer.rows)]
        numeric = self._numeric(schema)
        for name in self.columns:
            column, found = schema[name], arrays.columns[name]
            total = None if column.missing else size
            if isinstance(column, Number):
                place = numeric.index(name)
                estimates += self._number(name, end, column, place, arrays.moments, found, total)
            else:
                estimates += _shares(name, end, column.values, found[0], total, answer.rows)
        return estimates

    def _number(
        self,
        name: str,
        end: str,
        column: Number,
        place: int,
        moments: Sequence[_Noisy],
        levels: Sequence[_Noisy],
        total: _Noisy | None,
    ) -> list[Estimate]:
        counts, first, second = moments
        root = (float(counts.values[place]), counts.noise)
        if total is not None:
            root = (float(total.values), total.noise)
        tree = Tree.fit(
            [np.array([root[0]]), *(level.values for level in levels)],
            [root[1], *(level.noise for level in levels)],
        )
        sums = Sums(
            float(tree.prefixes[-1]),
            float(first.values[place]),
            float(second.values[place]),
            math.sqrt(tree.root),
            first.noise,
            second.noise,
            kurtosis(levels[min(1, len(levels) - 1)].values, levels[0].noise),
        )
        curve = Curve.of(np.linspace(column.low, column.high, self.bins + 1).tolist(), tree)
        quartiles = [
            unknown(f"{name} {what}{end}", column.low, column.high)
            if curve is None
            else curve.quantile(f"{name} {what}{end}", prob)
            for what, prob in _QUARTILES
        ]
        return [
            sums.mean_estimate(f"{name} mean{end}", column),
            sums.deviation_estimate(f"{name} SD{end}", column),
            *quartiles,
        ]


def _count(label: str, value: float, noise: float, rows: int | None) -> Estimate:
    most = math.inf if rows is None else float(rows)
    return Estimate(label, min(max(value, 0.0), most), 0.0, noise, (0.0, most))


def _shares(
    name: str, end: str, values: Sequence[object], counts: _Noisy, total: _Noisy | None, rows: int | None
) -> list[Estimate]:
    """Return n and % of each category; % is of the people whose category is known.

    `total` is what counts add up to if no cell is missing: they are brought to it, each by the same number.
    By how much a count differs from the mean of all is independent of the sum, and hence of any total that
    was made of it: with noise s in each of k counts and t in the total, a count has the variance
    s² (1 - 1/k) + t² / k², and a share p of the total s² (1 - 1/k) + t² (p - 1/k)², over its square. Counts
    that may miss cells are their own total, t² = k s².
    """
    cells = len(values)
    own = counts.noise * math.sqrt(1 - 1 / cells)
    if total is None:
        total = _Noisy(counts.values.sum(), counts.noise * math.sqrt(cells))
    whole = float(total.values)
    brought = counts.values + (whole - counts.values.sum()) / cells
    known = enough(whole, total.noise)
    estimates = []
    for value, found in zip(values, brought, strict=True):
        noise = math.hypot(own, total.noise / cells)
        estimates.append(_count(f"{name}={value} n{end}", float(found), noise, rows))
        label = f"{name}={value} %{end}"
        if not known:
            estimates.append(unknown(label, 0.0, _PERCENT))
            continue
        share = min(max(float(found) / whole, 0.0), 1.0)
        noise = math.hypot(own, (share - 1 / cells) * total.noise) / whole
        sampling = proportion_error(share, whole)
        estimates.append(
            Estimate(label, _PERCENT * share, _PERCENT * sampling, _PERCENT * noise, (0.0, _PERCENT))
        )
    return estimates


def _weights(sized: bool) -> Weights:
    return Weights(1.0, 1.5, 0.25, _MEDIAN) if sized else Weights(1.0, 2.75, 2.25, _MEDIAN)


def _shown(estimate: Estimate, most: int | None = None) -> str:
    """Return the value with the digits that its standard error leaves meaningful."""
    return rounded(estimate.value, estimate.standard_error, most)


def _shown_sd(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return _shown(estimate) if low > 0 else f"< {rounded(high, estimate.standard_error)}"


def _quartiles(estimates: Sequence[Estimate]) -> str:
    """Return the median and the quartiles, all to the place of the least precise."""
    error = max(estimate.standard_error for estimate in estimates)
    low, median, high = (rounded(estimate.value, error) for estimate in estimates)
    return f"{median} [{low}, {high}]"


def _share(count: Estimate, percent: Estimate) -> str:
    return f"{_shown(count, 0)} ({_shown(percent)}%)"
