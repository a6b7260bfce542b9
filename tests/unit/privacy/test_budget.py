"""Budgets: shares add in mu², exactly, and an overdraft changes nothing."""

from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import BudgetExceeded, InvalidInput
from cape.privacy import Budget, Guarantee, compose, delta, epsilon, mu
from cape.privacy.budget import BESIDE


def test_ten_tenths_are_the_whole_and_the_eleventh_is_refused():
    budget = Budget(1.0, 1e-5)
    for _ in range(10):
        budget = budget.spend(0.1)
    assert budget.spent == 1
    assert budget.remaining == 0
    before = str(budget)
    with pytest.raises(BudgetExceeded, match=r"share must be at most what is left, 0, not 0\.1"):
        budget.spend(0.1)
    assert str(budget) == before
    assert budget == Budget(1.0, 1e-5, Fraction(1))


def test_spending_leaves_the_old_budget_as_it_was():
    budget = Budget(1.0, 1e-5)
    left = budget.spend(0.3)
    assert budget.remaining == 1
    assert left.remaining == Fraction(7, 10)
    assert (left.epsilon, left.delta, left.mu) == (budget.epsilon, budget.delta, budget.mu)
    with pytest.raises(FrozenInstanceError):
        budget.spent = Fraction(0)
    with pytest.raises(BudgetExceeded):
        left.spend(0.7000000000000001)
    assert left.spend(0.7).remaining == 0


@pytest.mark.parametrize("pair", [(0.1, 1e-9), (1.0, 1e-6), (10.0, 1e-3)])
def test_a_budget_leaves_a_part_of_delta_to_what_is_beside_its_noise(pair):
    """Of epsilon, that is less than a hundredth of a percent."""
    budget = Budget(*pair)
    assert delta(budget.epsilon, budget.mu) == pytest.approx(budget.delta * (1 - BESIDE), rel=1e-8)
    assert delta(budget.epsilon, budget.mu) < budget.delta * (1 - BESIDE)
    assert epsilon(budget.delta, budget.mu) > budget.epsilon * (1 - 1e-4)
    again = Budget.of(budget.mu, budget.delta)
    assert again.mu <= budget.mu
    assert again.epsilon == pytest.approx(budget.epsilon, rel=1e-8)


def test_the_remainder_can_always_be_spent():
    budget = Budget(1.0, 1e-5).spend(Fraction(1, 3)).spend(1 / 7)
    assert budget.spend(budget.remaining).remaining == 0


@pytest.mark.parametrize("share", [0.25, Fraction(1, 4), Decimal("0.25"), np.float64(0.25), np.float32(0.25)])
def test_shares_of_any_kind(share):
    assert Budget(1.0, 1e-5).spend(share).spent == Fraction(1, 4)
    assert Budget(1.0, 1e-5).spend(1).remaining == 0


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_shares_add_in_squares_of_mu(parts):
    budget = Budget(2.0, 1e-6)
    total = Guarantee(0.0)
    for part in parts:
        share = Fraction(part, sum(parts))
        total += budget.cost(share)
        budget = budget.spend(share)
    assert budget.remaining == 0
    assert total.mu == pytest.approx(budget.mu, rel=1e-14)
    assert total.epsilon(1e-6 * (1 - BESIDE)) == pytest.approx(2.0, rel=1e-9)


def test_a_guarantee_answers_in_epsilon_and_in_delta():
    guarantee = Guarantee(0.7)
    assert guarantee.epsilon(1e-5) == epsilon(1e-5, 0.7)
    assert guarantee.delta(1.0) == delta(1.0, 0.7)
    assert (guarantee + Guarantee(2.4)).mu == compose(0.7, 2.4) == 2.5
    assert sum([Guarantee(3.0), Guarantee(4.0)], Guarantee(0)) == Guarantee(5.0)
    with pytest.raises(TypeError):
        guarantee + 1.0
    with pytest.raises(FrozenInstanceError):
        guarantee.mu = 0.1


def test_both_print_what_a_person_asks():
    assert str(Guarantee(mu(1.0, 1e-5))) == "mu = 0.2681 (epsilon = 1 at delta = 1e-05)"
    text = str(Budget(1.0, 1e-5).spend(0.3))
    assert text == "epsilon = 1, delta = 1e-05 (mu = 0.268): 30% spent, 70% left"


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0000001, float("nan"), float("inf"), "0.1", True, None])
def test_a_share_lies_above_0_and_at_most_1(share):
    budget = Budget(1.0, 1e-5)
    for method in (budget.spend, budget.cost):
        with pytest.raises(InvalidInput, match="share must be a finite number above 0 and at most 1"):
            method(share)
