"""Computes cells: the short ones here, the others in two processes, the longest first."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from cape.core.errors import CapeError
from reproduction.figure import Cell, Figure, Row
from reproduction.registry import find
from reproduction.store import Store

__all__ = ["WORKERS", "Job", "compute"]

WORKERS = 2
_SHORT = 0.05  # seconds; a process takes longer to start
_FEW = 2.0  # seconds of all work for which no process is started

Job = tuple[Figure, Cell]
Watch = Callable[[Cell], None]


def compute(jobs: Sequence[Job], store: Store, watch: Watch, workers: int = WORKERS) -> dict[Cell, list[Row]]:
    """Return the rows of every cell; each that has to be computed is kept as soon as it is there."""
    results: dict[Cell, list[Row]] = {}
    missing: list[Job] = []
    for figure, cell in jobs:
        held = store.get(cell, figure.version)
        if held is None:
            missing.append((figure, cell))
        else:
            results[cell] = held
            watch(cell)

    def done(figure: Figure, cell: Cell, rows: list[Row]) -> None:
        store.put(cell, figure.version, rows)
        results[cell] = rows
        watch(cell)

    here, there = _divide(missing, workers)
    if there:
        _in_processes(there, done, workers)
    for figure, cell in here:
        done(figure, cell, figure.compute(cell))
    return results


def _divide(jobs: list[Job], workers: int) -> tuple[list[Job], list[Job]]:
    if workers < 2 or sum(cell.seconds for _, cell in jobs) < _FEW:
        return jobs, []
    short = [job for job in jobs if job[1].seconds <= _SHORT]
    long = [job for job in jobs if job[1].seconds > _SHORT]
    return short, sorted(long, key=lambda job: -job[1].seconds)


def _in_processes(jobs: list[Job], done: Callable[[Figure, Cell, list[Row]], None], workers: int) -> None:
    context = multiprocessing.get_context("spawn")  # a fork would share locks and random states
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        waiting: dict[Future[list[Row]], Job] = {pool.submit(_compute, job[1]): job for job in jobs}
        for future in as_completed(waiting):
            figure, cell = waiting[future]
            done(figure, cell, future.result())
    except BrokenProcessPool:
        raise CapeError(
            "a process was ended by the system, perhaps for memory; run it again: what was computed is kept"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _compute(cell: Cell) -> list[Row]:
    return find(cell.figure).compute(cell)


def _begin() -> None:
    """Keep processes from sharing each other's cores, and let Ctrl-C end them without words."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
