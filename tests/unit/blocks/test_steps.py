from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cape.blocks.steps import ONE, Steps
from cape.core.errors import InvalidInput
from cape.data import Number
from tests.unit.blocks.reference import steps as reference

finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.floats(allow_nan=False)


@given(finite, finite, st.lists(anything, min_size=1, max_size=50))
@example(0.1, 0.7, [0.1, 0.7, 0.4, math.nextafter(0.7, 0)])
@example(1.0, math.nextafter(1.0, 2), [1.0, 2.0, math.nextafter(1.0, 2), -math.inf, math.inf])
@example(-1.7e308, 1.7e308, [1.7e308, -1.7e308, math.inf, 0.0])
def test_a_cell_becomes_whole_steps_within_one_and_as_the_words_have_it(
    low: float, high: float, values: list[float]
) -> None:
    assume(low < high)
    try:
        column = Number(low, high)
    except InvalidInput:
        assume(False)
    found = Steps.of(column).count(np.array(values))
    assert (np.abs(found) <= ONE).all()
    assert [int(k) for k in found] == [reference(value, column) for value in values]


def test_the_ends_and_the_middle() -> None:
    found = Steps.of(Number(18, 90)).count(np.array([18, 90, 54, -5, 200, np.inf, -np.inf]))
    assert found.tolist() == [-ONE, ONE, 0, -ONE, ONE, ONE, -ONE]


def test_missing_stays_missing() -> None:
    assert np.isnan(Steps.of(Number(0, 1)).count(np.array([np.nan]))).all()


def test_rounding_is_toward_zero() -> None:
    step = 2.0**-20
    found = Steps.of(Number(-1, 1)).count(np.array([1.9 * step, -1.9 * step, 0.9 * step, -0.9 * step]))
    assert found.tolist() == [1, -1, 0, 0]


def test_bounds_too_close_to_divide_by_are_refused() -> None:
    with pytest.raises(InvalidInput, match="further apart"):
        Number(0.0, 5e-324)
