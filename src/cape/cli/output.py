"""The end of a run: results on the screen and in files, and the exit status."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from cape.app import words
from cape.app.folder import ResultsFolder
from cape.app.results import Results
from cape.cli import screen
from cape.core.check import plain
from cape.core.errors import InvalidInput
from cape.show.terminal import rendered

__all__ = ["finish"]

_INTERRUPTED = 130  # the exit status after Ctrl-C


def finish(results: Results, folder: ResultsFolder | None, as_json: bool) -> None:
    """Show the results, write them to the folder, and exit with the right status."""
    try:
        _tell(results, folder, as_json)
    except KeyboardInterrupt:
        typer.echo(f"cape: interrupted while showing results.\nBudget: {results.budget}.", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if results.failure is not None:
        typer.echo(f"cape: {results.failure}", err=True)
        if results.next:
            typer.echo(results.next, err=True)
        wrong = 2 if isinstance(results.error, InvalidInput) else 1
        raise typer.Exit(_INTERRUPTED if results.interrupted else wrong)


def _tell(results: Results, folder: ResultsFolder | None, as_json: bool) -> None:
    """Write and show the results; a run interrupted before it released anything leaves files alone."""
    written = ""
    if folder is not None and (results.answered or results.lost or not results.interrupted):
        try:
            written = f"Written: {', '.join(map(str, folder.keep(results)))}"
        except InvalidInput as error:
            results.error = results.error or error
    if as_json:
        screen.print_json(results.to_dict() if folder is None else folder.to_dict(results))
    else:
        _show(screen.console(), results)
    if written and (results.interrupted or not as_json):
        typer.echo(written, err=as_json)


def _show(console: Console, results: Results) -> None:
    if not results.answered:
        return
    about = f": {escape(results.study.description)}" if results.study.description else ""
    if results.study.rehearsal:
        console.print(f"\n[bold yellow]REHEARSAL[/bold yellow] {escape(results.study.warnings[0])}.")
    console.print(f"\n[bold]{escape(results.study.name)}[/bold]{about}\n")
    for each in results.answered:
        release = each.release
        console.print(Text(f"{each.entry.number}. {release.describe()}", style="italic"))
        console.print(rendered(release))
        cost = release.cost
        console.print(
            f"[dim]{escape(', '.join(release.participants))}"
            + ("" if release.rows is None else f" ({release.rows:,} rows)")
            + f"; share {release.share:.4g}; {words.count(cost.rounds, 'round')}, "
            f"{cost.bytes / 1e3:,.1f} kB, {cost.seconds:.2f} s[/dim]"
        )
        for warning in each.warnings:
            console.print(f"[yellow]Warning: {escape(warning)}[/yellow]")
        console.print()
    for sentence in results.study.asked_twice:
        console.print(escape(sentence))
    for site in results.sites:
        for reason in site.reasons:
            console.print(f"[yellow]{escape(plain(site.name))} {escape(reason)}.[/yellow]")
    if results.study.rehearsal:
        console.print("This was a rehearsal on made-up rows. A run would promise and cost:")
    console.print(f"[dim]{escape(str(results.guarantee))}[/dim]")
    console.print(f"Budget: {results.budget}.")
