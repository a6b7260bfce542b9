"""`cape site inbox`, `approve`, `refuse` and `ask`: studies that wait for the steward, and decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from cape.cli import screen
from cape.cli.options import AsJson
from cape.cli.site.reach import Asker, Folder, Socket, reach
from cape.cli.site.verdicts import verdict_table
from cape.site.admin.data import Decided, Inbox, Study

__all__ = ["approve", "ask", "inbox", "refuse"]

_Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; it stays at the site.", show_default=False)
]
_NAME_OR_HASH = "Its name, or the start of its hash."


def inbox(folder: Folder = None, socket: Socket = None, as_json: AsJson = False) -> None:
    """Show the studies that wait: the coordinator, the verdicts, the cost, and the budget left after.

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
                "studies": [msgspec.to_builtins(each) for each in waiting],
                "decided": [msgspec.to_builtins(each) for each in found.studies if each not in waiting],
            }
        )
    else:
        _say_next(found)


def approve(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help=_NAME_OR_HASH, show_default=False)
    ] = None,
    coordinator: Asker = None,
    reason: _Reason = "",
    once: Annotated[
        bool, typer.Option("--once", help="Answer each analysis once; a second run waits again.")
    ] = False,
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Approve a study that waits: it is answered as far as the policy allows. Without STUDY, show what waits.

    Where the policy says approvals = 2, it is answered once two different persons have approved it.

    Example: [bold]cape site approve heart --site our-site[/bold]

    Example: [bold]cape site approve heart --once --site our-site[/bold]
    """
    if study is None:
        return inbox(folder, socket, as_json)
    with reach(folder, socket) as desk:
        decided = desk.approve(study, coordinator, reason, once)
    done = decided.study
    if done.state == "approved":
        said = "Approved. The coordinator has to submit it again, unless it waits (--wait). `cape site refuse"
    else:
        said = (
            f"Your approval is noted. The policy asks for {done.needed} different persons; others have to "
            "approve it, too. `cape site refuse"
        )
    _decided(decided, "approved", said, as_json)


def refuse(
    study: Annotated[str, typer.Argument(metavar="STUDY", help=_NAME_OR_HASH, show_default=False)],
    coordinator: Asker = None,
    reason: _Reason = "",
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Refuse a study: one that waits, or one that was approved and still runs.

    Earlier answers stay in the ledger. `cape site approve` reverses a refusal. Where the policy says
    approve = "auto", studies are not kept: change it to "ask", and a running study waits at its next request.

    Example: [bold]cape site refuse heart --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        decided = desk.refuse(study, coordinator, reason)
    _decided(decided, "refused", "Refused. `cape site approve", as_json)


def ask(
    study: Annotated[str, typer.Argument(metavar="STUDY", help=_NAME_OR_HASH, show_default=False)],
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="It is sent to the coordinator.", show_default=False)
    ],
    coordinator: Asker = None,
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Ask the coordinator of a study that waits. The question leaves the site: say nothing about rows in it.

    `cape submit --wait` shows it. The study waits until you decide.

    Example: [bold]cape site ask heart "Which ethics vote covers this study?" --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        decided = desk.ask(study, question, coordinator)
    if as_json:
        screen.print_json({"asked": True, "studies": [msgspec.to_builtins(decided.study)]})
        return
    typer.echo(
        f"Asked. The coordinator sees the question at the next review; {decided.study.study} "
        f"({decided.study.hash[:12]}) waits until you approve or refuse it."
    )


def _decided(done: Decided, what: str, message: str, as_json: bool) -> None:
    """Show a study that was decided on, and the command that reverses the decision."""
    if not as_json:
        _show(screen.console(), done.study)
    _warn(done.unreadable)
    if as_json:
        screen.print_json({what: done.study.state == what, "studies": [msgspec.to_builtins(done.study)]})
    else:
        typer.echo(f"{message} {done.study.hash[:12]}` reverses this.")


def _warn(unreadable: Sequence[str]) -> None:
    """Print a warning about unrecognised files among the studies."""
    if unreadable:
        more = f" ({len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
        typer.echo(f"cape: warning: {unreadable[0]}{more}", err=True)


def _say_next(found: Inbox) -> None:
    if found.of("waiting"):
        typer.echo("Decide with `cape site approve HASH` or `cape site refuse HASH`; a name works too.")
    else:
        typer.echo("Nothing waits for approval.")
    for word, known in (("Approved", found.of("approved")), ("Refused", found.of("refused"))):
        if known:
            typer.echo(f"{word}: {', '.join(f'{each.study} ({each.hash[:12]})' for each in known)}.")


def _show(console: Console, each: Study) -> None:
    console.print(
        f"\n[bold]{escape(each.study)}[/bold] ({each.hash[:12]}), asked by {escape(each.who)}"
        + (f", fingerprint {each.fingerprint}" if each.coordinator else " (not in the policy)")
        + (f", since {each.since[:16].replace('T', ' ')} UTC" if each.since else "")
    )
    if each.description:
        console.print(escape(each.description), style="dim")
    console.print(
        escape(
            f"It states epsilon {each.epsilon} "
            f"{'without delta' if each.delta in ('0', '0.0') else f'at delta {each.delta}'}, "
            f"{each.colluding} colluding, scheme "
            f"{each.scheme}; sites: {each.sites}."
        ),
        style="dim",
    )
    if each.why:
        console.print(escape(each.why), style="dim")
    if each.question:
        console.print(escape(f"Its coordinator was asked: {each.question}"))
    if each.reason:
        console.print(escape(f"Reason: {each.reason}"))
    console.print(verdict_table(each.analyses, each.cost_delta))
    console.print(
        f"{each.answered} of {len(each.analyses)} would be answered; together they cost this site epsilon "
        f"{each.cost:.4g} at delta {each.cost_delta:g}."
    )
    for limit in each.limits:
        console.print(
            escape(
                f"{limit.name}: epsilon {limit.spent:.4g} of {limit.epsilon:g} at delta {limit.delta:g}; "
                f"{limit.after:.4g} after it"
            ),
            style="dim",
        )
