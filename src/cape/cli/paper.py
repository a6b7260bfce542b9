"""`cape paper`: the paper's figures and table, drawn again, with what holds and what does not."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from cape.cli import screen
from cape.cli.options import AsJson

if TYPE_CHECKING:
    from cape.paper import Done

__all__ = ["paper"]

_FIRST_SEED = 2021
_STYLES = {"holds": "green", "does not hold": "red", "open": "yellow"}


def paper(
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
        Path | None, typer.Option(metavar="DIR", help="Where data sets lie or are kept; see cape.datasets.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first run; the next runs count on.", min=0)] = _FIRST_SEED,
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures and table again: as published, and at equal true (epsilon, delta).

    What was computed is kept in DIR: a run that was stopped goes on, and a second one gives the same numbers.

    Example: [bold]cape paper all --fast --out paper[/bold]

    Example: [bold]cape paper figure-5 figure-6 table-1[/bold]
    """
    from cape import paper as figures

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
