"""Tables and notes on a terminal, fitted to its width."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from cape.show.shown import Shown
from cape.show.tables import Table

__all__ = ["Fitted", "as_text", "rendered", "screen_width"]

_MOST = 40  # rows of one table
_WIDTH, _LEAST_WIDTH = 110, 40
_FOLDED = "The report and the JSON output give the interval of every number."


def rendered(shown: Shown) -> Group:
    """Return tables and notes, without folded tables."""
    tables = shown.tables()
    parts: list[RenderableType] = [Fitted(table) for table in tables if not table.folded]
    folded = [table.title for table in tables if table.folded]
    if "" in folded:
        parts.append(Text(_FOLDED, style="dim"))
    titles = [f"{title[0].lower()}{title[1:]}" for title in folded if title]
    if titles:
        parts.append(Text(f"Not shown here, but in the report: {', '.join(titles)}.", style="dim"))
    return Group(*parts, *(Text(note, style="dim") for note in shown.notes()))


@dataclass(frozen=True)
class Fitted:
    """A table with at most so many rows, as wide as there is room.

    If it does not fit, columns that a reader can do without are left out. If that is not enough, each row
    becomes a list of its cells below each other.
    """

    table: Table
    most: int = _MOST

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        whole = self.table.cut(self.most)
        table, dropped = whole, []
        while table.drop and _width(table) > options.max_width:
            dropped.append(table.columns[table.drop[0]])
            table = table.without(table.drop[0])
        fits = _width(table) <= options.max_width
        if table.title:
            yield Text(table.title, style="italic")
        yield _drawn(table) if fits else _stacked(whole)
        if table.caption:
            yield Text(table.caption, style="dim")
        if dropped and fits:
            yield Text(f"Not shown for lack of space: {', '.join(dropped[::-1])}.", style="dim")


def _drawn(table: Table) -> RichTable:
    found = RichTable()
    for i, name in enumerate(table.columns):
        found.add_column(escape(name), justify="right" if i else "left")
    under = False
    for row in table.rows:
        if len(row) == 1:
            found.add_row(Text(row[0], style="bold"))
            under = True
        else:
            found.add_row(*map(escape, (f"  {row[0]}" if under else row[0], *row[1:])))
    if table.more:
        found.add_row(f"... and {table.more:,} more")
    return found


def _stacked(table: Table) -> RichTable:
    """Return each row as its name and, below, the name and text of each cell."""
    found = RichTable(show_header=False)
    found.add_column(justify="left")
    found.add_column(justify="right")
    for row in table.rows:
        if len(row) == 1:
            found.add_row(Text(row[0], style="bold italic"))
            continue
        found.add_row(Text(row[0], style="bold"))
        for name, cell in zip(table.columns[1:], row[1:], strict=True):
            if cell:
                found.add_row(escape(f"  {name}"), escape(cell))
    if table.more:
        found.add_row(f"... and {table.more:,} more")
    return found


def _width(table: Table) -> int:
    """Return the width of a table: cells, two blanks beside each, and lines between them."""
    rows = [table.columns, *(row for row in table.rows if len(row) > 1)]
    return sum(max(map(cell_len, cells)) + 3 for cells in zip(*rows, strict=True)) + 1


def screen_width(most: int) -> int:
    """Return how wide what is printed may be: as wide as the terminal or COLUMNS says, at most `most`."""
    return min(max(shutil.get_terminal_size((most, 24)).columns, _LEAST_WIDTH), most)


def as_text(shown: Any, width: int | None = None) -> str:
    """Return what rich would print, without colours; as wide as the screen if no width is given."""
    width = screen_width(_WIDTH) if width is None else width
    console = Console(file=io.StringIO(), width=width, color_system=None, force_jupyter=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")
