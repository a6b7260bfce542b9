"""`cape synth`: made-up rows of every site, from the study file alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cape.cli import screen
from cape.cli.options import AsJson
from cape.core.check import plain
from cape.core.errors import InvalidInput
from cape.study import Study
from cape.study.rehearsal import rehearsed

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
    if (study_file is None) == (schema is None):
        raise InvalidInput("name one study file, as in `cape synth study.toml`")
    study = rehearsed(Study.load(study_file or schema or ""), rows, seed)
    tables: dict[str, Any] = {name: place.source() for name, place in study.sites.items()}
    written = {name: out / f"{_word(name)}.csv" for name in study.sites}
    taken = [str(path) for path in written.values() if path.exists() and not force]
    if len(set(written.values())) < len(written):
        raise InvalidInput("two sites' names would give the same file; rename one of them")
    if taken:
        raise InvalidInput(
            f"{taken[0]} exists; give another folder (--out), or replace its files with --force"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, path in written.items():
            tables[name].write_csv(path)
    except OSError as error:
        raise InvalidInput(f"--out {out} cannot be written: {error.strerror}") from None
    if as_json:
        screen.print_json({"made_up": {name: str(path) for name, path in written.items()}, "seed": seed})
        return
    typer.echo("Made up from the schema alone; these rows say nothing about anybody:")
    for name, path in written.items():
        typer.echo(f"  {plain(name)}: {path}, {tables[name].height:,} rows")


def _word(name: str) -> str:
    """Return a site's name as that of a file."""
    return "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in name).lstrip(".") or "site"
