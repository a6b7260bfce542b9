"""`cape audit`: attacks on the guarantee, with the real protocol."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cape.app.folder import writable
from cape.cli import screen
from cape.cli.options import AsJson
from cape.show import Table
from cape.show.terminal import Fitted

if TYPE_CHECKING:
    from cape.audit import Audit

__all__ = ["audit"]

_SEED = 10
_COLUMNS = ("row", "claim mu", "epsilon at delta", "mu >=", "its epsilon", "ratio", "verdict")


def audit(
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Fewer rows and runs: about 3 minutes instead of 25 on two idle cores."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write audit.json, a picture and assurance-privacy.md here."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search, the tables and all noise.", min=0)] = _SEED,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only rows whose name contains this, or rounding.",
            show_default=False,
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="K/N",
            help="One of N slices of the rows, such as 2/5; K counts modulo N.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try to break the guarantee: lower bounds on what an adversary learns, beside the claims.

    The real protocol runs many times on neighbouring tables that a search found, with a colluding site. Exit
    status 1 if a check fails.

    Example: [bold]cape audit --fast[/bold]

    Example: [bold]cape audit --out assurance --json[/bold]

    Example: [bold]cape audit --only histogram[/bold]

    Example: [bold]cape audit --fast --slice 2/5[/bold]
    """
    from cape import audit as attacks
    from cape.audit import report
    from cape.audit.picture import require_matplotlib

    slice_ = None if part is None else attacks.Slice.read(part)
    amount = attacks.amount(fast, only, slice_)
    if out is not None:
        require_matplotlib()  # before anything is played
        writable(out)
    with screen.progress(amount) as steps:

        def watch(what: str) -> None:
            steps.start(what)
            steps.done()

        found = attacks.audit(fast=fast, seed=seed, only=only, part=slice_, watch=watch)
    files = report.write(found, out, command(fast, seed, only, part)) if out is not None else []
    if as_json:
        screen.print_json(found.to_dict() | {"files": [str(file) for file in files]})
    else:
        _show(found, files)
    if not found.ok:
        raise typer.Exit(1)


def command(fast: bool, seed: int, only: str | None, part: str | None = None) -> str:
    """Return the command that gives the same result, without the folders of this machine."""
    chosen = ["--fast"] if fast else []
    chosen += ["--seed", str(seed)] if seed != _SEED else []
    chosen += ["--only", shlex.quote(only)] if only else []
    chosen += ["--slice", part] if part else []
    return " ".join(["cape audit", *chosen, "--out DIR"])


def _show(found: Audit, files: list[Path]) -> None:
    from cape.audit import report

    console = screen.console()
    if found.rows:
        rows = [dict(zip(report.COLUMNS, report.cells(row), strict=True)) for row in found.rows]
        table = Table(
            _COLUMNS,
            tuple(tuple(row[title] for title in _COLUMNS) for row in rows),
            "Lower bounds beside claims",
            drop=(_COLUMNS.index("epsilon at delta"), _COLUMNS.index("its epsilon")),
        )
        console.print(Fitted(table, len(rows)))
        typer.echo(f"{report.told(found)} Seed {found.seed}, {found.seconds:.0f} s.")
        for line in (*report.left_out(), report.PLANTED):
            typer.echo(line)
    for check in found.rounding:
        style, word = ("green", "holds") if check.holds else ("bold red", "FAILS")
        console.print(f"[{style}]{word}[/{style}] {escape(check.name)}: {escape(check.found)}")
    bad = [row.name for row in found.rows if not row.ok] + [c.name for c in found.rounding if not c.holds]
    typer.echo(f"Failed: {'; '.join(bad)}" if bad else "All checks passed.")
    for file in files:
        typer.echo(f"Written: {file}")
