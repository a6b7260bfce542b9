"""The rows of a table as vectors of length at most 1 and targets between -1 and 1, in whole steps of 2^-20.

Claim. Each complete row becomes integers k with sum of k_i² <= 2^40, certainly, and a target |k| <= 2^20;
the same row gives the same integers in every batch and at every place.
Reason. Where no row can be longer than the design's norm, an entry is truncated and held within K, and
(parts) K² + (intercept)² <= 2^40 is how K is found, in Python's integers; of a category's entries one at
most is K and the others 0, and the squares of a spline's add up to at most K², with more left than floating
point can add (`splines`). Where the norm is smaller, a row is divided by the larger of the norm and its own
length and truncated. There, and where features are more than columns, the sum of squares is looked at in
integers: if floating point put a row outside, its entries move toward 0 until it is inside. All of it is done
column by column with operations that IEEE 754 specifies to the bit, never by BLAS or a sum whose order
depends on where a row stands.
Tested in tests/unit/blocks/test_design.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.clip import inside
from cape.blocks.design import Design
from cape.blocks.slots import Slots
from cape.blocks.steps import ONE, Steps
from cape.core.arrays import Flags, Floats, Integers
from cape.data.schema import Category, Number, Schema

__all__ = ["PADDING", "PART_ROWS", "Converter", "Vectors"]

PART_ROWS = 1 << 13
PADDING = 8  # columns of a buffer must not lie a power of two apart, or they share the cache's few places
_LIMIT = int(ONE) ** 2


@dataclass(frozen=True)
class Vectors:
    """Complete rows in whole steps: `all` has the entries of x and, below them, y if there is a target, and
    what stands beside it.

    `complete` says which rows of the part they are; None if all.
    """

    all: Floats
    width: int
    complete: Flags | None = None

    @property
    def count(self) -> int:
        return int(self.all.shape[1])

    @property
    def x(self) -> Floats:
        """The vectors, (width, rows)."""
        return self.all[: self.width]

    @property
    def y(self) -> Floats:
        y: Floats = self.all[self.width]
        return y

    @property
    def beside(self) -> Floats:
        """What stands beside the target, (columns, rows)."""
        return self.all[self.width + 1 :]


class Converter:
    """Turns columns into vectors, in one buffer that every call uses again."""

    def __init__(self, schema: Schema, design: Design) -> None:
        self._design = design
        self.width = design.width(schema)
        length = design.length(schema)
        # whether a row may be longer than the norm
        self._longer = not design.cube and length < design.bound(schema)
        self._norm = length * ONE
        # whether entries are more than columns: these cannot be too long, and it is seen that they are not
        self._made = not design.cube and any(part.plain is None for part in design.basis(schema).parts)
        # With an intercept c, what is left for the features is 1 / sqrt(1 + c²).
        self._shrink = math.hypot(1.0, design.intercept)
        square = Fraction(design.intercept) ** 2
        self._first = math.isqrt(math.floor(_LIMIT * square / (1 + square)))
        self._limit = math.floor(_LIMIT / (1 + square))
        if self._longer or design.cube:  # first t itself
            most, length = ONE, 1.0
        else:
            parts = len(design.basis(schema).parts)
            most, length = float(math.isqrt(self._limit // parts)), length * self._shrink
        start, whole = int(design.intercept > 0), not self._longer
        self._columns: list[tuple[_Column | _Product, tuple[int, ...]]] = []
        for part in design.basis(schema).parts:
            made: _Column | _Product = _Product(part, ONE / length, most, whole)
            if part.plain is not None:
                name, column = part.plain
                cells: _Cells = (
                    _Codes(range(1, len(column.values)), 0.0, most)
                    if isinstance(column, Category)
                    else _Numbers(Steps.of(column, length, most), whole)
                )
                made = _Column(name, cells)
            self._columns.append((made, tuple(start + place for place in part.places)))
        if design.target is not None:
            column = schema[design.target]
            found: _Cells = _Labels() if design.cube or design.labels else _Codes(range(1, 2), -ONE, ONE)
            if isinstance(column, Number):
                found = _Numbers(Steps.of(column))
            self._columns.append((_Column(design.target, found), (self.width,)))
        place = self.width + (design.target is not None)
        for i, name in enumerate(design.beside):
            beside = _Column(name, _Numbers(Steps.of(schema.number(name))))
            self._columns.append((beside, (place + i,)))
        self._height = place + len(design.beside)
        self._buffer = np.empty((self._height, 0))

    def convert(self, columns: Mapping[str, NDArray[Any]], rows: int) -> Vectors:
        """Return the vectors of the rows that are complete."""
        if rows > self._buffer.shape[1]:
            self._buffer = np.empty((self._height, rows + PADDING))
        filled = self._buffer[:, :rows]
        missing: Flags | None = None
        start = int(self._design.intercept > 0)
        filled[:start] = self._first
        with np.errstate(over="ignore"):  # what overflows is far outside, and clipped
            for column, places in self._columns:
                absent = column.fill(columns, [filled[place] for place in places])
                if absent is not None:
                    missing = absent if missing is None else missing | absent
        if missing is not None:
            filled = np.compress(~missing, filled, axis=1)
        if self._longer:
            self._shorten(filled[start : self.width])
        elif self._made:
            self._hold(filled[start : self.width])
        return Vectors(filled, self.width, None if missing is None else ~missing)

    def _shorten(self, x: Floats) -> None:
        """Divide vectors of t by the norm, or by their own length if that is larger, and truncate."""
        squares, product = np.zeros(x.shape[1]), np.empty(x.shape[1])
        for entries in x:
            np.multiply(entries, entries, out=product)
            squares += product
        factor = (ONE / self._shrink) / np.maximum(np.sqrt(squares), self._norm)
        for entries in x:
            np.multiply(entries, factor, out=entries)
            np.trunc(entries, out=entries)
        self._hold(x)

    def _hold(self, x: Floats) -> None:
        """Shorten vectors in whole steps that are longer than what is left for features."""
        squares, product = np.zeros(x.shape[1]), np.empty(x.shape[1])
        for entries in x:
            np.multiply(entries, entries, out=product)
            squares += product  # whole numbers; up to 2^53, far above the limit, exact
        outside = np.flatnonzero(squares > self._limit)
        if outside.size:
            x[:, outside] = inside(x[:, outside].T.astype(np.int64), self._limit).T


@dataclass(frozen=True)
class _Numbers:
    """A numeric column in whole steps, or, if it is yet to be scaled, before truncation."""

    steps: Steps
    whole: bool = True

    def fill(self, cells: Floats, out: Sequence[Floats]) -> Flags | None:
        """Put the column into the one row of `out`; return which cells are missing, None if none is."""
        found = self.steps.scale(cells, out[0])
        if self.whole:
            np.trunc(found, out=found)
        return np.isnan(found) if math.isnan(np.add.reduce(found)) else None


@dataclass(frozen=True)
class _Codes:
    """A category column: `high` where a cell has the code that belongs to a row of `out`, else `low`."""

    codes: range
    low: float
    high: float

    def fill(self, cells: Integers, out: Sequence[Floats]) -> Flags | None:
        for row, code in zip(out, self.codes, strict=True):
            np.multiply(cells == code, self.high - self.low, out=row)
            if self.low:
                row += self.low
        return cells < 0 if cells.min(initial=0) < 0 else None


@dataclass(frozen=True)
class _Labels:
    """A category column as the places of its values: 0, 1, ..."""

    def fill(self, cells: Integers, out: Sequence[Floats]) -> Flags | None:
        out[0][:] = cells
        return cells < 0 if cells.min(initial=0) < 0 else None


_Cells = _Numbers | _Codes | _Labels


@dataclass(frozen=True)
class _Column:
    """Entries of one column."""

    name: str
    cells: _Cells

    def fill(self, columns: Mapping[str, NDArray[Any]], out: Sequence[Floats]) -> Flags | None:
        return self.cells.fill(columns[self.name], out)


@dataclass(frozen=True)
class _Product:
    """Entries of a part that is more than a column: `one` for 1, held within `most`, truncated if `whole`."""

    part: Slots
    one: float
    most: float
    whole: bool

    def fill(self, columns: Mapping[str, NDArray[Any]], out: Sequence[Floats]) -> Flags | None:
        missing = self.part.fill(columns, out, self.one)
        for row in out:
            np.clip(row, -self.most, self.most, out=row)
            if self.whole:
                np.trunc(row, out=row)
        return missing
