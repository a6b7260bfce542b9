"""Searches and games, run in two processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeVar

from cape.audit import deployed
from cape.audit.cases import Case
from cape.audit.game import Game, Played, play
from cape.audit.search import Found, find, questions
from cape.audit.support import telltale, worst
from cape.core.errors import CapeError

__all__ = ["WORKERS", "Job", "Search", "in_order"]

WORKERS = 2
Done = TypeVar("Done")


@dataclass(frozen=True)
class Search:
    """The search for the tables of a case."""

    case: Case
    seed: int

    def __call__(self) -> Found:
        """Search."""
        case = self.case
        found = find(
            case.analysis, case.neighbours, case.budget, self.seed, case.sites, case.forged, case.person
        )
        if case.look != "support":
            return found
        asked = questions(case.analysis, case.neighbours, case.budget, found.tables)
        return worst(found, asked, self.seed)


@dataclass(frozen=True)
class Job:
    """Some of the runs of one case."""

    case: Case
    found: Found
    first: int
    last: int
    seed: int

    def __call__(self) -> Played:
        """Play."""
        case = self.case
        game = Game(
            case.analysis,
            case.scheme,
            self.found.tables,
            case.budget,
            case.colluding,
            case.neighbours,
            case.spare,
            case.silent,
            case.forged,
        )
        runs = range(self.first, self.last)
        if case.deployed:
            return deployed.play(game, runs, self.seed, case.name)
        return play(game, runs, self.seed, telltale if case.look == "support" else None, case.name)


def in_order(
    jobs: Sequence[Callable[[], Done]], watch: Callable[[int], None], workers: int = WORKERS
) -> list[Done]:
    """Return the result of each job, in order; `watch` gets the number of each finished job."""
    if workers < 2 or len(jobs) < 2:
        results = []
        for number, job in enumerate(jobs):
            results.append(job())
            watch(number)
        return results
    context = multiprocessing.get_context("spawn")  # a fork would share locks and random states
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    found: dict[int, Done] = {}
    try:
        waiting = {pool.submit(_call, job): number for number, job in enumerate(jobs)}
        for future in as_completed(waiting):
            found[waiting[future]] = future.result()
            watch(waiting[future])
    except BrokenProcessPool:
        raise CapeError("the system ended a process, perhaps for lack of memory; run it again") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [found[number] for number in range(len(jobs))]


def _call(job: Callable[[], Done]) -> Done:
    return job()


def _begin() -> None:
    """Give each process one core, and let Ctrl-C end it silently."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
