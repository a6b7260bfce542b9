"""The main numbers of a table in words, for those who read no further."""

from __future__ import annotations

from collections.abc import Sequence

from cape.show.numbers import LEVEL
from cape.show.tables import Table

__all__ = ["findings"]

_MOST = 4  # sentences about one table
_INTERVAL = f"{LEVEL:.0%} interval"


def findings(tables: Sequence[Table]) -> list[str]:
    """Return sentences about the first rows of the first table that gives numbers with their intervals.

    If it tests some of its rows, these are the findings: a P value is what a reader looks for first. Which
    rows are told never depends on what was found.
    """
    for table in tables:
        if _INTERVAL in table.columns and not table.folded:
            return _told(table)
    return []


def _told(table: Table) -> list[str]:
    interval = table.columns.index(_INTERVAL)
    p = next((place for place, name in enumerate(table.columns) if name in ("P", "P>|z|")), None)
    named = table.columns[interval - 1]
    kind = "" if named in ("value", "coef") else f"{named} "
    found, tested, above = [], [], ""
    for row in table.rows:
        if len(row) == 1:
            above = f"{row[0]}, "
        elif row[interval - 1] not in ("", "-") and row[interval]:
            test = row[p] if p is not None else ""
            sign = "" if test.startswith("<") else "= "
            ends = "" if row[interval] == "not known" else f" (95% CI {row[interval]})"
            said = f"{above}{row[0]}: {kind}{row[interval - 1]}{ends}"
            found.append(said + (f", P {sign}{test}" if test not in ("", "-") else ""))
            if test and row[0] != "intercept":
                tested.append(found[-1])
    return (tested or found)[:_MOST]
