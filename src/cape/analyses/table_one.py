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

An SD is harder to tell than a mean: noise e in the mean of t² leaves e / (2 SD) in the SD, twice as much for
an SD of 1/4. Hence 3/2; more would be paid for by all other lines.
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

Without groups the second moment and the count are free while 1 + w + c + 2 <= 8 and w <= phi⁵/4.
Tested in tests/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cape.analyses.arguments import joined, names
from cape.analyses.histogram import one_hot
from cape.analyses.moments import Sums, Weights, enough, kurtosis
from cape.analyses.planning import Planned, unknown, warn_of
from cape.analyses.quantiles import Curve, proportion_error
from cape.analyses.tree import Tree, check_bins, depth, level_axes
from cape.release.query import Answer, Estimate, Neighbours, Query
from cape.site import Axis, Block, Counts, Moments, Number, Schema

__all__ = ["TableOne"]

Floats = NDArray[np.float64]

_MEDIAN = 2.0
_CATEGORY = 2.0
_SIZE = 0.5
_PERCENT = 100.0
_QUARTILES = (("Q1", 0.25), ("median", 0.5), ("Q3", 0.75))
_STEMS = ("mean", "SD", *(stem for stem, _ in _QUARTILES))


@dataclass(frozen=True)
class _Noisy:
    """Sums of one group, or of everyone, with the noise in each entry."""

    values: Floats
    noise: float


@dataclass(frozen=True, init=False)
class TableOne(Planned):
    """Mean (SD) and median [IQR] of numeric columns, n (%) of categories, for everyone and by group.

    >>> TableOne("age", "chol", "sex", by="disease")

    With `by`, "everyone" are the people whose group is known. Percentages are of those whose category is
    known. Counts have no sampling error, everything else does. `layout` makes the table.

    **Sensitivity**, squared: with g numeric and q category columns, 8 g + 4 q under replace-one without
    groups, 9.5 g + 4 q + 1 with them; under add-remove 4.75 g + 2 q + 1/2. Proof at the head of the module.
    """

    kind: ClassVar[str] = "table-one"
    shape_matters: ClassVar[bool] = True
    columns: tuple[str, ...]
    by: str | None
    bins: int

    def __init__(self, *columns: str, by: str | None = None, bins: int = 64) -> None:
        names(columns if by is None else (*columns, by))
        object.__setattr__(self, "columns", names(columns))
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "bins", check_bins(bins))

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the moments, the counts on every level and the counts of categories, by group."""
        if self.by is not None:
            schema.category(self.by)
        group = () if self.by is None else (Axis(self.by),)
        numeric, weights = self._numeric(schema), self._weights(neighbours)
        blocks: list[Block] = []
        scales: list[tuple[float, ...]] = []
        if self._sized(neighbours):
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
        weights = self._weights(neighbours)
        held, within = (_SIZE if self._sized(neighbours) else 0.0), 0.0
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
            return within
        return max(within, 2 * held if len(schema.category(self.by).values) > 1 else held)

    def finish(self, answer: Answer) -> list[Estimate]:
        """Return every number of the table, group after group."""
        estimates = []
        for group, parts in self._groups(answer):
            estimates += self._column(answer, f" | {group}" if self.by else "", parts)
        warn_of(estimates)
        return estimates

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        return f"table one of {joined(self.columns)}" + (f", by {self.by}" if self.by else "")

    def layout(self, estimates: Sequence[Estimate]) -> tuple[list[str], list[list[str]]]:
        """Return the table as a paper prints it: the heads of its columns, and its rows.

        Digits that the standard error makes meaningless are left out. An SD whose interval starts at 0
        is given by its end, as in "< 12".
        """
        found = {estimate.label: estimate for estimate in estimates}
        groups = [label[4:] for label in found if label.startswith("n | ")] if self.by else [""]
        ends = [f" | {group}" if group else "" for group in groups]
        header = [""] + [
            f"{group or 'overall'} (n = {_shown(found['n' + end])})"
            for group, end in zip(groups, ends, strict=True)
        ]
        rows = []
        for name in self.columns:
            if f"{name} mean{ends[0]}" in found:
                ours = [[found[f"{name} {stem}{end}"] for stem in _STEMS] for end in ends]
                rows.append([f"{name}, mean (SD)", *(f"{_shown(m)} ({_shown_sd(sd)})" for m, sd, *_ in ours)])
                middle = [[_shown(quartile) for quartile in quartiles] for _, _, *quartiles in ours]
                rows.append([f"{name}, median [IQR]", *(f"{m} [{low}, {high}]" for low, m, high in middle)])
                continue
            start, stop = f"{name}=", f" n{ends[0]}"
            for label in found:
                if label.startswith(start) and label.endswith(stop):
                    stem = label.removesuffix(stop)
                    shares = [
                        f"{_shown(found[f'{stem} n{e}'])} ({_shown(found[f'{stem} %{e}'])}%)" for e in ends
                    ]
                    rows.append([f"{name} = {stem.removeprefix(start)}, n (%)", *shares])
        return header, rows

    def to_dict(self) -> dict[str, Any]:
        """Return what a study file would say."""
        by = {} if self.by is None else {"by": self.by}
        return {"kind": self.kind, "columns": list(self.columns), **by, "bins": self.bins}

    def _numeric(self, schema: Schema) -> tuple[str, ...]:
        return tuple(name for name in self.columns if isinstance(schema[name], Number))

    def _sized(self, neighbours: Neighbours) -> bool:
        return self.by is not None or neighbours == "add-remove"

    def _weights(self, neighbours: Neighbours) -> Weights:
        if self._sized(neighbours):
            return Weights(1.0, 1.5, 0.25, _MEDIAN)
        return Weights(1.0, 2.75, 2.25, _MEDIAN)

    def _groups(self, answer: Answer) -> Iterator[tuple[str, Iterator[_Noisy]]]:
        """Yield the arrays of everyone, then of each group, in the order of the query."""
        flat = [
            (array, std)
            for arrays, stds in zip(answer.sums, answer.noise, strict=True)
            for array, std in zip(arrays, stds, strict=True)
        ]
        if self.by is None:
            yield "", (_Noisy(array, std) for array, std in flat)
            return
        by = answer.schema.category(self.by)
        (sizes, noise), *rest = flat
        groups = len(by.values)
        everyone = _Noisy(sizes.sum(axis=0), noise * math.sqrt(groups))
        if answer.rows is not None and not by.missing:  # then the sizes add up to what everyone knows
            sizes = sizes + (answer.rows - everyone.values) / groups
            noise *= math.sqrt(1 - 1 / groups)
            everyone = _Noisy(np.asarray(float(answer.rows)), 0.0)
        sums = (_Noisy(array.sum(axis=0), std * math.sqrt(groups)) for array, std in rest)
        yield "overall", chain([everyone], sums)
        for i, value in enumerate(by.values):
            of_group = (_Noisy(array[i], std) for array, std in rest)
            yield f"{self.by}={value}", chain([_Noisy(sizes[i], noise)], of_group)

    def _column(self, answer: Answer, end: str, parts: Iterator[_Noisy]) -> list[Estimate]:
        """Return the estimates of one column of the table."""
        schema, public = answer.schema, answer.rows if self.by is None else None
        if public is None:
            size = next(parts)
            estimates = [_count(f"n{end}", float(size.values), size.noise, answer.rows)]
        else:
            estimates = [Estimate(f"n{end}", float(public), 0.0, 0.0)]
        numeric = self._numeric(schema)
        moments = [next(parts) for _ in range(3)] if numeric else []
        for name in self.columns:
            column = schema[name]
            if isinstance(column, Number):
                exact = None if column.missing else public
                levels = [next(parts) for _ in range(depth(self.bins))]
                estimates += self._number(name, end, column, numeric.index(name), moments, levels, exact)
            else:
                estimates += _shares(name, end, column.values, next(parts), answer.rows)
        return estimates

    def _number(
        self,
        name: str,
        end: str,
        column: Number,
        place: int,
        moments: list[_Noisy],
        levels: list[_Noisy],
        exact: int | None,
    ) -> list[Estimate]:
        counts, first, second = moments
        root = (float(counts.values[place]), counts.noise) if exact is None else (float(exact), 0.0)
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
    name: str, end: str, values: Sequence[object], counts: _Noisy, rows: int | None
) -> list[Estimate]:
    """Return n and % of each category; % is of the people whose category is known."""
    total, cells = float(counts.values.sum()), len(values)
    known = enough(total, counts.noise * math.sqrt(cells))
    estimates = []
    for value, found in zip(values, counts.values, strict=True):
        estimates.append(_count(f"{name}={value} n{end}", float(found), counts.noise, rows))
        label = f"{name}={value} %{end}"
        if not known:
            estimates.append(unknown(label, 0.0, _PERCENT))
            continue
        share = min(max(float(found) / total, 0.0), 1.0)
        noise = counts.noise * math.sqrt((1 - share) ** 2 + (cells - 1) * share**2) / total
        sampling = proportion_error(share, total)
        estimates.append(
            Estimate(label, _PERCENT * share, _PERCENT * sampling, _PERCENT * noise, (0.0, _PERCENT))
        )
    return estimates


def _shown(estimate: Estimate) -> str:
    """Return the value with the digits that its standard error leaves meaningful."""
    return _rounded(estimate.value, estimate.standard_error)


def _rounded(value: float, error: float) -> str:
    digits = 0 if error == 0 else min(max(-math.floor(math.log10(error)), 0), 6)
    return f"{value:,.{digits}f}"


def _shown_sd(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return _shown(estimate) if low > 0 else f"< {_rounded(high, estimate.standard_error)}"
