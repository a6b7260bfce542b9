"""Tables of counts over columns whose values are merged into public groups, a missing cell among them.

Claim. Every row that counts is in exactly one cell of every table, whatever its cells are.
Reason. A value, a bin, or that a cell is missing has one place among a column's levels (`levels`), and a
place has one group. Where the schema says that no cell is missing, none is read (`cape.data.cells`); were
there one, it would count as the first level.
Tested in tests/unit/blocks/test_merged.py and tests/unit/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from cape.blocks.block import Array, Block, Sums
from cape.blocks.counts import Axis
from cape.blocks.parts import Part, Pass
from cape.blocks.residuals import levels
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

__all__ = ["Merged"]

_MOST_CELLS = 1 << 26


@dataclass(frozen=True)
class Merged(Block):
    """How many rows fall into each cell of several tables: an array for each, in their order.

    Attributes:
        axes: the columns.
        groups: for each axis the group of each of its levels, numbered from 0; the last level is that a cell
            is missing, if it may be.
        tables: the axes of each table, by place.
    """

    axes: tuple[Axis, ...]
    groups: tuple[tuple[int, ...], ...]
    tables: tuple[tuple[int, ...], ...]

    @property
    def reads(self) -> tuple[str, ...]:
        used = dict.fromkeys(i for table in self.tables for i in table)
        return tuple(self.axes[i].column for i in used)

    @property
    def ways(self) -> int:
        return max(map(len, self.tables), default=0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many groups each axis has."""
        return tuple(max(groups) + 1 for groups in self.groups)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        for axis, groups in zip(self.axes, self.groups, strict=True):
            if len(groups) != levels(axis, schema) or set(groups) != set(range(max(groups) + 1)):
                raise InvalidInput(f"column {axis.column!r} must have a group for each of its values")
        shapes = [tuple(self.sizes[i] for i in table) for table in self.tables]
        if any(math.prod(shape) > _MOST_CELLS for shape in shapes):
            raise InvalidInput("a table of counts must have at most 2^26 cells; merge more values")
        return tuple(Array("counts", shape, 0) for shape in shapes)

    def summer(self, run: Pass) -> _Tables:
        return _Tables(self)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        parts = []
        for axis, groups, size in zip(self.axes, self.groups, self.sizes, strict=True):
            shares = axis.fractions(schema)
            padded = np.pad(shares, (0, len(groups) - len(shares)))
            parts.append(np.bincount(np.array(groups), padded, size))
        return tuple(
            reduce(np.multiply.outer, [parts[i] for i in table], np.array(float(rows)))
            for table in self.tables
        )


class _Tables:
    """Counts the rows of each cell."""

    def __init__(self, block: Merged) -> None:
        self._block, self._sizes = block, block.sizes
        self._groups = [np.array(groups, np.int64) for groups in block.groups]
        self._used = sorted({i for table in block.tables for i in table})
        self._counts = [
            np.zeros(math.prod(self._sizes[i] for i in table), np.int64) for table in block.tables
        ]

    def add(self, part: Part) -> None:
        places = {i: self._places(part, i) for i in self._used}
        for table, counts in zip(self._block.tables, self._counts, strict=True):
            cell = np.zeros(part.rows, np.int64)
            for i in table:
                cell = cell * self._sizes[i] + places[i]
            counts += np.bincount(cell, minlength=counts.size)

    def _places(self, part: Part, i: int) -> Integers:
        axis, cut = self._block.axes[i], self._block.axes[i].cut
        found = part.codes(axis.column) if cut is None else cut.find(part.numbers(axis.column))
        bins = len(part.schema.category(axis.column).values) if cut is None else cut.count
        groups = self._groups[i]
        return np.asarray(groups[np.where(found < 0, bins if len(groups) > bins else 0, found)])

    def result(self) -> Sums:
        shapes: Sequence[tuple[int, ...]] = [
            tuple(self._sizes[i] for i in table) for table in self._block.tables
        ]
        return tuple(each.reshape(shape) for each, shape in zip(self._counts, shapes, strict=True))
