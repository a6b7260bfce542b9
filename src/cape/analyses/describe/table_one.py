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
Tested in tests/unit/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cape.analyses.describe.histogram import one_hot
from cape.analyses.describe.table_one_model import TableOneModel
from cape.analyses.describe.tree_axes import level_axes
from cape.analyses.moments import Weights
from cape.blocks import Axis, Block, Counts, Moments
from cape.core.arrays import Floats
from cape.data import Number, Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Query
from cape.stats.balance import Balance, of_categories, of_numbers
from cape.stats.distribution import Curve
from cape.stats.estimates import Estimate, unknown, warn_of_unknown
from cape.stats.integer_totals import added_up, at_most, whole
from cape.stats.moments import Sums, enough, kurtosis
from cape.stats.proportions import proportion_error
from cape.stats.tree import Tree, check_bins, depth

__all__ = ["TableOne"]


_MEDIAN = 2.0
_CATEGORY = 2.0
_SIZE = 0.5
_PERCENT = 100.0
_LEAST_NOISE = 1e-9  # in place of 0, so that an exact count outweighs all others
_QUARTILES = (("Q1", 0.25), ("median", 0.5), ("Q3", 0.75))


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


@dataclass(frozen=True)
class _Fitted:
    """A group, or everyone: what was released, and of each number its counts made consistent, and moments."""

    name: str
    arrays: _Arrays
    numbers: dict[str, tuple[Tree, Sums]]


@dataclass(frozen=True, init=False)
class TableOne(Analysis):
    """Mean (SD) and median [IQR] of numeric columns, n (%) of categories, for everyone and by group.

    >>> TableOne("age", "chol", "sex", by="disease")

    With `by`, "everyone" are the people whose group is known. Percentages are of those whose category is
    known. Counts have no sampling error, everything else does. All that counts the people of a group (its
    size, and each column that misses no cell) makes one number; overall it is the public number of rows, if
    no group is missing. Counts are whole numbers that add up: categories and those who miss the column to
    the group, groups to everyone. With groups there is a P value for each column and a standardised mean
    difference (`balance`).

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

    def finish(self, answer: Answer) -> AnalysisResult:
        groups = [self._fitted(answer.schema, *each) for each in self._groups(answer)]
        people = self._people(answer, groups)
        estimates: list[Estimate] = []
        for place, group in enumerate(groups):
            counted = {stem: each[place] for stem, each in people.items()}
            estimates += self._column(answer, f" | {group.name}" if self.by else "", group, counted)
        if answer.rows is not None and not self._known(answer):  # some may miss their group
            left, noise = answer.rows - people["n"][0], groups[0].arrays.size.noise
            estimates.append(_count(f"{self.by} missing n", left, noise, answer.rows))
        warn_of_unknown(estimates)
        balances = tuple(self._balances(answer.schema, groups[1:]))
        model = TableOneModel(self.columns, self.by, answer.schema, tuple(estimates), balances)
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        return f"table one of {joined(self.columns)}" + (f", by {self.by}" if self.by else "")

    def keys(self) -> dict[str, Any]:
        by = {} if self.by is None else {"by": self.by}
        return {"columns": list(self.columns), **by, "bins": self.bins}

    def _known(self, answer: Answer) -> bool:
        """Return whether the sizes of groups add up to a public number of rows."""
        missing = self.by is not None and answer.schema.category(self.by).missing
        return answer.rows is not None and not missing

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
        all_of_them = size.total
        if answer.rows is not None and self._known(answer):
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
            if schema.stated[name].missing:
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
        known = self._known(answer)
        if answer.rows is not None and known and groups == 1:
            return _Noisy(np.array([float(answer.rows)]), 0.0)
        weights = [1 / max(each.noise, _LEAST_NOISE) ** 2 for each in counted]
        sizes = np.average([each.values for each in counted], axis=0, weights=weights)
        noise = 0.0 if all(each.noise == 0 for each in counted) else 1 / math.sqrt(sum(weights))
        if answer.rows is not None and known:
            sizes = sizes + (answer.rows - sizes.sum()) / groups
            noise *= math.sqrt(1 - 1 / groups)
        return _Noisy(sizes, noise)

    def _people(self, answer: Answer, groups: Sequence[_Fitted]) -> dict[str, list[int]]:
        """Return how many people there are of each kind, everyone first: whole numbers that add up.

        The sizes of groups add up to everyone, which are the public rows where they are known; the categories
        of a column, and those who miss it, add up to the size of each group (`adding_up`).
        """
        schema, parts = answer.schema, groups[1:] if self.by is not None else groups
        sizes = np.array([float(group.arrays.size.values) for group in parts])
        rows = math.inf if answer.rows is None else float(answer.rows)
        sizes = added_up(sizes, rows) if self._known(answer) else at_most(sizes, rows)
        people: dict[str, list[int]] = {"n": whole(sizes).tolist()}
        for place, group in enumerate(parts):
            size = float(people["n"][place])
            for name in self.columns:
                column = schema[name]
                if isinstance(column, Number):
                    known, stems = np.array([group.numbers[name][1].count]), [""]
                else:
                    known = group.arrays.columns[name][0].values
                    stems = [f"{name}={value} n" for value in column.values]
                if schema.stated[name].missing:
                    known = at_most(known, size)
                    known, stems = np.append(known, size - known.sum()), [*stems, f"{name} missing n"]
                else:
                    known = added_up(known, size)
                for stem, count in zip(stems, whole(known).tolist(), strict=True):
                    people.setdefault(stem, []).append(count)
        people.pop("", None)
        if self.by is None:
            return people
        return {stem: [sum(counts), *counts] for stem, counts in people.items()}

    def _balances(self, schema: Schema, groups: Sequence[_Fitted]) -> Iterator[Balance]:
        """Yield how groups differ in each column."""
        if len(groups) < 2:
            return
        for name in self.columns:
            if isinstance(schema[name], Number):
                yield of_numbers(name, [group.numbers[name][1] for group in groups])
            else:
                counts = [group.arrays.columns[name][0] for group in groups]
                yield of_categories(name, np.stack([each.values for each in counts]), counts[0].noise)

    def _column(self, answer: Answer, end: str, group: _Fitted, people: Mapping[str, int]) -> list[Estimate]:
        """Return the estimates of one column of the table."""
        schema, size = answer.schema, group.arrays.size
        estimates = [_count(f"n{end}", people["n"], size.noise, answer.rows)]
        for name in self.columns:
            column, missing = schema[name], schema.stated[name].missing
            if isinstance(column, Number):
                tree, sums = group.numbers[name]
                estimates += self._number(name, end, column, tree, sums)
                noise = sums.count_noise
            else:
                counts, total = group.arrays.columns[name][0], None if missing else size
                counted = [people[f"{name}={value} n"] for value in column.values]
                estimates += _shares(name, end, column.values, counts, total, counted, answer.rows)
                noise = counts.noise * math.sqrt(len(column.values))
            if missing:
                label, noise = f"{name} missing n", math.hypot(size.noise, noise)
                estimates.append(_count(f"{label}{end}", people[label], noise, answer.rows))
        return estimates

    def _fitted(self, schema: Schema, name: str, arrays: _Arrays) -> _Fitted:
        numbers = {each: self._tree(each, schema, arrays) for each in self._numeric(schema)}
        return _Fitted(name, arrays, numbers)

    def _tree(self, name: str, schema: Schema, arrays: _Arrays) -> tuple[Tree, Sums]:
        """Return what was counted of a number on all levels, and its moments."""
        place, levels = self._numeric(schema).index(name), arrays.columns[name]
        counts, first, second = arrays.moments
        root = (float(counts.values[place]), counts.noise)
        if not schema.stated[name].missing:
            root = (float(arrays.size.values), arrays.size.noise)
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
        return tree, sums

    def _number(self, name: str, end: str, column: Number, tree: Tree, sums: Sums) -> list[Estimate]:
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
    name: str,
    end: str,
    values: Sequence[object],
    counts: _Noisy,
    total: _Noisy | None,
    people: Sequence[int],
    rows: int | None,
) -> list[Estimate]:
    """Return n and % of each category; % is of the people whose category is known.

    `people` are the counts as they add up. `total` is what they add up to if no cell is missing: they were
    brought to it, each by the same number, unless that made one negative. By how much a count differs from
    the mean of all is independent of the sum, and hence of any total that was made of it: with noise s in
    each of k counts and t in the total, a count has the variance s² (1 - 1/k) + t² / k², and a share p of the
    total s² (1 - 1/k) + t² (p - 1/k)², over its square. Counts that may miss cells are their own total, t² =
    k s².
    """
    cells = len(values)
    own = counts.noise * math.sqrt(1 - 1 / cells)
    if total is None:
        total = _Noisy(counts.values.sum(), counts.noise * math.sqrt(cells))
    known = enough(float(total.values), total.noise) and sum(people) > 0
    estimates = []
    for value, count in zip(values, people, strict=True):
        noise = math.hypot(own, total.noise / cells)
        estimates.append(_count(f"{name}={value} n{end}", count, noise, rows))
        label = f"{name}={value} %{end}"
        if not known:
            estimates.append(unknown(label, 0.0, _PERCENT))
            continue
        whole, share = float(total.values), count / sum(people)
        noise = math.hypot(own, (share - 1 / cells) * total.noise) / whole
        sampling = proportion_error(share, whole)
        estimates.append(
            Estimate(label, _PERCENT * share, _PERCENT * sampling, _PERCENT * noise, (0.0, _PERCENT))
        )
    return estimates


def _weights(sized: bool) -> Weights:
    return Weights(1.0, 1.5, 0.25, _MEDIAN) if sized else Weights(1.0, 2.75, 2.25, _MEDIAN)
