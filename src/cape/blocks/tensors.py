"""The sums of a `Tensors` block: products of a row's entries, of degree 0 to 4, times a polynomial in y.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; and what
one row adds to a term is, in units of 2^-bits and with every entry counted as often as the tensor has it,
no longer than |c(y)| ||x||^degree <= 1.
Reason. With x and y in whole steps of 2^-20, exact terms are sums of integers: of at most 8192 numbers within
2^20, which float64 adds without rounding, or of products by `cape.noise.exact_products`. Of any other term
an entry is c(y) times one entry of x after the other, computed for each row by itself in operations that
IEEE 754 specifies, and truncated. c(y) is held within 1 and made smaller by 2^-50 of itself, more than the
at most five roundings after it can add: before truncation no entry is larger than it should be, and
truncation only shrinks. What is left are integers within 2^20 again, of which 8192 add up exactly.
Tested in tests/blocks/test_tensors.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import Tensors, Term
from cape.blocks.parts import Part, Total
from cape.blocks.rows import Vectors
from cape.blocks.steps import ONE
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["TensorSums", "multiplicities"]

_INWARD = 1 - 2.0**-50
_CHUNK_CELLS = 1 << 15  # 256 KB of float64, to stay in a core's cache

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class TensorSums:
    """Adds up a `Tensors` block."""

    def __init__(self, schema: Schema, block: Tensors, *, hold: bool = False) -> None:
        self._design, self._terms = block.design, block.terms
        self._width = width = block.design.width(schema)
        self._count = np.zeros(1, np.int64)
        exact = {_monomial(term) for term in block.terms if term.exact}
        # One product of matrices gives all squares; without x x', they are cheaper one by one.
        self._products = Total((0, 0), hold=hold)
        if (2, 0) in exact:
            height = width + bool(exact & {(1, 1), (0, 2)})
            self._products = Total((height, height), hold=hold)
        self._sums = {
            kind: Total((math.comb(width + kind[0] - 1, kind[0]),), hold=hold)
            for kind in exact
            if self._products.size == 0 or sum(kind) < 2
        }
        self._rounded = {
            term: np.zeros(math.comb(width + term.degree - 1, term.degree), np.int64)
            for term in block.terms
            if not term.exact
        }

    def add(self, part: Part) -> None:
        """Add a part of the table."""
        rows = part.vectors(self._design)
        self._count += rows.count
        if self._products.size:
            self._products.add(exact_products(rows.all[: self._products.shape[0]]))
        for kind, total in self._sums.items():
            total.add(_exact(kind, rows))
        for term, sums in self._rounded.items():
            self._add_rounded(term, sums, rows)

    def result(self) -> tuple[Int64, ...]:
        """Return the sums, in the shapes of `block.arrays`."""
        arrays = [self._count]
        for term in self._terms:
            sums = self._exact(_monomial(term)) if term.exact else self._rounded[term]
            found = multiplicities(term.degree, self._width)
            arrays += [sums[found == wanted] for wanted in term.multiplicities(self._width)]
        return tuple(arrays)

    def _exact(self, kind: tuple[int, int]) -> Int64:
        if kind in self._sums:
            return self._sums[kind].result()
        products = self._products.result()
        last = len(products) - 1
        if kind == (2, 0):
            return products[np.triu_indices(self._width)]
        return products[last, : self._width] if kind == (1, 1) else products[last, last:]

    def _add_rounded(self, term: Term, sums: Int64, rows: Vectors) -> None:
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


def _add_entries(sums: Int64, coefficient: Float64, x: Float64, degree: int) -> None:
    """Add coefficient times every product of `degree` entries of x, in the order of `entries`, truncated."""
    if degree == 0:
        sums += int(np.add.reduce(np.trunc(coefficient)))
        return
    space = np.empty_like(x)
    place = 0

    def visit(factor: Float64, first: int, left: int) -> None:
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


def _polynomial(target: tuple[float, ...], y: Float64) -> Float64:
    value = np.full(y.shape, float(target[-1]))
    for coefficient in reversed(target[:-1]):
        value *= y
        value += coefficient
    return value


def _exact(kind: tuple[int, int], rows: Vectors) -> Int64:
    """Return the sums of x^degree y^power, in the order of `entries`, for degree 0 or 1."""
    degree, power = kind
    if kind == (0, 0):
        return np.array([rows.count])
    if degree == 0:
        return np.array([int(np.add.reduce(rows.y) if power == 1 else np.dot(rows.y, rows.y))])
    found: Float64 = rows.x @ rows.y if power else np.add.reduce(rows.x, axis=1)
    return found.astype(np.int64)


def _monomial(term: Term) -> tuple[int, int]:
    return term.degree, len(term.target) - 1


def multiplicities(degree: int, width: int) -> Int64:
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
