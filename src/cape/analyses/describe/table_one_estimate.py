"""What noisy sums say of a first table: people of groups, means, SDs, quartiles and percentages.

All counts of the same people make one number, weighted by their noise, and counts are whole numbers that add
up (`integer_totals`). Tested in tests/unit/analyses/describe/test_table_one.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cape.core.arrays import Floats
from cape.data import Number, Schema
from cape.engine.query import Answer
from cape.stats.balance import Balance, of_categories, of_numbers
from cape.stats.distribution import Curve
from cape.stats.estimates import Estimate, unknown
from cape.stats.integer_totals import added_up, at_most, whole
from cape.stats.moments import Sums, enough, kurtosis
from cape.stats.proportions import proportion_error
from cape.stats.tree import Tree, depth

__all__ = ["Reading"]

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


@dataclass(frozen=True)
class Reading:
    """A table's columns and groups, and the answer that its numbers are read from."""

    columns: tuple[str, ...]
    by: str | None
    bins: int
    answer: Answer

    @property
    def schema(self) -> Schema:
        """The schema of the answer."""
        return self.answer.schema

    @cached_property
    def _parts(self) -> list[_Fitted]:
        """Everyone, then each group."""
        return [self._fitted(*each) for each in self._groups()]

    @property
    def estimates(self) -> list[Estimate]:
        """The lines of the table, for everyone and then for each group."""
        groups, rows = self._parts, self.answer.rows
        people = self._people(groups)
        estimates: list[Estimate] = []
        for place, group in enumerate(groups):
            counted = {stem: each[place] for stem, each in people.items()}
            estimates += self._column(f" | {group.name}" if self.by else "", group, counted)
        if rows is not None and not self._known:  # some may miss their group
            left, noise = rows - people["n"][0], groups[0].arrays.size.noise
            estimates.append(_count(f"{self.by} missing n", left, noise, rows))
        return estimates

    @property
    def balances(self) -> tuple[Balance, ...]:
        """How groups differ in each column."""
        return tuple(self._balances(self._parts[1:]))

    @property
    def _known(self) -> bool:
        """Return whether the sizes of groups add up to a public number of rows."""
        missing = self.by is not None and self.schema.category(self.by).missing
        return self.answer.rows is not None and not missing

    @property
    def _numeric(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if isinstance(self.schema[name], Number))

    def _groups(self) -> Iterator[tuple[str, _Arrays]]:
        """Yield the arrays of everyone, then of each group."""
        groups = 1 if self.by is None else len(self.schema.category(self.by).values)
        flat = iter(
            _Noisy(array if self.by is not None else array[None], std)
            for arrays, stds in zip(self.answer.sums, self.answer.noise, strict=True)
            for array, std in zip(arrays, stds, strict=True)
        )
        head = [next(flat)] if self.by is not None or self.answer.rows is None else []
        moments = tuple(itertools.islice(flat, 3 if self._numeric else 0))
        columns = {
            name: tuple(
                itertools.islice(flat, depth(self.bins) if isinstance(self.schema[name], Number) else 1)
            )
            for name in self.columns
        }
        size = self._sizes(groups, [*head, *self._counted(moments, columns)])
        all_of_them = size.total
        if self.answer.rows is not None and self._known:
            all_of_them = _Noisy(np.asarray(float(self.answer.rows)), 0.0)
        arrays = _Arrays(size, moments, columns)
        yield "overall", replace(arrays.each(lambda array: array.total), size=all_of_them)
        if self.by is not None:
            for i, value in enumerate(self.schema.category(self.by).values):
                of_group = arrays.each(lambda array, i=i: array.of(i))  # type: ignore[misc]
                yield f"{self.by}={value}", replace(of_group, size=size.of(i))

    def _counted(
        self, moments: Sequence[_Noisy], columns: Mapping[str, Sequence[_Noisy]]
    ) -> Iterator[_Noisy]:
        """Yield the sizes of groups as columns that miss no cell count them."""
        numeric = self._numeric
        for name in self.columns:
            if self.schema.stated[name].missing:
                continue
            if name in numeric:
                yield _Noisy(moments[0].values[:, numeric.index(name)], moments[0].noise)
            else:
                yield columns[name][0].within

    def _sizes(self, groups: int, counted: Sequence[_Noisy]) -> _Noisy:
        """Return how many people are in each group: an average of all counts of them, by their noise.

        Where the number of rows is public and no group is missing, the sizes add up to it: the nearest that
        do have 1 - 1/groups of the variance.
        """
        known = self._known
        if self.answer.rows is not None and known and groups == 1:
            return _Noisy(np.array([float(self.answer.rows)]), 0.0)
        weights = [1 / max(each.noise, _LEAST_NOISE) ** 2 for each in counted]
        sizes = np.average([each.values for each in counted], axis=0, weights=weights)
        noise = 0.0 if all(each.noise == 0 for each in counted) else 1 / math.sqrt(sum(weights))
        if self.answer.rows is not None and known:
            sizes = sizes + (self.answer.rows - sizes.sum()) / groups
            noise *= math.sqrt(1 - 1 / groups)
        return _Noisy(sizes, noise)

    def _people(self, groups: Sequence[_Fitted]) -> dict[str, list[int]]:
        """Return how many people there are of each kind, everyone first: whole numbers that add up.

        The sizes of groups add up to everyone, which are the public rows where they are known; the categories
        of a column, and those who miss it, add up to the size of each group (`integer_totals`).
        """
        parts = groups[1:] if self.by is not None else groups
        sizes = np.array([float(group.arrays.size.values) for group in parts])
        rows = math.inf if self.answer.rows is None else float(self.answer.rows)
        sizes = added_up(sizes, rows) if self._known else at_most(sizes, rows)
        people: dict[str, list[int]] = {"n": whole(sizes).tolist()}
        for place, group in enumerate(parts):
            size = float(people["n"][place])
            for name in self.columns:
                column = self.schema[name]
                if isinstance(column, Number):
                    known, stems = np.array([group.numbers[name][1].count]), [""]
                else:
                    known = group.arrays.columns[name][0].values
                    stems = [f"{name}={value} n" for value in column.values]
                if self.schema.stated[name].missing:
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

    def _balances(self, groups: Sequence[_Fitted]) -> Iterator[Balance]:
        """Yield how groups differ in each column."""
        if len(groups) < 2:
            return
        for name in self.columns:
            if isinstance(self.schema[name], Number):
                yield of_numbers(name, [group.numbers[name][1] for group in groups])
            else:
                counts = [group.arrays.columns[name][0] for group in groups]
                yield of_categories(name, np.stack([each.values for each in counts]), counts[0].noise)

    def _column(self, end: str, group: _Fitted, people: Mapping[str, int]) -> list[Estimate]:
        """Return the estimates of one column of the table."""
        size = group.arrays.size
        estimates = [_count(f"n{end}", people["n"], size.noise, self.answer.rows)]
        for name in self.columns:
            column, missing = self.schema[name], self.schema.stated[name].missing
            if isinstance(column, Number):
                tree, sums = group.numbers[name]
                estimates += self._number(name, end, column, tree, sums)
                noise = sums.count_noise
            else:
                counts, total = group.arrays.columns[name][0], None if missing else size
                counted = [people[f"{name}={value} n"] for value in column.values]
                estimates += _shares(name, end, column.values, counts, total, counted, self.answer.rows)
                noise = counts.noise * math.sqrt(len(column.values))
            if missing:
                label, noise = f"{name} missing n", math.hypot(size.noise, noise)
                estimates.append(_count(f"{label}{end}", people[label], noise, self.answer.rows))
        return estimates

    def _fitted(self, name: str, arrays: _Arrays) -> _Fitted:
        numbers = {each: self._tree(each, arrays) for each in self._numeric}
        return _Fitted(name, arrays, numbers)

    def _tree(self, name: str, arrays: _Arrays) -> tuple[Tree, Sums]:
        """Return what was counted of a number on all levels, and its moments."""
        place, levels = self._numeric.index(name), arrays.columns[name]
        counts, first, second = arrays.moments
        root = (float(counts.values[place]), counts.noise)
        if not self.schema.stated[name].missing:
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
