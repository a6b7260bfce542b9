"""The sums of a `Newton` block: gradient and Hessian of the logistic loss at given weights.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; g and z of
one row have |g| <= 1 and ||z|| <= 1/2.
Reason. w·x is added up column by column, p and sqrt(p (1 - p)) are computed for each row by itself, and
what is left of g and z is integers: |g| <= 2^20, and, because a square root rounded to nearest of at most
1/4 is at most 1/2, |z_i| <= |k_i| / 2. Sums of their products are exact by `cape.noise.exact_products` and,
for 8192 products within 2^40, by BLAS in any order.
Tested in tests/blocks/test_newton.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cape.blocks.block import Newton
from cape.blocks.parts import Part, Total
from cape.blocks.rows import PADDING
from cape.blocks.steps import ONE
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["NewtonSums"]

Int64 = NDArray[np.int64]


class NewtonSums:
    """Adds up a `Newton` block."""

    def __init__(self, schema: Schema, block: Newton, *, hold: bool = False) -> None:
        width = block.design.width(schema)
        self._design = block.design
        self._weights = [float(weight) / ONE for weight in block.weights]
        self._count = np.zeros(1, np.int64)
        self._gradient = Total((width,), hold=hold)
        self._hessian = Total((width, width), hold=hold)
        self._buffer = np.empty((width, 0))

    def add(self, part: Part) -> None:
        """Add a part of the table."""
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

    def result(self) -> tuple[Int64, ...]:
        """Return the sums, in the shapes of `block.arrays`."""
        gradient, hessian = self._gradient.result(), self._hessian.result()
        above = np.triu_indices(len(gradient), 1)
        return self._count, gradient, np.diagonal(hessian).copy(), hessian[above]
