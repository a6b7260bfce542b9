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

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cape.analyses.describe.histogram import one_hot
from cape.analyses.describe.table_one_estimate import Reading
from cape.analyses.describe.table_one_model import TableOneModel
from cape.analyses.describe.tree_axes import level_axes
from cape.analyses.moments import Weights
from cape.blocks import Axis, Block, Counts, Moments
from cape.data import Number, Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Query
from cape.stats.estimates import warn_of_unknown
from cape.stats.tree import check_bins, depth

__all__ = ["TableOne"]


_MEDIAN = 2.0
_CATEGORY = 2.0
_SIZE = 0.5


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
        table = Reading(self.columns, self.by, self.bins, answer)
        estimates, balances = tuple(table.estimates), table.balances
        warn_of_unknown(estimates)
        model = TableOneModel(self.columns, self.by, answer.schema, estimates, balances)
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        return f"table one of {joined(self.columns)}" + (f", by {self.by}" if self.by else "")

    def keys(self) -> dict[str, Any]:
        by = {} if self.by is None else {"by": self.by}
        return {"columns": list(self.columns), **by, "bins": self.bins}

    def _numeric(self, schema: Schema) -> tuple[str, ...]:
        return tuple(name for name in self.columns if isinstance(schema[name], Number))

    def _sized(self, schema: Schema, neighbours: Neighbours) -> bool:
        return self.by is not None or schema.open or neighbours == "add-remove"


def _weights(sized: bool) -> Weights:
    return Weights(1.0, 1.5, 0.25, _MEDIAN) if sized else Weights(1.0, 2.75, 2.25, _MEDIAN)
