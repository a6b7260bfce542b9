"""What `cape init` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import typer

from cape.cli.init import DELTA, EPSILON
from cape.core import check
from cape.core.errors import InvalidInput, PrivacyLeakWarning
from cape.data.profile import profile, values
from cape.show.numbers import count
from cape.study.blanks import CATEGORY, COLUMN, LOW, SITE
from cape.study.draft import Draft

__all__ = ["init", "terminal"]


def init(
    file: Path,
    *,
    output: Path | None,
    name: str | None,
    sites: str | None,
    epsilon: float | None,
    delta: float | None,
    suggest: bool | None,
    from_data: bool,
    force: bool,
    yes: bool,
) -> None:
    """Carry out `cape init`."""
    found = profile(file)
    ask = _Asking(not yes and terminal())
    own = _word(file.stem)
    name = ask.text("Name of the study", name, own)
    entries = ask.text("Sites, this one first, with commas between them", sites, own)
    epsilon = check.real("--epsilon", ask.number("Epsilon", epsilon, EPSILON), above=0.0)
    delta = check.real("--delta", ask.number("Delta", delta, DELTA), above=0.0, most=1.0)
    suggest = ask.whether("Propose bounds of clinical columns by their names", suggest)
    output = Path(ask.text("Study file", None if output is None else str(output), "study.toml"))
    if output.exists() and not force:
        raise InvalidInput(f"{output} exists; give another name (--output), or replace it with --force")
    if from_data:
        warnings.warn(
            "--from-data copies bounds and categories from the rows into a file for everyone; the guarantee "
            "does not cover them. Replace them by public knowledge before the file is used",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    draft = Draft(
        name=name,
        source=file.name,
        epsilon=epsilon,
        delta=delta,
        kinds=found.kinds,
        ids=found.ids,
        sites=_sites(entries, file, dict(found.layout), output.parent),
        suggest=suggest,
        found=values(file, found) if from_data else {},
    )
    text = draft.text(str(output))
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--output {output} cannot be written: {error.strerror}") from None
    _tell(output, text, found.ids, found.unnamed, len(found.kinds))


def terminal() -> bool:
    """Return whether somebody can answer questions."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class _Asking:
    """Asks for what no option gave, if there is somebody to answer; else takes the default."""

    def __init__(self, somebody: bool) -> None:
        self._somebody = somebody

    def text(self, what: str, given: str | None, default: str) -> str:
        if given is None and self._somebody:
            given = str(typer.prompt(what, default=default))
        given = default if given is None else given
        if not given.strip() or not given.isprintable():
            raise InvalidInput(f"{what} must be a line of text, not {check.show(given)}")
        return given.strip()

    def number(self, what: str, given: float | None, default: float) -> float:
        if given is None and self._somebody:
            return float(typer.prompt(what, default=default, type=float))
        return default if given is None else given

    def whether(self, what: str, given: bool | None) -> bool:
        if given is None and self._somebody:
            return bool(typer.confirm(what, default=False))
        return bool(given)


def _sites(entries: str, file: Path, layout: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entries of [sites]: the first has the file."""
    found: dict[str, Any] = {}
    for place, entry in enumerate(entries.split(",")):
        name, _, path = (part.strip() for part in entry.partition("="))
        if not name or name in found:
            raise InvalidInput(
                f"--sites must be different names, as in north,south=south.csv, not {entries!r}"
            )
        if place == 0:
            beside = _beside(Path(path) if path else file, folder)
            found[name] = {"path": beside, **layout} if layout else beside
        else:
            found[name] = _beside(Path(path), folder) if path else {}
    return found


def _beside(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix() if not path.is_absolute() else str(path)


def _word(stem: str) -> str:
    return re.sub(r"[^\w-]+", "-", stem).strip("-") or "site"


def _tell(output: Path, text: str, ids: tuple[str, ...], unnamed: int, columns: int) -> None:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    blanks = sum(any(blank in line for blank in (LOW, CATEGORY, COLUMN, SITE)) for line in lines)
    typer.echo(f"Written: {output}, with {count(columns, 'column')}.")
    if ids:
        typer.echo(f"Left out, because they look like ids: {', '.join(ids)}. See [person] in the file.")
    if unnamed:
        typer.echo(f"Left out, because they have no name of their own: {count(unnamed, 'column')}.")
    if blanks:
        typer.echo(
            f"Fill in <...> in {count(blanks, 'line')}, or delete the lines of columns that you do not need."
        )
    typer.echo(f"Then: cape check {output}")
