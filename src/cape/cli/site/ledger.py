"""`cape site ledger`: what a site has released."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cape.cli import screen
from cape.cli.options import AsJson
from cape.cli.site.reach import Folder, Socket, reach
from cape.core.errors import InvalidInput
from cape.show.plain import csv_rows
from cape.site.admin import Client, Desk
from cape.site.admin.data import Ledger, Line

__all__ = ["ledger"]

_PAGE = 10_000


def ledger(
    coordinator: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of one coordinator.", show_default=False),
    ] = None,
    year: Annotated[
        int | None,
        typer.Option(metavar="YEAR", min=1, max=9999, help="Of one year.", show_default=False),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY",
            help="Of one study: name, or start of its hash.",
            show_default=False,
        ),
    ] = None,
    folder: Folder = None,
    socket: Socket = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every line as CSV.")] = False,
    exported: Annotated[
        bool, typer.Option("--export", help="Print all of it as signed JSON, for `cape site verify`.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every release: its time, coordinator, analysis and mu, and the epsilon of all together.

    Example: [bold]cape site ledger --site our-site[/bold]

    Example: [bold]cape site ledger --year 2026 --csv --site our-site > ledger-2026.csv[/bold]

    Example: [bold]cape site ledger --export --site our-site > ledger.json[/bold]
    """
    if as_csv and as_json:
        raise InvalidInput("give --csv or --json, not both")
    if exported:
        if as_csv or as_json or (coordinator, year, study) != (None, None, None):
            raise InvalidInput("--export prints the whole ledger; leave the other options out")
        with reach(folder, socket) as desk:
            typer.echo(desk.ledger_export(), nl=False)
        return
    since, until = (None, None) if year is None else (f"{year:04}-01-01", f"{year:04}-12-31")
    with reach(folder, socket) as desk:
        book = _whole(desk, coordinator, study, since, until, lines=as_json or as_csv)
    if as_json:
        told = msgspec.to_builtins(book)
        del told["runs"], told["next"]
        screen.print_json(told)
    elif as_csv:
        rows = [Line.__struct_fields__, *map(msgspec.structs.astuple, book.releases)]
        typer.echo(csv_rows(rows), nl=False)
    else:
        _show(screen.console(), book, some=(coordinator, year, study) != (None, None, None))


def _whole(
    desk: Desk | Client,
    coordinator: str | None,
    study: str | None,
    since: str | None,
    until: str | None,
    *,
    lines: bool,
) -> Ledger:
    """Return all pages as one."""
    page = desk.ledger(None, _PAGE, coordinator, study, since, until, lines)
    runs, releases = list(page.runs), list(page.releases)
    while page.next is not None:
        page = desk.ledger(page.next, _PAGE, coordinator, study, since, until, lines)
        runs += page.runs
        releases += page.releases
    return msgspec.structs.replace(page, runs=tuple(runs), releases=tuple(releases))


def _show(console: Console, book: Ledger, *, some: bool) -> None:
    table = Table(title=escape(f"What {book.site} has released"), title_justify="left")
    for title in ("when (UTC)", "who", "study", "what"):
        table.add_column(title)
    for title in ("stages", "mu", f"epsilon at {book.delta:g}"):
        table.add_column(title, justify="right")
    for run in book.runs:
        table.add_row(
            run.at[:16].replace("T", " "),
            escape(run.coordinator),
            escape(run.study),
            escape(f"{run.number}. {run.description}"),
            str(run.stages),
            f"{run.mu:.4g}",
            f"{run.epsilon:.4g}",
        )
    table.add_section()
    sums = [("these together", book.shown)] if some else []
    for name, spent in [*sums, ("all together", book.total)]:
        table.add_row(name, "", "", "", str(spent.lines), f"{spent.mu:.4g}", f"{spent.epsilon:.4g}")
    console.print(table)
    for limit in book.limits:
        console.print(
            escape(f"{limit.name}: epsilon {limit.spent:.4g} of {limit.epsilon:g} at delta {limit.delta:g}")
        )
