"""A limit that fits share: what they cost together, and who is charged."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import cape
from cape.engine.stages import slack
from cape.privacy import gaussian, laplace
from cape.privacy.accounting import Allowance, Amount
from cape.sklearn import PCA, BudgetAccountant, KMeans, LinearRegression, MLPClassifier
from cape.sklearn.accountant import _most

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
    assert before == (pytest.approx(2, rel=1e-4), 1e-6)
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
    assert accountant.total()[0] == pytest.approx(1, rel=1e-4)  # a part of delta is for what is beside
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
    assert [round(each.total()[0], 3) for each in (outer, inner, own)] == [1, 2, 2.5]


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
    for delta in (-1e-6, 1.0, True, False):
        with pytest.raises(cape.InvalidInput, match="delta must"):
            BudgetAccountant(3, delta)
    with pytest.raises(cape.InvalidInput, match="epsilon must be a number above 0"):
        BudgetAccountant(-1)
    with pytest.raises(
        cape.InvalidInput, match=r"accountant must be a cape\.sklearn\.BudgetAccountant, not int"
    ):
        PCA(**BOUNDS, accountant=3).fit(np.zeros((20, 2)))


# fits without delta


@pytest.mark.slow(2.5)
def test_epsilons_of_fits_without_delta_add_exactly(rows):
    accountant = BudgetAccountant()
    for _ in range(3):
        KMeans(2, epsilon=0.1, **BOUNDS, accountant=accountant).fit(rows.X)
    assert accountant.total() == (0.3, 0)  # as floats, 0.1 + 0.1 + 0.1 is more
    assert "epsilon = 0.3 without delta" in repr(accountant)


@pytest.mark.slow(5)
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_a_fit_without_delta_above_the_limit_is_refused(rows, delta):
    with BudgetAccountant(0.7, delta) as accountant:
        for _ in range(7):
            found = KMeans(2, epsilon=0.1, **BOUNDS).fit(rows.X)
        assert accountant.total() == (0.7, 0)
        assert accountant.remaining() == (0, 0)
        fresh = clone(found)
        with pytest.raises(cape.BudgetExceeded, match=r"epsilon = 0\.1 without delta would exceed"):
            fresh.fit(rows.X)
    assert not hasattr(fresh, "release_")
    assert accountant.total() == (0.7, 0)


def test_an_accountant_without_delta_takes_no_fit_with_one(rows):
    for accountant in (BudgetAccountant(100, 0), BudgetAccountant(delta=0)):
        assert accountant.total() == (0, 0)
        with pytest.raises(cape.BudgetExceeded, match="give the fit delta=0, if its model can do without"):
            PCA(epsilon=0.01, **BOUNDS, accountant=accountant).fit(rows.X)
        assert len(accountant) == 0
        KMeans(2, **BOUNDS, accountant=accountant).fit(rows.X)
        assert accountant.total() == (1, 0)


def test_a_model_that_needs_delta_is_refused_before_it_is_charged(rows):
    accountant = BudgetAccountant(2, 0)
    with pytest.raises(cape.InvalidInput, match="PCA has Gaussian noise, which needs a delta above 0"):
        PCA(delta=0, **BOUNDS, accountant=accountant).fit(rows.X)
    assert len(accountant) == 0


def test_both_kinds_without_a_limit_are_convolved():
    accountant = BudgetAccountant(delta=1e-5)
    accountant.charge(cape.Budget(0.5))
    accountant.charge(cape.Budget(1, 1e-6))
    accountant.charge(cape.Budget(0.25))
    mu, (epsilon, delta) = cape.Budget(1, 1e-6).mu, accountant.total()
    assert delta == 1e-5
    assert laplace.delta(epsilon, mu, [0.75]) <= 1e-5 * (1 + 1e-9)
    assert laplace.delta(0.999 * epsilon, mu, [0.75]) > 1e-5
    assert gaussian.epsilon(1e-5, mu) < epsilon <= gaussian.epsilon(1e-5, mu) + 0.75


def test_both_kinds_under_one_limit_stay_within_the_pairs_of_an_allowance():
    """One frontier for both, epsilon(mu) + pure <= limit, would admit what a choice can exceed."""
    accountant = BudgetAccountant(2, 1e-6)
    accountant.charge(cape.Budget(0.5))
    naive = cape.Budget(1.4, 1e-6)
    assert gaussian.epsilon(1e-6, naive.mu) + 0.5 < 2
    with pytest.raises(cape.BudgetExceeded, match="would exceed"):
        accountant.charge(naive)
    assert accountant.total() == (0.5, 0)
    accountant.charge(cape.Budget(0.3, 1e-6))
    assert accountant.total()[0] <= 2
    assert accountant.total()[1] == 1e-6


def test_what_remains_beside_pure_fits_can_be_spent_and_no_more():
    accountant = BudgetAccountant(2, 1e-6)
    accountant.charge(cape.Budget(0.5))
    assert accountant.remaining(3) == (0.5, 0)
    accountant.charge(cape.Budget(0.1, 1e-6))
    each, delta = accountant.remaining(4)
    assert (each > 0, delta) == (True, 1e-6)
    for _ in range(4):
        accountant.charge(cape.Budget(each, delta))
    with pytest.raises(cape.BudgetExceeded):
        accountant.charge(cape.Budget(each, delta))
    limit = Allowance(2.0, 1e-6)
    assert (
        _most(limit, Fraction(0)) == Fraction(cape.Budget(2.0, 1e-6).mu) ** 2
    )  # without pure fits, all of it
    uneven = BudgetAccountant(1, 0)
    each, _ = uneven.remaining(3)
    for _ in range(3):
        uneven.charge(cape.Budget(each))
    assert uneven.remaining()[0] < 1e-15


def test_costs_of_two_adjacencies_are_not_added():
    accountant = BudgetAccountant(epsilon=3, delta=1e-6)
    accountant.charge(cape.Budget(1.0, 1e-6), "add-remove")
    accountant.charge(cape.Budget(1.0, 1e-6), "add-remove")
    with pytest.raises(cape.InvalidInput, match="must have the same neighbours"):
        accountant.charge(cape.Budget(0.1, 1e-6))
    assert len(accountant) == 2


# what samples and sparse graphs of masks add to delta


def spent(accountant):
    return accountant._spent


def test_a_fit_over_samples_is_charged_for_its_slack_before_anything_is_released(rows):
    """Its noise is that of its own delta, 0.1: what it may lose beyond mu is far above the limit's 1e-8."""
    y = (rows.X[:, 0] > 0).astype(int)
    how = {"epsilon": 0.1, "delta": 0.1, "sampling": 0.5, "max_iter": 1, **BOUNDS}
    free = BudgetAccountant(delta=1e-5)
    found = MLPClassifier((1,), **how, accountant=free).fit(rows.X, y)
    assert found.guarantee_ is not None
    assert spent(free).extra == Fraction(found.guarantee_.extra) == Fraction(slack(0.1))
    mu = cape.Budget(0.1, 0.1).mu
    assert free.total()[0] == pytest.approx(gaussian.epsilon(1e-5 - slack(0.1), mu), rel=1e-9)
    assert free.total()[0] > gaussian.epsilon(1e-5, mu) * 1.005
    strict = BudgetAccountant(1.8551, 1e-8)
    assert Allowance(1.8551, 1e-8).covers(Amount(Fraction(mu) ** 2)), "by mu alone it fits"
    refused = MLPClassifier((1,), **how, accountant=strict)
    with pytest.raises(cape.BudgetExceeded, match="that adds 1e-06 to delta would exceed"):
        refused.fit(rows.X, y)
    assert not hasattr(refused, "release_")
    assert (len(strict), strict.total()) == (0, (0.0, 1e-8))


def test_fits_are_charged_for_graphs_of_masks_that_may_fail(rows, monkeypatch):
    monkeypatch.setattr("cape.engine.schemes.cape.graph_failure", lambda parties: 2.0**-42)
    accountant = BudgetAccountant(3, 1e-6)
    two = np.column_stack([rows.y, rows.y])
    found = LinearRegression(epsilon=1, **BOTH, accountant=accountant).fit(rows.X, two)
    assert spent(accountant).extra == Fraction(found.guarantee_.extra) >= 2 * Fraction(2.0**-42)
    before = spent(accountant).extra
    clustered = KMeans(2, epsilon=0.01, **BOUNDS, accountant=BudgetAccountant(3, 1e-6)).fit(rows.X)
    epsilon, delta = clustered.accountant.total()
    assert (epsilon, delta) == (0.01, clustered.guarantee_.extra)
    assert delta >= 2.0**-42
    for strict in (BudgetAccountant(3, 0), BudgetAccountant(delta=0)):
        with pytest.raises(cape.BudgetExceeded, match=r"masks fail to hide a site with a chance of \d.*e-\d"):
            clone(clustered).set_params(accountant=strict).fit(rows.X)
        assert (len(strict), strict.total()) == (0, (0.0, 0.0))
    assert spent(accountant).extra == before


def test_a_limit_has_a_part_of_delta_for_what_is_beside_and_no_more():
    """Whether it is used or not: a choice between it and Gaussian noise after results gains nothing."""
    accountant, fit = BudgetAccountant(2, 1e-6), cape.Budget(0.01, 1e-6)
    part = Fraction(1, 10**6) * Fraction(1, 2000)
    for _ in range(4):
        accountant.charge(fit, extra=part / 5)
    before = accountant.remaining()
    with pytest.raises(cape.BudgetExceeded, match=r"samples and masks may add 0\.0005 of delta"):
        accountant.charge(fit, extra=part / 4)
    assert accountant.remaining() == before
    accountant.charge(cape.Budget(*before))
    assert accountant.total()[0] <= 2
    whole = BudgetAccountant(2, 1e-6)
    whole.charge(cape.Budget(2, 1e-6))
    with pytest.raises(cape.BudgetExceeded):
        whole.charge(fit)
