"""Shares of noisy counts: Wilson's interval, Fieller's, and both together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from cape.stats.law import Law
from cape.stats.proportions import Share, apart, proportion_error, quantile
from tests.slices import examples


def test_a_normal_interval_reaches_as_far_as_its_quantile():
    assert quantile(0.95) == pytest.approx(norm.ppf(0.975))


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_without_noise_the_interval_is_wilsons(whole, part, level):
    events = round(part * whole)
    wanted = binomtest(events, whole).proportion_ci(level, method="wilson")
    found = Share.of(float(events), float(whole), 0.0, 2)(level)
    assert found == pytest.approx((wanted.low, wanted.high), abs=1e-9)


@examples(100)
@given(st.floats(0, 1), st.floats(5, 1000), st.floats(0, 30), st.floats(0.5, 0.99))
def test_intervals_hold_the_share_lie_within_0_and_1_and_grow(p, whole, noise, level):
    share = Share.of(p * whole, whole, noise, 2)
    low, high = share(level)
    assert 0 <= low <= share.value <= high <= 1
    without = Share.of(p * whole, whole, 0.0, 2)(level)
    assert low <= without[0] + 1e-9
    assert high >= without[1] - 1e-9
    wider = share((1 + level) / 2)
    assert wider[0] <= low + 1e-12
    assert wider[1] >= high - 1e-12


def test_the_ends_solve_the_quadratic():
    share, q = Share(30.0, 100.0, 16.0, 16.0, 32.0), quantile(0.9)
    for p in share(0.9):
        noise = share.of_part - 2 * p * share.of_both + p * p * share.of_whole
        assert (30 - p * 100) ** 2 == pytest.approx(q * q * (100 * p * (1 - p) + noise))
    for p in share.noisy(0.9):
        noise = share.of_part - 2 * p * share.of_both + p * p * share.of_whole
        assert (30 - p * 100) ** 2 == pytest.approx(q * q * noise)


def test_a_total_that_noise_could_make_0_leaves_everything_possible():
    assert Share.of(3.0, 5.0, 10.0, 2)(0.95) == (0.0, 1.0)


@pytest.mark.slow_cases("laplace", seconds=3)
@pytest.mark.parametrize("law", [Law(math.inf), Law(1.0)], ids=["gaussian", "laplace"])
def test_intervals_cover_the_share_of_a_population(law):
    """2000 draws: the standard error of a coverage of 90% is 0.7%; a noise that is not counted is seen."""
    rng, p, n, noise = np.random.default_rng(2), 0.2, 300, 12.0
    covered = blind = 0
    for _ in range(2000):
        events = rng.binomial(n, p)
        drawn = rng.normal(0, noise, 2) if law.gaussian else rng.laplace(0, noise / math.sqrt(2), 2)
        part, rest = events + drawn[0], n - events + drawn[1]
        low, high = Share.of(part, part + rest, noise, 2, law=law)(0.9)
        covered += low <= p <= high
        low, high = Share.of(max(part, 0.0), part + rest, 0.0, 2)(0.9)
        blind += low <= p <= high
    assert covered / 2000 > 0.9 - 0.025
    assert blind / 2000 < 0.85


def test_cells_that_were_brought_to_a_public_total_have_less_noise():
    free, tied = Share.of(20.0, 100.0, 5.0, 2), Share.of(20.0, 100.0, 5.0, 2, table=2)
    assert tied.of_whole == 0
    assert tied.of_part == pytest.approx(25 / 2)
    assert tied.noise < free.noise


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.floats(0, 5))
def test_an_interval_of_a_difference_mirrors_when_groups_change_places(p, other, noise):
    one, two = Share.of(p * 200, 200.0, noise, 2), Share.of(other * 200, 200.0, noise, 2)

    def drawn(share):
        return 1 / share.part - 1 / share.whole

    low, high = apart(one, two, 0.9, math.log, drawn)
    mirrored = apart(two, one, 0.9, math.log, drawn)
    assert mirrored == pytest.approx((-high, -low), rel=1e-9)
    assert low <= math.log(p / other) + 1e-9
    assert high >= math.log(p / other) - 1e-9


@given(st.floats(0, 1), st.floats(1, 1e6))
def test_a_sampling_error_is_never_0(p, count):
    assert 0 < proportion_error(p, count) <= 0.5 / math.sqrt(count) + 1e-12
