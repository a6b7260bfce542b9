"""`cape results`: what a folder of results holds, again on the screen or as files for papers and slides.

The tables stand in `results.json` as they were shown, so that nothing is computed again and nothing is read
but this file.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cape.cli.options import AsJson

__all__ = ["Format", "results"]


class Format(StrEnum):
    """A kind of file."""

    csv = "csv"
    xlsx = "xlsx"
    docx = "docx"
    latex = "latex"
    html = "html"


def results(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that --out named.")],
    format: Annotated[
        Format | None, typer.Option("--format", help="Write the tables as files instead of showing them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write them; default: the folder itself.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the results of a study again, or export their tables. Nothing is run, and nothing is spent.

    csv and latex give a file for each analysis; xlsx, docx and html one file with all of them. csv has every
    number with its error and interval; the others have tables as printed.

    Example: [bold]cape results clinic-results --format docx[/bold]
    """
    from cape.cli.exports_action import results as act

    act(folder, format=format, out=out, as_json=as_json)
