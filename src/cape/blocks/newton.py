"""Gradient and Hessian of the logistic loss at given weights.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; g and z of
one row have |g| <= 1 and ||z|| <= 1/2.
Reason. w·x is added up column by column, p and sqrt(p (1 - p)) are computed for each row by itself, and
what is left of g and z is integers: |g| <= 2^20, and, because a square root rounded to nearest of at most
1/4 is at most 1/2, |z_i| <= |k_i| / 2. Sums of their products are exact by `cape.noise.exact_products` and,
for 8192 products within 2^40, by BLAS in any order.
Tested in tests/blocks/test_newton.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from cape import check
from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.parts import Part, Pass
from cape.blocks.rows import PADDING
from cape.blocks.steps import ONE
from cape.data.schema import Schema
from cape.errors import InvalidInput
from cape.noise import exact_products

__all__ = ["Newton"]

_LARGEST = 1e100  # of weights


@dataclass(frozen=True)
class Newton(VectorBlock):
    """Over complete rows, at given weights w, with p = 1 / (1 + exp(-w·x)) and a target of -1 or 1:

    the sums of g x, with g = p - (1 + y) / 2, and of z z', with z = sqrt(p (1 - p)) x: the gradient and the
    Hessian of the logistic loss. Arrays: count (1,), gradient (width,), square (width,) the diagonal of
    z z', cross what stands above it, row by row. g is rounded toward zero to 2^-20, and so is z.
    """

    weights: tuple[float, ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
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

    def summer(self, run: Pass) -> _Newton:
        return _Newton(self, run)


class _Newton:
    def __init__(self, block: Newton, run: Pass) -> None:
        width = len(block.weights)
        self._design = block.design
        self._weights = [float(weight) / ONE for weight in block.weights]
        self._count = np.zeros(1, np.int64)
        self._gradient, self._hessian = run.total(width), run.total(width, width)
        self._buffer = np.empty((width, 0))

    def add(self, part: Part) -> None:
        rows = part.vectors(self._design)
        if rows.count > self._buffer.shape[1]:
            self._buffer = np.empty((rows.x.shape[0], rows.count + PADDING))
        z = self._buffer[:, : rows.count]
        product, linear = np.empty(rows.count), np.zeros(rows.count)
        for column, weight in zip(rows.x, self._weights, strict=True):
            np.multiply(column, weight, out=product)
            linear += product
        p = expit(linear)
        root = np.sqrt(p * (1 - p))
        g = np.trunc((p - (rows.y + ONE) / (2 * ONE)) * ONE)
        for column, out in zip(rows.x, z, strict=True):
            np.multiply(column, root, out=out)
            np.trunc(out, out=out)
        self._count += rows.count
        self._gradient.add((rows.x @ g).astype(np.int64))
        self._hessian.add(exact_products(z))

    def result(self) -> Sums:
        gradient, hessian = self._gradient.result(), self._hessian.result()
        above = np.triu_indices(len(gradient), 1)
        return self._count, gradient, np.diagonal(hessian).copy(), hessian[above]
