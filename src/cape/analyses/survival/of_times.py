"""What analyses of times to an event have in common: their columns, their bins and what they ask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cape.analyses.survival.risk_table import RiskTable, risk_tables
from cape.blocks.survival import Exits
from cape.blocks.times import Times, checked_edges
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import digits_apart, names, written
from cape.engine.query import Analysis, Answer, Neighbours, Query

__all__ = ["OfTimes", "edge_names", "flag"]


def flag(name: str, value: Any) -> bool:
    """Return an argument that is True or False."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be True or False, not {check.show(value)}")
    return value


def edge_names(edges: tuple[float, ...]) -> list[str]:
    """Return the edges after the first as text."""
    digits = digits_apart(edges)
    return [written(edge, digits) for edge in edges[1:]]


@dataclass(frozen=True, init=False)
class OfTimes(Analysis):
    """An analysis of how many rows of each group leave in each bin, and why.

    **Sensitivity.** One row is counted in one cell of one series and moves the sums by a column of W
    (`cape.blocks.survival`, which has the proof): by at most `norm` under add-remove and sqrt(2) `norm` under
    replace-one, with norm <= 1, however many bins, events and groups there are. Under Laplace noise W is the
    identity, and one row moves the sums by 1 or 2 in the L1 norm.
    """

    time: str
    event: str
    edges: tuple[float, ...] | None
    bins: int
    at_edges: bool

    def _set_times(
        self, time: Any, event: Any, by: tuple[Any, ...], edges: Any, bins: Any, at_edges: Any
    ) -> tuple[str, ...]:
        """Set the fields, and return the names of grouping columns."""
        first, second, *groups = names((time, event, *by))
        cut, many = checked_edges(first, edges, bins)
        self._set(time=first, event=second, edges=cut, bins=many, at_edges=flag("at_edges", at_edges))
        return tuple(groups)

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns whose categories divide the rows."""
        return ()

    def times(self, schema: Schema) -> Times:
        """Return how the times are cut."""
        bins = None if self.edges is not None else self.bins
        return Times.of(schema, self.time, self.event, edges=self.edges, bins=bins)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        block = Exits(self.times(schema), self.groups, plain=self.laplace)
        block.arrays(schema)
        rows = 2.0 if neighbours == "replace-one" else 1.0
        moved, l1 = math.sqrt(rows) * block.weaving.norm, rows * block.weaving.norm_l1
        return Query((block,), ((1.0,),), moved, l1=l1)

    def risk_tables(self, answer: Answer) -> list[RiskTable]:
        """Return the table of each group, those of the last column running fastest."""
        ((released,),), ((noise,),) = answer.sums, answer.noise
        columns = (self.time, self.event, *self.groups)
        public = answer.rows is not None and not any(answer.schema[name].missing for name in columns)
        total = float(answer.rows) if public and answer.rows is not None else None
        return risk_tables(released, noise, total, self.at_edges, self.laplace, answer.law)

    def _time_keys(self) -> dict[str, Any]:
        cut = {"bins": self.bins} if self.edges is None else {"edges": list(self.edges)}
        return {
            "time": self.time,
            "event": self.event,
            **cut,
            **({"at_edges": True} if self.at_edges else {}),
        }
