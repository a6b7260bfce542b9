"""The bound on scores: small beside sampling where rows are many, and what it leaves out is counted."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.stats.score_norms import BINS, FALLS, Lengths, edges_around


def lengths_of(lengths, noise, seed=0, around=None):
    edges = np.array(edges_around(float(np.sqrt((lengths**2).mean())) if around is None else around))
    counts = np.bincount(np.searchsorted(edges, lengths, side="right"), minlength=BINS)
    return Lengths(edges, counts + np.random.default_rng(seed).normal(0, noise, BINS), noise)


def drawn(kind, rows, seed=5):
    rng = np.random.default_rng(seed)
    return {
        "normal": np.linalg.norm(rng.normal(size=(rows, 5)), axis=1),
        "long": np.linalg.norm(rng.normal(size=(rows, 5)), axis=1) * rng.gamma(0.6, 1 / 0.6, rows),
        "mostly 0": np.where(rng.random(rows) < 0.9, 0.05, rng.gamma(3, 2, rows)),
    }[kind]


KINDS = ("normal", "long", "mostly 0")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.0, 10.0, 40.0])
def test_the_typical_length_is_found_from_far_off(kind, noise):
    x = drawn(kind, 10_000)
    size = float(np.sqrt((x**2).mean()))
    for around in (size / 10, size, 10 * size):
        assert lengths_of(x, noise, around=around).typical() == pytest.approx(size, rel=0.4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_beyond_a_bound_is_about_what_does_or_more(kind):
    x = drawn(kind, 20_000)
    for noise in (0.0, 10.0, 40.0):
        for seed in range(5):
            found = lengths_of(x, noise, seed)
            for bound in np.quantile(x, [0.7, 0.95, 0.995]):
                beyond = found.beyond(float(bound), FALLS)
                excess = float(np.maximum(x - bound, 0).sum())
                assert beyond.excess > 0.6 * excess - 4 * noise * bound
                assert beyond.excess < 2.2 * excess + 12 * (noise + 1) * bound
                assert beyond.spread >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_chosen_bound_has_nearly_the_least_error_of_all(kind):
    """Its error is sampling, noise, and half of what it leaves out, as if that pointed anywhere."""
    x, width = drawn(kind, 20_000), 5
    for unit in (1.0, 5.0, 40.0):
        found = lengths_of(x, 0.0)
        # with a histogram that is exact but said to have noise, nothing is hidden and nothing invented
        best = Lengths(found.edges, found.counts, 1e-9).best(unit, width, FALLS).bound

        def error(bound, unit=unit):
            kept = np.minimum(x, bound)
            left = float(np.maximum(x - bound, 0).sum())
            return math.sqrt((kept**2).sum() / width + (unit * bound) ** 2) + left / (2 * math.sqrt(width))

        least = min(error(bound) for bound in np.geomspace(0.3, 60, 80))
        assert error(best) < 1.15 * least


def test_bounds_grow_with_rows_and_less_noise():
    small, large = drawn("long", 2_000), drawn("long", 200_000)
    assert (
        lengths_of(large, 20.0).best(10.0, 5, FALLS).bound
        > lengths_of(small, 20.0).best(10.0, 5, FALLS).bound
    )
    assert (
        lengths_of(large, 20.0).best(2.0, 5, FALLS).bound > lengths_of(large, 20.0).best(40.0, 5, FALLS).bound
    )


def test_without_noise_nothing_is_clipped():
    x = drawn("long", 1_000)
    best = lengths_of(x, 0.0).best(0.0, 5, FALLS)
    assert best.bound >= x.max()
    assert best.excess == 0


@given(seed=st.integers(0, 10_000), noise=st.floats(1e-3, 1e5), unit=st.floats(0, 1e4))
def test_noise_alone_gives_a_bound(seed, noise, unit):
    found = lengths_of(np.array([1.0]), noise, seed, around=1.0)
    best = found.best(unit, 3, FALLS)
    assert 0 < best.bound < math.inf
    assert best.excess >= 0
    assert math.isfinite(best.excess + best.spread)


def test_rows_that_no_bin_shows_but_the_total_does_are_beyond():
    """A twelfth of the rows is spread over bins so far out that noise hides most of them."""
    beyond = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = np.where(rng.random(6000) < 1 / 12, np.exp(rng.uniform(3, 7, 6000)), rng.gamma(9.0, 0.05, 6000))
        seen = lengths_of(x, 25.0, seed, around=0.5)
        both = seen, dataclasses.replace(seen, total=6000.0)
        beyond.append([each.rows(FALLS)[24:].sum() for each in both])
    without, told = np.median(beyond, axis=0)
    assert without < 100 < 0.3 * 500 < told < 1.2 * 500


def test_a_total_that_bins_reach_changes_nothing():
    x = drawn("normal", 6000)
    found = [lengths_of(x, 40.0, seed) for seed in range(40)]
    same = [
        np.array_equal(each.rows(FALLS), dataclasses.replace(each, total=6000.0).rows(FALLS))
        for each in found
    ]
    assert sum(same) >= 36


@pytest.mark.parametrize("longest", [0.0, 3.0, 8.0, 1e9])
def test_lengths_that_no_row_can_have_are_left_out(longest):
    edges, noise = np.array(edges_around(1.0)), 20.0
    lengths = np.abs(np.random.default_rng(3).normal(size=4000)).clip(0, 2.9)
    counts = np.bincount(np.searchsorted(edges, lengths, side="right"), minlength=BINS).astype(float)
    counts[-3:] += 4 * noise  # nothing but noise
    kept = Lengths.possible(edges, counts, noise, 4000.0, longest)
    assert len(kept.counts) == len(kept.edges) + 1
    if 2.9 <= longest < 10:
        assert kept.edges[-1] < longest
        assert kept.counts.sum() == 4000
        assert kept.beyond(kept._tops[-1], FALLS).excess == 0
    if longest == 1e9:
        assert (kept.counts == counts).all()
