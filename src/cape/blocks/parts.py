"""A part of a table as summers see it: at most 8192 rows, converted once however many blocks ask."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cape.blocks.design import Design
from cape.blocks.rows import PART_ROWS, Converter, Vectors
from cape.blocks.steps import Steps
from cape.data.schema import Schema
from cape.errors import OverflowRisk

__all__ = ["PART_ROWS", "Converters", "Part", "Summer", "Total"]

_HALF, _LOW = 32, (1 << 32) - 1

Int64 = NDArray[np.int64]


class Converters:
    """What makes vectors of rows, one for each design: their buffers serve every part of a pass."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._made: dict[Design, Converter] = {}

    def of(self, design: Design) -> Converter:
        """Return the converter of a design."""
        if design not in self._made:
            self._made[design] = Converter(self._schema, design)
        return self._made[design]


class Part:
    """At most 8192 rows: columns as they were read, and in steps or as vectors once somebody asks."""

    def __init__(
        self,
        schema: Schema,
        columns: dict[str, NDArray[Any]],
        rows: int,
        converters: Converters | None = None,
    ) -> None:
        self._schema, self._columns, self.rows = schema, columns, rows
        self._converters = converters or Converters(schema)
        self._steps: dict[str, NDArray[np.float64]] = {}
        self._vectors: dict[Design, Vectors] = {}

    @classmethod
    def kept(cls, schema: Schema, design: Design, vectors: Vectors) -> Part:
        """Return a part of which there are only vectors."""
        part = cls(schema, {}, vectors.count)
        part._vectors[design] = vectors
        return part

    def steps(self, name: str) -> NDArray[np.float64]:
        """Return a numeric column in whole steps of 2^-20, NaN for missing."""
        if name not in self._steps:
            self._steps[name] = Steps.of(self._schema.number(name)).count(self._columns[name])
        return self._steps[name]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a numeric column between its bounds, NaN for missing; a copy."""
        column = self._schema.number(name)
        clamped: NDArray[np.float64] = np.clip(self._columns[name], column.low, column.high)
        return clamped

    def codes(self, name: str) -> Int64:
        """Return a category column as codes, -1 for missing."""
        return self._columns[name]

    def vectors(self, design: Design) -> Vectors:
        """Return the vectors of the complete rows; they stand in a buffer that the next part uses again."""
        if design not in self._vectors:
            self._vectors[design] = self._converters.of(design).convert(self._columns, self.rows)
        return self._vectors[design]


class Summer(Protocol):
    """Adds up one block, part by part."""

    def add(self, part: Part) -> None:
        """Add a part of the table."""
        ...

    def result(self) -> tuple[Int64, ...]:
        """Return the sums, in the shapes of `block.arrays`."""
        ...


class Total:
    """A sum of int64 arrays, exact however large it grows: its halves are added by themselves.

    A result beyond 64 bits raises `OverflowRisk` or, where no row may decide whether there is an answer,
    is held at what 64 bits can say. Holding a sum moves no two sums further apart than they were, so that
    one person moves it by no more than before.
    """

    def __init__(self, shape: tuple[int, ...], *, hold: bool) -> None:
        self._high, self._low = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._hold = hold

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self._high.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self._high.shape

    def add(self, part: Int64 | int, place: int | slice = slice(None)) -> None:
        """Add numbers of the same shape, or to a place."""
        self._high[place] += part >> _HALF
        self._low[place] += part & _LOW

    def result(self) -> Int64:
        """Return the sum."""
        high, low = self._high + (self._low >> _HALF), self._low & _LOW
        largest = np.int64(1 << 31)
        above, below = high >= largest, high < -largest
        if (above | below).any():
            if not self._hold:
                raise OverflowRisk(
                    "a site's sum of squares would need more than 64 bits; divide its table into several "
                    "sites"
                )
            low = np.where(above, _LOW, np.where(below, 0, low))
            high = np.clip(high, -largest, largest - 1)
        return np.asarray((high << _HALF) + low, np.int64)
