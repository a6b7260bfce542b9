"""Bounds are too high no more often than they say, for laws with a known trade-off; wrong ones are caught."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cape.audit import bounds
from cape.audit.bounds import (
    Errors,
    best_threshold,
    epsilon_bound,
    errors_of,
    mu_bound,
    noise_scale,
)

ERROR = 0.05
REPEATS = 600
MANY = stats.binom.ppf(0.9999, REPEATS, ERROR)  # more failures than that happen once in 10,000 times


def gaussian_failures(mu, runs=600, seed=1):
    """How often the bound from a Gaussian score lies above the mu of its law."""
    rng = np.random.default_rng(seed)
    alarms = rng.binomial(runs, stats.norm.sf(mu / 2), REPEATS)
    misses = rng.binomial(runs, stats.norm.sf(mu / 2), REPEATS)
    found = [mu_bound(Errors(int(a), runs, int(b), runs), ERROR) for a, b in zip(alarms, misses, strict=True)]
    return sum(bound > mu for bound in found), float(np.median(found))


def response_failures(epsilon, delta=0.0, runs=2000, seed=2):
    """The same for randomised response, which gives its answer away with probability delta."""
    rng = np.random.default_rng(seed)
    wrong = (1 - delta) / (1 + math.exp(epsilon))
    errors = rng.binomial(runs, wrong, (REPEATS, 2))
    found = [epsilon_bound(Errors(int(a), runs, int(b), runs), delta, ERROR) for a, b in errors]
    return sum(bound > epsilon for bound in found), float(np.median(found))


@pytest.mark.parametrize("runs", [5, 40, 300])
@pytest.mark.parametrize("rate", [0.003, 0.05, 0.3, 0.9])
def test_the_limit_of_a_rate_is_too_low_no_more_often_than_it_says(runs, rate):
    limits = np.array([bounds.upper_rate(k, runs, ERROR) for k in range(runs + 1)])
    assert stats.binom.pmf(np.arange(runs + 1), runs, rate)[limits < rate].sum() <= ERROR
    assert np.all(np.diff(limits) >= 0)
    assert limits[-1] == 1


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_the_bound_on_mu_covers_a_gaussian(mu):
    failures, middle = gaussian_failures(mu)
    assert failures <= MANY
    if mu >= 1:
        assert middle > 0.7 * mu


def chance_of(too_high, runs, alarms, misses):
    """The exact probability, over both binomials, that a bound is too high."""
    count = np.arange(runs + 1)
    chances = np.outer(stats.binom.pmf(count, runs, alarms), stats.binom.pmf(count, runs, misses))
    return sum(chances[a, b] for a, b in zip(*np.nonzero(chances > 1e-12), strict=True) if too_high(a, b))


@pytest.mark.parametrize("alarms", [0.001, 0.01, 0.05, 0.1587, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("runs", [15, 60])
def test_bounds_cover_wherever_on_the_trade_off_a_test_is(runs, alarms):
    mu, epsilon, delta = 2.0, 1.5, 0.05

    def mu_above(a, b):
        return mu_bound(Errors(int(a), runs, int(b), runs), ERROR) > mu

    def epsilon_above(a, b):
        return epsilon_bound(Errors(int(a), runs, int(b), runs), delta, ERROR) > epsilon

    gaussian = stats.norm.cdf(stats.norm.isf(alarms) - mu)
    assert chance_of(mu_above, runs, alarms, gaussian) <= ERROR
    grown = math.exp(epsilon)
    misses = max(0.0, 1 - delta - grown * alarms, (1 - delta - alarms) / grown)
    assert chance_of(epsilon_above, runs, alarms, misses) <= ERROR


@pytest.mark.parametrize("runs", [3, 20, 50])
def test_of_all_pairs_of_rates_with_one_mean_equal_ones_have_the_heaviest_tail(runs):
    count = np.arange(2 * runs + 1)
    for alarms in (0.0, 0.02, 0.1, 0.4):
        for misses in (0.01, 0.1, 0.3, 0.6, 1.0):
            parts = [stats.binom.pmf(count[: runs + 1], runs, rate) for rate in (alarms, misses)]
            mean = (alarms + misses) / 2
            below = count <= 2 * runs * mean - 1
            tail = np.cumsum(np.convolve(*parts))
            assert np.all(tail[below] <= stats.binom.cdf(count, 2 * runs, mean)[below] + 1e-12)


def test_one_limit_for_both_rates_is_nearer_where_they_are_alike():
    alike, uneven = Errors(374, 5600, 374, 5600), Errors(10, 5600, 2800, 5600)
    assert mu_bound(alike, 1e-3) == pytest.approx(-2 * stats.norm.ppf(bounds.upper_rate(748, 11200, 5e-4)))
    limits = [bounds.upper_rate(each, 5600, 2.5e-4) for each in (10, 2800)]
    assert mu_bound(uneven, 1e-3) == pytest.approx(-float(np.sum(stats.norm.ppf(limits))))
    unequal = Errors(374, 5600, 187, 2800)
    limits = [bounds.upper_rate(374, 5600, 2.5e-4), bounds.upper_rate(187, 2800, 2.5e-4)]
    assert mu_bound(unequal, 1e-3) == pytest.approx(-float(np.sum(stats.norm.ppf(limits))))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (2.0, 0.0), (3.0, 0.01)])
def test_the_bound_on_epsilon_covers_randomised_response(epsilon, delta):
    failures, middle = response_failures(epsilon, delta)
    assert failures <= MANY
    assert middle > 0.8 * epsilon


def test_the_same_with_the_test_turned_round():
    errors = Errors(30, 1000, 50, 1000)
    other = Errors(50, 1000, 30, 1000)
    assert mu_bound(errors, ERROR) == pytest.approx(mu_bound(other, ERROR))
    assert mu_bound(Errors(970, 1000, 950, 1000), ERROR) == 0


def test_bounds_grow_with_runs_and_confidence_costs():
    few, many = Errors(5, 100, 5, 100), Errors(500, 10_000, 500, 10_000)
    assert mu_bound(few, ERROR) < mu_bound(many, ERROR) < 2 * stats.norm.isf(0.05)
    assert mu_bound(many, 1e-6) < mu_bound(many, ERROR)
    assert epsilon_bound(many, 0.1, ERROR) < epsilon_bound(many, 0.0, ERROR)


def test_a_test_that_is_always_wrong_shows_nothing():
    useless = Errors(100, 100, 100, 100)
    assert mu_bound(useless, ERROR) == 0
    assert epsilon_bound(useless, 1e-5, ERROR) == 0


def test_errors_are_counted_on_the_right_side():
    says = np.array([True, True, False, False, True])
    present = np.array([True, False, True, False, True])
    assert errors_of(says, present) == Errors(1, 2, 1, 3)


def test_the_noise_scale_is_covered_and_five_percent_are_seen():
    rng = np.random.default_rng(3)
    count, missed, seen = 4000, 0, 0
    for _ in range(REPEATS):
        squares = float(rng.chisquare(count))
        low, high = noise_scale(squares, count, ERROR)
        missed += not low <= 1 <= high
        seen += noise_scale(squares * 0.95**2, count, ERROR)[1] < 1
    assert missed <= MANY
    assert seen > 0.95 * REPEATS


def test_a_threshold_is_good_on_other_runs():
    rng = np.random.default_rng(5)
    present = np.arange(2000) % 2 == 1
    threshold = best_threshold(rng.normal(size=2000) + 2 * present, present, ERROR)
    assert 0.3 < threshold < 1.7


# --- the audit's own statistics, broken --------------------------------------------------------------


def point_estimate(errors, runs, error):
    return errors / runs


def wrong_side(errors, runs, error):
    return stats.beta.ppf(error, errors, runs - errors + 1) if errors else 0.0


def one_rate_for_both(errors, runs, error):
    return stats.beta.ppf(1 - 10 * error, errors + 1, runs - errors)


@pytest.mark.parametrize("broken", [point_estimate, wrong_side, one_rate_for_both])
def test_a_wrong_limit_is_caught_by_its_coverage(monkeypatch, broken):
    monkeypatch.setattr(bounds, "upper_rate", lambda *args: min(max(broken(*args), 1e-12), 1.0))
    assert gaussian_failures(1.0)[0] > MANY
    assert response_failures(2.0)[0] > MANY


def test_a_delta_with_the_wrong_sign_is_caught(monkeypatch):
    real = bounds.epsilon_bound
    monkeypatch.setitem(globals(), "epsilon_bound", lambda errors, delta, error: real(errors, -delta, error))
    assert response_failures(2.0, 0.1)[0] > MANY
