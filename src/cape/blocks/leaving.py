"""Who leaves when, and by what: counts of complete rows by cell of an axis of time.

Claim. Results are the same integers for the same multiset of rows; a row is counted in one bin of `censored`,
`events` and `staying` at most, in one of `totals`, and in one of `entering`.
Reason. Each row has one exit, with or without the event, and one entry (`FollowUp`).
Tested in tests/unit/blocks/test_hazard_scores.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cape.blocks.block import Array, Block, Sums
from cape.blocks.design import Design
from cape.blocks.follow_up import TYPICAL, FollowUp, Stretches, typical_rows
from cape.blocks.parts import Part
from cape.core.arrays import Floats
from cape.data.schema import Schema

__all__ = ["Leaving"]


@dataclass(frozen=True)
class Leaving(Block):
    """Over rows that miss nothing, by cell of an axis of time:

    Arrays: censored (cells,), rows that leave without the event; events (cells,), rows that leave by it;
    staying (strata,), rows that stay to the end; totals (strata,), rows with the event; and where rows may
    enter late, entering (cells,), rows at risk that enter after the start. Rows that are never at risk are
    counted nowhere, but for events at the very start.
    """

    design: Design
    follow_up: FollowUp

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, *self.follow_up.reads)

    @property
    def late(self) -> bool:
        """Whether rows may enter late."""
        return self.follow_up.times.entry is not None

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.follow_up.check(schema, self.design)
        cells, strata = self.follow_up.cells(schema), self.follow_up.many(schema)
        return (
            Array("censored", (cells,), 0),
            Array("events", (cells,), 0),
            Array("staying", (strata,), 0),
            Array("totals", (strata,), 0),
            *((Array("entering", (cells,), 0),) if self.late else ()),
        )

    def added(self, part: Part) -> Sums:
        return self._sums(self.follow_up.of(part, self.design)[1], part.schema)

    def _sums(self, rows: Stretches, schema: Schema) -> Sums:
        cells, strata = self.follow_up.cells(schema), self.follow_up.many(schema)
        bins = self.follow_up.times.bins
        had, stays = rows.event > 0, rows.stays > 0
        risk = (rows.exit > rows.start) | (rows.exit_part > rows.start_part)
        stratum = rows.exit // bins
        sums = [
            np.bincount(rows.exit[risk & ~had & ~stays], minlength=cells),
            np.bincount(rows.exit[had], minlength=cells),
            np.bincount(stratum[stays], minlength=strata),
            np.bincount(stratum[had], minlength=strata),
        ]
        if self.late:
            late = risk & (rows.start % bins + rows.start_part > 0)
            sums.append(np.bincount(rows.start[late], minlength=cells))
        return tuple(sums)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The counts of typical rows."""
        _, stretches = typical_rows(self.design, self.follow_up, schema)
        return tuple(rows / TYPICAL * np.asarray(each, float) for each in self._sums(stretches, schema))
