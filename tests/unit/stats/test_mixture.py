"""Mixtures of normal distributions, and the quantiles that they are made at."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from cape.stats.mixture import Mixture, quantile, quantiles

VALUES = st.lists(st.tuples(st.floats(-5, 5), st.floats(0.01, 3)), min_size=1, max_size=8)


@given(st.floats(-5, 5), st.floats(0.01, 3), st.sampled_from([0.5, 0.95, 0.999]))
def test_a_mixture_of_one_is_normal(value, error, level):
    low, high = Mixture((value,), (error,))(level)
    assert (low, high) == pytest.approx(norm.interval(level, value, error), abs=1e-6)


@given(VALUES, st.sampled_from([0.5, 0.9, 0.99]))
def test_each_end_leaves_half_of_the_rest_outside(parts, level):
    mixture = Mixture(*map(tuple, zip(*parts, strict=True)))
    low, high = mixture(level)
    assert mixture.below(low) == pytest.approx((1 - level) / 2, abs=2e-3)
    assert mixture.below(high) == pytest.approx((1 + level) / 2, abs=2e-3)
    assert mixture.p_value(low) == pytest.approx(1 - level, abs=4e-3)


@given(VALUES, st.floats(-3, 3))
def test_it_moves_with_its_values(parts, shift):
    values, errors = map(np.array, zip(*parts, strict=True))
    low, high = Mixture.of(values, errors)(0.9)
    assert Mixture.of(values + shift, errors)(0.9) == pytest.approx((low + shift, high + shift), abs=1e-5)


def test_without_any_error_it_is_a_point():
    assert Mixture((2.0, 2.0), (0.0, 0.0))(0.95) == (2.0, 2.0)


def tail(tau2):
    """P(a larger sum of 5 squares of variance 1 + tau²) where 9 was seen: it rises with tau²."""
    return float(chi2.sf(9 / (1 + tau2), 5))


@given(st.floats(0.12, 0.99))
def test_a_quantile_is_where_the_tail_reaches_its_rank(rank):
    found = quantile(tail, rank, 1.0)
    assert tail(found) == pytest.approx(rank, abs=1e-6)


def test_a_rank_that_is_reached_at_0_has_the_quantile_0_and_none_is_above_the_most():
    assert quantile(tail, tail(0.0) / 2, 1.0) == 0.0
    assert quantile(tail, 0.999, 1.0, most=2.0) == pytest.approx(2.0)
    assert quantiles(lambda tau2: 1.0, 8, 1.0).tolist() == [0.0] * 8


def test_quantiles_rise_and_are_equally_likely():
    found = quantiles(tail, 40, 1.0)
    assert (np.diff(found) >= 0).all()
    ranks = (np.arange(40) + 0.5) / 40
    inside = ranks > tail(0.0) + 0.02
    assert [tail(tau2) for tau2 in found[inside]] == pytest.approx(ranks[inside], abs=0.01)
    assert (found[ranks < tail(0.0)] == 0).all()
    assert math.isfinite(found[-1])
