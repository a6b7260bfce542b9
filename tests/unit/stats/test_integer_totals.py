"""Counts add up, are nearest to what was released, and are whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from cape.stats.integer_totals import added_up, at_most, whole

COUNTS = st.lists(st.floats(-1e4, 1e6), min_size=1, max_size=9).map(np.array)


@given(COUNTS, st.floats(0, 1e6))
def test_counts_are_not_negative_and_add_up(counts, total):
    found = added_up(counts, total)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, rel=1e-9, abs=1e-6)
    below = at_most(counts, total)
    assert (below >= 0).all()
    assert below.sum() <= total * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_the_nearest(seed):
    rng = np.random.default_rng(seed)
    counts, total = rng.normal(3, 5, 4), 10.0

    def least(constraint):
        found = minimize(
            lambda x: ((x - counts) ** 2).sum(),
            np.full(4, 2.0),
            jac=lambda x: 2 * (x - counts),
            bounds=[(0, None)] * 4,
            constraints=[{"type": constraint, "fun": lambda x: total - x.sum()}],
            tol=1e-12,
        )
        return found.x

    assert added_up(counts, total) == pytest.approx(least("eq"), abs=1e-4)
    assert at_most(counts, total) == pytest.approx(least("ineq"), abs=1e-4)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9).map(np.array))
def test_rounding_keeps_the_sum_and_moves_no_number_by_one(numbers):
    found = whole(numbers)
    assert abs(found.sum() - numbers.sum()) <= 0.5 + 1e-6
    assert (np.abs(found - numbers) < 1 + 1e-6).all()
    assert (found >= 0).all()


def test_a_whole_total_is_kept_exactly():
    assert whole(np.array([2.4, 3.5, 4.1])).tolist() == [2, 4, 4]
    assert whole(added_up(np.array([10.3, -4.0, 88.1]), 100.0)).sum() == 100
