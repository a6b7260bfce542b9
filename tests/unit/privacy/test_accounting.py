"""Sums are of one adjacency, conversions are proved, and what an allowance covers is private, exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from cape.core.errors import InvalidInput
from cape.privacy import Budget, gaussian
from cape.privacy.accounting import Allowance, Basis, Incomparable, total, under
from cape.privacy.budget import BESIDE
from cape.site import Amount
from cape.study.document import read
from tests.slices import examples
from tests.world import document

ADD_REMOVE = Basis("add-remove")
PART = Fraction(repr(BESIDE))
PAIRS = st.tuples(st.floats(1e-3, 20.0), st.floats(1e-12, 0.1))


def exact_delta(epsilon: Fraction, mu_squared: Fraction, pure: Fraction = Fraction(0)) -> mpmath.mpf:
    """Delta of mu-GDP beside a randomised response with this epsilon, to 60 digits."""
    mu = mpmath.sqrt(mpmath.mpf(mu_squared.numerator) / mu_squared.denominator)

    def gaussian(epsilon: Fraction) -> mpmath.mpf:
        at = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        left, right = mu / 2 - at / mu, -mu / 2 - at / mu
        return (
            mpmath.erfc(-left / mpmath.sqrt(2)) - mpmath.exp(at) * mpmath.erfc(-right / mpmath.sqrt(2))
        ) / 2

    up = 1 / (1 + mpmath.exp(-mpmath.mpf(pure.numerator) / pure.denominator))
    return up * gaussian(epsilon - pure) + (1 - up) * gaussian(epsilon + pure)


@examples(80)
@given(
    PAIRS,
    st.floats(0.9999999, 1.0000001),
    st.floats(0.0, 1.0),
    st.fractions(min_value=0, max_value=2, max_denominator=100),
)
def test_what_is_covered_is_private_to_the_last_digit(pair, near, beside, pure):
    epsilon, delta = Fraction(pair[0]), Fraction(pair[1])
    pure = min(pure, epsilon / 2)
    mu = gaussian.mu(float(epsilon - pure), float(delta))
    amount = Amount(Fraction(mu) ** 2, delta * Fraction(beside) * PART, pure)
    with mpmath.workdps(60):
        really = exact_delta(epsilon, amount.mu_squared, pure) / (1 - mpmath.mpf(float(PART)))
        stated = float(really) * near
        private = really <= mpmath.mpf(stated)
        clearly = really <= mpmath.mpf(stated) * (1 - mpmath.mpf("5e-10"))
    allowance = Allowance(pair[0], stated)
    covered = allowance.covers(amount)
    beside_fits = amount.extra <= Fraction(stated) * PART
    assert (private and beside_fits) or not covered
    assert covered or pure or not (clearly and beside_fits), "and nothing that clearly is private is refused"


def test_what_is_added_to_delta_has_a_part_of_it_whatever_else_is_spent():
    allowance, part = Allowance(1.0, 1e-6), Fraction(1e-6) * PART
    whole = Amount(Fraction(Budget(1.0, 1e-6).mu) ** 2)
    for spent in (Amount(), whole, Amount(pure=Fraction(1)), Amount(Fraction(1, 10**4))):
        assert allowance.covers(spent + Amount(extra=part))
        assert not allowance.covers(spent + Amount(extra=part * (1 + Fraction(1, 10**30))))
    more = Amount(Fraction(gaussian.mu(1.0, 1e-6)) ** 2)
    assert not allowance.covers(more), "also where nothing is added: that may still come"


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-4), (1.0, 1e-6), (3.0, 1e-6)])
def test_choosing_between_noise_and_what_is_beside_after_answers_gains_nothing(epsilon, delta):
    """Whoever sees the loss of a Gaussian release takes either what is left of Gaussian noise, or what may be
    added to delta, as a chance to be told everything. One frontier for both is 1.98 times too high."""
    allowance = Allowance(epsilon, delta)
    most = largest(lambda mu: allowance.covers(Amount(Fraction(mu) ** 2)), 2 * gaussian.mu(epsilon, delta))

    def gained(beside_at):
        found = []
        for part in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
            first = part * most
            extra = beside_at(first)
            losses = first**2 / 2 + np.linspace(-9 * first, 9 * first, 20001)
            done = np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 50.0)))
            left, rest = epsilon - losses, math.sqrt(most**2 - first**2)
            tails = norm.cdf(rest / 2 - left / rest), norm.cdf(-rest / 2 - left / rest)
            more = tails[0] - np.exp(np.minimum(left, 50.0)) * tails[1]
            best = np.maximum(more, extra + (1 - extra) * done)
            found.append(float((norm.pdf(losses, first**2 / 2, first) * best).sum() * 9e-4 * first))
        return max(found) / delta

    def covered(mu):
        return largest(lambda extra: allowance.covers(Amount(Fraction(mu) ** 2, Fraction(extra))), delta)

    assert 0.999 < gained(covered) < 1.0001
    assert gained(lambda mu: delta - gaussian.delta(epsilon, mu)) > 1.5, "one frontier"


def largest(fits, high):
    """The largest number that fits, by bisection."""
    low = 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@given(st.fractions(min_value=0, max_value=100))
def test_mu_is_never_below_the_root(mu_squared):
    amount = Amount(mu_squared)
    assert mu_squared <= Fraction(amount.mu) ** 2 <= mu_squared * (1 + Fraction(1, 10**14))


@examples(200)
@given(PAIRS)
def test_a_budget_fits_an_allowance_of_the_same_epsilon_and_delta(pair):
    whole = Amount(Fraction(Budget(*pair).mu) ** 2)
    assert Allowance(*pair).covers(whole)
    assert not Allowance(*pair).covers(Amount(whole.mu_squared * (1 + Fraction(1, 10**7)))), "and no more"


def test_a_full_allowance_of_1_and_1e_6_reads_1():
    """It read 1.0055 when a tenth of delta was allowed beside it, and not taken off."""
    old = Amount(Fraction(gaussian.mu(1.0, 1e-6)) ** 2, Fraction(1e-6) / 10)
    assert old.epsilon(1e-6) > 1.005
    assert not Allowance(1.0, 1e-6).covers(old)
    most = Amount(Fraction(Budget(1.0, 1e-6).mu) ** 2, Fraction(1e-6) * PART)
    assert Allowance(1.0, 1e-6).covers(most)
    assert 1 - 1e-8 < most.epsilon(1e-6) <= 1.0
    assert replace(most, extra=Fraction(0)).epsilon(1e-6) > 1 - 3e-5, "what that costs where nothing is added"


def test_a_run_over_samples_that_states_all_of_it_fits_with_its_slack():
    analysis = {"kind": "neural-network", "target": "ill", "features": ["age"], "hidden": [2]}
    for share in (1.0, 0.5):
        stages = read(document(analyses=[analysis | {"sampling": 0.2, "share": share}]), 1).stages
        rest = (1 - Fraction(share)) * Fraction(Budget(1.0, 1e-6).mu) ** 2
        amount = Amount(Fraction(share) * Fraction(stages.mu) ** 2 + rest, Fraction(stages.slack))
        assert Allowance(1.0, 1e-6).covers(amount)
        assert stages.slack > 0


def test_pure_epsilon_is_convolved_with_gaussian_losses_and_never_becomes_a_mu():
    allowance = Allowance(1.0, 1e-6)
    assert allowance.covers(Amount(pure=Fraction(1)))
    assert not allowance.covers(Amount(pure=Fraction(1) + Fraction(1, 10**30)))
    half = Amount(Fraction(gaussian.mu(0.5, 1e-6) * 0.999) ** 2, pure=Fraction(1, 2))
    assert 0.98 < half.epsilon(1e-6) < 0.99  # adding the two gives 1
    assert not allowance.covers(half), "the kind may have been chosen after answers"
    most = Amount(Fraction(gaussian.mu(0.5, 9e-18)) ** 2, pure=Fraction(1, 2))
    assert allowance.covers(most)
    assert not allowance.covers(Amount(Fraction(gaussian.mu(0.5, 1.1e-17)) ** 2, pure=Fraction(1, 2)))
    assert not allowance.covers(replace(most, pure=Fraction(1, 2) + Fraction(1, 10**30)))
    assert not allowance.covers(replace(most, pure=Fraction(2)))


def best_delta(allowance: Allowance, releases: int) -> float:
    """Delta of a coordinator who sees the loss so far after each of some Gaussian releases, and then either
    asks for the next one or spends all that is left on one pure release: by dynamic programming."""
    epsilon = allowance.epsilon
    mu_squared = Budget(epsilon, allowance.delta).mu ** 2 * np.geomspace(1e-3, 1.0, releases)

    def pure_left(spent: float) -> float:
        low, high = 0.0, epsilon
        for _ in range(30):
            middle = (low + high) / 2
            fits = allowance.covers(Amount(Fraction(spent), pure=Fraction(middle)))
            low, high = (middle, high) if fits else (low, middle)
        return low

    losses = np.arange(-2 - epsilon, 2 * epsilon + 4, 0.002)
    value = np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 50.0)))
    for before, after in reversed(list(pairwise([0.0, *mu_squared.tolist()]))):
        many, width = math.ceil(9 * math.sqrt(after - before) / 0.002), after - before
        steps = np.arange(-many, many + 1) * 0.002
        chances = np.exp(-((steps - width / 2) ** 2) / (2 * width))
        padded = np.pad(value, many, mode="edge")
        value = np.convolve(padded, chances[::-1] / chances.sum(), "valid")
        pure = pure_left(before) if before else 0.0
        stopped = sum(
            np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses - loss, 50.0))) / (1 + math.exp(-loss))
            for loss in (pure, -pure)
        )
        value = np.maximum(value, stopped) if pure else value
    return float(np.interp(0.0, losses, value))


@pytest.mark.parametrize(("epsilon", "releases"), [(1.0, 2), (1.0, 20), (3.0, 20)])
def test_choosing_the_kind_of_noise_after_answers_gains_nothing(epsilon, releases):
    """One frontier for both kinds at the whole delta would be 1.9 times too high after 2 releases, and
    more than 10 times after 20."""
    allowance = Allowance(epsilon, 1e-6)
    assert 0.9e-6 < best_delta(allowance, releases) < 1.01e-6


def test_an_allowance_without_delta_covers_pure_releases_only_to_the_last_digit():
    allowance, tenth = Allowance(0.7), Amount(pure=Fraction(1, 10))
    assert allowance.covers(tenth.times(7))
    assert not allowance.covers(tenth.times(7) + Amount(pure=Fraction(1, 10**30)))
    assert not allowance.covers(tenth + Amount(mu_squared=Fraction(1, 10**9)))
    assert not allowance.covers(tenth + Amount(extra=Fraction(1, 2**40)))
    assert tenth.times(7).epsilon(0.0) == 0.7
    assert (tenth + Amount(mu_squared=Fraction(1))).epsilon(0.0) == math.inf
    assert str(allowance) == "epsilon = 0.7 without delta"


def test_add_remove_counts_four_times_under_replace_one_and_nothing_the_other_way():
    amount = Amount(Fraction(1, 9), Fraction(1, 10**9), Fraction(1, 3))
    found = under("replace-one", ADD_REMOVE, amount)
    assert found == Amount(Fraction(4, 9), Fraction(1, 10**9), Fraction(2, 3))
    assert under("add-remove", ADD_REMOVE, amount) == amount
    with pytest.raises(Incomparable, match="cannot be converted"):
        under("add-remove", Basis(), amount)
    with pytest.raises(Incomparable, match="over samples"):
        under("replace-one", Basis("add-remove", sampled=True), amount)
    assert under("add-remove", Basis(), Amount()) == Amount(), "nothing is nothing under both"


def test_sums_are_of_one_adjacency_and_one_unit():
    one = Amount(Fraction(1))
    assert total({Basis(): one, Basis(sampled=True): one}).mu_squared == 2
    assert total({Basis(): one, ADD_REMOVE: one}).mu_squared == 5
    assert total({ADD_REMOVE: one}).mu_squared == 1
    assert total({ADD_REMOVE: one}, "replace-one").mu_squared == 4
    with pytest.raises(Incomparable, match="protect rows, and others that protect persons"):
        total({Basis(): one, Basis(unit="person", rows=3, sites=2): one})
    persons = {Basis(unit="person", rows=3, sites=2): one, Basis(unit="person"): one}
    assert total(persons) == one + one
    for wrong in ({"adjacency": "both"}, {"unit": "cell"}, {"rows": 2}, {"unit": "person", "sites": 0}):
        with pytest.raises(InvalidInput):
            Basis(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("mu", [0.1, 0.7, 3.0])
def test_twice_mu_is_the_trade_off_of_two_steps(mu: float):
    """Removing and adding: 1 - f(1 - f(a)) with f = G_mu is the power of 2 mu-GDP, and of nothing less."""
    for level in (1e-6, 0.01, 0.05, 0.5):
        one = norm.cdf(norm.ppf(level) + mu)  # the power after one step is the level of the next
        two = norm.cdf(norm.ppf(one) + mu)
        assert two == pytest.approx(norm.cdf(norm.ppf(level) + 2 * mu), rel=1e-9)
        assert two > norm.cdf(norm.ppf(level) + 1.99 * mu)


@pytest.mark.parametrize(
    ("mu", "pure"), [(0.0, "0"), (0.2367, "0"), (3.0, "0"), (0.0, "1"), (0.5, "1/2"), (1.5, "2")]
)
def test_a_bet_is_won_as_often_as_total_variation_allows(mu: float, pure: str):
    likely = 1 / (1 + math.exp(-Fraction(pure)))
    grid = np.linspace(-12, 15, 400_001)
    here, there = norm.pdf(grid), norm.pdf(grid, loc=mu)
    apart = np.abs(likely * here - (1 - likely) * there) + np.abs((1 - likely) * here - likely * there)
    wanted = (1 + 0.5 * float(apart.sum()) * (grid[1] - grid[0])) / 2
    amount = Amount(Fraction(mu) ** 2, pure=Fraction(pure))
    assert amount.bet == pytest.approx(wanted, abs=1e-6)
    more = replace(amount, extra=Fraction(1, 1000))
    assert more.bet == pytest.approx(min(wanted + 0.0005, 1.0), abs=1e-6)
    assert replace(amount, extra=Fraction(2)).bet == 1.0
