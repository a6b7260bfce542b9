"""`cape site upgrade`: the ledger of an earlier version, taken over."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cape.app import words
from cape.core.files import as_owner
from cape.site.folder import LEDGER, SiteFolder
from cape.site.ledger.upgrade import upgrade as take_over

__all__ = ["upgrade"]

_HERE = Path()


class _Adjacency(StrEnum):
    replace_one = "replace-one"
    add_remove = "add-remove"


def upgrade(
    folder: Annotated[Path, typer.Option("--site", metavar="DIR", help="The site's folder.")] = _HERE,
    adjacency: Annotated[
        _Adjacency | None,
        typer.Option(help="The only one that the site ever answered.", show_default=False),
    ] = None,
) -> None:
    """Take over the ledger of an earlier version of cape: every line of it is charged in a new one.

    Stop the site's daemon and back up its folder first. The old file stays beside the new one, sealed.
    An earlier version did not write down the adjacency: lines are charged as the dearer one, at four times
    their mu², unless --adjacency states that there was only one.

    Example: [bold]cape site upgrade --site our-site[/bold]
    """
    with as_owner(folder):
        here = SiteFolder(folder)
        done = take_over(here.path / LEDGER, lambda: here.identity, adjacency and adjacency.value)
        if done is None:
            typer.echo("The ledger has the format of this version; nothing was changed.")
            return
        said = f"took over {words.count(done.lines, 'line')} of the ledger of an earlier version"
        known = adjacency.value if adjacency else "unknown"
        here.log(f"{said} (adjacency {known}); it is kept as {done.kept.name}")
    typer.echo(
        f"{said[0].upper()}{said[1:]}: mu {done.after.mu:.4g} is charged where mu {done.before.mu:.4g} was "
        f"stated. The old file is {done.kept}, and takes no more lines.\n"
        "See what site.toml needs now: `cape site check`."
    )
