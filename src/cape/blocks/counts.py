"""Tables of counts: how many rows fall into each cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.bins import Bins, rising
from cape.blocks.block import Array, Block, Sums
from cape.blocks.parts import Part, Pass
from cape.blocks.typical import Shape
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

if TYPE_CHECKING:
    from cape.blocks.sql import Ask, SqlColumns, Totals

__all__ = ["Axis", "Counts"]

_MOST_CELLS = 1 << 26


@dataclass(frozen=True, init=False, eq=False)
class Axis:
    """One direction of a table of counts: a category column, or a numeric one cut at rising edges.

    With edges e_0 < ... < e_n the bins are [e_0, e_1), ..., [e_n-1, e_n], values outside going to the
    first or the last. As everywhere, a cell is clamped to the schema's bounds before it is looked at.
    """

    column: str
    edges: Floats | None

    def __init__(self, column: str, edges: Iterable[float] | None = None) -> None:
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "edges", None if edges is None else rising(column, edges))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axis) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, bytes | None]:
        return self.column, None if self.edges is None else self.edges.tobytes()

    @cached_property
    def cut(self) -> Bins | None:
        """How numbers fall between the edges; None for categories."""
        return None if self.edges is None else Bins.of(self.edges)

    def bins(self, schema: Schema) -> int:
        if self.edges is None:
            return len(schema.category(self.column).values)
        schema.number(self.column)
        return len(self.edges) - 1

    def fractions(self, schema: Schema) -> Floats:
        """Return the part of typical rows that falls into each bin."""
        if self.edges is None:
            return np.array(schema.category(self.column).shares)
        inner = self.edges[1:-1]
        column = schema.number(self.column)
        under = Shape(column).below(inner)
        under = np.where(inner <= column.low, 0.0, np.where(inner > column.high, 1.0, under))
        return np.diff(np.concatenate([[0.0], under, [1.0]]))


@dataclass(frozen=True)
class Counts(Block):
    """How many rows fall into each cell of a table; a row that misses one of its columns into none.

    One array, counts, with one dimension per axis; without axes it is the number of rows. With `cell`
    only the rows of that one cell are counted, a single number: None takes in a whole axis.
    """

    axes: tuple[Axis, ...]
    cell: tuple[int | None, ...] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(axis.column for axis in self.axes)

    @property
    def ways(self) -> int:
        return len(self.axes)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        shape = self._shape(schema)
        if math.prod(shape) > _MOST_CELLS:
            raise InvalidInput(
                f"a table of counts must have at most 2^26 cells, not {' x '.join(map(str, shape))}"
            )
        if self.cell is None:
            return (Array("counts", shape, 0),)
        fits = len(self.cell) == len(shape) and all(
            place is None or 0 <= place < bins for place, bins in zip(self.cell, shape, strict=True)
        )
        if not fits:
            raise InvalidInput(f"cell must name a bin or None for each axis, not {self.cell!r}")
        return (Array("counts", (), 0),)

    def summer(self, run: Pass) -> _Cells:
        return _Cells(self, self._shape(run.schema))

    def pushed(self, columns: SqlColumns) -> Ask | None:
        from cape.blocks.sql import MOST_EDGES, Ask

        shape = self._shape(columns.schema)
        for cut in (axis.cut for axis in self.axes):
            if cut is not None and cut.width is None and cut.count >= MOST_EDGES:
                return None

        def finish(found: Mapping[int, Totals]) -> Sums:
            cells = np.zeros(math.prod(shape), np.int64)
            for cell, totals in found.items():
                cells[cell] = totals.rows
            return (self.pick(cells.reshape(shape)),)

        return Ask(finish, by=[(axis.column, axis.cut) for axis in self.axes])

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        parts = [axis.fractions(schema) for axis in self.axes]
        return (self.pick(rows * reduce(np.multiply.outer, parts, np.array(1.0))),)

    def pick(self, counts: NDArray[Any]) -> NDArray[Any]:
        """Return what was asked for out of the counts of all cells."""
        if self.cell is None:
            return counts
        return np.asarray(counts[tuple(slice(None) if i is None else i for i in self.cell)].sum())

    def _shape(self, schema: Schema) -> tuple[int, ...]:
        return tuple(axis.bins(schema) for axis in self.axes)


class _Cells:
    """Adds to one table of counts, which may be too large to make one for every part."""

    def __init__(self, block: Counts, shape: tuple[int, ...]) -> None:
        self._block, self._shape = block, shape
        self._cells = np.zeros(math.prod(shape), np.int64)

    def add(self, part: Part) -> None:
        cell = np.zeros(part.rows, np.int64)
        missing = np.zeros(part.rows, bool)
        for axis, size in zip(self._block.axes, self._shape, strict=True):
            name, cut = axis.column, axis.cut
            place = part.codes(name) if cut is None else cut.find(part.numbers(name))
            missing |= place < 0
            cell = cell * size + place
        np.add.at(self._cells, cell[~missing] if missing.any() else cell, 1)

    def result(self) -> Sums:
        return (self._block.pick(self._cells.reshape(self._shape)),)
