"""`cape site check`: the policy checked against the data, and against a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from cape.app import words
from cape.cli import screen
from cape.cli.check_action import show
from cape.cli.options import AsJson
from cape.cli.site.reach import Folder, Socket, reach
from cape.cli.site.verdicts import verdict_table
from cape.core import documents
from cape.site.admin.data import Checked

__all__ = ["check"]


_FOUR_EYES = (
    "Warning: approvals = {} counts names. A steward who approves at the command line and at the desk must "
    "have an operating-system user that is what stands before the @ of the login, or counts as two persons."
)


def check(
    study_file: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="A study file to check.", show_default=False)
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who would ask; by default the policy's only coordinator."),
    ] = None,
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Check the policy against the data, and against a study. Nothing is spent or sent.

    What it prints about the data is for the steward only.

    Example: [bold]cape site check study.toml --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        text = None if study_file is None else documents.read(study_file, "study file")
        checked = desk.check(text, coordinator, str(study_file)[-300:])
    if as_json:
        screen.print_json(msgspec.to_builtins(checked))
    else:
        _show(screen.console(), checked)
    refused = [each for each in checked.analyses or () if not each.allowed]
    if checked.problems or refused:
        reason = (
            checked.problems[0] if checked.problems else f"{len(refused)} of its analyses would be refused"
        )
        typer.echo(f"cape: {reason}", err=True)
        raise typer.Exit(1)


def _show(console: Console, checked: Checked) -> None:
    console.print(
        f"\n[bold]{escape(checked.site)}[/bold]: policy until {checked.expires}, "
        f"{'answers by itself' if checked.approve == 'auto' else 'asks the steward first'}; trusts "
        f"{words.count(len(checked.coordinators), 'coordinator')}, {words.count(len(checked.peers), 'peer')}."
    )
    for name, known in (("coordinators", checked.coordinators), ("peers", checked.peers)):
        if not known:
            console.print(escape(f"No {name} yet: nothing can be answered. See `cape site trust --help`."))
    if checked.approvals > 1:
        console.print(escape(_FOUR_EYES.format(checked.approvals)))
    if checked.survey is not None:
        show(console, checked.survey)
        console.print("[dim]This is for you only; nobody else learns it.[/dim]")
    if checked.waiting:
        console.print(escape(f"Waiting for approval: {', '.join(checked.waiting)}."))
    if checked.analyses is not None:
        console.print(verdict_table(checked.analyses, checked.delta))
