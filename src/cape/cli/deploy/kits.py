"""`cape deploy init`, `export-key` and `trust`: kits for a study across machines, and their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli import screen
from cape.cli.options import AsJson
from cape.coordinator import CoordinatorFolder
from cape.core.errors import InvalidInput
from cape.flare import kits
from cape.site.keyring import Card, fingerprint, public_text

__all__ = ["export_key", "init", "trust"]

Kit = Annotated[Path, typer.Option("--kit", metavar="DIR", help="The coordinator's kit.")]
_HERE = Path()


def init(
    sites: Annotated[
        str, typer.Option(metavar="A,B,C", help="The sites, as the study names them.", show_default=False)
    ],
    server: Annotated[
        str,
        typer.Option(metavar="HOST", help="The name of the aggregator's machine.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make.")] = Path("kits"),
    port: Annotated[int, typer.Option(help="The one port that the aggregator listens on.")] = kits.PORT,
) -> None:
    """Make a kit for the aggregator, the coordinator and each site, with a README that its owner can follow.

    Example: [bold]cape deploy init --sites cleveland,hungary,zurich --server cape.example.org[/bold]
    """
    names = [each.strip() for each in sites.split(",") if each.strip()]
    kits.make_kits(out, names, server, port)
    typer.echo(
        f"Made kits for the aggregator, the coordinator and {len(names)} sites in {out}. Read "
        f"{out / 'README.md'}. Each party makes its own key."
    )


def export_key(
    kit: Kit = _HERE,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The coordinator's name, when its key is made.")
    ] = "coordinator",
    as_json: AsJson = False,
) -> None:
    """Print the coordinator's public key as a file for the sites; the first time, make the key.

    The key is made here, at the coordinator's desk, and not by whoever made the kits.

    Example: [bold]cape deploy export-key --kit kits/coordinator > coordinator.card[/bold]
    """
    kits.require_coordinator(kit)
    if CoordinatorFolder.is_at(kit):
        card = CoordinatorFolder(kit).card
    else:
        card = CoordinatorFolder.create(kit, name).card
        typer.echo(f"Made the coordinator's key; its fingerprint: {fingerprint(card.key)}", err=True)
    if as_json:
        screen.print_json(
            {"name": card.name, "key": public_text(card.key), "fingerprint": fingerprint(card.key)}
        )
    else:
        typer.echo(card.to_text(), nl=False)


def trust(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="What `cape site export-key` printed.", show_default=False),
    ],
    kit: Kit = _HERE,
) -> None:
    """Pin the keys of sites. Compare the fingerprints by telephone first.

    Example: [bold]cape deploy trust a.card b.card c.card --kit kits/coordinator[/bold]
    """
    folder = CoordinatorFolder(kit)
    cards = [Card.load(file) for file in files]
    if len({card.name for card in cards}) < len(cards):
        raise InvalidInput("two of the files are for the same site name; give one file per site")
    for card in cards:
        added = folder.trust(card)
        typer.echo(
            f"{'Trusted from now on' if added else 'Trusted already'}: site {card.name!r}, fingerprint "
            f"{fingerprint(card.key)}"
        )
