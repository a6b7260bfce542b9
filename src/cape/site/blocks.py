"""What a site can be asked to add up over its rows: four kinds of sums, each of exact integers.

A block names columns and says which sums over rows it stands for. A numeric cell x enters as its scaled
value t = (clamp(x) - middle) / half, which lies in [-1, 1], rounded toward zero to a multiple of
2^-T_BITS, so that |t| <= 1 still holds. A block's sums come as one or more arrays of int64; `Array.bits`
says that an array counts in units of 2^-bits. Blocks are plain data: they travel in a request, and a
site's table knows how to compute them (`cape.site.table`).

A missing cell (null, NaN) contributes nothing, to no sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.errors import InvalidInput
from cape.site.schema import Schema

__all__ = ["T_BITS", "Array", "Axis", "Block", "Counts", "Custom", "Gram", "Moments"]

T_BITS = 20
_MOST_CELLS = 1 << 26


@dataclass(frozen=True)
class Array:
    """One array of a block's sums: its shape, and the unit 2^-bits that its integers count."""

    name: str
    shape: tuple[int, ...]
    bits: int

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Moments:
    """Per numeric column, over the rows where it is not missing: count, sum of t, sum of t².

    Arrays: count, first and, with `squares`, second; each of shape (columns,), or (groups, columns)
    when `by` names a category column. A row whose `by` is missing contributes nothing.
    """

    columns: tuple[str, ...]
    squares: bool = True
    by: str | None = None

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in."""
        for name in self.columns:
            schema.number(name)
        groups = () if self.by is None else (len(schema.category(self.by).values),)
        shape = (*groups, len(self.columns))
        kinds = [Array("count", shape, 0), Array("first", shape, T_BITS)]
        return (*kinds, Array("second", shape, 2 * T_BITS)) if self.squares else tuple(kinds)


@dataclass(frozen=True)
class Gram:
    """Over the rows where no named column is missing: their count, the sums of t, and of t t'.

    Arrays: count (1,), first (columns,), square (columns,) the diagonal of t t', and cross
    (columns * (columns - 1) / 2,), what stands above it, row by row. Category columns enter as one
    column per value but the first (0 or 1), in the order of the schema: see `width`.
    """

    columns: tuple[str, ...]

    def width(self, schema: Schema) -> int:
        """Return the number of columns once categories are spread out."""
        return sum(_width(schema, name) for name in self.columns)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in."""
        width = self.width(schema)
        return (
            Array("count", (1,), 0),
            Array("first", (width,), T_BITS),
            Array("square", (width,), 2 * T_BITS),
            Array("cross", (width * (width - 1) // 2,), 2 * T_BITS),
        )


@dataclass(frozen=True)
class Axis:
    """One direction of a table of counts: a category column, or a numeric one cut at rising edges.

    With edges e_0 < ... < e_n the bins are [e_0, e_1), ..., [e_n-1, e_n], values outside going to the
    first or the last. As everywhere, a cell is clamped to the schema's bounds before it is looked at.
    """

    column: str
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.edges is not None:
            edges = tuple(check.real("edges", edge) for edge in self.edges)
            if len(edges) < 2 or any(a >= b for a, b in itertools.pairwise(edges)):
                raise InvalidInput(f"edges of {self.column!r} must be two or more numbers that rise")
            object.__setattr__(self, "edges", edges)

    def bins(self, schema: Schema) -> int:
        """Return the number of bins."""
        if self.edges is None:
            return len(schema.category(self.column).values)
        schema.number(self.column)
        return len(self.edges) - 1


@dataclass(frozen=True)
class Counts:
    """How many rows fall into each cell of a table; a row that misses one of its columns into none.

    One array, counts, with one dimension per axis; without axes it is the number of rows. With `cell`
    only the rows of that one cell are counted, a single number: None takes in a whole axis.
    """

    axes: tuple[Axis, ...]
    cell: tuple[int | None, ...] | None = None

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the one array that the counts come in."""
        shape = tuple(axis.bins(schema) for axis in self.axes)
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

    def pick(self, counts: NDArray[Any]) -> NDArray[Any]:
        """Return what was asked for out of the counts of all cells."""
        if self.cell is None:
            return counts
        return np.asarray(counts[tuple(slice(None) if i is None else i for i in self.cell)].sum())


@dataclass(frozen=True)
class Custom:
    """The sum over rows of any function of a row, clipped to an L2 norm of `bound`.

    `function` takes a batch, a dict of column name -> array (float64 within the schema's bounds, NaN for
    missing, or int64 codes of a category, -1 for missing), and returns an array (rows, size), or
    (rows,) if size is 1.
    One array, sums, in units of bound * 2^-T_BITS: each row is scaled down to the bound if it exceeds
    it, and rounded toward zero; a row that is not finite adds nothing.

    The bound holds for a function that treats each row by itself. That is tried on a few rows, which
    catches a mistake; a function made to leak can only be caught by reading it.
    """

    function: Callable[[dict[str, NDArray[Any]]], NDArray[np.float64]]
    columns: tuple[str, ...]
    size: int
    bound: float

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the one array that the sums come in."""
        for name in self.columns:
            schema[name]
        check.real("bound", self.bound, above=0.0)
        return (Array("sums", (check.integer("size", self.size, least=1),), T_BITS),)


Block = Moments | Gram | Counts | Custom


def _width(schema: Schema, name: str) -> int:
    column = schema[name]
    values = getattr(column, "values", None)
    return 1 if values is None else len(values) - 1
