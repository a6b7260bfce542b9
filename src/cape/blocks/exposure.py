"""Who is at risk when, events by time, and what the features of rows with an event are like.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order.
Reason. Counts are integers. Exposures are truncated for each row by itself; sums over a
part are of integers below 2^53, and `cape.noise.exact_products` is exact.
Tested in tests/unit/blocks/test_exposure.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cape.blocks import typical
from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.design import Design
from cape.blocks.follow_up import FollowUp, Stretches
from cape.blocks.parts import Part
from cape.blocks.steps import ONE
from cape.core.arrays import Floats, Integers
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["TYPICAL", "Exposure", "middles", "typical_rows"]

TYPICAL = 1024  # rows, for plans
_STEP = np.sqrt(np.array([23.0, 29.0, 31.0, 37.0]))  # multiples are evenly spread mod 1


@dataclass(frozen=True)
class Exposure(Block):
    """Over complete rows, by cell of an axis of time (`FollowUp`):

    Arrays: count (1,); exits (cells,), rows that leave less rows that enter later than at the start of the
    axis; events (cells,). By stratum: staying (strata,), rows that stay to the end; total (strata,), events;
    time (strata,), the part of the whole axis for which rows are at risk; sum (strata * width,), of x over
    rows with an event. square and cross: of xx' over them.
    """

    design: Design
    follow_up: FollowUp

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, *self.follow_up.reads)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.follow_up.check(schema, self.design)
        width, cells = self.design.width(schema), self.follow_up.cells(schema)
        strata = self.follow_up.many(schema)
        return (
            Array("count", (1,), 0),
            Array("exits", (cells,), 0),
            Array("events", (cells,), 0),
            Array("staying", (strata,), 0),
            Array("total", (strata,), 0),
            Array("time", (strata,), T_BITS),
            Array("sum", (strata * width,), T_BITS),
            Array("square", (width,), 2 * T_BITS),
            Array("cross", (width * (width - 1) // 2,), 2 * T_BITS),
        )

    def added(self, part: Part) -> Sums:
        x, rows = self.follow_up.of(part, self.design)
        return self._sums(x, rows, part.schema)

    def _sums(self, x: Floats, rows: Stretches, schema: Schema) -> Sums:
        cells, strata = self.follow_up.cells(schema), self.follow_up.many(schema)
        bins = self.follow_up.times.bins
        stratum, had = rows.exit // bins, rows.event > 0
        left = np.where(rows.stays > 0, cells, rows.exit)
        risk = (rows.exit > rows.start) | (rows.exit_part > rows.start_part)  # parts count in one cell only
        late = (rows.start % bins + rows.start_part > 0) & risk
        exits = np.bincount(left[risk], minlength=cells + 1)[:cells]
        entered = rows.start - (rows.start_part == 0)  # at the start of a cell: at risk in all of it
        exits = exits - np.bincount(entered[late], minlength=cells)
        time = np.trunc(((rows.exit - rows.start) + (rows.exit_part - rows.start_part)) * (ONE / bins)).clip(
            0.0, ONE
        )
        xs, at = x[:, had], stratum[had]
        sums = np.stack([np.bincount(at, row, strata) for row in xs]).T
        products = exact_products(np.ascontiguousarray(xs))
        return (
            np.array([len(rows.exit)]),
            exits,
            np.bincount(rows.exit[had], minlength=cells),
            np.bincount(stratum[rows.stays > 0], minlength=strata),
            np.bincount(at, minlength=strata),
            _whole(np.bincount(stratum, time, strata)),
            _whole(sums.reshape(-1)),
            np.diagonal(products).copy(),
            products[np.triu_indices(len(products), 1)],
        )

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose follow-up does not depend on their features."""
        x, stretches = typical_rows(self.design, self.follow_up, schema)
        sums = self._sums(x, stretches, schema)
        arrays = self.arrays(schema)
        return tuple(
            rows / TYPICAL * np.asarray(each, np.float64) * 2.0**-array.bits
            for each, array in zip(sums, arrays, strict=True)
        )


def typical_rows(design: Design, follow_up: FollowUp, schema: Schema) -> tuple[Floats, Stretches]:
    """Return vectors in steps, one column a row, and stretches of typical rows."""
    x = np.trunc(typical.rows(design, schema, TYPICAL).T * ONE)
    ranks = (0.5 + np.arange(TYPICAL)[:, None] * _STEP) % 1.0
    return x, follow_up.typical(schema, ranks)


def middles(bins: int) -> Floats:
    """Return the middle of each bin in proportion to the axis, which is from -1 to 1."""
    return (2 * np.arange(bins) + 1.0 - bins) / bins


def _whole(sums: Floats | Integers) -> Integers:
    return np.asarray(sums).astype(np.int64)
