"""Caps and moments of a column from a noisy histogram: near the column's own, whatever it is like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.stats.capping import MOST_SHARE, SHARE, axis_edges, marginal

ROWS = 20_000


def columns():
    rng = np.random.default_rng(1)
    return {
        "normal": (rng.normal(50, 5, ROWS), (0.0, 400.0)),
        "exponential": (rng.exponential(3, ROWS), (0.0, 300.0)),
        "lognormal": (rng.lognormal(0, 1, ROWS), (0.0, 500.0)),
        "mostly zero": (np.where(rng.random(ROWS) < 0.8, 0.0, rng.gamma(2, 4, ROWS)), (0.0, 250.0)),
        "both sides": (rng.standard_t(3, ROWS), (-60.0, 60.0)),
        "at the upper bound": (100 - rng.exponential(2, ROWS), (-300.0, 100.0)),
    }


def seen(x, bounds, noise, seed=0, cap=True):
    edges = axis_edges(*bounds)
    counts = np.histogram(x, edges)[0] + np.random.default_rng(seed).normal(0, noise, len(edges) - 1)
    return marginal(edges, counts, noise, cap=cap)


@given(low=st.floats(-1e6, 1e6), size=st.floats(1e-3, 1e6))
def test_edges_rise_from_bound_to_bound(low, size):
    edges = axis_edges(low, low + size)
    assert edges[0] == low
    assert edges[-1] == low + size
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize("name", columns())
@pytest.mark.parametrize("noise", [0.0, 5.0, 30.0])
def test_a_cap_cuts_about_its_share_where_bounds_are_far(name, noise):
    x, bounds = columns()[name]
    found = seen(x, bounds, noise)
    above, below = (x > found.high).mean(), (x < found.low).mean()
    assert any(found.capped)
    for cut, capped, said in ((below, found.capped[0], found.below), (above, found.capped[1], found.above)):
        if capped:
            assert cut < MOST_SHARE + 0.01
            assert said == pytest.approx(max(SHARE, cut), abs=0.02)
        else:
            assert cut == 0
    kept = np.clip(x, found.low, found.high)
    assert found.mean == pytest.approx(kept.mean(), abs=0.5 * kept.std())
    assert 0.6 < found.sd / kept.std() < 1.7


@pytest.mark.parametrize("name", columns())
@pytest.mark.parametrize(("rows", "noise"), [(1_000, 22.0), (3_000, 60.0), (3_000, 20.0)])
def test_caps_cut_few_rows_where_noise_hides_tails_and_say_how_many_without_bias(name, rows, noise):
    x, bounds = columns()[name]
    edges, rng, cut, said = axis_edges(*bounds), np.random.default_rng(5), [], []
    for _ in range(60):
        counts = np.histogram(rng.choice(x, rows), edges)[0] + rng.normal(0, noise, len(edges) - 1)
        found = marginal(edges, counts, noise, rows=float(rows))
        for capped, beyond, share in (
            (found.capped[0], (x < found.low).mean(), found.below),
            (found.capped[1], (x > found.high).mean(), found.above),
        ):
            if capped:
                cut.append(beyond)
                assert share <= beyond + 4.5 * found.doubt
            said.append(share - beyond if capped else 0.0)
    assert np.median(cut) < MOST_SHARE + 0.005
    assert np.quantile(cut, 0.9) < 0.1  # of a column that is mostly 0; of all others half a percent more
    # shares are cut at 0: at least as many as there are, and by no more than noise makes of that
    assert -0.01 < np.mean(said) < 0.06


def test_a_number_that_few_rows_have_is_not_capped_away():
    rng, edges, capped = np.random.default_rng(6), axis_edges(0.0, 1.0), 0
    for share in (0.01, 0.03, 0.2):
        for _ in range(20):
            x = (rng.random(1000) < share).astype(float)
            counts = np.histogram(x, edges)[0] + rng.normal(0, 25.0, len(edges) - 1)
            found = marginal(edges, counts, 25.0, rows=1000.0)
            capped += any(found.capped)
            assert found.sd > 0.3 * x.std()  # with less, rows that have it would seem to be far out
    assert capped <= 1  # where noise makes another bin seem to have rows


def test_bounds_near_the_data_are_not_capped():
    x = np.random.default_rng(2).normal(50, 10, ROWS).clip(20, 80)
    assert seen(x, (15.0, 85.0), 10.0).capped == (False, False)


def test_caps_that_people_give_are_kept_and_none_at_all():
    x, bounds = columns()["exponential"]
    given_ = seen(x, bounds, 10.0, cap=(0.0, 7.0))
    assert (given_.low, given_.high, given_.capped) == (0.0, 7.0, (False, True))
    assert given_.above == pytest.approx((x > 7).mean(), abs=0.05)
    assert seen(x, bounds, 10.0, cap=False).capped == (False, False)


def test_a_small_mass_far_out_is_seen_where_its_bins_alone_are_hidden():
    rng = np.random.default_rng(3)
    x = np.where(rng.random(ROWS) < 0.06, rng.uniform(20, 80, ROWS), 0.0)
    for seed in range(20):
        found = seen(x, (0.0, 100.0), 30.0, seed)  # 1,200 rows in 19 bins, each hardly above its noise
        assert found.high > 40


@given(noise=st.floats(0, 1e6), seed=st.integers(0, 99))
def test_noise_alone_gives_numbers_within_the_bounds(noise, seed):
    found = seen(np.array([]), (-3.0, 5.0), noise, seed)
    assert -3 <= found.low < found.high <= 5
    assert -3 <= found.mean <= 5
    assert found.sd > 0
    assert (
        (found.quantiles(np.linspace(0, 1, 9)) >= -3) & (found.quantiles(np.linspace(0, 1, 9)) <= 5)
    ).all()


@pytest.mark.parametrize("name", columns())
def test_where_noise_hides_all_rows_nothing_is_capped(name):
    x, bounds = columns()[name]
    capped = 0
    for seed in range(40):
        found = seen(x[:40], bounds, 60.0, seed)
        capped += any(found.capped)
        if not any(found.capped):
            assert (found.low, found.high) == bounds
    assert capped <= 2  # noise alone stands out by ALONE in one histogram of fifty


def test_a_column_that_only_several_bins_together_show_is_seen_as_it_is():
    x = np.random.default_rng(4).uniform(0, 60, 2600)  # 135 rows in a bin, of bounds to 100
    for seed in range(20):
        found = seen(x, (0.0, 100.0), 50.0, seed)
        assert abs(found.mean - 30) < 12
        assert 10 < found.sd < 30


def test_without_caps_a_column_of_zeros_and_few_large_numbers_is_not_taken_for_a_constant():
    rng, edges, noise, near = np.random.default_rng(1), axis_edges(0.0, 400.0), 24.0, 0
    for _ in range(40):
        x = np.where(rng.random(1000) < 0.9, 0.0, rng.uniform(3, 99, 1000))
        counts = np.histogram(x, edges)[0] + rng.normal(0, noise, len(edges) - 1)
        near += 0.1 < marginal(edges, counts, noise, cap=False, rows=1000).sd / x.std() < 8
    assert near >= 30  # in the others noise makes a bin look like one with rows
    constant = np.histogram(np.zeros(1000), edges)[0] + 1e-3 * rng.normal(size=len(edges) - 1)
    assert marginal(edges, constant, 1e-3, cap=False, rows=1000).sd < 0.1
