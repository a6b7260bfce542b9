"""How many cells lie outside the bounds that people gave: counted beside the first sums of every analysis.

A cell outside its bounds counts as the bound, and no result shows it. So the first query of an analysis also
counts, for each numeric column that it depends on, the cells below, within and above the bounds
(`cape.blocks.OutsideBounds`), from at most 1% of what the analysis may cost. `beside` makes that query, sites
make it again from the request alone, and `AnalysisSession` takes the counts out of the answer before the
analysis sees it.

Claim. One person moves the query that `beside` returns by at most what it says, and it costs no more than the
query that it was given: its own sums get a little more noise, and nothing else changes.
Reason. A row adds 1 to at most one of the three counts of a column. Of K columns, a row that is replaced
moves two counts each by 1, so all of them by sqrt(2 K) in the L2 norm and 2 K in the L1 norm; a row that is
added or left out, or takes the place of one that does not count, moves one each: sqrt(K) and K. A row moves
the counts and the other sums at once, whichever the other sums are, so that squares add: with a scale s of
the counts, sensitivity² = (that of the query)² + (counts / s)², and in the L1 norm the sum. A person with k
rows at a site moves the counts k times as far (triangle inequality), also where sites clip the other sums by
person.
The scale is solved for so that counts take the part f of the stage: counts² / s² = f sensitivity², in the L1
norm counts / s = f l1. With f = (part of the release) / (part of the first stage), they take that part of the
release; f itself is at most `_MOST_OF_STAGE`. The noise of the other sums is 1 / sqrt(1 - f) times as large
under Gaussian noise, 1 / (1 - f) times under Laplace noise.
Where rows are sampled nothing is counted: every block would draw a sample of its own.
Tested in tests/unit/engine/test_outside_bounds.py, which attains the sensitivity and rejects a wrong scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cape.blocks import OutsideBounds
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.clinical import unit_in
from cape.data.columns import Number, as_date
from cape.engine.query import Query
from cape.stats.law import Law

if TYPE_CHECKING:
    from cape.engine.stages import Setting

__all__ = ["MOST", "OutsideBounds", "OutsideShare", "beside", "counted", "sentences", "shares"]

MOST = 0.01
"""The most of what a release may cost that goes to counts of cells outside bounds."""

_EACH = 0.0025  # of mu², for each column and once more, so that the counts of a few are as precise
_MOST_OF_STAGE = 0.05  # of a first stage that is a small part of the release
_TOLD = 0.01  # the share of cells outside bounds from which on a result says so
_SURE = 0.01  # how often a result may say so of one of its columns where the share is that small
_KNOWN = 5.0  # the number of cells, in its own standard errors, from which on a share says anything
_CODES = (999.0, 9999.0, 99999.0, -9.0, -99.0, -999.0)
_ZERO = 0.1  # of the range of bounds: where they begin as far above 0 as that, 0 is hardly one of the numbers
_FEW = 0.5  # of the cells: codes for missing ones are rarer


def beside(query: Query, setting: Setting, part: float, *, laplace: bool) -> Query:
    """Return the first query of an analysis with counts of cells outside bounds beside its own sums.

    `part` is what the first stage is of all that the analysis may cost. A query of no numeric column is
    returned as it is.
    """
    columns = counted(query, setting.schema)
    if not columns:
        return query
    share = MOST if laplace else min(_EACH * (len(columns) + 1), MOST)
    of_stage = min(share / part, _MOST_OF_STAGE)
    moved = len(columns) * (2.0 if setting.neighbours == "replace-one" else 1.0)
    person = setting.schema.person
    rows = 1 if person is None else person.rows
    whole = setting.of_person(query)
    if laplace and whole.l1 is not None:
        scale = moved * rows / whole.l1 * (1 - of_stage) / of_stage
    else:
        scale = math.sqrt(moved) * rows / whole.sensitivity * math.sqrt((1 - of_stage) / of_stage)
    alone = math.sqrt(len(columns))
    return replace(
        query,
        blocks=(*query.blocks, OutsideBounds(columns)),
        scales=(*query.scales, (scale,)),
        sensitivity=math.hypot(query.sensitivity, math.sqrt(moved) / scale),
        norm=None if query.norm is None else math.hypot(query.norm, alone / scale),
        l1=None if query.l1 is None else query.l1 + moved / scale,
        of_person=None
        if query.of_person is None
        else math.hypot(query.of_person, rows * math.sqrt(moved) / scale),
    )


def counted(query: Query, schema: Schema) -> tuple[str, ...]:
    """Return the numeric columns that the sums of a query depend on, and whose cells may lie outside.

    Those of `where` are among them, and those that derived columns are computed from; a derived column is
    not, if the bounds of what it is computed from keep it within its own.
    """
    waiting = [name for block in query.blocks for name in block.reads]
    if query.blocks and schema.where is not None:
        waiting += schema.where.columns
    found: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting += schema.derived[name].columns if name in schema.derived else ()
    return tuple(name for name in found if _may_lie_outside(name, schema))


def _may_lie_outside(name: str, schema: Schema) -> bool:
    column = schema[name]
    if not isinstance(column, Number):
        return False
    if name not in schema.derived:
        return True
    try:
        low, high = schema.derived[name].bounds
    except InvalidInput:  # nobody can know them
        return True
    return not column.low <= low <= high <= column.high


@dataclass(frozen=True)
class OutsideShare:
    """Noisy counts of the cells of one column below and above its bounds, and what they are shares of.

    Attributes:
        column: its name.
        low, high: its bounds; days since 1970-01-01 if it is a `date`.
        among: of how many: the rows, if their number is public, else the cells that are not missing.
        exact: whether that number is the public one.
        below, above: how many cells lie below and above.
        noise: the standard deviation of the noise in each count, 0 for none.
        law: the law of the noise.
        columns: of how many columns cells were counted at once.
    """

    column: str
    low: float
    high: float
    date: bool
    among: float
    exact: bool
    below: float
    above: float
    noise: float
    law: Law
    columns: int

    def share(self, count: float) -> float | None:
        """Return a count as a share; None where noise hides of how many."""
        least = 0.0 if self.exact else _KNOWN * math.sqrt(3) * self.noise
        return min(max(count / self.among, 0.0), 1.0) if self.among > least else None

    def interval(self, count: float, level: float = 0.95) -> tuple[float, float] | None:
        """Return an interval for a share; None where noise hides of how many."""
        share = self.share(count)
        if share is None:
            return None
        half = float(self.law.quantile((1 + level) / 2)) * self._error(share) / self.among
        return tuple(min(max(count / self.among + side, 0.0), 1.0) for side in (-half, half))  # type: ignore

    def is_large(self, count: float) -> bool:
        """Return whether a share is above 1%, up to an error that is rare among all shares of a release."""
        if self.share(count) is None:
            return False
        allowed = float(self.law.quantile(1 - _SURE / (2 * self.columns))) * self._error(_TOLD)
        return count - _TOLD * self.among > allowed

    def _error(self, share: float) -> float:
        """Return the noise in a count less this share of all: the three counts of a column add up to all."""
        return self.noise * (1.0 if self.exact else math.hypot(1 - share, math.sqrt(2) * share))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON; None where noise hides of how many cells shares are."""
        return {
            "column": self.column,
            "bounds": [as_date(bound).isoformat() if self.date else bound for bound in (self.low, self.high)],
            "of": "rows" if self.exact else "cells",
            "among": max(self.among, 0.0),
            "below": self.share(self.below),
            "below_interval": self.interval(self.below),
            "above": self.share(self.above),
            "above_interval": self.interval(self.above),
            "noise": self.noise,
        }


def shares(
    columns: Sequence[str], counts: Floats, noise: float, rows: int | None, schema: Schema, law: Law
) -> tuple[OutsideShare, ...]:
    """Return what the counts say, (columns, 3); `rows` is how many count, where that is public."""
    found = []
    for name, three in zip(columns, counts.tolist(), strict=True):
        column = schema[name]
        assert isinstance(column, Number)
        ends, among = (column.low, column.high, column.date), float(sum(three) if rows is None else rows)
        below, _, above = three
        found.append(
            OutsideShare(name, *ends, among, rows is not None, below, above, noise, law, len(columns))
        )
    return tuple(found)


def sentences(found: Sequence[OutsideShare], schema: Schema) -> list[str]:
    """Return a sentence for each column with more than 1% of cells below its bounds, or above.

    What may explain them is a question: only shares and bounds are known.
    """
    said = []
    for each in found:
        column = schema[each.column]
        assert isinstance(column, Number)
        for count, word, bound in ((each.below, "below", each.low), (each.above, "above", each.high)):
            share, interval = each.share(count), each.interval(count)
            if not each.is_large(count) or share is None or interval is None:
                continue
            end = str(as_date(bound)) if column.date else f"{bound:g}"
            many = f"{_percent(share)} of {'rows' if each.exact else 'its cells'}"
            if each.noise:
                many = f"about {many} (95% interval {_percent(interval[0])} to {_percent(interval[1])})"
            said.append(
                f"{schema.label(each.column)} lies {word} {end} and counts as {end} in {many}: "
                f"{_reason(each.column, column, schema, word, share)}"
            )
    return said


def _reason(name: str, column: Number, schema: Schema, word: str, share: float) -> str:
    """Return what may explain that cells lie outside, as a question."""
    narrow = "are the bounds too narrow?"
    if name in schema.derived:
        return narrow

    def outside(value: float) -> bool:
        return value < column.low if word == "below" else value > column.high

    if column.date:
        return f"does a day far away stand for missing ones, or {narrow}" if share < _FEW else narrow
    # The middle of the bounds, in a unit that people use for such a column, lies on this side of them.
    known = unit_in(name, column.low, column.high)
    units = [unit for unit, factor in known.items() if outside(column.middle / factor)]
    codes = ["0"] if word == "below" and column.low > _ZERO * (column.high - column.low) else []
    if not units and share < _FEW:
        codes += [f"a code such as {code:g}" for code in _CODES if outside(code)][:1]
    asked = [f"are some in {' or '.join(units) if units else 'another unit'}"]
    asked += [f"does {' or '.join(codes)} stand for missing ones"] if codes else []
    return f"{', '.join(asked)}, or {narrow}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"
