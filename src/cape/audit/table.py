"""From runs to rows: claim, lower bounds, what was flagged by which check, and whether that is as it must be.

Four checks, each with an equal part of the error that the whole table may have (5%, Bonferroni):

- *likelihood ratio*: the best test by the design, with its threshold fixed by the design;
- *learned*: a test that was learned on half of the runs, judged on the other half;
- *noise scale*: whether the noise is smaller than claimed (assumes that it is normal);
- *support*: answers that only one of the tables can give.

The first two and the last flag a row if their lower bound on mu, or on epsilon at the claimed delta, is
above the claim: with probability 95% no row that keeps its claim is flagged.
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
    mu_bound,
    noise_scale,
    normal_mu,
)
from cape.audit.cases import FLOOR, FLOOR_FAST, Case
from cape.audit.game import Played
from cape.audit.learned import learn
from cape.privacy import epsilon, paper
from cape.release.schemes import CapeGaussian, Parties

__all__ = ["CHECKS", "ERROR", "Row", "judge"]

ERROR = 0.05
CHECKS = ("likelihood ratio", "learned", "noise scale", "support")
_SAMPLE = 1e-9  # claims are floats


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        attained: the mu of the tables that the search found, by the design.
        mu_bound, epsilon_bound: the best lower bounds of all tests, both without assumptions.
        epsilon_from_mu: the epsilon at delta of a Gaussian mechanism with the bound on mu.
        scale: an interval for the noise over its claimed scale, if noise is normal.
        normal: an interval for mu that assumes normal scores; shown only.
        ratio: bound over claim, of mu or of its epsilon, whichever is less; where the case is about epsilon
            by itself, of that.
        needed: what the ratio must be at least.
        flagged: the checks that say that the claim is broken.
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
    normal: tuple[float, float] | None
    ratio: float
    needed: float
    runs: int
    searched: int
    flagged: tuple[str, ...]
    must_flag: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it is as it must be."""
        if self.must_flag:
            return self.must_flag in self.flagged
        return not self.flagged and self.ratio >= self.needed

    @property
    def verdict(self) -> str:
        """What came of it, in words."""
        if self.must_flag:
            return f"flagged by {', '.join(self.flagged)}" if self.flagged else "NOT FLAGGED"
        if self.flagged:
            return f"FLAGGED by {', '.join(self.flagged)}"
        return "holds" if self.ok else "NO POWER"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "verdict": self.verdict, "ok": self.ok}


def judge(case: Case, played: Played, searched: int, rows: int, fast: bool, seconds: float) -> Row:
    """Return the row of a case, as one of so many rows."""
    error = ERROR / (len(CHECKS) * rows)
    claim_mu, claim_epsilon = _claim(case, played)
    tests, flagged = _tests(case, played, claim_epsilon, error), []
    mus = {check: max(mu_bound(each, error / len(found)) for each in found) for check, found in tests.items()}
    eps = {
        check: max(epsilon_bound(each, case.delta, error / len(found)) for each in found)
        for check, found in tests.items()
    }
    for check in tests:
        if mus[check] > claim_mu + _SAMPLE or eps[check] > claim_epsilon + _SAMPLE:
            flagged.append(check)
    scale = None
    if case.look != "support" and case.scheme != "none":
        scale = noise_scale(played.squares, played.count, 2 * error)
        if scale[1] < 1:
            flagged.append("noise scale")
    best = max(mus.values())
    best_epsilon = max(eps.values())
    its_epsilon = epsilon(case.delta, best) if best > 0 else 0.0
    near = best_epsilon if case.direct else min(best / claim_mu * claim_epsilon, its_epsilon)
    floor = FLOOR_FAST if fast else FLOOR
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
        normal_mu(played.ratios, played.present, ERROR) if scale else None,
        near / claim_epsilon,
        floor if case.powered and not case.flag else 0.0,
        int(played.present.size),
        searched,
        tuple(flagged),
        case.flag,
        seconds,
    )


def _claim(case: Case, played: Played) -> tuple[float, float]:
    """Return the mu and the epsilon at delta that are put to the test."""
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
    found = {"likelihood ratio": [errors_of(played.ratios > threshold, present)]}
    if played.views is not None and len(np.unique(present)) == 2:
        found["learned"] = [learn(played.views, present, error)[0]]
    return found
