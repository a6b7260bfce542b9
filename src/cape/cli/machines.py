"""`cape serve`, `cape join` and `cape status`: the processes of a study across machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.options import AsJson

__all__ = ["join", "serve", "status"]


def serve(
    kit: Annotated[Path, typer.Argument(metavar="[KIT]", help="The aggregator's kit.")] = Path(),
) -> None:
    """Run the aggregator until Ctrl-C. Nobody has to trust it: it has no key and sees no site's numbers.

    Example: [bold]cape serve kits/aggregator[/bold]
    """
    from cape.cli.machines_action import serve as act

    act(kit)


def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The site's kit.", show_default=False)],
    link: Annotated[
        Path | None,
        typer.Option(metavar="SOCKET", help="The daemon's socket; default: /run/cape/NAME/link.sock."),
    ] = None,
) -> None:
    """Connect a site's daemon to its aggregator until Ctrl-C.

    It only carries bytes and holds neither rows nor keys: run it as a user who cannot open the site's folder.
    [bold]cape site serve[/bold] is the daemon.

    Example: [bold]cape join kits/sites/cleveland[/bold]
    """
    from cape.cli.machines_action import join as act

    act(kit, link=link)


def status(
    kit: Annotated[Path, typer.Argument(metavar="[KIT]", help="The coordinator's kit.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Ask the aggregator which sites are connected and which studies are running.

    Example: [bold]cape status kits/coordinator[/bold]
    """
    from cape.cli.machines_action import status as act

    act(kit, as_json=as_json)
