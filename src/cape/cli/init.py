"""`cape init`: a study file from one site's columns, with bounds and categories left to people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DELTA", "EPSILON", "init"]

EPSILON, DELTA = 1.0, 1e-6


def init(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="One site's file, at that site.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="STUDY", help="The study file to write (study.toml).")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="The study's name (the file's).")] = None,
    sites: Annotated[
        str | None,
        typer.Option(
            metavar="A,B=PATH,...",
            help="The sites, FILE's first; with a path where the rows of others are here too.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(metavar="NUMBER", help=f"The budget ({EPSILON:g}).")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(metavar="NUMBER", help=f"The budget's delta ({DELTA:g}).")
    ] = None,
    suggest: Annotated[
        bool | None,
        typer.Option(
            "--suggest",
            help="Propose bounds and units of clinical columns by their names.",
            show_default=False,
        ),
    ] = None,
    from_data: Annotated[
        bool,
        typer.Option("--from-data", help="Read bounds and categories from the rows. It tells about them."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the study file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; take the defaults.")] = False,
) -> None:
    """Write a study file with the columns of one site's file, and places for bounds and categories.

    It takes the header and the type of each column, and nothing else of the rows. What is left open stands in
    <...>; the file cannot be used until people have filled it in. At a terminal it asks for what no option
    says.

    Example: [bold]cape init cleveland.csv --suggest[/bold]

    Example: [bold]cape init north.csv --sites north,south=south.csv --yes[/bold]
    """
    from cape.cli.init_action import init as act

    act(
        file,
        output=output,
        name=name,
        sites=sites,
        epsilon=epsilon,
        delta=delta,
        suggest=suggest,
        from_data=from_data,
        force=force,
        yes=yes,
    )
