"""The paper's own calibration: noise for a nominal (epsilon, delta), charged what it really costs.

The paper gives a site tau / sqrt(S) for CAPE and tau for the other schemes, with the classical tau of the
nominal epsilon (see `cape.privacy.paper`). `AsPublished` is a scheme with just that noise. What it costs is
found by the exact accountant, and is the share that a release is paid with.
Tested in tests/unit/reproduction/test_calibration.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cape.core import check
from cape.core.errors import BudgetExceeded, InvalidInput
from cape.engine.consortium import Consortium
from cape.engine.query import Analysis
from cape.engine.result import Release
from cape.engine.schemes import SCHEMES, Outcome, Parties, Scheme, Task
from cape.privacy import paper

__all__ = ["AsPublished", "published_std", "release_as_published"]

_CORRELATED = ("cape", "cape-gaussian")
_ROUNDING = 1 + 1e-12


def published_std(scheme: Scheme, tau: float, parties: Parties) -> float:
    """Return a site's own noise in the paper, from its tau, both per unit of sensitivity."""
    return tau / math.sqrt(parties.sites) if scheme.name in _CORRELATED else tau


class AsPublished(Scheme):
    """A scheme whose sites add noise of a given size per unit of sensitivity, if it is paid for."""

    def __init__(self, like: Scheme, std: float) -> None:
        self._like, self._std = like, std
        self.name = like.name  # type: ignore[misc]  # it says what it stands for
        self.rounds = like.rounds  # type: ignore[misc]

    def local_std(self, mu: float, parties: Parties) -> float:
        """Return the given noise, or raise if it costs more than mu."""
        if self.cost_mu(self._std, parties) > mu * _ROUNDING:
            raise BudgetExceeded(
                f"this noise really costs mu = {self.cost_mu(self._std, parties):.4g}, not {mu:.4g}"
            )
        return self._std

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        """Return what the scheme costs."""
        return self._like.cost_mu(local_std, parties)

    def total_std(self, local_std: float, parties: Parties) -> float:
        """Return the noise in the total."""
        return self._like.total_std(local_std, parties)

    def noisy(self, rows: Mapping[str, int], drop: Mapping[str, str]) -> set[str]:
        """Return the scheme's."""
        return self._like.noisy(rows, drop)

    def run(self, task: Task) -> Outcome:
        """Run the scheme."""
        return self._like.run(task)

    def failure(self, parties: Parties) -> float:
        """Return the scheme's."""
        return self._like.failure(parties)

    def rows(self, rows: Mapping[str, int]) -> int:
        """Return the scheme's."""
        return self._like.rows(rows)

    def reach(self, parties: Parties, local_std: float) -> int:
        """Return the scheme's."""
        return self._like.reach(parties, local_std)


def release_as_published(
    consortium: Consortium, analysis: Analysis, share: float, scheme: str | Scheme
) -> Release:
    """Release with the paper's noise for a nominal share of epsilon², and pay what it really costs."""
    if analysis.sampling < 1:
        raise InvalidInput("the paper's calibration knows no sampling; use Consortium.release")
    if len(analysis.stages()) > 1:
        raise InvalidInput("the paper's calibration knows one stage; use Consortium.release")
    like = SCHEMES[scheme]() if isinstance(scheme, str) else scheme
    budget, parties = consortium.budget, consortium.parties
    nominal = budget.epsilon * math.sqrt(check.real("share", share, above=0.0, most=1.0))
    std = published_std(like, paper.classical_tau(nominal, budget.delta), parties)
    true = (like.cost_mu(std, parties) / budget.mu) ** 2
    cost = math.ceil(true * 10**9) / 10**9  # rounded up
    if cost > 1:
        raise BudgetExceeded(
            f"the paper's calibration really costs {cost:.3g} of the budget for a nominal share of "
            f"{share:g}; ask for a smaller share"
        )
    return consortium.release(analysis, cost, scheme=AsPublished(like, std))
