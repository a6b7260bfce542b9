"""A table as summers see it: parts of at most 8192 rows, converted once for all blocks.

Claim. Sums are the true integers: the same multiset of rows gives the same bits, whichever parts it comes in.
Reason. A part has at most 8192 rows of whole steps k with |k| <= 2^20. Its float64 sums of k, and of k^2
<= 2^40, have all partial sums at most 2^53 in magnitude, where float64 holds every integer: no addition
rounds, in whatever order numpy or BLAS adds. What a block adds in another way has a reason of its own, in
its module. Parts are added as int64, which is associative, in two halves (`Total`): a total that passes
2^63 is made of Python integers.
Tested in tests/unit/blocks/test_exact.py against Python integers, and under permutations and batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cape.blocks.design import Design
from cape.blocks.rows import PART_ROWS, Converter, Vectors
from cape.blocks.steps import Steps
from cape.core.arrays import Flags, Floats, Integers
from cape.data.schema import Number, Schema
from cape.noise import SecureStream

__all__ = ["PART_ROWS", "Part", "Pass", "Summer", "Total"]

_HALF, _LOW = 32, (1 << 32) - 1
_LARGEST = 1 << 31


class Part:
    """At most 8192 rows: columns as they were read, and in steps or as vectors on demand.

    `persons` are numbers that say whose each row is, where several may be one person's.
    """

    def __init__(
        self,
        schema: Schema,
        columns: dict[str, NDArray[Any]],
        rows: int,
        converter: Callable[[Design], Converter],
        persons: Integers | None = None,
    ) -> None:
        self.schema, self._columns, self.rows = schema, columns, rows
        self.persons = persons
        self._converter = converter
        self._steps: dict[tuple[str, Number], Floats] = {}
        self._vectors: dict[Design, Vectors] = {}

    @classmethod
    def kept(cls, schema: Schema, design: Design, vectors: Vectors, persons: Integers | None = None) -> Part:
        """Return a part of which there are only vectors."""
        part = cls(schema, {}, vectors.count, partial(Converter, schema), persons)
        part._vectors[design] = vectors
        return part

    def steps(self, name: str, column: Number | None = None) -> Floats:
        """Return a numeric column in whole steps of 2^-20, NaN for missing; cut at other bounds if given."""
        column = column or self.schema.number(name)
        if (name, column) not in self._steps:
            self._steps[name, column] = Steps.of(column).count(self._columns[name])
        return self._steps[name, column]

    def numbers(self, name: str) -> Floats:
        """Return a numeric column between its bounds, NaN for missing; a copy."""
        column = self.schema.number(name)
        clamped: Floats = np.clip(self._columns[name], column.low, column.high)
        return clamped

    def cells(self, name: str) -> Floats:
        """Return a numeric column as it was read or derived, not clamped, NaN for missing."""
        return self._columns[name]

    def codes(self, name: str) -> Integers:
        """Return a category column as codes, -1 for missing."""
        return self._columns[name]

    def only(self, rows: Flags, names: Iterable[str]) -> Part:
        """Return some of its rows and columns, as a part with buffers of its own."""
        columns = {name: self._columns[name][rows] for name in names}
        people = None if self.persons is None else self.persons[rows]
        return Part(
            self.schema, columns, int(np.count_nonzero(rows)), partial(Converter, self.schema), people
        )

    def persons_of(self, complete: Flags | None) -> Integers | None:
        """Return whose each of the complete rows is, where that is known; None says that all are."""
        return self.persons if self.persons is None or complete is None else self.persons[complete]

    def vectors(self, design: Design) -> Vectors:
        """Return the vectors of the complete rows; they stand in a buffer that the next part uses again."""
        if design not in self._vectors:
            self._vectors[design] = self._converter(design).convert(self._columns, self.rows)
        return self._vectors[design]


@dataclass(frozen=True)
class Pass:
    """One pass over a site's rows: what a summer may need to know besides its block.

    Attributes:
        site: how errors call the site.
        schema: what the rows are read by.
        stream: what samples are drawn from, which nobody else may know.
    """

    site: str
    schema: Schema
    stream: SecureStream | None = None

    def total(self, *shape: int) -> Total:
        """Return a sum of arrays of this shape, zero so far."""
        return Total(shape)


class Summer(Protocol):
    """Adds up one block, part by part."""

    def add(self, part: Part) -> None:
        """Add a part of the table."""
        ...

    def result(self) -> tuple[Integers, ...]:
        """Return the sums, in the shapes of `block.arrays`."""
        ...


class Total:
    """A sum of int64 arrays, exact however large it grows: its halves are added by themselves.

    A result beyond 64 bits is an array of Python integers; what leaves a site is rounded to steps that the
    ring is proved to hold (`cape.engine.calibration`).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._high, self._low = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    @property
    def size(self) -> int:
        return self._high.size

    @property
    def shape(self) -> tuple[int, ...]:
        return self._high.shape

    def add(self, part: Integers | int) -> None:
        """Add numbers of the same shape."""
        self._high += part >> _HALF
        self._low += part & _LOW

    def result(self) -> Integers:
        """Return the sum."""
        high, low = self._high + (self._low >> _HALF), self._low & _LOW
        if (high >= _LARGEST).any() or (high < -_LARGEST).any():
            wide: Integers = (high.astype(object) << _HALF) + low.astype(object)
            return wide
        return np.asarray((high << _HALF) + low, np.int64)
