"""`cape site init`, `export-key`, `trust` and `revoke`: a site's own key, and the keys that it trusts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli import screen
from cape.cli.options import AsJson
from cape.cli.site.reach import Folder, Socket, reach
from cape.site.folder import SiteFolder
from cape.site.keyring import Card, fingerprint, public_text, read_public

__all__ = ["export_key", "init", "revoke", "trust"]


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.", show_default=False)],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The site's name; by default the folder's.")
    ] = None,
) -> None:
    """Make a site's folder: a key, a policy to edit, and an empty ledger. Overwrites nothing.

    Example: [bold]cape site init our-site --name cleveland[/bold]
    """
    made = SiteFolder.create(folder, name)
    typer.echo(
        f"Made {folder} for site {made.policy.name!r}. Next: edit {folder / 'site.toml'}, then run\n"
        f"  cape site check --site {folder}\n"
        f"Fingerprint of its key: {fingerprint(made.identity.public)}"
    )


def export_key(folder: Folder = None, socket: Socket = None, as_json: AsJson = False) -> None:
    """Print this site's public key, as a file for coordinators and for the other sites.

    Example: [bold]cape site export-key --site our-site > cleveland.card[/bold]
    """
    with reach(folder, socket) as desk:
        mine = desk.mine()
    if as_json:
        screen.print_json({"name": mine.name, "key": mine.key, "fingerprint": mine.fingerprint})
    else:
        typer.echo(Card(mine.name, read_public("key", mine.key), "site").to_text(), nl=False)


def trust(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The output of export-key.", show_default=False)
    ],
    coordinator: Annotated[
        bool,
        typer.Option("--coordinator", help="Trust it as a coordinator; otherwise as a site."),
    ] = False,
    folder: Folder = None,
    socket: Socket = None,
) -> None:
    """Write a public key into the policy. Compare the fingerprint by telephone first.

    Example: [bold]cape site trust zurich.card --site our-site[/bold]

    Example: [bold]cape site trust trial-office.card --coordinator --site our-site[/bold]
    """
    card = Card.load(file)
    with reach(folder, socket) as desk:
        done = desk.trust(card.name, public_text(card.key), card.role, coordinator)
    typer.echo(
        f"{'Trusted from now on' if done.changed else 'Trusted already'}: {_what(coordinator)} "
        f"{done.name!r}, fingerprint {done.fingerprint}"
    )


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name in the policy.", show_default=False)],
    coordinator: Annotated[
        bool | None,
        typer.Option("--coordinator/--peer", help="Its role, if the name has both.", show_default=False),
    ] = None,
    folder: Folder = None,
    socket: Socket = None,
) -> None:
    """Remove a public key from the policy: nothing is answered to its holder, or together with it, any more.

    Earlier answers stay in the ledger.

    Example: [bold]cape site revoke zurich --site our-site[/bold]
    """
    with reach(folder, socket) as desk:
        done = desk.revoke(name, coordinator)
    typer.echo(f"No longer trusted: {_what(done.coordinator)} {done.name!r}, fingerprint {done.fingerprint}")


def _what(coordinator: bool) -> str:
    return "coordinator" if coordinator else "site"
