from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cape.core.errors import InvalidInput
from cape.noise import coarsen

integers = hnp.arrays(np.int64, st.integers(1, 5), elements=st.integers(-(2**63), 2**63 - 1))


@given(integers, st.integers(1, 2**40))
def test_coarsening_rounds_an_exact_sum_once_and_exactly(integers, factor):
    coarse = coarsen(integers, factor)
    for fine, rounded in zip(integers.tolist(), coarse.tolist(), strict=True):
        assert rounded == (2 * fine + factor) // (2 * factor)


@given(st.integers(-(2**40), 2**40), st.integers(0, 2**30), st.integers(1, 2**20))
def test_a_difference_of_sums_grows_by_at_most_one_coarse_step(fine, moved, factor):
    before, after = coarsen(np.array([fine, fine + moved]), factor).tolist()
    assert abs((after - before) * factor - moved) <= factor


@pytest.mark.parametrize(
    ("values", "factor", "message"),
    [
        (np.zeros(1, np.int64), 0, "factor must be"),
        (np.zeros(1), 2, "integers must be an array of int64"),
    ],
)
def test_bad_input(values, factor, message):
    with pytest.raises(InvalidInput, match=message):
        coarsen(values, factor)
