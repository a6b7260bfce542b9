"""`cape run`: the whole study in one process, on the files that it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cape.cli import screen
from cape.cli.options import AsJson, StudyFile
from cape.cli.results import Results, execute
from cape.cli.tables import shown
from cape.errors import InvalidInput
from cape.release.schemes import SCHEMES, SECAGG_ROUNDS
from cape.site.schema import hint
from cape.study import Entry, Study
from cape.study.study import scheme_name

__all__ = ["run"]

_INTERRUPTED = 130


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
        _writable(out)  # before anything is spent
    results = execute(study, chosen, entries, lost)
    try:
        _tell(results, out, as_json)
    except KeyboardInterrupt:
        typer.echo(f"cape: interrupted while results were being shown.\nBudget: {results.budget}.", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if results.failure is not None:
        typer.echo(f"cape: {results.failure}", err=True)
        wrong = 2 if isinstance(results.error, InvalidInput) else 1
        raise typer.Exit(_INTERRUPTED if results.interrupted else wrong)


def _tell(results: Results, out: Path | None, as_json: bool) -> None:
    """Write and show what there is; a run that was interrupted before it gave anything leaves files alone."""
    if out is not None and (results.answered or results.budget.spent or not results.interrupted):
        written = f"Written: {', '.join(map(str, _write(results, out)))}"
    else:
        written = ""
    if as_json:
        screen.print_json(results.to_dict())
    else:
        _show(screen.console(), results)
    if written and (results.interrupted or not as_json):
        typer.echo(written, err=as_json)


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


def _writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "permission denied")
    except OSError as error:
        raise InvalidInput(f"--out: {folder} cannot be written: {error.strerror}") from None


def _write(results: Results, folder: Path) -> list[Path]:
    from cape.cli.report import page

    paths = [folder / "results.json", folder / "report.html"]
    paths[0].write_text(screen.to_json(results.to_dict()) + "\n", encoding="utf-8")
    paths[1].write_text(page(results), encoding="utf-8")
    return paths


def _show(console: Console, results: Results) -> None:
    if not results.answered:
        return
    about = f": {escape(results.study.description)}" if results.study.description else ""
    console.print(f"\n[bold]{escape(results.study.name)}[/bold]{about}\n")
    for each in results.answered:
        release = each.release
        for part in shown(each, console.width):
            console.print(part)
        cost = release.cost
        console.print(
            f"[dim]{escape(', '.join(release.participants))}"
            + ("" if release.rows is None else f" ({release.rows:,} rows)")
            + f"; share {release.share:.4g}; {cost.rounds} rounds, {cost.bytes / 1e3:,.1f} kB, "
            f"{cost.seconds:.2f} s[/dim]"
        )
        for warning in each.warnings:
            console.print(f"[yellow]Warning: {escape(warning)}[/yellow]")
        console.print()
    console.print(f"[dim]{escape(str(results.promise))}[/dim]")
    console.print(f"Budget: {results.budget}.")
