"""`cape site backup`: a site's folder in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli import words
from cape.steward.backup import backup as write
from cape.steward.folder import SiteFolder

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
    names = write(here, file)
    here.log(f"backed up {words.count(len(names), 'file')}")
    typer.echo(f"{file}: {words.count(len(names), 'file')}, {file.stat().st_size / 1e3:,.0f} kB.")
