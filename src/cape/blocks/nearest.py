"""The sums of a `Nearest` block: rows and their sum by the nearest of given centres.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; every row
is counted to one centre only.
Reason. Squared distances are added up column by column, so that a row has the same ones wherever it stands,
and compared; of equal ones the first counts. Sums are of at most 8192 whole numbers within 2^20, which
float64 adds without rounding in any order.
Tested in tests/blocks/test_nearest.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import Nearest
from cape.blocks.parts import Part
from cape.blocks.steps import ONE
from cape.data.schema import Schema

__all__ = ["NearestSums"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class NearestSums:
    """Adds up a `Nearest` block."""

    def __init__(self, schema: Schema, block: Nearest) -> None:
        self._design = block.design
        self._centres = [[float(value) * ONE for value in centre] for centre in block.centres]
        counts, sums = block.arrays(schema)
        self._counts, self._sums = np.zeros(counts.shape, np.int64), np.zeros(sums.shape, np.int64)

    def add(self, part: Part) -> None:
        """Add a part of the table."""
        rows = part.vectors(self._design)
        nearest = self._nearest(rows.x)
        chosen = np.empty(rows.count)
        for i in range(len(self._centres)):
            np.equal(nearest, i, out=chosen)
            self._counts[i] += int(np.add.reduce(chosen))
            self._sums[i] += (rows.x @ chosen).astype(np.int64)

    def _nearest(self, x: Float64) -> Int64:
        least = np.full(x.shape[1], np.inf)
        found = np.zeros(x.shape[1], np.int64)
        distance, difference = np.empty(x.shape[1]), np.empty(x.shape[1])
        for i, centre in enumerate(self._centres):
            distance[:] = 0
            for column, value in zip(x, centre, strict=True):
                np.subtract(column, value, out=difference)
                np.multiply(difference, difference, out=difference)
                distance += difference
            closer = distance < least
            found[closer] = i
            np.minimum(distance, least, out=least)
        return found

    def result(self) -> tuple[Int64, ...]:
        """Return the sums, in the shapes of `block.arrays`."""
        return self._counts, self._sums
