"""`cape site backup`: a site's folder in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.app import words
from cape.core import check
from cape.core.files import as_owner
from cape.site.admin.backup import backup as write
from cape.site.folder import SiteFolder

__all__ = ["backup"]

_HERE = Path()


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new tar file.", show_default=False)],
    folder: Annotated[Path, typer.Option("--site", metavar="DIR", help="The site's folder.")] = _HERE,
) -> None:
    """Write the site's folder (key, policy, ledger, decisions and log, not rows) into a new tar file.

    The daemon may run meanwhile. Keep the file as secret as the folder: the site's private key is in it.
    `tar -xpf FILE -C DIR` puts it back; then see `cape site settle`.

    Example: [bold]cape site backup /backup/cleveland.tar --site our-site[/bold]
    """
    here = SiteFolder(folder)
    done = write(here, file)
    many = words.count(len(done.names), "file")
    with as_owner(folder):
        here.log(f"backed up {many}")
    typer.echo(f"{file}: {many}, {file.stat().st_size / 1e3:,.0f} kB.")
    if done.others:
        typer.echo(
            f"Left out, because they are not cape's own files: {check.plain(', '.join(done.others), 500)}."
        )
