"""Quantiles from noisy counts between edges: least squares, and intervals that end at edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cape.stats.law import Law
from cape.stats.ranks import Counted, Ranks
from tests.slices import examples

EDGES = np.linspace(0, 100, 11)[1:-1]


def ranks(counts, noise=0.0, *, total=None, law=None):
    return Ranks(0.0, 100.0, (Counted(EDGES, np.array(counts, float), noise),), total, law or Law(np.inf))


@examples(60)
@example([30] * 10, 1.7e-233, 0.5)
@example([0, 80] * 5, 5e-324, 0.05)
@given(st.lists(st.integers(0, 80), min_size=10, max_size=10), st.floats(0.0, 5.0), st.floats(0.05, 0.95))
def test_values_rise_and_intervals_hold_them_and_grow(counts, noise, prob):
    found = ranks(counts, noise)
    if found.count < 10:
        return
    assert found.value(prob) <= found.value(min(prob + 0.1, 1.0)) + 1e-9
    estimate = found.estimate("q", prob)
    low, high = estimate.interval(0.8)
    assert 0 <= low <= estimate.value <= high <= 100
    assert {low, high} <= {*found.edges.tolist(), estimate.value}
    wide = estimate.interval(0.99)
    assert wide[0] <= low <= high <= wide[1]


def test_without_noise_rows_below_edges_are_counted_exactly():
    counts = [5, 0, 12, 3, 30, 0, 0, 9, 1, 40]
    found = ranks(counts)
    assert found.count == 100
    assert found.over(0.0) == pytest.approx(np.append(0.0, np.cumsum(counts)))
    assert found.over(0.5)[5] == pytest.approx(0.0)
    assert found.value(0.5) == pytest.approx(50.0)


def test_a_second_stage_with_less_noise_outweighs_the_first():
    first = Counted(EDGES[[4]], np.array([60.0, 40.0]), 10.0)
    second = Counted(EDGES[[4]], np.array([50.0, 50.0]), 1.0)
    found = Ranks(0.0, 100.0, (first, second))
    below = found.over(0.0)[1]
    assert below == pytest.approx((60 / 100 + 50 / 1) / (1 / 100 + 1 / 1))
    assert found.errors(0.0)[0][1] == pytest.approx((1 / 100 + 1) ** -0.5)


def test_a_public_total_takes_noise_away():
    private, public = ranks([10] * 10, 3.0), ranks([10] * 10, 3.0, total=100.0)
    assert public.count_noise == 0 < private.count_noise
    assert (public.errors(0.5)[0] <= private.errors(0.5)[0] + 1e-9).all()


@pytest.mark.parametrize("total", [None, 400.0])
def test_errors_are_how_rows_below_edges_scatter(total):
    """2000 draws: a standard deviation is known to 1.6%."""
    rng, noise, shares = np.random.default_rng(0), 4.0, np.arange(1, 11) / 55
    found = [
        ranks(400 * shares + rng.normal(0, noise, 10), noise, total=total).over(0.3) for _ in range(2000)
    ]
    said = ranks(400 * shares, noise, total=total).errors(0.3)[0]
    assert np.std(found, axis=0)[1:-1] == pytest.approx(said[1:-1], rel=0.07)


def test_intervals_cover_the_quantile_of_a_population():
    """500 draws: at least 90%. One that knows of no noise covers less."""
    rng, covered, blind, shares = np.random.default_rng(1), 0, 0, np.full(10, 0.1)
    for _ in range(500):
        counts = rng.multinomial(300, shares) + rng.normal(0, 25.0, 10)
        found = ranks(counts, 25.0)
        low, high = found.estimate("q", 0.42).interval(0.9)
        covered += low <= 42 <= high
        silent = replace(found, counted=(replace(found.counted[0], noise=0.0),))
        low, high = silent.estimate("q", 0.42).interval(0.9)
        blind += low <= 42 <= high
    assert covered / 500 > 0.87
    assert blind / 500 < 0.8
