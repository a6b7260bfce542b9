"""How many cells of each numeric column lie below its bounds, within them, and above.

Claim. Each row adds 1 to at most one of a column's three counts, and 0 to the others.
Reason. A cell is missing, below `low`, above `high`, or neither; comparisons with NaN are false. Cells are
compared as they were read, or derived, before any sum clamps them; an infinite cell is above or below. Two
comparisons are made of every cell, so that the time does not depend on where cells lie.
Tested in tests/unit/blocks/test_outside_bounds.py, in memory, in batches, and in databases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cape.blocks.block import Array, Block, Sums
from cape.blocks.parts import Part
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data.columns import Number
from cape.data.schema import Schema

if TYPE_CHECKING:
    from cape.blocks.sql import Ask, SqlColumns, Totals

__all__ = ["OutsideBounds"]


@dataclass(frozen=True)
class OutsideBounds(Block):
    """Counts of cells below, within and above the bounds: one array (columns, 3).

    Over the rows that count, each column by itself; a missing cell is in none.
    """

    columns: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.columns

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        for name in self.columns:
            _bounds(schema, name)
        return (Array("cells", (len(self.columns), 3), 0),)

    def added(self, part: Part) -> Sums:
        counts = np.zeros((len(self.columns), 3), np.int64)
        for i, name in enumerate(self.columns):
            column, cells = _bounds(part.schema, name), part.cells(name)
            below, above = np.count_nonzero(cells < column.low), np.count_nonzero(cells > column.high)
            present = part.rows - np.count_nonzero(np.isnan(cells))
            counts[i] = below, present - below - above, above
        return (counts,)

    def pushed(self, columns: SqlColumns) -> Ask:
        from cape.blocks.sql import Ask

        def finish(found: Mapping[int, Totals]) -> Sums:
            counts = np.zeros((len(self.columns), 3), np.int64)
            for totals in found.values():
                for i in range(len(self.columns)):
                    present, below, above = totals.counts[2 * i], *totals.sums[2 * i : 2 * i + 2]
                    counts[i] = below, present - below - above, above
            return (counts,)

        return Ask(finish, [flag for name in self.columns for flag in columns.beyond(name)])

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        counts = np.zeros((len(self.columns), 3))
        counts[:, 1] = rows
        return (counts,)


def _bounds(schema: Schema, name: str) -> Number:
    column = schema[name]
    if not isinstance(column, Number):
        raise InvalidInput(f"column {name!r} must have bounds to count what lies outside; it has categories")
    return column
