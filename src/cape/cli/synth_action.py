"""What `cape synth` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from cape.cli import screen
from cape.core.check import plain
from cape.core.errors import InvalidInput
from cape.study import Study
from cape.study.rehearsal import rehearsed

__all__ = ["synth"]


def synth(
    study_file: Path | None,
    *,
    schema: Path | None,
    as_json: bool,
    rows: int | None,
    seed: int,
    out: Path,
    force: bool,
) -> None:
    """Carry out `cape synth`."""
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
