"""`cape site inbox`, `approve` and `refuse`: studies that wait for the steward, and what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cape.cli import screen
from cape.cli.options import AsJson
from cape.cli.site.reach import Asker, Folder, Socket, reach
from cape.cli.site.verdicts import plain_data, verdict_table
from cape.steward.admin.data import Inbox, Study

__all__ = ["approve", "inbox", "refuse"]

Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for the site's log.", show_default=False)
]


def inbox(folder: Folder = None, socket: Socket = None, as_json: AsJson = False) -> None:
    """Show the studies that wait: who asks, what they would be answered, what it costs, what is left after.

    Example: [bold]cape site inbox --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        found = desk.inbox()
    waiting = found.of("waiting")
    if not as_json:
        console = screen.console()
        for each in waiting:
            _show(console, each)
    _warn(found.unreadable)
    if as_json:
        screen.print_json(
            {
                "approved": False,
                "studies": [plain_data(each) for each in waiting],
                "decided": [plain_data(each) for each in found.studies if each not in waiting],
            }
        )
    else:
        _say_next(found)


def approve(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY]", help="Its name, or the start of its hash.", show_default=False),
    ] = None,
    coordinator: Asker = None,
    reason: Reason = "",
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Let a study that waits be answered, as far as the policy allows; without STUDY, show what waits.

    Example: [bold]cape site approve heart --site our-site[/bold]
    """
    if study is None:
        return inbox(folder, socket, as_json)
    with reach(folder, socket) as desk:
        done = desk.approve(study, coordinator, reason)
    if not as_json:
        _show(screen.console(), done.study)
    _warn(done.unreadable)
    if as_json:
        screen.print_json({"approved": True, "studies": [plain_data(done.study)]})
    else:
        typer.echo(
            "Approved. Who asked has to submit it again, unless it waits (--wait). "
            f"`cape site refuse {done.study.hash[:12]}` takes it back."
        )


def refuse(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="Its name, or the start of its hash.", show_default=False)
    ],
    coordinator: Asker = None,
    reason: Reason = "",
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Let nothing of a study be answered: one that waits, or one that was approved and still runs.

    What was answered before stays in the ledger. `cape site approve` takes it back. Where the policy says
    approve = "auto", studies are not kept: change it to "ask", and one that runs waits at its next question.

    Example: [bold]cape site refuse heart --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        done = desk.refuse(study, coordinator, reason)
    if not as_json:
        _show(screen.console(), done.study)
    _warn(done.unreadable)
    if as_json:
        screen.print_json({"refused": True, "studies": [plain_data(done.study)]})
    else:
        typer.echo(f"Refused. `cape site approve {done.study.hash[:12]}` takes it back.")


def _warn(unreadable: Sequence[str]) -> None:
    """Name an unrecognised file among the studies, in a line."""
    if unreadable:
        more = f" ({len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
        typer.echo(f"cape: warning: {unreadable[0]}{more}", err=True)


def _say_next(found: Inbox) -> None:
    """Say what a steward can do now."""
    if found.of("waiting"):
        typer.echo("Approve one with `cape site approve HASH`, or `cape site refuse HASH`; the name will do.")
    else:
        typer.echo("Nothing waits for approval.")
    for word, known in (("Approved", found.of("approved")), ("Refused", found.of("refused"))):
        if known:
            typer.echo(f"{word}: {', '.join(f'{each.study} ({each.hash[:12]})' for each in known)}.")


def _show(console: Console, each: Study) -> None:
    """Show a study as the site sees it."""
    console.print(
        f"\n[bold]{escape(each.study)}[/bold] ({each.hash[:12]}), asked by {escape(each.who)}"
        + (f", fingerprint {each.fingerprint}" if each.coordinator else " (not in the policy)")
        + (f", since {each.since[:16].replace('T', ' ')} UTC" if each.since else "")
    )
    if each.description:
        console.print(escape(each.description), style="dim")
    console.print(
        escape(
            f"It states epsilon {each.epsilon} at delta {each.delta}, {each.colluding} colluding, scheme "
            f"{each.scheme}; sites: {each.sites}."
        ),
        style="dim",
    )
    console.print(verdict_table(each.analyses, each.cost_delta))
    console.print(
        f"{each.answered} of {len(each.analyses)} would be answered: all together epsilon {each.cost:.4g} at "
        f"delta {each.cost_delta:g} to this site's ledger."
    )
    for limit in each.limits:
        console.print(
            escape(
                f"{limit.name}: epsilon {limit.spent:.4g} of {limit.epsilon:g} at delta {limit.delta:g}; "
                f"{limit.after:.4g} after it"
            ),
            style="dim",
        )
