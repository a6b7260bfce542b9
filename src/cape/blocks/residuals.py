"""Residuals of tables of counts: what sites send so that all marginals can be made of it.

For a set B of columns with n_i values each, a site counts the rows of every cell of B, exactly, and applies
Helmert's integer matrix along each direction: with x_0, ..., x_{n-1} the counts,

    d_j = x_0 + ... + x_{j-1} - j x_j,   j = 1, ..., n - 1.

Its rows are orthogonal to each other and to 1, and have lengths sqrt(j (j + 1)): divided by them they are the
columns of an orthonormal U (`cape.privacy.residuals`, where the noise and the cost stand). So the coordinates
z_B are d / sqrt(prod j (j + 1)). They are integers in units of 2^-20:

    z = floor((d w + 2^(s-1)) / 2^s),   w / 2^(s+20) just below the inverse of the length, 2^31 <= w + 1 <=
    2^32.

Claim. A row is in one cell of every table, and two neighbouring tables of rows differ in all z_B, each
divided by s_B, by at most the mu of `cape.privacy.residuals` at these scales, plus 2^-20 sqrt(sum_B entries_B
/ s_B²). Reason. A missing cell is a value of its own where the schema says that cells may be missing; where
it says that none is, none is read (`cape.data.cells`), and were there one, it would count as the first value.
Sums d are exact integers. The factor w 2^-(s+20) is at most the inverse of the length, so before rounding no
entry of the difference is larger than that of the exact coordinates; rounding each entry, once a site, moves
the difference of two tables by at most one unit. The triangle inequality adds the two. w is computed from
correctly rounded float64 operations, less 1, so it is the same on every machine and never too large.
Tested in tests/unit/blocks/test_residuals.py and tests/unit/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.counts import Axis
from cape.blocks.parts import Part, Pass
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.privacy.residuals import Columns, subsets

if TYPE_CHECKING:
    from cape.blocks.sql import Several, SqlColumns, Totals

__all__ = ["Residuals", "WholeTables", "basis", "levels", "rounding"]

_MOST_CELLS = 1 << 26
_MOST_ASKED = 100  # tables that a database is asked for; of more, the rows are read once
_AT_ONCE = 1 << 16  # cells of a table that is made for every part
_WIDE = 1 << 30  # products with w stay below 2^62


def levels(axis: Axis, schema: Schema) -> int:
    """Return how many values a column has; that a cell is missing is the last one, if it may be."""
    return axis.bins(schema) + schema.stated[axis.column].missing


@lru_cache(maxsize=256)
def basis(values: int) -> Floats:
    """Return U: orthonormal columns that are orthogonal to 1, by value and coordinate."""
    found = np.zeros((values, values - 1))
    for j in range(1, values):
        found[:j, j - 1], found[j, j - 1] = 1.0, -float(j)
        found[:, j - 1] /= math.sqrt(j * (j + 1))
    found.setflags(write=False)
    return found


def rounding(entries: Sequence[int], scales: Sequence[float]) -> float:
    """Return what rounding adds to the sensitivity: one unit of 2^-20 an entry, divided by its scale."""
    squares = sum(many / scale**2 for many, scale in zip(entries, scales, strict=True))
    return math.ldexp(math.sqrt(squares), -T_BITS)


@dataclass(frozen=True)
class Residuals(Block):
    """The coordinates of the residuals of sets of columns: an array for each set, in their order.

    Sets name axes by place, rising; the empty set is the number of rows. Every row counts in every set.
    """

    axes: tuple[Axis, ...]
    sets: tuple[Columns, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        used = dict.fromkeys(i for columns in self.sets for i in columns)
        return tuple(self.axes[i].column for i in used)

    @property
    def ways(self) -> int:
        return max(map(len, self.sets), default=0)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        values = self.values(schema)
        found = []
        for columns in self.sets:
            shape = tuple(values[i] for i in columns)
            if math.prod(shape) > _MOST_CELLS:
                raise InvalidInput(
                    f"a table of counts must have at most 2^26 cells, not {' x '.join(map(str, shape))}"
                )
            found.append(Array("residual", tuple(n - 1 for n in shape), T_BITS))
        return tuple(found)

    def values(self, schema: Schema) -> tuple[int, ...]:
        """Return how many values each column has."""
        return tuple(levels(axis, schema) for axis in self.axes)

    @cached_property
    def largest(self) -> dict[Columns, Columns]:
        """For each set one that contains it, and is contained in no other: these are counted."""
        found: dict[Columns, Columns] = {}
        for columns in sorted(self.sets, key=len, reverse=True):
            if columns not in found:
                for chosen in subsets(columns):
                    found.setdefault(chosen, columns)
        return {columns: found[columns] for columns in self.sets}

    def summer(self, run: Pass) -> _Tables:
        return _Tables(self, self.values(run.schema))

    def pushed(self, columns: SqlColumns) -> Several | None:
        """Return the counts of complete rows of each table; "missing" is what its margins have more.

        Rows are read instead if there are many tables, or a column is cut at very many uneven edges.
        """
        from cape.blocks.sql import MOST_EDGES, Ask, Several

        for cut in (axis.cut for axis in self.axes):
            if cut is not None and cut.width is None and cut.count >= MOST_EDGES:
                return None
        largest = list(dict.fromkeys(self.largest.values()))
        if len(largest) > _MOST_ASKED:
            return None
        bins = [axis.bins(columns.schema) for axis in self.axes]
        values = self.values(columns.schema)
        asked = list(dict.fromkeys(chosen for over in largest for chosen in subsets(over)))

        def counter(chosen: Columns) -> Callable[[Mapping[int, Totals]], Sums]:
            def counted(found: Mapping[int, Totals]) -> Sums:
                cells = np.zeros(math.prod(bins[i] for i in chosen), np.int64)
                for cell, totals in found.items():
                    cells[cell] = totals.rows
                return (cells.reshape([bins[i] for i in chosen]),)

            return counted

        def finish(found: Sequence[Sums]) -> Sums:
            complete = {chosen: sums[0] for chosen, sums in zip(asked, found, strict=True)}
            return self.coordinates({over: _with_missing(over, complete, bins, values) for over in largest})

        by = [(axis.column, axis.cut) for axis in self.axes]
        return Several([Ask(counter(chosen), by=[by[i] for i in chosen]) for chosen in asked], finish)

    def coordinates(self, counts: Mapping[Columns, Integers]) -> Sums:
        """Return the sums, from the counts of the largest sets."""
        found = []
        for columns in self.sets:
            over = self.largest[columns]
            outside = tuple(place for place, i in enumerate(over) if i not in columns)
            found.append(_coordinates(counts[over].sum(axis=outside)))
        return tuple(found)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        values = self.values(schema)
        parts = []
        for axis, many in zip(self.axes, values, strict=True):
            shares = axis.fractions(schema)
            parts.append(basis(many).T @ np.pad(shares, (0, many - len(shares))))
        return tuple(
            reduce(np.multiply.outer, [parts[i] for i in columns], np.array(float(rows)))
            for columns in self.sets
        )


@dataclass(frozen=True)
class WholeTables(Residuals):
    """The counts of whole tables, "missing" among the values: an array for each set. None holds another."""

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        super().arrays(schema)  # refuses tables that are too large
        values = self.values(schema)
        return tuple(Array("count", tuple(values[i] for i in columns), 0) for columns in self.sets)

    def coordinates(self, counts: Mapping[Columns, Integers]) -> Sums:
        return tuple(counts[columns] for columns in self.sets)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        values, shares = self.values(schema), [axis.fractions(schema) for axis in self.axes]
        parts = [np.pad(each, (0, many - len(each))) for each, many in zip(shares, values, strict=True)]
        return tuple(
            reduce(np.multiply.outer, [parts[i] for i in columns], np.array(float(rows)))
            for columns in self.sets
        )


def _with_missing(
    over: Columns, complete: Mapping[Columns, Integers], bins: Sequence[int], values: Sequence[int]
) -> Integers:
    """Return a table with "missing" as a value: along each direction, what the margin without it has more."""
    found = {chosen: complete[chosen] for chosen in subsets(over)}
    for i in over:
        if values[i] > bins[i]:
            for chosen in [each for each in found if i in each]:
                direction, outside = chosen.index(i), tuple(j for j in chosen if j != i)
                more = found[outside] - found[chosen].sum(axis=direction)
                found[chosen] = np.concatenate([found[chosen], np.expand_dims(more, direction)], direction)
    return found[over]


class _Tables:
    """Counts the rows of each cell of the largest sets."""

    def __init__(self, block: Residuals, values: tuple[int, ...]) -> None:
        self._block, self._values = block, values
        shapes = {over: [values[i] for i in over] for over in dict.fromkeys(block.largest.values())}
        self._counts = {over: np.zeros(math.prod(shape), np.int64) for over, shape in shapes.items()}
        self._shapes = shapes
        self._used = sorted({i for over in shapes for i in over})

    def add(self, part: Part) -> None:
        places = {i: self._places(part, i) for i in self._used}
        for over, counts in self._counts.items():
            cell = places[over[0]] if over else np.zeros(part.rows, np.int64)
            for i in over[1:]:
                cell = cell * self._values[i] + places[i]
            if counts.size <= _AT_ONCE:
                counts += np.bincount(cell, minlength=counts.size)
            else:
                np.add.at(counts, cell, 1)

    def _places(self, part: Part, i: int) -> Integers:
        """Return the value of each row: the last for a missing cell, or the first where none may be."""
        axis, cut = self._block.axes[i], self._block.axes[i].cut
        found = part.codes(axis.column) if cut is None else cut.find(part.numbers(axis.column))
        bins = len(part.schema.category(axis.column).values) if cut is None else cut.count
        return np.where(found < 0, bins if self._values[i] > bins else 0, found)

    def result(self) -> Sums:
        counts = {over: each.reshape(self._shapes[over]) for over, each in self._counts.items()}
        return self._block.coordinates(counts)


def _coordinates(counts: Integers) -> Integers:
    """Return the coordinates of a table of counts in units of 2^-20."""
    found = np.asarray(counts, np.int64)
    for direction in range(found.ndim):
        found = _differences(found, direction)
    weights, shifts = _lengths(counts.shape)
    if found.size and int(np.abs(found).max()) >= _WIDE:  # Python integers: the product may exceed 64 bits
        wide = found.astype(object) * weights.astype(object) + (1 << shifts.astype(object) >> 1)
        return np.asarray(wide >> shifts.astype(object), np.int64)
    return np.asarray((found * weights + (1 << shifts >> 1)) >> shifts)


def _differences(counts: Integers, direction: int) -> Integers:
    """Return d_j along one direction: the sum of the first j counts, less j times the next."""
    turned = np.moveaxis(counts, direction, -1)
    many = turned.shape[-1]
    found = np.cumsum(turned, axis=-1)[..., :-1] - turned[..., 1:] * np.arange(1, many)
    return np.asarray(np.moveaxis(found, -1, direction))


@lru_cache(maxsize=256)
def _lengths(shape: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Return w and s of every coordinate: w / 2^s is 2^20 divided by its length, or just less."""
    squares = [np.arange(1, n, dtype=np.float64) * np.arange(2, n + 1) for n in shape]
    length = np.sqrt(reduce(np.multiply.outer, squares, np.array(1.0)))
    exponent = np.frexp(length)[1].astype(np.int64)
    shifts = 31 + exponent - T_BITS
    weights = np.floor(np.ldexp(1.0, (31 + exponent).astype(np.int32)) / length).astype(np.int64) - 1
    if not shape:  # the number of rows itself
        weights = weights + 1
    return np.asarray(weights), np.asarray(shifts)
