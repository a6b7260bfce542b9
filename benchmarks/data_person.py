"""Persons with several rows: what they cost in mu, and how near the audit's bound comes to the claim."""

from __future__ import annotations

from benchmarks.harness import Result, bench
from cape import Budget, Person, Schema
from cape.analyses.registry import KINDS, build
from cape.audit.cases import cases
from cape.audit.pool import Job, Search
from cape.audit.table import judge
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.stages import Setting, Stages

ROWS = 4
SEED = 10
CLIPPED = ("neural-network",)  # what a person's rows add up to is clipped like one row
NAME = "cape/mean, 4 rows a person"
SCHEMA = Schema(age=(18, 90), chol=(100, 600), sex=["female", "male"], disease=["no", "yes"])
PARTIES = Parties(5, 1, 4)


@bench("data.person")
def persons() -> Result:
    """The audit's lower bound over the claim, for a person of 4 rows; 0 if a cost is not 4 times one row's.

    The bound must stay below the claim, and within 15% of it.
    """
    costs = {
        f"{scheme}/{kind}": times(scheme, kind) for scheme in SCHEMES if scheme != "none" for kind in KINDS
    }
    row, claim = audited()
    plain = {name: each for name, each in costs.items() if not name.endswith(CLIPPED)}
    clipped = [each for name, each in costs.items() if name not in plain]
    right = all(each == ROWS for each in plain.values()) and max(clipped) < ROWS
    right = right and row.ok and row.mu_bound < claim
    detail = {
        "cost over that of one row": sorted(set(plain.values())),
        "the same, clipped by person": sorted(set(clipped)),
        "questions": len(costs),
        "claim": claim,
        "lower bound on mu": round(row.mu_bound, 4),
        "attained": round(row.attained, 4),
        "runs": row.runs,
    }
    return Result(row.ratio if right else 0.0, 0.85, "higher", detail=detail)


def times(scheme: str, kind: str) -> float:
    """Return how many times the mu of one row a person of 4 rows costs, at the same noise."""
    extra = {"rows": 1000} if kind == "neural-network" else {}
    analysis = build({"kind": kind, **KINDS[kind].example, **extra})
    noise = [_noise(analysis, scheme, rows) for rows in (1, ROWS)]
    return noise[1] / noise[0]  # mu is inversely proportional to noise


def _noise(analysis, scheme, rows):  # type: ignore[no-untyped-def]
    """Return a site's noise at one budget; the numbers of rows are private for both."""
    schema = SCHEMA.of_persons(Person("id", rows=rows, sites=2))
    setting = Setting(schema, Budget(1.0, 1e-6), PARTIES, "replace-one")
    stages = Stages.of(analysis, setting, SCHEMES[scheme](), 0.5)
    calibration, _ = stages.calibrate(0, analysis.query(schema, "replace-one"))
    return calibration.local_noise


def audited():  # type: ignore[no-untyped-def]
    """Return the audit's row, and its claim."""
    case = next(case for case in cases(fast=False) if case.name == NAME)
    found = Search(case, SEED)()
    played = Job(case, found, 0, 2 * case.runs, SEED)()
    row = judge(case, played, found.tried, len(case.tests), fast=False)
    return row, row.claim_mu
