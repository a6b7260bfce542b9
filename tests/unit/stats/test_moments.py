"""Means, variances and deviations of noisy sums: the textbook's without noise, and honest with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from cape.stats.estimates import is_unknown
from cape.stats.moments import Sums, edge, enough, kurtosis, likely, present
from tests.slices import examples


class Bounds:
    low, high, middle, half = 10.0, 30.0, 20.0, 10.0


def sums(cells, noise=(0.0, 0.0, 0.0)):
    return Sums(float(len(cells)), float(cells.sum()), float((cells**2).sum()), *noise)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=30))
def test_without_noise_they_are_those_of_numpy(given_cells):
    cells = np.array(given_cells)
    found = sums(cells)
    assert found.mean == pytest.approx(cells.mean(), abs=1e-12)
    assert found.variance == pytest.approx(min(cells.var(ddof=1), 1.0), abs=1e-12)
    assert found.mean_noise == found.variance_noise == 0


def test_without_noise_the_interval_of_a_mean_is_students():
    cells = np.random.default_rng(0).uniform(-1, 1, 12)
    low, high = sums(cells).mean_interval(0.95)
    reach = student.ppf(0.975, 11) * cells.std(ddof=1) / math.sqrt(12)
    assert (low, high) == pytest.approx((cells.mean() - reach, cells.mean() + reach), rel=1e-9)


@examples(100)
@given(st.floats(-0.9, 0.9), st.floats(0, 0.2), st.floats(0, 60), st.sampled_from(["mean", "variance"]))
def test_intervals_hold_the_value_and_grow_with_level_and_noise(mean, spread, noise, what):
    n = 200.0
    first, second = n * mean, n * (mean**2 + spread)
    quiet = Sums(n, first, second, 0.0, 0.0, 0.0)
    noisy = Sums(n, first, second, 0.0, noise, 0.0)
    low, high = getattr(noisy, f"{what}_interval")(0.9)
    assert low - 1e-9 <= getattr(noisy, what) <= high + 1e-9
    wide = getattr(noisy, f"{what}_interval")(0.99)
    assert wide[0] <= low + 1e-12
    assert high <= wide[1] + 1e-12
    if what == "mean":
        low, high = quiet.mean_interval(0.9)
        noisy_low, noisy_high = noisy.mean_interval(0.9)
        assert noisy_high - noisy_low >= high - low - 1e-9


def test_the_noise_of_a_mean_and_of_a_variance_is_how_they_scatter():
    """2000 draws: a standard deviation is known to 1.6%."""
    rng = np.random.default_rng(1)
    n, mean, square, noise = 5000.0, 0.4, 0.3, (20.0, 30.0, 25.0)
    found = []
    for count, first, second in rng.normal([n, n * mean, n * square], noise, (2000, 3)):
        each = Sums(count, first, second, *noise)
        found.append((each.mean, each.variance))
    said = Sums(n, n * mean, n * square, *noise)
    assert np.std(found, axis=0) == pytest.approx([said.mean_noise, said.variance_noise], rel=0.06)
    assert np.mean(found, axis=0)[1] == pytest.approx(square - mean**2, rel=0.01)


def test_units_scale_estimates_with_their_errors():
    each = Sums(400.0, 100.0, 120.0, 3.0, 4.0, 5.0)
    found = each.mean_estimate("x", Bounds())
    assert found.value == 20 + 10 * 0.25
    assert found.privacy == pytest.approx(10 * each.mean_noise)
    assert found.interval(0.9) == pytest.approx([20 + 10 * end for end in each.mean_interval(0.9)])
    assert each.variance_estimate("x", Bounds()).value == pytest.approx(100 * each.variance)
    assert each.deviation_estimate("x", Bounds()).value == pytest.approx(10 * math.sqrt(each.variance))


def test_a_count_that_noise_hides_is_not_divided_by():
    each = Sums(10.0, 1.0, 1.0, 5.0, 1.0, 1.0)
    assert not each.enough
    assert is_unknown(each.mean_estimate("x", Bounds()))
    assert not enough(2.0, 0.0)
    assert enough(31.0, 10.0)
    assert present(11.0, 10.0)
    assert not present(9.0, 10.0)


@given(st.floats(-2, 2), st.floats(0, 1))
def test_a_likely_size_is_never_0_and_at_least_the_release(value, noise):
    found = likely(value, noise)
    assert min(max(value, 0.0), 1.0) <= found + 1e-12 <= 1 + 1e-9
    if noise > 1e-6:
        assert found > 0
    assert likely(0.5, noise) <= 0.5 + 0.8 * noise


def test_kurtosis_of_counts():
    ends = np.array([500.0, 0, 0, 0, 0, 0, 0, 500.0])
    assert kurtosis(ends, 0.0) == pytest.approx(1.0)
    even = np.full(512, 10.0)
    assert kurtosis(even, 0.0) == pytest.approx(1.8, abs=1e-3)
    assert kurtosis(even[:8] * 10, 60.0) > kurtosis(even[:8] * 10, 0.0)
    assert kurtosis(np.zeros(4), 1.0) == math.inf


def test_an_edge_is_where_a_condition_ceases():
    assert edge(lambda x: x < 0.3, 0.0, 1.0) == pytest.approx(0.3)
    assert edge(lambda x: True, 0.0, 1.0) == 1.0
