"""Counts, sums and sums of squares of columns, of everybody or by group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.parts import Part
from cape.blocks.typical import Shape
from cape.core.arrays import Floats, Integers, narrowed
from cape.data.schema import Schema

if TYPE_CHECKING:
    from cape.blocks.sql import Ask, SqlColumns, Totals

__all__ = ["Moments"]


@dataclass(frozen=True)
class Moments(Block):
    """Per numeric column, over the rows where it is not missing: count, sum of t, sum of t².

    Arrays: count, first and, with `squares`, second; each of shape (columns,), or (groups, columns)
    when `by` names a category column, or (groups, groups, columns) when it names two. A row whose `by` is
    missing contributes nothing.
    """

    columns: tuple[str, ...]
    squares: bool = True
    by: str | tuple[str, ...] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.columns, *self._by)

    @property
    def _by(self) -> tuple[str, ...]:
        """The columns that group rows."""
        return () if self.by is None else (self.by,) if isinstance(self.by, str) else self.by

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        for name in self.columns:
            schema.number(name)
        shape = (*(len(schema.category(name).values) for name in self._by), len(self.columns))
        kinds = [Array("count", shape, 0), Array("first", shape, T_BITS)]
        return (*kinds, Array("second", shape, 2 * T_BITS)) if self.squares else tuple(kinds)

    def added(self, part: Part) -> Sums:
        total_sums = self._zeros(part.schema)
        sums = total_sums if self.by is None else self._flat(total_sums)
        groups = self._groups(part)
        for i, name in enumerate(self.columns):
            steps, there = part.steps(name), groups
            if np.isnan(np.add.reduce(steps)):  # a cell is missing: only then is it worth looking which
                known = ~np.isnan(steps)
                steps, there = steps[known], None if there is None else there[known]
            if there is None:
                sums[:2, i] = len(steps), np.add.reduce(steps)
                if self.squares:
                    sums[2, i] = np.dot(steps, steps)
            else:
                whole = steps.astype(np.int64)
                for values, total in zip(
                    (np.ones_like(whole), whole, whole * whole), sums[..., i], strict=False
                ):
                    by_group = np.zeros(len(total) + 1, np.int64)  # -1, for missing, is the cell at the end
                    np.add.at(by_group, there, values)
                    total[:] = by_group[:-1]
        return tuple(total_sums)

    def pushed(self, columns: SqlColumns) -> Ask:
        from cape.blocks.sql import Ask

        everyone = range(len(self.columns))

        def finish(found: Mapping[int, Totals]) -> Sums:
            total_sums = self._zeros(columns.schema).astype(object)
            sums = total_sums if self.by is None else self._flat(total_sums)
            for group, totals in found.items():
                for i in everyone:
                    place = (i,) if self.by is None else (group, i)
                    sums[(0, *place)], sums[(1, *place)] = totals.counts[i], totals.sums[i]
                    if self.squares:
                        sums[(2, *place)] = totals.products[i]
            return tuple(map(narrowed, total_sums))

        return Ask(
            finish,
            [columns.steps(name) for name in self.columns],
            products=[(i, i) for i in everyone] if self.squares else [],
            by=[(name, None) for name in self._by],
        )

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        shapes = [Shape(schema.number(name)) for name in self.columns]
        held = reduce(np.multiply.outer, [schema.category(name).shares for name in self._by], np.array(rows))
        return tuple(
            np.multiply.outer(held, [shape.power(k) for shape in shapes])
            for k in range(len(self.arrays(schema)))
        )

    def _groups(self, part: Part) -> Integers | None:
        """Return the place of each row among all groups, -1 where one is missing."""
        place: Integers | None = None
        for name in self._by:
            codes = part.codes(name)
            if place is None:
                place = codes
            else:
                many = len(part.schema.category(name).values)
                place = np.where((place < 0) | (codes < 0), -1, place * many + codes)
        return place

    @staticmethod
    def _flat(sums: Integers) -> Integers:
        """Return a view of sums with one dimension for all groups."""
        return sums.reshape(len(sums), -1, sums.shape[-1])

    def _zeros(self, schema: Schema) -> Integers:
        arrays = self.arrays(schema)
        return np.zeros((len(arrays), *arrays[0].shape), np.int64)
