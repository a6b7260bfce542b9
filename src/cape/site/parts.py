"""A part of a table as summers see it: at most 8192 rows, converted once however many blocks ask."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cape.errors import OverflowRisk
from cape.site.design import Design
from cape.site.rows import PART_ROWS, Converter, Vectors
from cape.site.schema import Schema
from cape.site.steps import Steps

__all__ = ["PART_ROWS", "Converters", "Part", "Summer", "require_room"]

_ROOM = 2**63 - 2**54

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


def require_room(largest: int) -> None:
    """Raise `OverflowRisk` unless a total of squares can take another part."""
    if largest >= _ROOM:
        raise OverflowRisk(
            "a site's sum of squares would need more than 64 bits; divide its table into several sites"
        )
