"""Times to an event, cut at public edges: the bin in which a row leaves, and why it leaves.

With edges e_0 < ... < e_m the bins are (e_0, e_1], ..., (e_m-1, e_m]: a row that has its event at an edge has
had it by then, as survival curves count it. What leaves at or before e_0 is in the first bin. Rows that stay
beyond e_m are in a bin of their own, `bins`, which is after all others: they are at risk throughout.

The event is a column of categories: the first value is a row that was censored, the second one that had the
event. With further values, all but the first are events that compete.

A row may also enter late. Its entry is in the bin [e_k, e_k+1) whose start it is taken to, so that it is at
risk in bins from there to the one in which it leaves, both included.

Claim. A row leaves in one bin, by one event: it is counted in one cell, however many bins there are.
Reason. x <= e for float64 numbers is x < the next number above e, so that these are the bins [a, b) of an
`Axis`, for Python and for databases alike. Tested in tests/unit/blocks/test_times.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.blocks.bins import rising
from cape.blocks.counts import Axis, Counts
from cape.blocks.parts import Part
from cape.core import check
from cape.core.arrays import Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

__all__ = ["BINS", "Times", "checked_edges", "exit_counts"]

BINS = 20
MOST_BINS = 512


def checked_edges(time: str, edges: Any, bins: Any) -> tuple[tuple[float, ...] | None, int]:
    """Return the arguments that cut a time, without its schema: edges or None, and a number of bins."""
    if edges is not None and bins is not None:
        raise InvalidInput("either edges or bins must be given, not both")
    if edges is None:
        return None, BINS if bins is None else check.integer("bins", bins, least=1, most=MOST_BINS)
    if isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable):
        raise InvalidInput(f"edges must be times that rise, as in [1, 2, 5, 10], not {check.show(edges)}")
    listed = tuple(edges)
    found = tuple(rising(time, listed).tolist()) if len(listed) > 1 else _one(listed)
    if len(found) > MOST_BINS:
        raise InvalidInput(f"edges must be at most {MOST_BINS} times, not {len(found)}")
    return found, len(found)


def _one(listed: tuple[Any, ...]) -> tuple[float, ...]:
    if not listed:
        raise InvalidInput("edges must be one time or more, as in [1, 2, 5, 10]")
    return (check.real("edges", listed[0]) + 0.0,)


@dataclass(frozen=True)
class Times:
    """A time and an event, cut at edges; `edges` begin with the lower bound of the time.

    >>> times = Times.of(schema, "years", "died", edges=[1, 2, 5, 10])
    """

    time: str
    event: str
    edges: tuple[float, ...]
    entry: str | None = None

    @classmethod
    def of(
        cls,
        schema: Schema,
        time: str,
        event: str,
        *,
        edges: Iterable[float] | None = None,
        bins: int | None = None,
        entry: str | None = None,
    ) -> Times:
        """Return times cut at edges, or at as many equal parts of the bounds, or raise `InvalidInput`.

        Edges are the times at which a curve is known; the lower bound is where it begins.
        """
        given, many = checked_edges(time, edges, bins)
        column = schema.number(time)
        if column.low < 0:
            raise InvalidInput(
                f"column {time!r} has the lower bound {column.low:g} in the schema; a time must be 0 or more"
            )
        if len(schema.category(event).values) < 2:
            raise InvalidInput(
                f"column {event!r} has one category in the schema; an event needs two: the first for rows "
                "that were censored, the second for those that had the event"
            )
        if entry is not None:
            schema.number(entry)
        if given is None:
            return cls(time, event, tuple(np.linspace(column.low, column.high, many + 1).tolist()), entry)
        if given[0] < column.low or given[-1] > column.high:
            outside = given[0] if given[0] < column.low else given[-1]
            raise InvalidInput(
                f"edges of {time!r} must lie within its bounds, {column.low:g} to {column.high:g}, and "
                f"{outside:g} does not"
            )
        inner = given[1:] if given[0] == column.low else given
        if not inner:
            raise InvalidInput(f"edges of {time!r} must have a time above its lower bound, {column.low:g}")
        return cls(time, event, (column.low, *inner), entry)

    @property
    def bins(self) -> int:
        """How many bins there are, without the one after the last edge."""
        return len(self.edges) - 1

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns."""
        return (self.time, self.event, *(() if self.entry is None else (self.entry,)))

    def causes(self, schema: Schema) -> tuple[Any, ...]:
        """Return the events, without the value of rows that were censored."""
        return tuple(schema.category(self.event).values[1:])

    def beyond(self, schema: Schema) -> bool:
        """Return whether rows may stay beyond the last edge."""
        return self.edges[-1] < schema.number(self.time).high

    def axis(self, schema: Schema) -> Axis:
        """Return the bins in which rows leave; the last one is beyond the last edge, if rows may stay."""
        column = schema.number(self.time)
        closed = np.nextafter(self.edges[1:] if self.beyond(schema) else self.edges[1:-1], np.inf)
        top = np.nextafter(np.nextafter(column.high, np.inf), np.inf)
        return Axis(self.time, np.concatenate([[self.edges[0]], closed, [top]]))

    def exits(self, part: Part) -> Integers:
        """Return the bin in which each row leaves, `bins` for one that stays; -1 if its time is missing."""
        cut = self.axis(part.schema).cut
        assert cut is not None  # it has edges
        return cut.find(part.numbers(self.time))

    def events(self, part: Part) -> Integers:
        """Return 0 for rows that were censored, 1 and more for events; -1 if that is missing."""
        return part.codes(self.event)

    def entries(self, part: Part) -> Integers:
        """Return the first bin in which each row is at risk, `bins` for one that enters after all edges."""
        if self.entry is None:
            return np.zeros(part.rows, np.int64)
        values = part.numbers(self.entry)
        found = np.searchsorted(np.array(self.edges[1:]), values, side="right").astype(np.int64)
        found[np.isnan(values)] = -1
        return found


def exit_counts(times: Times, schema: Schema, by: Iterable[str] = ()) -> Counts:
    """Return how many rows of each group leave in each bin, by each event: group x event x bin.

    One row is counted in one cell, or in none if it misses a column:
    `cape.analyses.describe.histogram.one_hot` has the sensitivity.
    """
    return Counts((*map(Axis, by), Axis(times.event), times.axis(schema)))
