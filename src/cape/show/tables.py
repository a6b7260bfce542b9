"""Tables as plain data: the text of each cell, not how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cape.show.numbers import LEVEL, between, rounded
from cape.stats.estimates import Estimate, error_beside, is_unknown

__all__ = ["Estimated", "Table", "listed", "recorded"]

_MOST = 200  # rows


class Estimated(Protocol):
    """A number with its error."""

    @property
    def label(self) -> str:
        """Its name."""
        ...

    @property
    def value(self) -> float:
        """The number."""
        ...

    @property
    def privacy(self) -> float:
        """Its error from privacy noise."""
        ...

    @property
    def standard_error(self) -> float:
        """Its error in all."""
        ...

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval at a level."""
        ...


@dataclass(frozen=True)
class Table:
    """Cells under the titles of columns, the first of which names the rows.

    Attributes:
        rows: one cell per column; a row of a single cell is a heading for the rows below it.
        drop: the columns to leave out, in this order, if the screen is too narrow.
        more: how many further rows there are.
        folded: whether most readers skip it: a terminal omits it, a page folds it.
        words: whether cells are words, which begin at the left.
        drawn: the column whose cells are drawn with characters; a page has a figure in its place.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    caption: str = ""
    drop: tuple[int, ...] = ()
    more: int = 0
    folded: bool = False
    drawn: int | None = None
    words: bool = False

    def cut(self, most: int) -> Table:
        """Return its first rows."""
        left = max(len(self.rows) - most, 0)
        return replace(self, rows=self.rows[:most], more=self.more + left)

    def without(self, place: int) -> Table:
        """Return it without one column."""
        columns = self.columns[:place] + self.columns[place + 1 :]
        rows = tuple(row if len(row) == 1 else row[:place] + row[place + 1 :] for row in self.rows)
        drop = tuple(each - (each > place) for each in self.drop if each != place)
        drawn = None if self.drawn in (None, place) else self.drawn - (self.drawn > place)
        return replace(self, columns=columns, rows=rows, drop=drop, drawn=drawn)


def listed(
    estimates: Sequence[Estimated],
    title: Callable[[str], str] = str,
    *,
    most: int | None = None,
    folded: bool = False,
) -> Table:
    """Return a row per estimate, with interval and errors; `most` as in `rounded`.

    "-" stands for what noise hides, beside all values that are possible.
    """
    rows: list[tuple[str, ...]] = []
    for e in estimates[:_MOST]:
        error = e.standard_error
        if isinstance(e, Estimate) and is_unknown(e):
            rows.append((title(e.label), "-", between(e.interval(LEVEL), error, most), "-", "-"))
            continue
        ends = e.interval(LEVEL)
        errors = tuple(rounded(each, each) if each else "0" for each in (error, e.privacy))
        if math.isnan(error_beside(error, ends)):
            errors = "-", "-"
        rows.append((title(e.label), rounded(e.value, error, most), between(ends, error, most), *errors))
    columns = ("", "value", f"{LEVEL:.0%} interval", "standard error", "from privacy")
    left = len(estimates) - len(rows)
    return Table(columns, tuple(rows), drop=(4, 3), more=left, folded=folded)


def recorded(estimate: Estimated) -> dict[str, Any]:
    """Return an estimate as a record of numbers."""
    low, high = estimate.interval(LEVEL)
    return {
        "label": estimate.label,
        "value": estimate.value,
        "low": low,
        "high": high,
        "standard_error": error_beside(estimate.standard_error, (low, high)),
        "privacy_error": estimate.privacy,
    }
