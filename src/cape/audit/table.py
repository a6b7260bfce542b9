"""From runs to rows: the claim, the lower bounds, the checks that flagged it, and whether the row passes.

Four checks can be wrong by chance. Each row gets one, two or three of them (`cape.audit.cases.Case.tests`),
and all tests of all rows have equal parts of the error allowed for the whole table (5%, Bonferroni):

- *likelihood ratio*: the best test by the design, with its threshold fixed by the design;
- *learned*: a test that is learned on half of the runs and judged on the other half;
- *noise scale*: whether the noise is smaller than claimed (assumes normal noise);
- *support*: answers that only one of the tables can give.

The first two and the last flag a row if their lower bound on mu, or on epsilon at the claimed delta,
exceeds the claim: with probability 95% no row that keeps its claim is flagged.

Two more do not depend on chance:

- *attained*: at the noise that the code calibrates to, the two tables are further apart than the claim. It
  needs no number of runs and detects a wrong calibration; it cannot detect noise that was not added;
- *blind*: a ratio or a sum of squares is not a number, views never change, or a check was not made. Such a
  row has shown nothing, whatever else it reports.

A row that is not flagged must also reach its floor (`cape.audit.cases.Case.needed`).
Tested in tests/unit/audit/test_table.py.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cape.audit.bounds import (
    Errors,
    epsilon_bound,
    errors_of,
    laplace_scale,
    mu_bound,
    noise_scale,
)
from cape.audit.cases import Case
from cape.audit.game import Played
from cape.audit.learned import learn
from cape.engine.schemes import CapeGaussian, Parties
from cape.privacy import epsilon, paper

__all__ = ["CHECKS", "ERROR", "ROUNDING", "Row", "judge"]

ERROR = 0.05
CHECKS = ("likelihood ratio", "learned", "noise scale", "support")
ROUNDING = 1e-6
"""By how much, relatively, *attained* may exceed the claim; its own floating-point error is about 1e-13."""

_SAMPLE = 1e-9  # claims are floats


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        attained: the mu of the tables that the search found, according to the design.
        mu_bound, epsilon_bound: the best lower bounds of all tests, both without assumptions.
        epsilon_from_mu: the epsilon at delta of a Gaussian mechanism with the bound on mu.
        scale: an interval for the noise over its claimed scale, if noise is normal.
        ratio: bound over claim, of mu or of its epsilon, whichever is less; of epsilon alone if the case is
            about that.
        needed: the least ratio allowed.
        tests: the number of its tests that can be wrong by chance.
        flagged: the checks by which the claim is broken.
    """

    name: str
    scheme: str
    analysis: str
    delta: float
    claim_mu: float
    claim_epsilon: float
    attained: float
    mu_bound: float
    mu_learned: float
    epsilon_bound: float
    epsilon_from_mu: float
    scale: tuple[float, float] | None
    ratio: float
    needed: float
    runs: int
    tests: int
    searched: int
    flagged: tuple[str, ...]
    must_flag: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it passes."""
        if self.must_flag:
            return self.must_flag in self.flagged and "blind" not in self.flagged
        return not self.flagged and self.ratio >= self.needed

    @property
    def verdict(self) -> str:
        """Its outcome, in words."""
        if "blind" in self.flagged:
            return "BLIND"
        if self.must_flag:
            return f"flagged by {', '.join(self.flagged)}" if self.flagged else "NOT FLAGGED"
        if self.flagged:
            return f"FLAGGED by {', '.join(self.flagged)}"
        return "holds" if self.ok else "NO POWER"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "verdict": self.verdict, "ok": self.ok}


def judge(case: Case, played: Played, searched: int, tests: int, fast: bool) -> Row:
    """Return the row of a case in a table with this total number of tests."""
    error = ERROR / tests
    claim_mu, claim_epsilon = _claim(case, played)
    made, flagged = _tests(case, played, claim_epsilon, error), []
    mus = {check: max(mu_bound(each, error / len(found)) for each in found) for check, found in made.items()}
    eps = {
        check: max(epsilon_bound(each, case.delta, error / len(found)) for each in found)
        for check, found in made.items()
    }
    for check in made:
        if mus[check] > claim_mu + _SAMPLE or eps[check] > claim_epsilon + _SAMPLE:
            flagged.append(check)
    scale = None
    if "noise scale" in case.tests:
        of_noise = laplace_scale if case.pure else noise_scale
        scale = of_noise(played.squares, played.count, 2 * error)
        if scale[1] < 1:
            flagged.append("noise scale")
        if played.attained > (claim_epsilon if case.pure else claim_mu) * (1 + ROUNDING):
            flagged.append("attained")
    blind = _blind(case, played) or {*made, *(["noise scale"] if scale else [])} != {*case.tests}
    if blind:
        flagged.append("blind")
    best = max(mus.values())
    best_epsilon = max(eps.values())
    its_epsilon = best_epsilon if case.pure else epsilon(case.delta, best) if best > 0 else 0.0
    near = best_epsilon if case.direct else min(best / claim_mu * claim_epsilon, its_epsilon)
    return Row(
        case.name,
        case.scheme,
        case.analysis,
        case.delta,
        claim_mu,
        claim_epsilon,
        played.attained,
        best,
        mus.get("learned", math.nan),
        best_epsilon,
        its_epsilon,
        scale,
        near / claim_epsilon,
        case.needed(fast),
        int(played.present.size),
        len(case.tests),
        searched,
        tuple(flagged),
        case.flag,
        played.seconds,
    )


def _blind(case: Case, played: Played) -> bool:
    """Return whether the views are no evidence: not numbers, or the same in every run."""
    if case.look == "support":
        return played.extra is None or not np.isfinite(played.extra).all()
    numbers = (played.moved, played.squares, *played.ratios)
    if played.views is None or not np.isfinite(numbers).all():
        return True
    return bool((played.views == played.views[0]).all())


def _claim(case: Case, played: Played) -> tuple[float, float]:
    """Return the mu, and the epsilon at delta, that are tested."""
    if case.claim == "product":
        return played.claim_mu, played.claim_epsilon
    parties = Parties(case.sites, case.colluding, case.sites)
    tau = CapeGaussian().local_std(played.claim_mu, parties) * math.sqrt(case.sites)

    def said(claimed: float) -> paper.Theorem1:
        return paper.theorem1(claimed, tau, case.sites, case.colluding, case.sites)

    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if said(middle).delta > case.delta else (low, middle)
    return said(high).sigma_z, high


def _tests(case: Case, played: Played, claimed: float, error: float) -> dict[str, list[Errors]]:
    """Return the errors of each test; where a check has two tests, each has half of the error."""
    present = played.present
    if case.look == "support":
        assert played.extra is not None
        return {"support": [errors_of(played.extra > 0, present), errors_of(played.extra >= 0, present)]}
    threshold = claimed if case.direct else 0.0
    if case.pure:  # as far as the ratio goes: there the test is best for epsilon
        threshold = played.attained * (1 - 1e-6)
    found = {"likelihood ratio": [errors_of(played.ratios > threshold, present)]}
    if played.views is not None and played.views.size and len(np.unique(present)) == 2:
        found["learned"] = [learn(played.views, present, error)[0]]
    return found
