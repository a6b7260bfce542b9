"""Released numbers as a table on the screen."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cape.analyses import TableOne
from cape.cli.results import Answered
from cape.engine.result import as_text

__all__ = ["clinical", "shown", "table_of"]

_MOST = 40
_WIDE = 1000
_INTERVALS = "Every number of it with its interval: --json, or --out DIR"


def shown(answered: Answered, width: int) -> list[RenderableType]:
    """Return what to print of one analysis: a title, and the model's own table if there is one that fits."""
    release = answered.release
    model = release.model
    title = Text(f"{answered.entry.number}. {release.describe()}", style="italic")
    notes = [Text(note) for note in answered.notes]
    if hasattr(model, "__rich__"):
        return [title, model] if _width(model) <= width else [title, table_of(answered), *notes]
    told: list[RenderableType] = [Text(model.summary())] if hasattr(model, "summary") else []
    if release.estimates or not told:
        told.append(table_of(answered))
    return [title, *told, *notes]


def _width(model: Any) -> int:
    """Return how wide the table of a model is, without the words below it."""
    return max((len(line) for line in as_text(model, _WIDE).splitlines() if line[:1] in "┏┃│└"), default=0)


def table_of(answered: Answered) -> Table:
    """Return the table of one analysis: that of a clinical paper, or estimates with errors, long ones cut."""
    release = answered.release
    if isinstance(release.analysis, TableOne):
        table = clinical(*release.analysis.layout(release.estimates))
        table.caption, table.caption_justify = _INTERVALS, "left"
    else:
        table = release.table(_MOST)
    table.title = None
    return table


def clinical(header: list[str], rows: list[list[str]]) -> Table:
    """Return the first table of a clinical paper."""
    table = Table(title_justify="left")
    for i, name in enumerate(header):
        table.add_column(escape(name), justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
