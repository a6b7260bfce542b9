"""`cape synth`: made-up rows of every site, from the study file alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.options import AsJson

__all__ = ["Rows", "Seed", "synth"]

Rows = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Rows of each site; those that the study expects, or 1,000."),
]

Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Another seed makes up other rows.")]


def synth(
    study_file: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="The study file (TOML).", show_default=False)
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="STUDY", help="The same, as an option.")
    ] = None,
    as_json: AsJson = False,
    rows: Rows = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where SITE.csv of each site is written.")] = Path(
        "made-up"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Make up a file of rows for every site from the schema alone, to rehearse a study before there is data.

    It reads the study file and nothing else, and costs nothing. `cape run --rehearse` makes up such rows
    itself.

    Example: [bold]cape synth study.toml --out made-up[/bold]
    """
    from cape.cli.synth_action import synth as act

    act(study_file, schema=schema, as_json=as_json, rows=rows, seed=seed, out=out, force=force)
