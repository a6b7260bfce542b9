"""`python -m reproduction`: the paper's figures and table, drawn again, with what holds and what does not.

Exit status 0 when it worked, 1 when it failed, 2 when it was used wrongly, 130 when it was interrupted.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

import reproduction as figures
from cape.cli import screen
from cape.cli.commands import warn
from cape.cli.options import AsJson
from cape.core.errors import CapeError, InvalidInput
from reproduction import FIRST_SEED, Done

__all__ = ["main"]

_INTERRUPTED = 130
_STYLES = {"holds": "green", "does not hold": "red", "open": "yellow"}


def draw(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FIGURE...", help="all, or names such as figure-5 and table-1.", show_default=False
        ),
    ],
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Fewer settings, fewer runs, and shortcuts of the same distribution."),
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Pictures, CSV, REPRODUCTION.md, and what was computed.")
    ] = Path("paper"),
    reference: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The authors' values (CSV), drawn as light markers.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where data sets lie or are kept; see reproduction.datasets."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first run; the next runs count on.", min=0)] = FIRST_SEED,
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures and table again: as published, and at equal true (epsilon, delta).

    What was computed is kept in DIR: a run that was stopped goes on, and a second one gives the same numbers.

    Example: [bold]python -m reproduction all --fast --out paper[/bold]

    Example: [bold]python -m reproduction figure-5 figure-6 table-1[/bold]
    """
    everything = "all" in what
    names = figures.names() if everything else list(dict.fromkeys(what))
    wanted = [figures.find(name) for name in names]
    given = None if reference is None else figures.Reference.load(reference)
    if data is not None:
        os.environ["CAPE_DATA"] = str(data)  # for the processes too
    reasons = {figure.name: figures.missing(figure) for figure in wanted} if everything else {}
    without = {name: why for name, why in reasons.items() if why}
    cells = {cell for f in wanted if f.name not in without for cell in f.cells(fast, seed)}
    with screen.progress(len(cells)) as steps:

        def watch(done: int, total: int, figure: str) -> None:
            steps.start(figure)
            if done:
                steps.done()

        results = figures.reproduce(
            wanted, out, fast=fast, seed=seed, reference=given, without=without, watch=watch
        )
    if as_json:
        screen.print_json({"fast": fast, "figures": [_as_dict(done) for done in results]})
    else:
        _show(results, out)


def _as_dict(done: Done) -> dict[str, object]:
    return {
        "figure": done.figure,
        "title": done.title,
        "seeds": list(done.seeds),
        "claims": [asdict(claim) | {"verdict": claim.verdict} for claim in done.claims],
        "files": [str(file) for file in done.files],
        "skipped": done.skipped or None,
    }


def _show(results: list[Done], out: Path) -> None:
    console = screen.console()
    for done in results:
        if done.skipped:
            console.print(f"\n[bold]{done.figure}[/bold] was left out: {escape(done.skipped)}")
            continue
        runs = (
            f"seeds {done.seeds[0]} to {done.seeds[-1]}" if len(done.seeds) > 1 else f"seed {done.seeds[0]}"
        )
        table = Table(
            title=f"{done.figure}: {escape(done.title)} ({runs})", title_justify="left", box=box.SIMPLE_HEAD
        )
        table.add_column("the paper says", ratio=4)
        table.add_column("measured", ratio=5)
        table.add_column("")
        for claim in done.claims:
            style = _STYLES[claim.verdict]
            table.add_row(escape(claim.says), escape(claim.measured), f"[{style}]{claim.verdict}[/{style}]")
        console.print(table)
    typer.echo(f"Written: {out / 'REPRODUCTION.md'}, with the pictures and numbers beside it.")


app = typer.Typer(
    name="python -m reproduction",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(draw)


def main() -> None:
    """Run the command, and turn errors into a line that says what to do."""
    warnings.showwarning = warn
    try:
        app()
    except CapeError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InvalidInput) else 1)
    except SystemExit as left:
        cause = None if left.__context__ is None else left.__context__.__cause__
        if not isinstance(cause, KeyboardInterrupt):  # what typer makes of Ctrl-C
            raise
        print("reproduction: interrupted. What was computed is kept.", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
