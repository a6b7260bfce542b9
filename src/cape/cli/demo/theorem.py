"""`cape demo --guarantee`: what the paper's Theorem 1 claims for its calibration, and the exact guarantee."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from cape import privacy
from cape.cli import screen
from cape.privacy import Budget, correlated, paper
from cape.show import Table
from cape.show.terminal import Fitted

__all__ = ["Claim", "show"]

_SITES = (5, 10, 30, 100)


@dataclass(frozen=True)
class Claim:
    """What Theorem 1 claims for its calibration, and what holds."""

    sites: int
    colluding: int
    paper_delta: float
    exact_delta: float
    exact_epsilon: float


def show(budget: Budget, as_json: bool) -> None:
    """Print the theorem beside the exact guarantee, for up to a third of the sites colluding."""
    claims = [_claim(budget, sites) for sites in _SITES]
    if as_json:
        answer = {"epsilon": budget.epsilon, "delta": budget.delta}
        screen.print_json(answer | {"theorem1": [asdict(claim) for claim in claims]})
        return
    table = Table(
        ("sites", "colluding", "delta by Theorem 1", "exact delta", "exact epsilon"),
        tuple(
            (
                str(c.sites),
                str(c.colluding),
                f"{c.paper_delta:.2g}",
                f"{c.exact_delta:.2g}",
                f"{c.exact_epsilon:.3f}",
            )
            for c in claims
        ),
        "The paper's calibration (classical tau): Theorem 1 and the exact guarantee",
        f"Both deltas are at epsilon = {budget.epsilon:g}; the exact epsilon is at delta = {budget.delta:g}.",
    )
    screen.console().print(Fitted(table))


def _claim(budget: Budget, sites: int) -> Claim:
    colluding = max(0, math.ceil(sites / 3) - 1)
    tau = paper.classical_tau(budget.epsilon, budget.delta, 1.0)
    # one row a site: sensitivity 1
    claimed = paper.theorem1(budget.epsilon, tau, sites, colluding, samples=sites)
    mu = correlated.mu(1.0, tau / math.sqrt(sites), tau, sites, colluding)
    exact = privacy.delta(budget.epsilon, mu), privacy.epsilon(budget.delta, mu)
    return Claim(sites, colluding, claimed.delta, *exact)
