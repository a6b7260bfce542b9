"""Standardised differences and tests between groups, of numbers and of categories."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from cape.stats.balance import of_categories, of_numbers
from cape.stats.moments import Sums
from tests.slices import examples

ROWS = st.lists(st.integers(6, 300), min_size=3, max_size=3)


def test_two_categories_have_the_difference_of_a_number():
    """Yang and Dalton's distance of two shares: their difference over the root of the mean variance."""
    p, q = 0.3, 0.45
    found = of_categories("x", np.array([[70.0, 30.0], [110.0, 90.0]]), 0.0)
    assert found.smd == pytest.approx(abs(p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / 2))


@examples(60)
@given(ROWS, ROWS, st.permutations(range(3)))
def test_the_order_of_categories_and_of_groups_does_not_matter(one, other, order):
    table = np.array([one, other], float)
    found, turned = of_categories("x", table, 0.5), of_categories("x", table[::-1, list(order)], 0.5)
    assert turned.smd == pytest.approx(found.smd, rel=1e-6, abs=1e-6)
    assert turned.p_value == pytest.approx(found.p_value, rel=1e-6)


def test_without_noise_the_test_is_pearsons():
    table = np.array([[30.0, 50.0, 20.0], [40.0, 20.0, 60.0]])
    assert of_categories("x", table, 0.0).p_value == pytest.approx(chi2_contingency(table).pvalue)


def test_what_noise_adds_to_a_distance_is_given_back():
    """1000 draws of equal groups: without that, the mean square would be that of the noise alone."""
    rng, noise, n = np.random.default_rng(0), 40.0, 4000.0
    shares, found = np.array([0.3, 0.3, 0.4]), []
    for _ in range(1000):
        table = n * np.stack([shares, shares]) + rng.normal(0, noise, (2, 3))
        found.append(of_categories("x", table, noise).smd ** 2)
    blurred = 2 * 2 * (noise / n) ** 2 / 0.3  # at least, over two directions
    assert np.mean(found) < blurred


def test_of_several_groups_the_largest_difference_of_each_two_is_shown():
    table = np.array([[50.0, 50.0], [60.0, 40.0], [90.0, 10.0]])
    each = [of_categories("x", table[[i, j]], 0.0).smd for i, j in ((0, 1), (0, 2), (1, 2))]
    assert of_categories("x", table, 0.0).smd == pytest.approx(max(each))


def test_what_noise_hides_is_none():
    hidden = of_categories("x", np.array([[5.0, 5.0], [60.0, 40.0]]), 20.0)
    assert hidden.smd is hidden.error is hidden.p_value is None
    few = Sums(3.0, 0.1, 0.1, 10.0, 1.0, 1.0)
    many = Sums(300.0, 10.0, 40.0, 10.0, 1.0, 1.0)
    assert of_numbers("x", [few, many]).smd is None
    assert of_numbers("x", [few, many]).p_value is None


def test_numbers_have_welchs_test_and_a_difference_without_a_sign():
    one, other = Sums(300.0, 10.0, 40.0, 1.0, 1.0, 1.0), Sums(200.0, 40.0, 40.0, 1.0, 1.0, 1.0)
    found, turned = of_numbers("x", [one, other]), of_numbers("x", [other, one])
    assert found.smd > 0
    assert turned.smd == pytest.approx(found.smd)
    assert (found.test, of_numbers("x", [one, other, one]).test) == ("Welch's t-test", "Welch's F-test")
