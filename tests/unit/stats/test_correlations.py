"""Correlations of noisy sums and of ranks in noisy tables: scipy's without noise, and honest with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from cape.stats.correlations import CorrelationInterval, products, rank_products
from cape.stats.estimates import is_unknown
from cape.stats.product_sums import ProductSums
from tests.slices import examples


def sums(t, noise=(0.0, 0.0, 0.0, 0.0), rng=None):
    drawn = [0.0, np.zeros(2), np.zeros(2), np.zeros(1)]
    if rng is not None:
        drawn = [rng.normal(0, std, np.shape(zero)) for std, zero in zip(noise, drawn, strict=True)]
    arrays = (float(len(t)), t.sum(axis=0), (t**2).sum(axis=0), np.array([t[:, 0] @ t[:, 1]]))
    return ProductSums(*(each + more for each, more in zip(arrays, drawn, strict=True)), *noise)


def table(x, y, bins=6):
    return np.histogram2d(x, y, bins=bins, range=[[-1, 1], [-1, 1]])[0]


def pair(rng, rows, slope=0.5):
    x = rng.uniform(-1, 1, rows)
    return np.stack([x, np.clip(slope * x + rng.normal(0, 0.3, rows), -1, 1)], axis=1)


def test_without_noise_pearsons_test_and_fishers_interval_are_those_of_scipy():
    t = pair(np.random.default_rng(0), 40)
    found, wanted = products(sums(t)), pearsonr(t[:, 0], t[:, 1])
    estimate = found.estimate("r")
    assert estimate.value == pytest.approx(wanted.statistic)
    assert estimate.interval() == pytest.approx(tuple(wanted.confidence_interval(0.95)), abs=1e-9)
    assert found.test.p_value == pytest.approx(wanted.pvalue)


def test_without_noise_ranks_have_spearmans_test():
    t = pair(np.random.default_rng(1), 200)
    counts = table(t[:, 0], t[:, 1])
    places = np.repeat(np.indices(counts.shape).reshape(2, -1), counts.astype(int).reshape(-1), axis=1)
    found, wanted = rank_products(counts, 0.0), spearmanr(*places)
    assert found.estimate("r").value == pytest.approx(wanted.statistic)
    assert found.test.p_value == pytest.approx(wanted.pvalue)


@examples(40)
@given(st.integers(0, 1000), st.floats(0, 1.5))
def test_turning_a_column_around_changes_the_sign_alone(seed, noise):
    t = pair(np.random.default_rng(seed), 150)
    counts = table(t[:, 0], t[:, 1])
    for one, other in (
        (rank_products(counts, noise), rank_products(counts[::-1], noise)),
        (products(sums(t, (noise,) * 4)), products(sums(t * [-1, 1], (noise,) * 4))),
    ):
        assert other.test.p_value == pytest.approx(one.test.p_value, rel=1e-6)
        low, high = one.estimate("r").interval(0.9)
        assert other.estimate("r").interval(0.9) == pytest.approx((-high, -low), abs=1e-6)


def independent(rng, of):
    t = pair(rng, 200, slope=0.0)
    if of == "values":
        return products(sums(t, (3.0,) * 4, rng))
    counts = table(t[:, 0], t[:, 1])
    return rank_products(counts + rng.normal(0, 3.0, counts.shape), 3.0)


@pytest.mark.parametrize("of", ["values", "ranks"])
def test_independent_columns_are_rejected_as_often_as_the_level_says(of):
    """1000 draws: the standard error of a size of 5% is 0.7%."""
    rng, rejected = np.random.default_rng(2), 0
    for _ in range(1000):
        rejected += independent(rng, of).test.p_value < 0.05
    assert 0.025 < rejected / 1000 < 0.075


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_intervals_cover_the_correlation_of_a_population(noise):
    """1000 draws: the standard error of a coverage of 90% is 0.9%; without the noise it is less."""
    large = pair(np.random.default_rng(3), 1_000_000)
    true, rng = np.corrcoef(large.T)[0, 1], np.random.default_rng(4)
    covered = blind = 0
    for _ in range(1000):
        found = products(sums(pair(rng, 200), (noise,) * 4, rng)).estimate("r")
        low, high = found.interval(0.9)
        covered += low <= true <= high
        low, high = CorrelationInterval(found.value, 0.0, 1.0, 200.0)(0.9)
        blind += low <= true <= high
    assert covered / 1000 > 0.865
    assert blind < covered - 40 or noise == 0


@given(st.floats(-0.95, 0.95), st.floats(0, 0.3), st.floats(0.5, 2), st.floats(10, 1000))
def test_an_interval_holds_the_value_ends_where_it_says_and_grows(value, noise, factor, count):
    interval = CorrelationInterval(value, noise, factor, count)
    low, high = interval(0.95)
    assert -1 <= low <= value <= high <= 1
    for end in (low, high):
        if abs(end) < 1:
            reach = math.hypot(factor * (1 - end * end) / math.sqrt(count - 1), noise)
            assert abs(value - end) == pytest.approx(1.959964 * reach, rel=1e-4, abs=1e-6)
    wide = interval(0.99)
    assert wide[0] <= low
    assert high <= wide[1]


def test_few_rows_say_nothing_and_columns_that_do_not_vary_have_no_correlation():
    assert products(sums(pair(np.random.default_rng(5), 3))) is None
    assert rank_products(np.full((2, 2), 5.0), 8.0) is None
    flat = products(sums(np.stack([np.full(10, 0.5), np.linspace(-1, 1, 10)], axis=1)))
    assert is_unknown(flat.estimate("r"))
