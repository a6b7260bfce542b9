"""Sums of tensors: products of a row's entries, of degree 0 to 4, times a polynomial in y.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; and what
one row adds to a term is, in units of 2^-bits and with every entry counted as often as the tensor has it,
no longer than |c(y)| ||x||^degree <= 1.
Reason. With x and y in whole steps of 2^-20, exact terms are sums of integers: of at most 8192 numbers within
2^20, which float64 adds without rounding, or of products by `cape.noise.exact_products`. Of any other term
an entry is c(y) times one entry of x after the other, computed for each row by itself in operations that
IEEE 754 specifies, and truncated. c(y) is held within 1 and made smaller by 2^-50 of itself, more than the
at most five roundings after it can add: before truncation no entry is larger than it should be, and
truncation only shrinks. What is left are integers within 2^20 again, of which 8192 add up exactly.
Tested in tests/unit/blocks/test_tensors.py.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.parts import Part, Pass
from cape.blocks.rows import Vectors
from cape.blocks.steps import ONE
from cape.blocks.typical import correlated, power
from cape.blocks.typical import entries as typical_entries
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Column, Schema
from cape.noise import exact_products

__all__ = ["Tensors", "Term", "entries", "multiplicities"]

_MOST_ENTRIES = 1 << 26
_INWARD = 1 - 2.0**-50
_CHUNK_CELLS = 1 << 15  # 256 KB of float64, to stay in a core's cache


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
class Tensors(VectorBlock):
    """Over complete rows: how many there are, and for each term the sum of c(y) x⊗...⊗x.

    Arrays: count (1,), then for each term one array for each of its multiplicities, in rising order, which
    holds `entries(degree, multiplicity, width)`: for degree 2 the diagonal, then what stands above it, row by
    row. With noise of scale / sqrt(multiplicity) a tensor's noise is as long as the tensor is in its norm.

    A term of at most two factors (1, x, y, x x', y x, y²) is an exact sum of products of multiples of 2^-20.
    Of any other, each row's entries are computed in float64, c(y) held within 1, and rounded toward zero to
    2^-20.
    """

    terms: tuple[Term, ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width = self.design.width(schema)
        arrays = [Array("count", (1,), 0)]
        for place, term in enumerate(self.terms):
            if any(term.target[1:]) and self.design.target is None:
                raise InvalidInput("a term in y needs a design with a target")
            for multiplicity in term.multiplicities(width):
                size = math.comb(width + term.degree - 1, term.degree) if term.degree > 2 else None
                if size is not None and size > _MOST_ENTRIES:
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

    def summer(self, run: Pass) -> _Tensors:
        return _Tensors(self, run)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        most = max([term.degree for term in self.terms], default=0)
        found, unit = typical_entries(self.design, schema, max(most, 2))
        with_y = correlated(self.design, schema, found)
        target = None if self.design.target is None else schema[self.design.target]
        sums: list[Floats] = [np.array([float(rows)])]
        for term in self.terms:
            mean, slope = _in_y(term, target)
            for multiplicity in term.multiplicities(len(found.mean)):
                held = entries(term.degree, multiplicity, len(found.mean))
                places = np.array(held, dtype=np.int64).reshape(len(held), term.degree)
                products = mean * found.products(places)
                if term.degree == 1:
                    products = products + slope * with_y[places[:, 0]]
                sums.append(rows * products / unit**term.degree)
        return tuple(sums)


def _entries_count(degree: int, multiplicity: int, width: int) -> int:
    """Return len(entries(...)) without making them."""
    parts = _CLASSES[degree][multiplicity]
    # of 4 = 3 + 1 the two different indices are ordered, of 2 + 2 they are not, of 2 + 1 + 1 one stands out
    orders = {(3, 3): 2, (4, 4): 2, (4, 12): 3}.get((degree, multiplicity), 1)
    return math.comb(width, parts) * orders


class _Tensors:
    def __init__(self, block: Tensors, run: Pass) -> None:
        self._design, self._terms = block.design, block.terms
        self._width = width = block.design.width(run.schema)
        self._count = np.zeros(1, np.int64)
        exact = {_monomial(term) for term in block.terms if term.exact}
        # One product of matrices gives all squares; without x x', they are cheaper one by one.
        self._products = run.total(0, 0)
        if (2, 0) in exact:
            height = width + bool(exact & {(1, 1), (0, 2)})
            self._products = run.total(height, height)
        self._sums = {
            kind: run.total(math.comb(width + kind[0] - 1, kind[0]))
            for kind in exact
            if self._products.size == 0 or sum(kind) < 2
        }
        self._rounded = {
            term: np.zeros(math.comb(width + term.degree - 1, term.degree), np.int64)
            for term in block.terms
            if not term.exact
        }

    def add(self, part: Part) -> None:
        rows = part.vectors(self._design)
        self._count += rows.count
        if self._products.size:
            self._products.add(exact_products(rows.all[: self._products.shape[0]]))
        for kind, total in self._sums.items():
            total.add(_exact(kind, rows))
        for term, sums in self._rounded.items():
            self._add_rounded(term, sums, rows)

    def result(self) -> Sums:
        arrays = [self._count]
        for term in self._terms:
            sums = self._exact(_monomial(term)) if term.exact else self._rounded[term]
            found = multiplicities(term.degree, self._width)
            arrays += [sums[found == wanted] for wanted in term.multiplicities(self._width)]
        return tuple(arrays)

    def _exact(self, kind: tuple[int, int]) -> Integers:
        if kind in self._sums:
            return self._sums[kind].result()
        products = self._products.result()
        last = len(products) - 1
        if kind == (2, 0):
            return products[np.triu_indices(self._width)]
        return products[last, : self._width] if kind == (1, 1) else products[last, last:]

    def _add_rounded(self, term: Term, sums: Integers, rows: Vectors) -> None:
        size = max(1, _CHUNK_CELLS // self._width)
        for start in range(0, rows.count, size):
            stop = min(start + size, rows.count)
            coefficient = np.ones(stop - start)
            if any(term.target[1:]):
                coefficient = _polynomial(term.target, rows.y[start:stop] / ONE)
            else:
                coefficient *= term.target[0]
            np.clip(coefficient, -1.0, 1.0, out=coefficient)
            coefficient *= _INWARD * ONE
            _add_entries(sums, coefficient, rows.x[:, start:stop] / ONE, term.degree)


def _add_entries(sums: Integers, coefficient: Floats, x: Floats, degree: int) -> None:
    """Add coefficient times every product of `degree` entries of x, in the order of `entries`, truncated."""
    if degree == 0:
        sums += int(np.add.reduce(np.trunc(coefficient)))
        return
    space = np.empty_like(x)
    place = 0

    def visit(factor: Floats, first: int, left: int) -> None:
        nonlocal place
        if left > 1:
            for i in range(first, len(x)):
                visit(factor * x[i], i, left - 1)
            return
        products = np.multiply(x[first:], factor, out=space[first:])
        np.trunc(products, out=products)
        sums[place : place + len(products)] += np.add.reduce(products, axis=1).astype(np.int64)
        place += len(products)

    visit(coefficient, 0, degree)


def _polynomial(target: tuple[float, ...], y: Floats) -> Floats:
    value = np.full(y.shape, float(target[-1]))
    for coefficient in reversed(target[:-1]):
        value *= y
        value += coefficient
    return value


def _exact(kind: tuple[int, int], rows: Vectors) -> Integers:
    """Return the sums of x^degree y^power, in the order of `entries`, for degree 0 or 1."""
    degree, power = kind
    if kind == (0, 0):
        return np.array([rows.count])
    if degree == 0:
        return np.array([int(np.add.reduce(rows.y) if power == 1 else np.dot(rows.y, rows.y))])
    found: Floats = rows.x @ rows.y if power else np.add.reduce(rows.x, axis=1)
    return found.astype(np.int64)


def _monomial(term: Term) -> tuple[int, int]:
    return term.degree, len(term.target) - 1


def multiplicities(degree: int, width: int) -> Integers:
    """Return the multiplicity of every entry i <= j <= ... of a symmetric tensor, in rising order."""
    last, run = np.zeros(1, np.int64), np.zeros(1, np.int64)
    found = np.full(1, math.factorial(degree))
    for _ in range(degree):
        sizes = width - last
        parent = np.repeat(np.arange(len(last)), sizes)
        following = np.arange(len(parent)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + last[parent]
        # how often the index has occurred up to here: the product of these is what d! is divided by
        run = np.where(following == last[parent], run[parent], 0) + 1
        found, last = found[parent], following
        found = found // run
    return found


def _in_y(term: Term, target: Column | None) -> tuple[float, float]:
    """Return the mean of c(y), and the slope of c(y) on y, by least squares."""
    if target is None or not any(term.target[1:]):
        return term.target[0], 0.0
    mean = sum(factor * power(target, k) for k, factor in enumerate(term.target))
    with_y = sum(factor * power(target, k + 1) for k, factor in enumerate(term.target))
    first = power(target, 1)
    return mean, (with_y - mean * first) / (power(target, 2) - first**2)
