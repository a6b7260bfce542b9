"""The paper's calibration: its noise to the bit, and charged what it really costs."""

from __future__ import annotations

import math

import pytest

from cape.core.errors import BudgetExceeded, InvalidInput
from cape.engine.schemes import SCHEMES
from cape.privacy import paper
from reproduction.calibration import AsPublished, published_std, release_as_published
from tests.unit.engine.questions import Bins, Rounds
from tests.unit.engine.test_consortium import BUDGET, EDGES, consortium


def test_the_papers_calibration_is_charged_what_it_really_costs():
    together = consortium()
    release = release_as_published(together, Bins("age", EDGES), 0.2, "cape-gaussian")
    assert float(together.budget.spent) == pytest.approx((release.guarantee.mu / BUDGET.mu) ** 2, rel=1e-6)
    assert float(together.budget.spent) > 0.2
    with pytest.raises(BudgetExceeded, match="really costs"):
        release_as_published(consortium(), Bins("age", EDGES), 1.0, "cape-gaussian")


@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "local"])
def test_the_noise_is_the_papers(scheme):
    together = consortium()
    kind, parties = SCHEMES[scheme](), together.parties
    release = release_as_published(together, Bins("age", EDGES), 0.01, scheme)
    tau = paper.classical_tau(BUDGET.epsilon * 0.1, BUDGET.delta)
    std = tau / math.sqrt(parties.sites) if scheme.startswith("cape") else tau
    assert published_std(kind, tau, parties) == std
    assert release.guarantee.mu == kind.cost_mu(std, parties)
    assert release.scheme == scheme


def test_noise_that_is_not_paid_for_is_refused():
    kind, parties = SCHEMES["conventional"](), consortium().parties
    with pytest.raises(BudgetExceeded, match="really costs mu = 2, not 1"):
        AsPublished(kind, 0.5).local_std(1.0, parties)
    assert AsPublished(kind, 0.5).local_std(2.0, parties) == 0.5


def test_samples_and_stages_are_unknown_to_the_paper():
    with pytest.raises(InvalidInput, match="no sampling"):
        release_as_published(consortium(), Rounds("age", EDGES, (1, 1), sampling=0.1), 0.1, "cape")
    with pytest.raises(InvalidInput, match="one stage"):
        release_as_published(consortium(), Rounds("age", EDGES, (1, 1)), 0.1, "cape")
