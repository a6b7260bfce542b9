"""Pure releases: the whole view in exact arithmetic, and composition with Gaussian ones against others."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from cape.core.errors import InvalidInput
from cape.privacy import Budget, gaussian, laplace
from cape.privacy.ladder import ladder

SCALE = 4.0
REACH = 400


def negative_binomial(shape, scale):
    p, out = mpmath.exp(-1 / mpmath.mpf(scale)), []
    chance = (1 - p) ** shape
    for k in range(REACH):
        out.append(float(chance))
        chance *= p * (k + mpmath.mpf(shape.numerator) / shape.denominator) / (k + 1)
    return np.array(out)


def noise(shape, scale=SCALE):
    """The law of a difference of two Polya variables, on -REACH/2 ... REACH/2."""
    one = negative_binomial(shape, scale)
    law = np.convolve(one, one[::-1])
    return law[REACH - 1 - REACH // 2 : REACH + REACH // 2]


def loss(shape, shift, scale=SCALE):
    """The largest log ratio of the law and the shifted law, over integers where both are clear."""
    law = noise(shape, scale)
    middle = slice(REACH // 4, -(REACH // 4))
    return float(np.max(np.abs(np.log(law[shift:][middle] / law[: law.size - shift][middle]))))


@pytest.mark.parametrize(("sites", "colluding", "least"), [(3, 0, 2), (4, 1, 3), (5, 1, 3)])
def test_every_view_with_colluders_and_losses_loses_what_is_said(sites, colluding, least):
    """Shapes of what honest sites keep, whichever sites are lost and whoever reveals nothing."""
    rungs = ladder(sites, colluding, least)
    base, *parts = rungs.shapes
    assert base == Fraction(1, sites - colluding)
    for survivors in range(least, sites + 1):
        level = rungs.level(sites - survivors)
        for bad, late in product(range(colluding + 1), range(survivors - colluding + 1)):
            kept = base + sum(parts[:level])
            shape = (survivors - bad - late) * kept + late * (base + sum(parts))
            assert shape >= 1
            claimed = rungs.epsilon(3.0, SCALE, survivors, bad, late)
            assert claimed == 3 / SCALE
            if bad == colluding and not late:
                assert shape == 1
    assert loss(Fraction(1), 3) == pytest.approx(rungs.epsilon(3.0, SCALE), rel=1e-9)
    assert rungs.epsilon(3.0, SCALE) == 3 / SCALE


def test_more_noise_than_needed_never_loses_more_and_a_shortfall_is_a_disaster():
    assert loss(Fraction(5, 4), 2) <= 2 / SCALE
    assert loss(Fraction(9, 10), 2) > 1.1 * 2 / SCALE
    assert loss(Fraction(1, 2), 1, 40.0) > 10 * 1 / 40  # and grows with the resolution
    for shape in (Fraction(99, 100), 0.5):
        with pytest.raises(InvalidInput, match="must add up to at least 1"):
            laplace.epsilon(1.0, 1.0, shape)


def test_one_pure_release_beside_gaussian_ones_in_50_digits():
    mu, pure = 0.3, Fraction(1, 2)
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(1) / 2

        def of(x):
            return mpmath.ncdf(m / 2 - x / m) - mpmath.exp(x) * mpmath.ncdf(-m / 2 - x / m)

        up = 1 / (1 + mpmath.exp(-e))
        for at in (0.0, 0.2, 1.0, 2.0):
            exact = up * of(at - e) + (1 - up) * of(at + e)
            assert laplace.delta(at, mu, [pure]) == pytest.approx(float(exact), rel=1e-9)
    assert laplace.delta(1.0, mu) == gaussian.delta(1.0, mu)


@pytest.mark.slow(1.5)
def test_composition_agrees_with_dp_accounting_and_is_never_below_it():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    mu, pures = 0.25, [0.5, 0.3]
    total = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3)
    for pure in pures:  # of 2 answers, the true one is given except with this probability of a random one
        total = total.compose(
            pld.from_randomized_response(2 / (1 + math.exp(pure)), 2, value_discretization_interval=1e-3)
        )
    for at in (0.5, 1.0, 1.4):
        found = laplace.delta(at, mu, pures)
        assert found <= total.get_delta_for_epsilon(at)
        assert found == pytest.approx(total.get_delta_for_epsilon(at - 3e-3), rel=0.05)
    real = pld.from_laplace_mechanism(1 / 0.5, value_discretization_interval=1e-3)
    real = real.compose(pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3))
    assert laplace.delta(1.0, mu, [0.5]) >= 0.999 * real.get_delta_for_epsilon(1.0)


def test_epsilons_of_pure_releases_add_and_a_total_is_at_most_the_sum():
    mu = Budget(1.0, 1e-6).mu
    tenth = Fraction(1, 10)
    assert laplace.composed_epsilon(1e-6, 0.0, [tenth] * 10) == 1.0
    assert laplace.composed_epsilon(0.0, 0.0, [tenth]) == 0.1
    assert laplace.composed_epsilon(0.0, mu, [tenth]) == math.inf
    found = laplace.composed_epsilon(1e-6, mu, [Fraction(1, 2)])
    assert 1.4 < found < 1.5
    assert (
        laplace.delta(found, mu, [Fraction(1, 2)]) <= 1e-6 < laplace.delta(found - 1e-4, mu, [Fraction(1, 2)])
    )
    many = laplace.composed_epsilon(1e-6, mu, [Fraction(1, 100)] * 50)
    assert many < laplace.composed_epsilon(1e-6, mu, [Fraction(1, 2)])


@pytest.mark.slow(1.0)
def test_many_different_losses_are_rounded_up():
    pures = [Fraction(1, 10 + i) for i in range(14)]
    coarse = laplace.delta(0.8, 0.2, pures)
    signs = np.array(list(product((1, -1), repeat=len(pures))))
    each = np.array([float(pure) for pure in pures])
    chance = (1 / (1 + np.exp(-signs * each))).prod(1)
    at = 0.8 - signs @ each
    d = gaussian.delta(np.abs(at), 0.2)
    exact = chance @ np.where(at >= 0, d, 1 - np.exp(at) * (1 - d))
    assert exact <= coarse < 1.02 * exact


def test_the_dominating_gaussian_is_wasteful():
    assert laplace.dominating_mu(1.0) == pytest.approx(1.232, abs=1e-3)
    assert laplace.delta(0.4, 0.0, [1.0]) <= gaussian.delta(0.4, laplace.dominating_mu(1.0))


def test_a_budget_without_delta_is_pure():
    budget = Budget(epsilon=1.0)
    assert budget.pure
    assert budget.delta == 0
    assert budget.part(0.1) == Fraction(1, 10)
    assert sum(budget.part(0.1) for _ in range(10)) == 1
    assert str(budget.spend(0.25)) == "epsilon = 1, no delta: 25% spent, 75% left"
    with pytest.raises(InvalidInput, match="pays for Laplace noise only"):
        _ = budget.mu
    with pytest.raises(InvalidInput, match="epsilon must be above 0"):
        Budget(0.0)


@pytest.mark.parametrize("extra", [0.0, 1e-3])
def test_a_bet_is_won_as_often_as_the_best_guess_is_right(extra: float):
    """Between two normal laws, or the answers of a randomised response, the likelier one is guessed."""
    for mu in (0.0, 0.1, 0.2367, 1.0, 5.0):
        assert laplace.bet(mu, (), extra) == pytest.approx(norm.cdf(mu / 2) + extra / 2, abs=1e-12)
    for pure in (0.1, 1.0, 3.0):
        won = math.exp(pure) / (1 + math.exp(pure))
        assert laplace.bet(0.0, [pure], extra) == pytest.approx(won + extra / 2, abs=1e-12)
    assert laplace.bet(math.inf, (), extra) == 1.0
