"""How long each row is followed: where it enters and leaves on an axis of time cut at public edges.

The axis has one cell for each bin, and one such row of cells for each stratum, one after the other. A row is
at risk on one stretch of it, from its start to its exit, which lie in one stratum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from cape.blocks import typical
from cape.blocks.design import Design
from cape.blocks.parts import Part
from cape.blocks.steps import ONE
from cape.blocks.times import Times
from cape.core.arrays import Flags, Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

__all__ = ["TYPICAL", "FollowUp", "Stretches", "typical_rows"]

TYPICAL = 1024  # rows, for plans
_MOST_CELLS = 1 << 13
_STEP = np.sqrt(np.array([23.0, 29.0, 31.0, 37.0]))  # multiples are evenly spread mod 1


@dataclass(frozen=True)
class Stretches:
    """Rows on the axis of cells: the cell and the part of it at which each enters and leaves.

    `stays` says which are there beyond the last edge; these leave at the end of the last cell, without an
    event. `event` is 1 where a row leaves by the event. A row that is never at risk leaves where it enters,
    without one.
    """

    exit: Integers
    exit_part: Floats
    start: Integers
    start_part: Floats
    event: Floats
    stays: Floats

    def chosen(self, rows: slice | Floats | Integers) -> Stretches:
        """Return some of the rows."""
        return Stretches(*(each[rows] for each in vars(self).values()))


@dataclass(frozen=True)
class FollowUp:
    """Times with an event, within strata if there are such: the second category of the event counts.

    Rows that leave by another event are censored then.
    """

    times: Times
    strata: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return (*self.times.reads, *self.strata)

    def check(self, schema: Schema, design: Design) -> None:
        """Raise an error that names the column which does not fit."""
        design.check(schema)
        if design.target is not None or design.intercept:
            raise InvalidInput("the features of a follow-up have neither a target nor an intercept")
        if not (np.diff(self.times.edges) > 0).all():
            raise InvalidInput(
                f"the bounds of {self.times.time!r} are too narrow for so many bins; use fewer bins, or edges"
            )
        for name in self.reads:
            schema[name]
        schema.category(self.times.event)
        if self.cells(schema) > _MOST_CELLS:  # a site may be asked for many more than it has room for
            raise InvalidInput(
                f"a follow-up has at most {_MOST_CELLS} cells, not {self.cells(schema)}: use fewer bins, or "
                "fewer strata"
            )

    def many(self, schema: Schema) -> int:
        """Return how many strata there are."""
        return math.prod(len(schema.category(name).values) for name in self.strata)

    def cells(self, schema: Schema) -> int:
        """Return how many cells the axis has."""
        return self.many(schema) * self.times.bins

    def complete(self, part: Part, design: Design) -> Flags:
        """Return which rows miss nothing."""
        there = (self.times.exits(part) >= 0) & (self.times.events(part) >= 0)
        for name in self.strata:
            there &= part.codes(name) >= 0
        if self.times.entry is not None:
            there &= ~np.isnan(part.numbers(self.times.entry))
        found = part.vectors(design).complete
        return there if found is None else there & found

    def of(self, part: Part, design: Design) -> tuple[Floats, Stretches]:
        """Return the vectors, one column a row, and the stretches of the rows that miss nothing."""
        rows = part.vectors(design)
        time, exits, events = part.numbers(self.times.time), self.times.exits(part), self.times.events(part)
        there = self.complete(part, design)
        stratum = np.zeros(part.rows, np.int64)
        for name in self.strata:
            stratum = stratum * len(part.schema.category(name).values) + part.codes(name)
        entry = None if self.times.entry is None else part.numbers(self.times.entry)
        x = rows.x
        if rows.complete is not None:
            x = x[:, there[rows.complete]]
        elif not there.all():
            x = x[:, there]
        if not there.all():
            time, exits, events, stratum = time[there], exits[there], events[there], stratum[there]
            entry = None if entry is None else entry[there]
        return x, self._stretches(time, exits, events, stratum, entry)

    def _stretches(
        self, time: Floats, exits: Integers, events: Integers, stratum: Integers, entry: Floats | None
    ) -> Stretches:
        edges, bins = np.array(self.times.edges), self.times.bins
        widths, first = np.diff(edges), stratum * bins
        stays = exits == bins
        place = np.minimum(exits, bins - 1)
        part = np.where(stays, 1.0, np.clip((time - edges[place]) / widths[place], 0.0, 1.0))
        event = ((events == 1) & ~stays).astype(np.float64)
        if entry is None:
            return Stretches(first + place, part, first, np.zeros(len(part)), event, stays.astype(np.float64))
        begin = np.clip(np.searchsorted(edges, entry, side="right") - 1, 0, bins - 1)
        begin_part = np.clip((entry - edges[begin]) / widths[begin], 0.0, 1.0)
        void = (entry >= time) | (entry >= edges[-1]) | (begin > place)
        begin, begin_part = np.where(void, place, begin), np.where(void, part, begin_part)
        begin_part = np.where(begin == place, np.minimum(begin_part, part), begin_part)
        return Stretches(
            first + place,
            part,
            first + begin,
            begin_part,
            np.where(void, 0.0, event),
            (stays & ~void).astype(np.float64),
        )

    def typical(self, schema: Schema, ranks: Floats) -> Stretches:
        """Return the stretches of typical rows with these ranks, (rows, 4), each column from 0 to 1."""
        column = schema.number(self.times.time)
        time = column.middle + column.half * typical.Shape(column).at(ranks[:, 0])
        exits = np.searchsorted(np.array(self.times.edges[1:]), time, side="left")
        events = (ranks[:, 1] < schema.category(self.times.event).shares[1]).astype(np.int64)
        stratum = np.zeros(len(ranks), np.int64)
        if self.strata:
            each = [schema.category(name).shares for name in self.strata]
            shares = reduce(np.multiply.outer, each[1:], np.array(each[0])).reshape(-1)
            stratum = np.searchsorted(np.cumsum(shares)[:-1], ranks[:, 2], side="right")
        entry = None
        if self.times.entry is not None:
            late = schema.number(self.times.entry)
            entry = late.middle + late.half * typical.Shape(late).at(ranks[:, 3])
        return self._stretches(time, exits, events, stratum, entry)


def typical_rows(design: Design, follow_up: FollowUp, schema: Schema) -> tuple[Floats, Stretches]:
    """Return vectors in steps, one column a row, and stretches of typical rows."""
    x = np.trunc(typical.rows(design, schema, TYPICAL).T * ONE)
    ranks = (0.5 + np.arange(TYPICAL)[:, None] * _STEP) % 1.0
    return x, follow_up.typical(schema, ranks)
