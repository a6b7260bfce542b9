"""Released numbers as a table on the screen."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from cape.analyses import TableOne
from cape.cli.results import Answered

__all__ = ["clinical", "table_of"]

_MOST = 40
_INTERVALS = "Every number of it with its interval: --json, or --out DIR"


def table_of(answered: Answered) -> Table:
    """Return the table of one analysis: that of a clinical paper, or estimates with errors, long ones cut."""
    release = answered.release
    if isinstance(release.analysis, TableOne):
        table = clinical(*release.analysis.layout(release.estimates))
        table.caption, table.caption_justify = _INTERVALS, "left"
    else:
        table = release.table(_MOST)
    table.title = escape(f"{answered.entry.number}. {release.analysis.describe()}")
    return table


def clinical(header: list[str], rows: list[list[str]]) -> Table:
    """Return the first table of a clinical paper."""
    table = Table(title_justify="left")
    for i, name in enumerate(header):
        table.add_column(escape(name), justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
