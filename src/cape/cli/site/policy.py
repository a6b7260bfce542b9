"""`cape site status`, `policy` and `log`: a site's state, its policy and its log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from cape.cli import screen
from cape.cli.options import AsJson
from cape.cli.site.reach import Folder, Socket, reach
from cape.core import documents
from cape.core.errors import InvalidInput
from cape.site.admin.data import Status, Tried

__all__ = ["log", "policy", "status"]


def status(folder: Folder = None, socket: Socket = None, as_json: AsJson = False) -> None:
    """Show a site's state: its key, policy, trusted keys, waiting studies, and whether a link is connected.

    Example: [bold]cape site status --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        told = desk.status()
    if as_json:
        screen.print_json(msgspec.to_builtins(told))
    else:
        _show(screen.console(), told)
    if told.problem is not None:
        typer.echo(f"cape: {told.problem}", err=True)
        raise typer.Exit(1)


def policy(
    new: Annotated[
        Path | None,
        typer.Option("--set", metavar="FILE", help="A new text to put in force.", show_default=False),
    ] = None,
    trial: Annotated[
        Path | None,
        typer.Option("--try", metavar="FILE", help="A new text to check only.", show_default=False),
    ] = None,
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Print the policy, site.toml; or show how a new text differs, and put it in force if it is valid.

    Example: [bold]cape site policy --site our-site > new.toml[/bold], and after changes there

    Example: [bold]cape site policy --try new.toml --site our-site[/bold]

    Example: [bold]cape site policy --set new.toml --site our-site[/bold]
    """
    if new is not None and trial is not None:
        raise InvalidInput("give --set or --try, not both")
    with reach(folder, socket) as desk:
        now = desk.policy()
        if trial is not None:
            return _tried(desk.try_policy(documents.read(trial, "policy")), as_json)
        if new is None:
            if as_json:
                screen.print_json(msgspec.to_builtins(now))
            else:
                typer.echo(now.text, nl=False)
            return
        tried = desk.save_policy(documents.read(new, "policy"), now.hash)
    _tried(tried, as_json)


def _tried(tried: Tried, as_json: bool) -> None:
    """Show how a new text differs from the one before, or raise if it is invalid."""
    if tried.problem is not None:
        raise InvalidInput(f"{tried.problem}. Nothing was changed")
    if as_json:
        screen.print_json(msgspec.to_builtins(tried))
        return
    typer.echo(tried.diff, nl=False)
    done = "In force from now on." if tried.saved else "It is valid; --set puts it in force."
    typer.echo(done if tried.diff else "Nothing differs.")


def log(
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, max=100_000, help="How many lines.")
    ] = 100,
    folder: Folder = None,
    socket: Socket = None,
) -> None:
    """Print the last lines of the site's log: every decision, and details of every refusal.

    Example: [bold]cape site log --lines 20 --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        for line in desk.log(lines).lines:
            typer.echo(line)


def _show(console: Console, told: Status) -> None:
    if told.site is not None:
        console.print(escape(f"Site {told.site.name!r}, fingerprint {told.site.fingerprint}"))
    found = told.summary
    if found is None:
        console.print("Policy: invalid; nothing is answered")
    else:
        until = f"until {found.expires}"
        if found.expired:
            until = f"expired on {found.expires}; nothing is answered"
        asks = "answers by itself" if found.approve == "auto" else "asks the steward first"
        console.print(f"Policy: {until}, {asks}")
        for name, coordinator in (("Coordinators", True), ("Peers", False)):
            them = [each for each in found.trusted if each.coordinator == coordinator]
            told_of = ", ".join(f"{each.name} ({each.fingerprint})" for each in them)
            console.print(escape(f"{name}: {told_of or 'none'}"))
    console.print(f"Waiting for approval: {told.waiting or 'nothing'}")
    link = {None: "no daemon runs", True: "connected", False: "not connected"}[told.linked]
    console.print(f"Link: {link}")
