"""Distribution functions from noisy counts in bins: rising, and read off with honest intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gamma

from cape.stats.distribution import Curve
from cape.stats.tree import Tree
from tests.slices import examples

EDGES = np.linspace(0.0, 100.0, 17)


def curve(counts, noise=0.0, rng=None):
    levels = [counts.reshape(parts, -1).sum(axis=1) for parts in (1, 4, 16)]
    if rng is not None:
        levels = [level + rng.normal(0, noise, len(level)) for level in levels]
    return Curve.of(EDGES.tolist(), Tree.fit(levels, [noise] * 3))


@examples(100)
@given(st.lists(st.integers(0, 60), min_size=16, max_size=16), st.integers(0, 1000), st.floats(0.01, 0.99))
def test_shares_rise_and_quantiles_with_them(counts, seed, prob):
    found = curve(np.array(counts, float), 3.0, np.random.default_rng(seed))
    if found is None:
        return
    assert (np.diff(found.shares) >= 0).all()
    assert 0 <= found.shares.min() <= found.shares.max() <= 1
    assert found.value(prob) <= found.value(min(prob + 0.05, 1.0)) + 1e-9
    estimate = found.quantile("q", prob)
    low, high = estimate.interval(0.9)
    assert low <= estimate.value <= high
    assert {low, high} <= set(EDGES.tolist())
    wide = estimate.interval(0.99)
    assert wide[0] <= low <= high <= wide[1]


def test_without_noise_quantiles_lie_in_the_bin_of_those_of_the_cells():
    cells = np.random.default_rng(0).gamma(2, 12, 5000).clip(0, 99.9)
    found = curve(np.histogram(cells, EDGES)[0].astype(float))
    for prob in (0.1, 0.5, 0.9):
        assert abs(found.value(prob) - np.quantile(cells, prob)) < EDGES[1]
    assert found.noise(0.5) == pytest.approx(np.zeros(17))


def test_intervals_cover_the_quantile_of_a_population():
    """400 draws of a spike and a tail: the standard error of 90% is 1.5%. Blind to noise, it covers less."""
    rng, covered, blind = np.random.default_rng(1), 0, 0
    true = gamma.ppf(0.2 / 0.7, 2, scale=12)
    for _ in range(400):
        cells = np.where(rng.random(600) < 0.3, 0.0, rng.gamma(2, 12, 600)).clip(0, 99.9)
        found = curve(np.histogram(cells, EDGES)[0].astype(float), 40.0, rng)
        low, high = found.quantile("q", 0.5).interval(0.9)
        covered += low <= true <= high
        low, high = replace(found, within=0 * found.within, root=0.0).quantile("q", 0.5).interval(0.9)
        blind += low <= true <= high
    assert covered / 400 > 0.86
    assert blind / 400 < 0.8


def test_rounding_is_least_in_the_middle_of_a_bin():
    found = curve(np.full(16, 10.0))
    width = EDGES[1]
    assert found.rounding(width / 2) == pytest.approx(width / np.sqrt(12))
    assert found.rounding(0.0) == pytest.approx(width / np.sqrt(3))


def test_too_few_rows_for_the_noise_have_no_curve():
    assert curve(np.full(16, 0.1), 3.0, np.random.default_rng(2)) is None
