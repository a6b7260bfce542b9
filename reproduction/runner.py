"""From figures to files: compute what is missing, check that runs are runs, draw, judge, write."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cape.core.errors import CapeError
from reproduction import style
from reproduction.figure import Cell, Claim, Figure, Row
from reproduction.pool import WORKERS, Job, compute
from reproduction.reference import Reference
from reproduction.report import Section, kept, record
from reproduction.seeds import FIRST_SEED
from reproduction.store import Store, write

__all__ = ["Done", "missing", "reproduce"]


@dataclass(frozen=True)
class Done:
    """What came of one figure: its rows, claims and files; or why it was left out."""

    figure: str
    title: str
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    files: tuple[Path, ...]
    cells: int
    skipped: str = ""


def _silent(done: int, total: int, what: str) -> None:
    pass


def reproduce(
    figures: Sequence[Figure],
    out: Path,
    *,
    fast: bool = False,
    seed: int = FIRST_SEED,
    reference: Reference | None = None,
    workers: int = WORKERS,
    without: Mapping[str, str] = {},
    watch: Callable[[int, int, str], None] = _silent,
) -> list[Done]:
    """Compute, draw and judge figures, and write everything into `out`.

    Args:
        figures: which.
        out: gets a CSV for each figure, PNG and SVG of each picture, REPRODUCTION.md, and a folder `cells`
            with what was computed: a second run reads it. Remove it to compute again.
        fast: fewer settings, fewer runs or shortcuts, as each figure says.
        seed: of the first run; run i has seed + i.
        reference: the authors' values.
        workers: how many processes.
        without: figures to leave out, and why: the page says so. Others raise if their data is not there.
        watch: called with the cells done, all of them, and the figure at work.
    """
    kept(out)  # what is broken there is told before an hour of work, not after it
    jobs: dict[str, list[Job]] = {}
    for figure in figures:
        if figure.name in without:
            continue
        figure.require()
        jobs[figure.name] = [(figure, cell) for cell in figure.cells(fast, seed)]
    # a cell that two figures share is computed once
    everything = list({job[1]: job for each in jobs.values() for job in each}.values())
    count = 0

    def one(cell: Cell) -> None:
        nonlocal count
        count += 1
        watch(count, len(everything), cell.figure)

    watch(0, len(everything), "")
    results = compute(everything, Store(out / "cells"), one, workers)
    done = []
    for figure in figures:
        if figure.name in without:
            why = without[figure.name]
            record(Section(figure.name, figure.title, fast, (), 0, (), (), skipped=why), out)
            done.append(Done(figure.name, figure.title, (), (), (), (), 0, why))
            continue
        cells = [cell for _, cell in jobs[figure.name]]
        done.append(_finish(figure, cells, results, out, fast, reference))
    return done


def missing(figure: Figure) -> str:
    """Return what a figure needs and does not have, in a sentence; nothing if it can be computed."""
    try:
        figure.require()
    except CapeError as error:
        return str(error)
    return ""


def _finish(
    figure: Figure,
    cells: list[Cell],
    results: dict[Cell, list[Row]],
    out: Path,
    fast: bool,
    reference: Reference | None,
) -> Done:
    if figure.random:
        _require_distinct(figure, cells, results)
    rows = [{**row, "seed": cell.seed} for cell in cells for row in results[cell]]
    table = out / f"{figure.name}.csv"
    write(table, _as_csv(rows))
    files = [table]
    for name, picture in figure.draw(rows, reference).items():
        files += style.save(picture, out / f"{figure.name}-{name}")
    claims = tuple(figure.claims(rows, reference))
    seeds = tuple(sorted({cell.seed for cell in cells}))
    pictures = tuple(file.name for file in files if file.suffix == ".png")
    given = reference is not None
    notes = figure.notes(rows)
    section = Section(figure.name, figure.title, fast, seeds, len(cells), pictures, claims, notes)
    record(replace(section, reference=given), out)
    return Done(figure.name, figure.title, seeds, tuple(rows), claims, tuple(files), len(cells))


def _require_distinct(figure: Figure, cells: list[Cell], results: dict[Cell, list[Row]]) -> None:
    """Raise if two runs of the same settings gave the same numbers: they would be one run, counted twice."""
    seen: dict[str, int] = {}
    for cell in cells:
        same = repr((cell.settings, results[cell]))
        if same in seen:
            raise CapeError(
                f"{figure.name}: the runs with seeds {seen[same]} and {cell.seed} gave the same numbers; ten "
                "runs must be ten seeds"
            )
        seen[same] = cell.seed


def _as_csv(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
