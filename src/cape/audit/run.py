"""The whole audit: search for tables, run the games, judge them; and the checks of rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from cape.audit.cases import Case, chosen
from cape.audit.game import join
from cape.audit.pool import WORKERS, Job, Search, in_order
from cape.audit.rounding import Check, checks
from cape.audit.table import ERROR, Row, judge

__all__ = ["SEED", "Audit", "amount", "audit"]

SEED = 10
Watch = Callable[[str], None]

_SLOW = {
    "logistic-regression": 4,
    "glm": 4,
    "cox": 12,
    "survival-regression": 16,
    "mixed-model": 2,
    "k-means": 16,
    "neural-network": 2,
    "neural-network, sampled": 4,
    "polynomial-loss": 2,
    "gradient-descent": 2,
    "mean twice": 2,
    "mean and histogram": 2,
    "count, mean and descent": 4,
}
_CHUNK = 400


@dataclass(frozen=True)
class Audit:
    """The outcome of an audit."""

    rows: tuple[Row, ...]
    rounding: tuple[Check, ...]
    fast: bool
    seed: int
    seconds: float

    @property
    def tests(self) -> int:
        """The number of tests that can be wrong by chance."""
        return sum(row.tests for row in self.rows)

    @property
    def ok(self) -> bool:
        """Whether every row and every check of rounding passed."""
        return all(row.ok for row in self.rows) and all(check.holds for check in self.rounding)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "ok": self.ok,
            "fast": self.fast,
            "seed": self.seed,
            "seconds": self.seconds,
            "family_wise_error": ERROR,
            "tests": self.tests,
            "rows": [row.to_dict() for row in self.rows],
            "rounding": [check.to_dict() for check in self.rounding],
        }


def audit(
    *,
    fast: bool = False,
    seed: int = SEED,
    only: str | None = None,
    watch: Watch = lambda what: None,
    workers: int = WORKERS,
) -> Audit:
    """Attack every row of the table, or those whose name contains `only`, or "rounding" alone.

    `watch` is called after each of the `amount` parts.
    """
    began = perf_counter()
    rounded = checks(seed) if only in (None, "rounding") else []
    watch("rounding")
    if only == "rounding":
        return Audit((), tuple(rounded), fast, seed, perf_counter() - began)
    table = chosen(fast, only)
    alike = _alike(table)
    searches = [Search(case, seed) for case in alike.values()]
    found = in_order(searches, lambda number: watch(f"tables for {searches[number].case.analysis}"), workers)
    tables = dict(zip(alike, found, strict=True))
    jobs = [
        Job(case, tables[case.search], first, last, seed) for case in table for first, last in _parts(case)
    ]
    jobs.sort(key=lambda job: -_slow(job.case))  # the slowest first
    played = in_order(jobs, lambda number: watch(jobs[number].case.name), workers)
    rows, tests = [], sum(len(case.tests) for case in table)
    for case in table:
        runs = join([part for job, part in zip(jobs, played, strict=True) if job.case == case])
        rows.append(judge(case, runs, tables[case.search].tried, tests, fast))
    return Audit(tuple(rows), tuple(rounded), fast, seed, perf_counter() - began)


def amount(fast: bool, only: str | None) -> int:
    """Return the number of parts of an audit."""
    if only == "rounding":
        return 1
    table = chosen(fast, only)
    return len(_alike(table)) + sum(len(_parts(case)) for case in table) + 1


def _alike(table: list[Case]) -> dict[Any, Case]:
    """Return one case for each search."""
    return {case.search: case for case in table}


def _slow(case: Case) -> int:
    """Return roughly how many times longer a run takes than a mean in one process."""
    deployed = {"cape": 8, "conventional": 2}.get(case.scheme, 1) if case.deployed else 1
    return deployed * _SLOW.get(case.analysis, 1)


def _parts(case: Case) -> list[tuple[int, int]]:
    """Return which runs are played together: each part starts at a multiple of four, two runs per table."""
    size = max(40, _CHUNK // _slow(case) // 4 * 4)
    return [(first, min(first + size, 2 * case.runs)) for first in range(0, 2 * case.runs, size)]
