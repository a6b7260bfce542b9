"""`cape run`: the whole study in one process, on the files that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.options import AsJson, StudyFile
from cape.cli.output import finish, writable
from cape.cli.results import execute
from cape.data.schema import hint
from cape.engine.schemes import SCHEMES, SECAGG_ROUNDS
from cape.errors import InvalidInput
from cape.study import Entry, Study
from cape.study.study import scheme_name

__all__ = ["run"]


def run(
    study_file: StudyFile,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write results.json and report.html into it.")
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(metavar="NAME", help="How noise is made, if not as the study says.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE@ROUND",
            help="Lose a site from a round on, to see what happens. Repeatable. Rounds of cape: "
            f"{', '.join(SECAGG_ROUNDS)}.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="N|KIND", help="Run the analyses of this number or kind only. Repeatable."),
    ] = None,
) -> None:
    """Answer every analysis of a study, on the files that it names.

    Every run is a release: it draws fresh noise, and publishing two runs costs two budgets.

    Example: [bold]cape run study.toml --out results[/bold]

    Example: [bold]cape run study.toml --drop hungary@mask --only mean[/bold]
    """
    study = Study.load(study_file)
    chosen = scheme_name(scheme or study.scheme)
    lost, entries = _lost(drop or [], study, chosen), _only(only or [], study)
    if out is not None:
        writable(out)  # before anything is spent
    results = execute(study, chosen, entries, lost)
    finish(results, out, as_json)


def _lost(drop: list[str], study: Study, scheme: str) -> dict[str, str]:
    lost = {}
    rounds = SCHEMES[scheme].rounds
    for text in drop:
        site, sign, when = text.rpartition("@")
        if not sign:
            example = f"{next(iter(study.sites))}@{rounds[len(rounds) // 2]}"
            raise InvalidInput(f"--drop must be SITE@ROUND, as in {example}, not {text!r}")
        if site not in study.sites:
            raise InvalidInput(f"--drop: no site {site!r}{hint(site, study.sites)}")
        if when not in rounds:
            has = f"the rounds {', '.join(rounds)}" if len(rounds) > 1 else f"one round, {rounds[0]}"
            raise InvalidInput(f"--drop {text}: no round {when!r}; scheme {scheme!r} has {has}")
        lost[site] = when
    return lost


def _only(asked: list[str], study: Study) -> list[Entry]:
    if not asked:
        return list(study.analyses)
    names = [name for entry in study.analyses for name in (str(entry.number), entry.analysis.kind)]
    for name in asked:
        if name not in names:
            raise InvalidInput(f"--only: no analysis {name!r}{hint(name, dict.fromkeys(names))}")
    return [e for e in study.analyses if str(e.number) in asked or e.analysis.kind in asked]
