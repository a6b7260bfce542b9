"""`cape site serve`: the site's daemon, with rows, key, policy and ledger, and no network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["serve"]

_HERE = Path()


def serve(
    folder: Annotated[Path, typer.Option("--site", metavar="DIR", help="The site's folder.")] = _HERE,
    link: Annotated[
        Path | None,
        typer.Option(metavar="SOCKET", help="The link's socket; by default /run/cape/NAME/link.sock."),
    ] = None,
    admin: Annotated[
        Path | None,
        typer.Option(metavar="SOCKET", help="The stewards' socket; by default admin.sock in --site."),
    ] = None,
    steward: Annotated[
        list[str] | None,
        typer.Option(metavar="USER", help="A user who may decide for this site; repeat it for several."),
    ] = None,
    desk: Annotated[
        str | None,
        typer.Option(
            metavar="USER",
            help="The user who runs `cape desk`: it states who decides.",
            show_default=False,
        ),
    ] = None,
    link_may_read_rows: Annotated[
        bool,
        typer.Option(
            "--link-may-read-rows",
            help="Admit a link that runs as this user or root. Code in it can then read rows and key.",
        ),
    ] = False,
) -> None:
    """Answer studies for a site, until Ctrl-C. Holds rows, key and ledger, and needs no network.

    `cape join`, as another user, connects it to the aggregator.

    Example: [bold]cape site serve --site /var/lib/cape/cleveland[/bold]
    """
    from cape.cli.site.serve_action import serve as act

    act(folder, link=link, admin=admin, steward=steward, desk=desk, link_may_read_rows=link_may_read_rows)
