"""What a site can be asked to add up over its rows: a few kinds of sums, each of exact integers.

A block names columns and says which sums over rows it stands for. A numeric cell x enters as its scaled
value t = (clamp(x) - middle) / half, which lies in [-1, 1], rounded toward zero to a multiple of
2^-T_BITS, so that |t| <= 1 still holds. A block's sums come as one or more arrays of int64; `Array.bits`
says that an array counts in units of 2^-bits. Blocks are plain data: they travel in a request, and a
site's table knows how to compute them (`cape.blocks.table`).

A missing cell (null, NaN) contributes nothing, to no sum.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.blocks.design import Design
from cape.blocks.network import Network
from cape.data.schema import Schema
from cape.errors import InvalidInput

__all__ = [
    "T_BITS",
    "Array",
    "Axis",
    "Block",
    "Counts",
    "Custom",
    "Gradient",
    "Gram",
    "Held",
    "Moments",
    "Nearest",
    "Newton",
    "Tensors",
    "Term",
]

T_BITS = 20
_MOST_CELLS = 1 << 26
_LARGEST = 1e100  # of numbers whose squares are added up


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
    rate: float = 1.0
    """The probability with which a row takes part, drawn in secret; 1 is every row."""

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the one array that the sums come in."""
        for name in self.columns:
            schema[name]
        check.real("bound", self.bound, above=0.0)
        check.real("rate", self.rate, above=0.0, most=1.0)
        return (Array("sums", (check.integer("size", self.size, least=1),), T_BITS),)


@dataclass(frozen=True)
class Term:
    """The sum over rows of c(y) x⊗...⊗x, `degree` times x, with c(y) = sum of target[k] y^k.

    |c(y)| must be at most 1 for |y| <= 1.
    """

    degree: int
    target: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        check.integer("degree", self.degree, least=0, most=4)
        if not self.target or len(self.target) > 9:
            raise InvalidInput("a term must have 1 to 9 coefficients in y")
        for value in self.target:  # of polynomials within 1, Chebyshev's have the largest: 256 for y^8
            check.real("target", value, least=-256.0, most=256.0)

    @property
    def exact(self) -> bool:
        """Whether its sums are of products of at most two numbers, and of no other coefficient than 1."""
        power = len(self.target) - 1
        return self.degree + power <= 2 and self.target == (0.0,) * power + (1.0,)

    def multiplicities(self, width: int) -> tuple[int, ...]:
        """Return how often entries of the symmetric tensor occur in it, each number once, rising."""
        return tuple(sorted(found for found, parts in _CLASSES[self.degree].items() if parts <= width))


# degree -> multiplicity -> how many different indices an entry of that multiplicity has
_CLASSES: dict[int, dict[int, int]] = {
    0: {1: 0},
    1: {1: 1},
    2: {1: 1, 2: 2},
    3: {1: 1, 3: 2, 6: 3},
    4: {1: 1, 4: 2, 6: 2, 12: 3, 24: 4},
}


def entries(degree: int, multiplicity: int, width: int) -> list[tuple[int, ...]]:
    """Return the indices i <= j <= ... of the entries of one multiplicity, in rising order."""
    return [
        index
        for index in itertools.combinations_with_replacement(range(width), degree)
        if _multiplicity(index) == multiplicity
    ]


def _multiplicity(index: tuple[int, ...]) -> int:
    repeats = math.prod(math.factorial(index.count(i)) for i in set(index))
    return math.factorial(len(index)) // repeats


@dataclass(frozen=True)
class Tensors:
    """Over complete rows: how many there are, and for each term the sum of c(y) x⊗...⊗x.

    Arrays: count (1,), then for each term one array for each of its multiplicities, in rising order, which
    holds `entries(degree, multiplicity, width)`: for degree 2 the diagonal, then what stands above it, row by
    row. With noise of scale / sqrt(multiplicity) a tensor's noise is as long as the tensor is in its norm.

    A term of at most two factors (1, x, y, x x', y x, y²) is an exact sum of products of multiples of 2^-20.
    Of any other, each row's entries are computed in float64, c(y) held within 1, and rounded toward zero to
    2^-20.
    """

    design: Design
    terms: tuple[Term, ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in."""
        self.design.check(schema)
        width = self.design.width(schema)
        arrays = [Array("count", (1,), 0)]
        for place, term in enumerate(self.terms):
            if any(term.target[1:]) and self.design.target is None:
                raise InvalidInput("a term in y needs a design with a target")
            for multiplicity in term.multiplicities(width):
                size = math.comb(width + term.degree - 1, term.degree) if term.degree > 2 else None
                if size is not None and size > _MOST_CELLS:
                    raise InvalidInput(f"degree {term.degree} is for few features, not {width}")
                arrays.append(
                    Array(
                        f"term {place} x{multiplicity}",
                        (_entries_count(term.degree, multiplicity, width),),
                        self.bits(term),
                    )
                )
        return tuple(arrays)

    @staticmethod
    def bits(term: Term) -> int:
        """Return the unit of a term's sums: exact products of two numbers count in 2^-40."""
        return (term.degree + len(term.target) - 1) * T_BITS if term.exact else T_BITS


def _entries_count(degree: int, multiplicity: int, width: int) -> int:
    """Return len(entries(...)) without making them."""
    parts = _CLASSES[degree][multiplicity]
    # of 4 = 3 + 1 the two different indices are ordered, of 2 + 2 they are not, of 2 + 1 + 1 one stands out
    orders = {(3, 3): 2, (4, 4): 2, (4, 12): 3}.get((degree, multiplicity), 1)
    return math.comb(width, parts) * orders


@dataclass(frozen=True)
class Newton:
    """Over complete rows, at given weights w, with p = 1 / (1 + exp(-w·x)) and a target of -1 or 1:

    the sums of g x, with g = p - (1 + y) / 2, and of z z', with z = sqrt(p (1 - p)) x: the gradient and the
    Hessian of the logistic loss. Arrays: count (1,), gradient (width,), square (width,) the diagonal of
    z z', cross what stands above it, row by row. g is rounded toward zero to 2^-20, and so is z.
    """

    design: Design
    weights: tuple[float, ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in."""
        self.design.check(schema)
        width = self.design.width(schema)
        if self.design.target is None or len(self.weights) != width:
            raise InvalidInput(f"a Newton step needs a target and {width} weights")
        schema.category(self.design.target)
        for weight in self.weights:
            check.real("weights", weight, least=-_LARGEST, most=_LARGEST)
        return (
            Array("count", (1,), 0),
            Array("gradient", (width,), 2 * T_BITS),
            Array("square", (width,), 2 * T_BITS),
            Array("cross", (width * (width - 1) // 2,), 2 * T_BITS),
        )


@dataclass(frozen=True)
class Nearest:
    """Over complete rows, each counted to the nearest of given centres (the first, if several are).

    Arrays: counts (centres,), and sums (centres, width), of x. Centres are in units of x.
    """

    design: Design
    centres: tuple[tuple[float, ...], ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in."""
        self.design.check(schema)
        width = self.design.width(schema)
        if not self.centres or any(len(centre) != width for centre in self.centres):
            raise InvalidInput(f"centres must be at least one point of {width} numbers")
        for value in itertools.chain(*self.centres):
            check.real("centres", value, least=-_LARGEST, most=_LARGEST)
        many = len(self.centres)
        return (Array("counts", (many,), 0), Array("sums", (many, width), T_BITS))


@dataclass(frozen=True, eq=False)
class Gradient:
    """Over complete rows: the gradients of a network's loss at given parameters, each clipped.

    A row takes part with probability `rate`, drawn in secret at the site. Arrays: sums (parameters,), in
    units of the clip; with a `loss_bound` also below (1,), how many gradients were no longer than the clip,
    and loss (1,), the losses, each cut off at the bound and divided by it. See `cape.blocks.gradient`.
    """

    design: Design
    network: Network
    parameters: NDArray[np.float64]
    clip: float
    rate: float = 1.0
    loss_bound: float | None = None

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in."""
        self.design.check(schema)
        if not self.design.cube or self.design.target is None:
            raise InvalidInput("a gradient needs a design in a cube, with a target")
        if self.design.width(schema) != self.network.inputs:
            raise InvalidInput(
                f"the network must have {self.design.width(schema)} inputs, not {self.network.inputs}"
            )
        sums = Array("sums", self.network.check_parameters(self.parameters).shape, 2 * T_BITS)
        if self.loss_bound is None:
            return (sums,)
        return (sums, Array("below", (1,), 0), Array("loss", (1,), T_BITS))


class Held(ABC):
    """A block that only a `cape.blocks.holder.Holder` of its own kind can add up.

    Each record adds at most 1 to any entry.
    """

    @abstractmethod
    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in."""


Block = Moments | Gram | Counts | Custom | Tensors | Newton | Nearest | Gradient | Held


def _width(schema: Schema, name: str) -> int:
    column = schema[name]
    values = getattr(column, "values", None)
    return 1 if values is None else len(values) - 1
