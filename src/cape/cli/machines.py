"""`cape serve`, `cape join` and `cape status`: the processes of a study across machines."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cape.cli import screen
from cape.cli.options import AsJson
from cape.errors import CapeError, InvalidInput
from cape.flare.kits import require_coordinator, require_flare
from cape.steward.folder import SiteFolder
from cape.steward.keyring import fingerprint

__all__ = ["join", "serve", "status"]


def serve(
    kit: Annotated[Path, typer.Argument(metavar="[KIT]", help="The aggregator's kit.")] = Path(),
) -> None:
    """Run the aggregator, until Ctrl-C. Nobody has to trust it: it has no key and sees no site's numbers.

    Example: [bold]cape serve kits/aggregator[/bold]
    """
    require_flare()
    from cape.flare import process

    process.serve(kit, _say)


def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The site's kit.", show_default=False)],
    site: Annotated[
        Path | None,
        typer.Option("--site", metavar="DIR", help="The site's folder; else the folder site in the kit."),
    ] = None,
) -> None:
    """Connect a site to its aggregator, until Ctrl-C. What is answered is up to the site's own policy.

    Example: [bold]cape join kits/sites/cleveland --site our-site[/bold]
    """
    require_flare()
    from cape.flare import process

    where = kit / "site" if site is None else site
    name = process.kit_name(kit)
    folder = SiteFolder(where)
    policy = folder.policy
    folder.ledger.spent()  # one that cannot be used is found now, and not by the first study
    if policy.name != name:
        raise InvalidInput(f"the kit is that of site {name!r}, and {where} is the folder of {policy.name!r}")
    if not policy.coordinators:
        typer.echo(
            "cape: warning: the policy trusts no coordinator yet, so nothing will be answered; see "
            "`cape site trust FILE --coordinator`",
            err=True,
        )
    if policy.expires < datetime.now(UTC).date():
        typer.echo(
            f"cape: warning: the policy expired on {policy.expires}, so nothing will be answered", err=True
        )
    try:
        folder.table(policy).check()
    except CapeError as error:  # a study would find it after others have paid
        typer.echo(f"cape: warning: the table cannot be used: {error}", err=True)
    _say(f"Fingerprint of this site's key: {fingerprint(folder.identity.public)}")
    process.join(kit, where, _say)


def status(
    kit: Annotated[Path, typer.Argument(metavar="[KIT]", help="The coordinator's kit.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Ask the aggregator which sites are connected and what runs.

    Example: [bold]cape status kits/coordinator[/bold]
    """
    from cape.coordinator import CoordinatorFolder
    from cape.flare.link import status as ask

    require_coordinator(kit)
    folder = CoordinatorFolder(kit)
    found = ask(kit)
    since = None if found.since is None else datetime.fromtimestamp(found.since, UTC)
    names = sorted({*folder.sites, *found.sites})
    if as_json:
        screen.print_json(
            {
                "aggregator": {"since": None if since is None else since.isoformat(timespec="seconds")},
                "sites": [
                    {"name": name, "connected": name in found.sites, "pinned": name in folder.sites}
                    for name in names
                ],
                "jobs": list(found.jobs),
            }
        )
        return
    console = screen.console()
    running = "" if since is None else f" since {since:%Y-%m-%d %H:%M} UTC"
    console.print(f"The aggregator is up{running}; studies that run: {len(found.jobs)}.")
    table = Table(box=None, header_style="bold")
    for header in ("site", "connected", "key pinned"):
        table.add_column(header)
    for name in names:
        connected = "[green]yes[/green]" if name in found.sites else "[red]no[/red]"
        table.add_row(escape(name), connected, "yes" if name in folder.sites else "[yellow]no[/yellow]")
    console.print(table)


def _say(line: str) -> None:
    typer.echo(line)
