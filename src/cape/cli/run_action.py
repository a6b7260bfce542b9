"""What `cape run` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

from pathlib import Path

import typer

from cape.app.folder import RESULTS, By, ResultsFolder
from cape.app.results import execute
from cape.app.sites import which
from cape.cli import screen
from cape.cli.output import finish
from cape.core.check import hint
from cape.core.errors import BudgetExceeded, InvalidInput
from cape.engine.schemes import SCHEMES
from cape.study import Entry, Study
from cape.study.rehearsal import rehearsed
from cape.study.study import scheme_name

__all__ = ["run"]


def run(
    study_file: Path,
    *,
    as_json: bool,
    out: Path | None,
    again: bool,
    scheme: str | None,
    drop: list[str] | None,
    only: list[str] | None,
    rehearse: bool,
) -> None:
    """Carry out `cape run`."""
    study = Study.load(study_file)
    if rehearse:
        study = rehearsed(study)
    chosen = scheme_name(scheme or study.scheme)
    lost, entries = _lost(drop or [], study, chosen), _only(only or [], study)
    if out is None:
        if again:
            raise InvalidInput("--again needs --out DIR: without a folder every run is a new one")
        finish(execute(study, chosen, entries, lost, screen.progress), None, as_json)
        return
    by: By = "rehearsal" if rehearse else "run"
    # The folder is found before anything is spent.
    with ResultsFolder.find(out, study, chosen, by, again=again or rehearse) as folder:
        left = [entry for entry in entries if entry.number not in folder.released]
        screen.say(folder.announcements(out))
        if not left:
            _is_there(folder, study, as_json)
            return
        if folder.released:
            there, missing = which(sorted(folder.released)), which([entry.number for entry in left])
            typer.echo(f"{folder.path} holds {there} of this study; this run adds {missing}.", err=True)
        results = execute(study, chosen, left, lost, screen.progress, folder)
        if isinstance(results.error, BudgetExceeded):
            results.next = f"Earlier runs in {folder.path} count. --again starts again in a new folder."
        finish(results, folder, as_json)


def _is_there(folder: ResultsFolder, study: Study, as_json: bool) -> None:
    """Report that all analyses are released, and what a new run would cost."""
    if as_json:
        typer.echo((folder.path / RESULTS).read_text(encoding="utf-8"), nl=False)
        return
    days = sorted({each["released"][:10] for each in folder.released.values()})
    budget = study.budget
    typer.echo(
        f"{folder.path} holds {which(sorted(folder.released))} of this study, released on {', '.join(days)}. "
        "Nothing was run, and nothing was spent.\n"
        f"A new run costs the budget again (epsilon = {budget.epsilon:g}, "
        f"{'no delta' if budget.pure else f'delta = {budget.delta:g}'}): --again."
    )


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
