"""Squared residuals times the products of features: what says how far least squares moves by sampling.

Claim. One row adds w w' for a vector w of integers with sum of w_i² <= 2^40, certainly, whatever weights and
directions are; and results are the same integers for the same multiset of rows, in whichever parts and
order.
Reason. Weights and directions are rounded to whole numbers of so few bits that their products with a row, and
every partial sum of these, are whole numbers within 2^53: BLAS adds them without rounding, in any order. The
residual and what it is multiplied by are then computed for each row by itself, and `clip_rows` makes whole
steps of them, with that bound. Sums of their products are exact by `cape.noise.exact_products`.
Tested in tests/blocks/test_sandwich.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape import check
from cape.arrays import Floats, Integers
from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.clip import clip_rows
from cape.blocks.parts import Part, Pass
from cape.blocks.steps import ONE
from cape.data.schema import Schema
from cape.errors import InvalidInput
from cape.noise import exact_products

__all__ = ["Sandwich"]

_LARGEST = 1e100  # of weights and directions
_EXACT = 53  # bits


@dataclass(frozen=True)
class Sandwich(VectorBlock):
    """Over complete rows, with u = (1, x) and the residual e = y - b·u: the sum of w w', w = e D u.

    A w that is longer than 1 is shortened to 1, and every w is rounded toward zero to multiples of 2^-20.
    Arrays: square (directions,), the diagonal of w w', and cross, what stands above it, row by row.

    Attributes:
        weights: b, the constant first.
        directions: the rows of D, each with as many numbers.
    """

    weights: tuple[float, ...]
    directions: tuple[tuple[float, ...], ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        length = 1 + self.design.width(schema)
        if self.design.target is None or len(self.weights) != length or not self.directions:
            raise InvalidInput(f"a sandwich needs a target, {length} weights and at least one direction")
        schema.number(self.design.target)
        for row in (self.weights, *self.directions):
            if len(row) != length:
                raise InvalidInput(f"each direction must have {length} numbers, not {len(row)}")
            for entry in row:
                check.real("weights and directions", entry, least=-_LARGEST, most=_LARGEST)
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

    def add(self, part: Part) -> None:
        rows = part.vectors(self._design)
        products = self._whole[:, 1:] @ rows.x
        products += ONE * self._whole[:, :1]
        np.ldexp(products, self._places, out=products)
        residual = (rows.y - products[0]) / ONE
        w = products[1:]
        w *= residual / ONE
        self._total.add(exact_products(clip_rows(w.T, 1.0).T.astype(np.float64)))

    def result(self) -> Sums:
        total: Integers = self._total.result()
        return np.diagonal(total).copy(), total[np.triu_indices(len(total), 1)]


def _whole(rows: Floats) -> tuple[Floats, Integers]:
    """Return rows as whole numbers, and for each the power of two that makes numbers of them again.

    They have so many bits that a sum of their products with numbers of up to 2^20 stays within 2^53.
    """
    bits = _EXACT - T_BITS - math.ceil(math.log2(rows.shape[1]))
    exponents = np.frexp(np.abs(rows).max(axis=1))[1].astype(np.int64)
    shift = (bits - exponents)[:, None]
    return np.rint(np.ldexp(rows, shift)), -shift
