"""The share of each category, of everyone or by group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.columns import OfColumns
from cape.analyses.describe.histogram import one_hot
from cape.analyses.empty import unknown_groups
from cape.blocks import Axis, Counts
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Answer, Neighbours, Query
from cape.engine.result import Release
from cape.stats.estimates import Estimate, unknown, warn_of_unknown
from cape.stats.moments import enough
from cape.stats.proportions import Share

__all__ = ["Proportion"]


@dataclass(frozen=True, init=False)
class Proportion(OfColumns):
    """The population's share of each category among the rows where it is known, of everyone or by group.

    >>> Proportion("ill"), Proportion("ill", "stage", by="sex")

    Intervals are Wilson's, with the noise in the count and in the total (`shares`): they cover small shares
    too, where a normal interval would not.

    **Sensitivity** sqrt(2 columns) under replace-one, sqrt(columns) under add-remove: a row is counted in
    one cell of each column's table (by group), so that each moves by `one_hot`, and the squares add up. Two
    rows that differ in every column attain it; with groups, two rows of different groups. In the L1 norm
    the moves themselves add up: 2 columns, or columns.
    """

    kind: ClassVar[str] = "proportion"
    example: ClassVar[dict[str, Any]] = {"columns": ["disease"], "by": "sex"}
    by: str | None

    def __init__(self, *columns: str, by: str | None = None) -> None:
        names(columns if by is None else (*columns, by))
        self._set(columns=names(columns), by=by)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        blocks = tuple(Counts((*self._groups, Axis(name))) for name in self.columns)
        moved = sum(one_hot(neighbours, block.arrays(schema)[0].size) for block in blocks)
        return Query(blocks, tuple((1.0,) for _ in blocks), math.sqrt(moved), l1=moved)

    def finish(self, answer: Answer) -> list[Estimate]:
        estimates = list(self._estimates(answer))
        warn_of_unknown(estimates)
        return estimates

    def describe(self) -> str:
        return f"share of each category of {joined(self.columns)}" + (f", by {self.by}" if self.by else "")

    def keys(self) -> dict[str, Any]:
        return {"columns": list(self.columns), **({} if self.by is None else {"by": self.by})}

    def title(self, label: str, schema: Schema) -> str:
        return " | ".join(map(schema.title, label.split(" | ")))

    def notes(self, release: Release) -> Sequence[str]:
        if self.by is None:
            return ()
        private = math.isfinite(release.guarantee.mu)
        return unknown_groups(self.by, list(release.estimates), release.schema, private=private)

    @property
    def _groups(self) -> tuple[Axis, ...]:
        return () if self.by is None else (Axis(self.by),)

    def _estimates(self, answer: Answer) -> Iterator[Estimate]:
        schema = answer.schema
        ends: Sequence[str] = [""]
        if self.by is not None:
            ends = [f" | {self.by}={value}" for value in schema.category(self.by).values]
        for name, (counts,), (noise,) in zip(self.columns, answer.sums, answer.noise, strict=True):
            values = schema.category(name).values
            table = np.asarray(counts, np.float64).reshape(len(ends), len(values))
            read = (name,) if self.by is None else (name, self.by)
            tied = answer.rows is not None and not any(schema[each].missing for each in read)
            if tied and answer.rows is not None:
                table = table + (answer.rows - table.sum()) / table.size
            for row, end in zip(table, ends, strict=True):
                whole = float(row.sum())
                for value, part in zip(values, row.tolist(), strict=True):
                    label = f"{name}={value}{end}"
                    if whole <= 0:
                        yield unknown(label, 0.0, 1.0)
                        continue
                    size = table.size if tied else None
                    share = Share.of(part, whole, noise, len(values), size, answer.law)
                    if not enough(whole, math.sqrt(share.of_whole)):
                        yield unknown(label, 0.0, 1.0)
                        continue
                    yield Estimate(label, share.value, share.sampling, share.noise, (0.0, 1.0), share)
