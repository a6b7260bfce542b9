"""Squared residuals times the products of features: what says how far least squares moves by sampling.

Claim. One row adds w w' for a vector w of integers with sum of w_i² <= 2^40, certainly, whatever weights and
directions are; and results are the same integers for the same multiset of rows, in whichever parts and
order.
Reason. Weights and directions are rounded to whole numbers of so few bits that their products with a row, and
every partial sum of these, are whole numbers within 2^53: BLAS adds them without rounding, in any order. All
else is done for each row by itself, column by column, in operations that IEEE 754 specifies: w is divided by
the larger of 1 and its length, truncated, and its sum of squares looked at in integers; if floating point
put it outside, its entries move toward 0 until it is inside. Sums of products are exact by
`cape.noise.exact_products`.
Tested in tests/unit/blocks/test_sandwich.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.clip import inside
from cape.blocks.parts import Part, Pass
from cape.blocks.person_sums import PersonProducts
from cape.blocks.steps import ONE
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["Sandwich"]

_LARGEST = 1e30  # of weights and directions: fourth powers stay far below where floats end
_EXACT = 53  # bits


@dataclass(frozen=True)
class Sandwich(VectorBlock):
    """Over complete rows, with u = (1, x) and the residual e = y - b·u: the sum of w w', w = e D u.

    A w that is longer than 1 is shortened to 1, and every w is rounded toward zero to multiples of 2^-20.
    Arrays: square (directions,), the diagonal of w w', and cross, what stands above it, row by row.

    Attributes:
        weights: b, the constant first.
        directions: the rows of D, each with as many numbers.
        persons: how many rows of a person count at most. Where these are several, the sum is that over
            persons of tt', t being what the w of a person add up to, over that number.
    """

    weights: tuple[float, ...]
    directions: tuple[tuple[float, ...], ...]
    persons: int = 1

    @property
    def by_person(self) -> bool:
        """Whether it adds up by person."""
        return self.persons > 1

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        length = 1 + self.design.width(schema)
        if self.design.target is None or len(self.weights) != length or not self.directions:
            raise InvalidInput(f"a sandwich needs a target, {length} weights and at least one direction")
        schema.number(self.design.target)
        for row in self.directions:
            if len(row) != length:
                raise InvalidInput(f"each direction must have {length} numbers, not {len(row)}")
        if not (np.abs([self.weights, *self.directions]) <= _LARGEST).all():
            raise InvalidInput(f"weights and directions must be numbers of at most {_LARGEST:g}")
        many = len(self.directions)
        return (
            Array("square", (many,), 2 * T_BITS),
            Array("cross", (many * (many - 1) // 2,), 2 * T_BITS),
        )

    def summer(self, run: Pass) -> _Sandwich:
        return _Sandwich(self, run)


class _Sandwich:
    def __init__(self, block: Sandwich, run: Pass) -> None:
        self._design = block.design
        self._whole, self._places = _whole(np.array([block.weights, *block.directions], np.float64))
        many = len(block.directions)
        self._total = run.total(many, many)
        self._products = PersonProducts(many, block.persons, run) if block.persons > 1 else None

    def add(self, part: Part) -> None:
        rows = part.vectors(self._design)
        products = self._whole[:, 1:] @ rows.x
        first, w = products[0], products[1:]
        first += ONE * self._whole[0, 0]
        residual = (rows.y - np.ldexp(first, self._places[0])) / ONE / ONE
        lengths, square = np.zeros(rows.count), np.empty(rows.count)
        for column, whole, place in zip(w, self._whole[1:, 0], self._places[1:], strict=True):
            column += ONE * whole
            column *= math.ldexp(1.0, place)
            column *= residual
            lengths += np.multiply(column, column, out=square)
        shorter = ONE / np.maximum(np.sqrt(lengths), 1.0)
        lengths[:] = 0.0
        for column in w:
            column *= shorter
            np.trunc(column, out=column)
            lengths += np.multiply(column, column, out=square)
        outside = np.flatnonzero(lengths > ONE * ONE)
        if outside.size:
            w[:, outside] = inside(w[:, outside].T.astype(np.int64)).T
        if self._products is None:
            self._total.add(exact_products(w))
        else:
            self._products.add(w.T.astype(np.int64), part.persons_of(rows.complete))

    def result(self) -> Sums:
        total: Integers = (self._total if self._products is None else self._products).result()
        return np.diagonal(total).copy(), total[np.triu_indices(len(total), 1)]


def _whole(rows: Floats) -> tuple[Floats, list[int]]:
    """Return rows as whole numbers, and for each the power of two that makes numbers of them again.

    They have so many bits that a sum of their products with numbers of up to 2^20 stays within 2^53.
    """
    bits = _EXACT - T_BITS - math.ceil(math.log2(rows.shape[1]))
    shift = bits - np.frexp(np.abs(rows).max(axis=1))[1].astype(np.int64)
    return np.rint(np.ldexp(rows, shift[:, None])), (-shift).tolist()
