"""The likelihood ratio: weights against the covariance of the whole view, and its law on real runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape.audit.cases import cases
from cape.audit.game import Game, play
from cape.audit.likelihood import gaussian_weights
from cape.audit.pool import Job, Search
from cape.audit.search import find
from cape.privacy import Budget, correlated

BUDGET = Budget.of(3.0, 1e-5)
PLAIN = [
    case
    for case in cases(False)
    if case.analysis in ("count", "mean", "histogram") and not (case.flag or case.look or case.deployed)
]


@pytest.mark.parametrize(("sites", "honest"), [(3, 2), (5, 4), (30, 21), (4, 1)])
def test_weights_are_those_of_the_covariance(sites, honest):
    sigma = sites * (np.eye(honest) - 1 / honest) + np.eye(honest)
    column = np.linalg.inv(sigma)[:, 0]
    first, rest = gaussian_weights(sites, honest)
    assert column == pytest.approx([first] + [rest] * (honest - 1))
    assert math.sqrt(first) == pytest.approx(correlated.mu(1.0, 1.0, "paper", sites, sites - honest))


@pytest.fixture(scope="module")
def tables():
    return find("mean", "replace-one", BUDGET, 1).tables


@pytest.mark.quick_cases("conventional", "pooled", seconds=1.2)
@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "local", "pooled"])
def test_the_ratio_has_the_law_that_the_design_says(scheme, tables):
    runs = 200
    played = play(Game("mean", scheme, tables, BUDGET), range(runs), 3)
    assert played.claim_mu == pytest.approx(3.0)
    assert 0.99 * 3 < played.attained <= 3.0
    mu = played.attained
    for present, centre in ((False, -mu * mu / 2), (True, mu * mu / 2)):
        ratios = played.ratios[played.present == present]
        assert ratios.size == runs // 2
        assert abs(ratios.mean() - centre) < 4 * mu / math.sqrt(ratios.size)
        assert 0.75 < ratios.std() / mu < 1.3
    assert abs(played.squares - played.count) < 4 * math.sqrt(2 * played.count)


def test_runs_repeat_with_the_seed_and_do_not_without(tables):
    game = Game("mean", "cape", tables, BUDGET)
    one, two, other = (play(game, range(8), seed) for seed in (5, 5, 6))
    assert np.array_equal(one.ratios, two.ratios)
    assert np.array_equal(one.views, two.views)
    assert not np.any(one.ratios == other.ratios)
    assert len(set(one.ratios)) == 8  # no two runs share noise


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_every_way_to_play_a_plain_sum_sees_the_row_at_stake(case):
    """Under each scheme and relation, with persons and lost sites, and where sizes of sites are private."""
    played = Job(case, Search(case, 1)(), 0, 4, 1)()
    claim = played.claim_epsilon if case.pure else played.claim_mu
    assert case.reach * claim < played.attained <= claim * (1 + 1e-6)
