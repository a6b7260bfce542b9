"""`cape demo`: a real analysis over five sites, on public data in the package, beside the truth.

Not here: the rehearsal of a deployment, which is `cape deploy demo` (`cli/deploy`).
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from cape.app import words
from cape.app.folder import ResultsFolder
from cape.app.results import Answered, Results
from cape.cli import screen
from cape.cli.demo import theorem
from cape.cli.demo.hospitals import COLUMNS, GROUPS, RUNS, SITES, Compared, Demo, rehearse, written
from cape.cli.options import AsJson
from cape.core import check
from cape.core.errors import InvalidInput
from cape.privacy import Budget
from cape.show.numbers import rounded
from cape.stats.estimates import Estimate

__all__ = ["demo"]

_SHOWN = ("mean", "SD", "median")
_PICTURE = "schemes.html"
_REPORT = Path("results") / "report.html"


def demo(
    epsilon: Annotated[float, typer.Option(help="Total epsilon of the study.")] = 2.0,
    delta: Annotated[float, typer.Option(help="Delta of the study.")] = 1e-6,
    colluding: Annotated[
        int, typer.Option(help="How many of the five sites may collude with the aggregator.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where to keep study file, rows and report; default: a temporary folder."
        ),
    ] = None,
    guarantee: Annotated[
        bool,
        typer.Option(
            "--guarantee", help="Show the paper's Theorem 1 beside the exact guarantee. Reads no data."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Describe 569 patients at five sites that do not pool their rows: the first table of a clinical paper.

    Example: [bold]cape demo --epsilon 1 --colluding 2[/bold]
    """
    check.integer("colluding", colluding, least=0, most=len(SITES) - 1)
    budget = Budget(check.real("epsilon", epsilon, above=0.0), delta)
    if guarantee:
        theorem.show(budget, as_json)
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix="cape-demo-")) if out is None else out
        folder.mkdir(parents=True, exist_ok=True)
        study = written(folder, budget, colluding)
        with screen.progress(RUNS + 2) as steps:
            done = rehearse(study, budget, colluding, steps)
            steps.start("writing the report")
            _keep(done, folder)
    except OSError as error:
        raise InvalidInput(f"--out: {out} cannot be written: {error.strerror}") from None
    if as_json:
        screen.print_json(_as_dict(done, folder))
    else:
        _show(screen.console(), done, folder)


def _keep(done: Demo, folder: Path) -> None:
    """Write the results and the report of the study, and the picture of all schemes."""
    from cape.cli.demo.picture import draw

    draw(done, folder / _PICTURE)
    with ResultsFolder.find(folder / "results", done.study, "cape", "run", again=True) as kept:
        answered = [Answered(done.study.analyses[0], done.release)]
        kept.keep(Results(done.study, "cape", done.budget, answered))


def _as_dict(done: Demo, folder: Path) -> dict[str, Any]:
    budget = done.budget
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "mu": budget.mu,
        "colluding": done.colluding,
        "sites": SITES,
        "table": [
            {
                "label": label,
                "value": e.value,
                "interval": list(e.interval(0.95)),
                "truth": done.truth[label].value,
            }
            for label, e in done.released["cape"].items()
        ],
        "schemes": [asdict(row) for row in done.compared],
        "runs": RUNS,
        "left": float(budget.remaining),
        "study": str(folder / "study.toml"),
        "report": str(folder / _REPORT),
        "picture": str(folder / _PICTURE),
    }


def _show(console: Console, done: Demo, folder: Path) -> None:
    budget = done.budget
    console.print(
        f"\n[bold]569 patients with a breast tumour at {len(SITES)} sites[/bold], whose "
        f"{', '.join(map(str, SITES.values()))} rows stay where they are.\n"
        f"Guarantee for every person: epsilon = {budget.epsilon:g}, delta = {budget.delta:g} (mu = "
        f"{budget.mu:.4f}), even if the aggregator and {words.count(done.colluding, 'site')} pool what they "
        "see.\n"
    )
    console.print(_table_one(done))
    console.print()
    console.print(_comparison(done.compared))
    typer.echo(
        f"\nStudy file:        {folder / 'study.toml'}\nReport:            {folder / _REPORT}\n"
        f"Schemes compared:  {folder / _PICTURE}"
    )
    console.print(
        f"\nBudget: {float(100 * budget.spent):g}% is spent, {float(100 * budget.remaining):g}% is left "
        "for the next question.\nNext, with your own data: cape init FILE.csv writes study.toml; then cape "
        "check, cape plan and cape run, each with it. The tutorial (docs/tutorial.md) goes through one.\n"
    )


def _table_one(done: Demo) -> Table:
    title = "Table One by diagnosis, released with a 95% interval, beside the truth"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)  # fits 80 columns
    table.add_column("")
    for group in GROUPS:
        table.add_column(group, justify="right")
        table.add_column("truth", justify="right", style="dim")
    stems = ["n", *(f"{name} {what}" for name in COLUMNS for what in _SHOWN)]
    for stem in stems:
        cells = []
        for group in GROUPS:
            label = f"{stem} | diagnosis={group}"
            released, truth = done.released["cape"][label], done.truth[label]
            cells += [_with_interval(released), _short(truth.value, released)]
        table.add_row(stem, *cells, end_section=stem == "n" or stem.endswith(_SHOWN[-1]))
    table.caption = (
        "The columns' bounds were chosen by hand from what is possible. Intervals include sampling and "
        "privacy noise; those of counts, privacy noise only."
    )
    table.caption_justify = "left"
    return table


def _comparison(rows: list[Compared]) -> Table:
    title = "The same table by other schemes, at the same epsilon"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("scheme")
    table.add_column("who must be trusted")
    table.add_column("noise over pooled", justify="right")
    table.add_column("error here", justify="right")
    for row in rows:
        style = "bold" if row.scheme == "cape" else ""
        table.add_row(row.scheme, row.meaning, f"{row.over_pooled:.2f}", f"{row.error:.1f}%", style=style)
    table.caption = (
        "Noise: planned standard deviation. Error: root mean square difference between means and truth "
        f"in {RUNS} runs, in percent of the bounds. Publishing {RUNS} runs would cost {RUNS} budgets."
    )
    table.caption_justify = "left"
    return table


def _with_interval(e: Estimate) -> str:
    low, high = e.interval(0.95)
    if e.value <= e.within[0]:  # noise hides it
        return f"under {_short(high, e)}"
    return f"{_short(e.value, e)} ({_short(low, e)} to {_short(high, e)})"


def _short(value: float, e: Estimate) -> str:
    """Return a number to the place of the estimate's error; the table must fit 80 columns."""
    return rounded(value, e.standard_error, 0 if abs(e.value) >= 100 else 1)
