"""A limit that fits share: what they cost together, and who is charged."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import cape
from cape.privacy import gaussian
from cape.sklearn import PCA, BudgetAccountant, LinearRegression

BOUNDS = {"bounds_X": (-1, 1)}
BOTH = {**BOUNDS, "bounds_y": (-1, 1)}

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")


def test_fits_add_up_by_their_mu(rows):
    accountant = BudgetAccountant(delta=1e-5)
    assert accountant.total() == (0.0, 1e-5)
    PCA(epsilon=1, delta=1e-6, **BOUNDS, accountant=accountant).fit(rows.X)
    LinearRegression(epsilon=2, delta=1e-7, **BOTH, accountant=accountant).fit(rows.X, rows.y)
    mu = math.hypot(cape.Budget(1, 1e-6).mu, cape.Budget(2, 1e-7).mu)
    epsilon, delta = accountant.total()
    assert (epsilon, delta) == (pytest.approx(gaussian.epsilon(1e-5, mu)), 1e-5)
    assert len(accountant) == 2
    assert "2 fits" in repr(accountant)


def test_a_fit_above_the_limit_is_refused_and_releases_nothing(rows):
    accountant = BudgetAccountant(2.5, 1e-6)
    estimator = PCA(epsilon=2, **BOUNDS, accountant=accountant).fit(rows.X)
    before = accountant.total()
    assert before == (pytest.approx(2), 1e-6)
    fresh = clone(estimator)
    with pytest.raises(cape.BudgetExceeded, match="exceed the accountant's limit of epsilon"):
        fresh.fit(rows.X)
    assert not hasattr(fresh, "release_")
    assert accountant.total() == before


def test_what_remains_can_be_spent_and_no_more(rows):
    accountant = BudgetAccountant(1, 1e-6)
    each, delta = accountant.remaining(3)
    estimator = PCA(epsilon=each, delta=delta, **BOUNDS, accountant=accountant)
    for _ in range(3):
        estimator.fit(rows.X)
    assert accountant.total()[0] == pytest.approx(1, rel=1e-6)
    assert accountant.total()[0] <= 1
    with pytest.raises(cape.BudgetExceeded):
        estimator.fit(rows.X)


def test_a_block_charges_fits_without_an_accountant_of_their_own(rows):
    own = BudgetAccountant()
    with BudgetAccountant(3) as outer:
        PCA(epsilon=1, **BOUNDS).fit(rows.X)
        with BudgetAccountant(3) as inner:
            PCA(epsilon=2, **BOUNDS).fit(rows.X)
            PCA(epsilon=2.5, **BOUNDS, accountant=own).fit(rows.X)
    PCA(epsilon=2.9, **BOUNDS).fit(rows.X)
    assert [round(each.total()[0], 6) for each in (outer, inner, own)] == [1, 2, 2.5]


def test_a_block_charges_fits_in_threads_too(rows):
    with BudgetAccountant() as accountant, ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda epsilon: PCA(epsilon=epsilon, **BOUNDS).fit(rows.X), (1, 2)))
    mu = math.hypot(cape.Budget(1, 1e-6).mu, cape.Budget(2, 1e-6).mu)
    assert accountant.total()[0] == pytest.approx(gaussian.epsilon(1e-6, mu))


def test_clones_and_copies_share_it(rows):
    accountant = BudgetAccountant()
    assert copy.copy(accountant) is accountant is copy.deepcopy(accountant)
    estimator = LinearRegression(epsilon=1, **BOTH, accountant=accountant)
    cross_val_score(estimator, rows.X, rows.y, cv=3)
    assert len(accountant) == 3
    with pytest.raises(TypeError, match="would spend the budget again"):
        pickle.dumps(estimator)


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning")
@pytest.mark.parametrize("open_", [{"epsilon": math.inf}, {"scheme": "none"}])
def test_a_fit_without_noise_costs_everything(rows, open_):
    accountant = BudgetAccountant()
    PCA(**open_, **BOUNDS, accountant=accountant).fit(rows.X)
    assert accountant.total() == (math.inf, 1e-6)
    with pytest.raises(cape.BudgetExceeded):
        PCA(**open_, **BOUNDS, accountant=BudgetAccountant(100)).fit(rows.X)


def test_limits_that_cannot_be_are_named(rows):
    with pytest.raises(cape.InvalidInput, match="delta must lie strictly between 0 and 1"):
        BudgetAccountant(3, 0)
    with pytest.raises(cape.InvalidInput, match="epsilon must be a number above 0"):
        BudgetAccountant(-1)
    with pytest.raises(
        cape.InvalidInput, match=r"accountant must be a cape\.sklearn\.BudgetAccountant, not int"
    ):
        PCA(**BOUNDS, accountant=3).fit(np.zeros((20, 2)))
