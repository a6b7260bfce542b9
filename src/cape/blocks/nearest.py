"""Rows, and their sums, by the nearest of given centres.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; every row
is counted to one centre only.
Reason. Squared distances are added up column by column, so that a row has the same ones wherever it stands,
and compared; of equal ones the first counts. Sums are of at most 8192 whole numbers within 2^20, which
float64 adds without rounding in any order.
Tested in tests/unit/blocks/test_nearest.py.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.parts import Part
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

__all__ = ["Nearest"]

_LARGEST = 1e100  # of numbers whose squares are added up


@dataclass(frozen=True)
class Nearest(VectorBlock):
    """Over complete rows, each counted to the nearest of given centres (the first, if several are).

    Arrays: counts (centres,), and sums (centres, width), of x. Centres are in units of x.
    """

    centres: tuple[tuple[float, ...], ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width = self.design.width(schema)
        if not self.centres or any(len(centre) != width for centre in self.centres):
            raise InvalidInput(f"centres must be at least one point of {width} numbers")
        for value in itertools.chain(*self.centres):
            check.real("centres", value, least=-_LARGEST, most=_LARGEST)
        many = len(self.centres)
        return (Array("counts", (many,), 0), Array("sums", (many, width), T_BITS))

    def added(self, part: Part) -> Sums:
        x = part.vectors(self.design).x
        nearest, chosen = self._nearest(x), np.empty(x.shape[1])
        counts = np.empty(len(self.centres), np.int64)
        sums = np.empty((len(self.centres), len(x)), np.int64)
        for i in range(len(self.centres)):
            np.equal(nearest, i, out=chosen)
            counts[i], sums[i] = np.add.reduce(chosen), x @ chosen
        return counts, sums

    def _nearest(self, x: Floats) -> Integers:
        least = np.full(x.shape[1], np.inf)
        found = np.zeros(x.shape[1], np.int64)
        distance, difference = np.empty(x.shape[1]), np.empty(x.shape[1])
        for i, centre in enumerate(self.centres):
            distance[:] = 0
            for column, value in zip(x, centre, strict=True):
                np.subtract(column, float(value) * ONE, out=difference)
                np.multiply(difference, difference, out=difference)
                distance += difference
            closer = distance < least
            found[closer] = i
            np.minimum(distance, least, out=least)
        return found
