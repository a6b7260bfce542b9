"""The whole audit: search for tables, run the games, judge them; and the checks of rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from cape.audit.cases import Case, chosen
from cape.audit.game import join
from cape.audit.pool import WORKERS, Job, Search, in_order
from cape.audit.rounding import Check, parts
from cape.audit.search import Found
from cape.audit.slices import Slice
from cape.audit.table import ERROR, Row, judge
from cape.core.errors import InvalidInput

__all__ = ["SEED", "Audit", "amount", "audit"]

SEED = 10
ROUNDING = "rounding"
"""The name that the checks of rounding go by, among the names of rows."""

Watch = Callable[[str], None]

_SLOW = {
    "covariance": 2,
    "linear-regression": 3,
    "pca": 2,
    "logistic-regression": 4,
    "glm": 4,
    "cox": 12,
    "survival-regression": 16,
    "mixed-model": 8,
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
    """The outcome of an audit.

    Attributes:
        among: how many tests have equal parts of the error: those of the whole table, if this is a slice.
    """

    rows: tuple[Row, ...]
    rounding: tuple[Check, ...]
    fast: bool
    seed: int
    seconds: float
    among: int

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
            "among": self.among,
            "rows": [row.to_dict() for row in self.rows],
            "rounding": [check.to_dict() for check in self.rounding],
        }


@dataclass(frozen=True)
class _Plan:
    """What is played: rows, whether rounding is checked, and among how many tests the error is divided."""

    table: tuple[Case, ...]
    rounding: bool
    among: int

    @classmethod
    def of(cls, fast: bool, only: str | None, part: Slice | None) -> _Plan:
        if only is not None and part is not None:
            raise InvalidInput("--only and --slice each choose rows: give one of them")
        if only == ROUNDING:
            return cls((), True, 0)
        known = chosen(fast, only)
        table = tuple(case for case in known if part is None or case.name in part)
        rounding = only is None and (part is None or ROUNDING in part)
        if not table and not rounding:
            raise InvalidInput(f"--slice {part} has none of the {len(known)} rows: take fewer slices")
        return cls(table, rounding, sum(len(case.tests) for case in known))

    @property
    def alike(self) -> dict[Any, Case]:
        """One case for each search."""
        return {case.search: case for case in self.table}

    @property
    def amount(self) -> int:
        """The number of parts of the audit."""
        games = sum(len(_parts(case)) for case in self.table)
        return len(self.alike) + games + (len(parts(SEED)) if self.rounding else 0)


def audit(
    *,
    fast: bool = False,
    seed: int = SEED,
    only: str | None = None,
    part: Slice | None = None,
    watch: Watch = lambda what: None,
    workers: int = WORKERS,
) -> Audit:
    """Attack every row of the table, or those whose name contains `only`, or "rounding" alone, or a slice.

    A row of a slice has the part of the error that it has in the whole table, and so the same outcome.
    `watch` is called after each of the `amount` parts.
    """
    began, plan = perf_counter(), _Plan.of(fast, only, part)
    searches = [Search(case, seed) for case in plan.alike.values()]
    rounding = parts(seed) if plan.rounding else []
    first: list[Callable[[], Found | list[Check]]] = [*searches, *rounding]
    said = [*(f"tables for {search.case.analysis}" for search in searches), *[ROUNDING] * len(rounding)]
    found = in_order(first, lambda number: watch(said[number]), workers)
    tables = dict(zip(plan.alike, (each for each in found if isinstance(each, Found)), strict=True))
    jobs = [
        Job(case, tables[case.search], first, last, seed)
        for case in plan.table
        for first, last in _parts(case)
    ]
    jobs.sort(key=lambda job: -_slow(job.case))  # the slowest first
    played = in_order(jobs, lambda number: watch(jobs[number].case.name), workers)
    rows = []
    for case in plan.table:
        runs = join([some for job, some in zip(jobs, played, strict=True) if job.case == case])
        rows.append(judge(case, runs, tables[case.search].tried, plan.among, fast))
    checked = [check for each in found if isinstance(each, list) for check in each]
    return Audit(tuple(rows), tuple(checked), fast, seed, perf_counter() - began, plan.among)


def amount(fast: bool, only: str | None, part: Slice | None = None) -> int:
    """Return the number of parts of an audit."""
    return _Plan.of(fast, only, part).amount


def _slow(case: Case) -> int:
    """Return roughly how many times longer a run takes than a mean in one process."""
    deployed = {"cape": 8, "conventional": 2}.get(case.scheme, 1) if case.deployed else 1
    return deployed * _SLOW.get(case.analysis, 1)


def _parts(case: Case) -> list[tuple[int, int]]:
    """Return which runs are played together: each part starts at a multiple of four, two runs per table."""
    size = max(40, _CHUNK // _slow(case) // 4 * 4)
    return [(first, min(first + size, 2 * case.runs)) for first in range(0, 2 * case.runs, size)]
