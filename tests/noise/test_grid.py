from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cape.errors import CapeError, InvalidInput, OverflowRisk
from cape.noise import Grid, SecureStream

steps = st.sampled_from([2.0**-20, 2.0**-3, 1.0, 0.1, 3e-7, 7.0])
vectors = hnp.arrays(np.float64, st.integers(1, 6), elements=st.floats(-50, 50, width=64))
ROUNDINGS = ["toward-zero", "nearest", "stochastic"]


@given(steps, vectors, st.sampled_from(ROUNDINGS))
def test_rounding_moves_a_value_by_less_than_it_says(step, values, rounding):
    grid = Grid(step)
    back = grid.decode(grid.encode(values, rounding, SecureStream(bytes(32))))
    limit = (0.5 if rounding == "nearest" else 1.0) * step * (1 + 2.0**-12) + 1e-13
    assert np.all(np.abs(back - values) <= limit)


def exact_norm(integers, step):
    return math.sqrt(sum(int(k) ** 2 for k in integers)) * step


@given(steps, vectors, st.sampled_from(ROUNDINGS), st.binary(min_size=32, max_size=32))
@example(0.1, np.array([0.3]), "toward-zero", bytes(32))  # 0.3 / 0.1 rounds up to 3 in floats
def test_no_record_exceeds_the_stated_norm(step, values, rounding, key):
    grid = Grid(step)
    bound = math.sqrt(math.fsum(v * v for v in values))
    encoded = grid.encode(values, rounding, SecureStream(key))
    assert exact_norm(encoded, step) <= grid.norm(bound, values.size, rounding) * (1 + 1e-14)


@given(steps, vectors, st.sampled_from(ROUNDINGS), st.data())
def test_no_pair_of_records_exceeds_the_stated_sensitivity(step, values, rounding, data):
    other = data.draw(
        hnp.arrays(np.float64, values.size, elements=st.floats(-50, 50))
        | st.just(values + data.draw(st.floats(-2, 2)) * step)
    )
    keys = data.draw(st.tuples(*[st.binary(min_size=32, max_size=32)] * 2))
    grid = Grid(step)
    a, b = (grid.encode(v, rounding, SecureStream(k)) for v, k in zip((values, other), keys, strict=True))
    before = math.sqrt(math.fsum((v - w) ** 2 for v, w in zip(values, other, strict=True)))
    assert exact_norm(a - b, step) <= grid.sensitivity(before, values.size, rounding) * (1 + 1e-14)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_the_stated_sensitivity_is_nearly_reached(rounding, stream):
    grid, h = Grid.of_bits(4), 2.0**-4
    near, far = 0.999 * h, 1.001 * h
    if rounding == "nearest":
        near, far = 0.499 * h, 0.501 * h
    elif rounding == "stochastic":
        near, far = 0.5 * h, 1.5 * h
    low, high = np.full(9, near), np.full(9, far)
    worst = max(
        exact_norm(grid.encode(high, rounding, stream) - grid.encode(low, rounding, stream), h)
        for _ in range(300)
    )
    stated = grid.sensitivity(math.sqrt(9) * (far - near), 9, rounding)
    assert 0.3 * stated < worst <= stated


def test_stochastic_rounding_is_unbiased(stream):
    values = np.repeat([0.25, -0.25, 1.9, -3.5], 200_000)
    means = Grid(1.0).encode(values, "stochastic", stream).reshape(4, -1).mean(axis=1)
    spread = np.sqrt([0.25 * 0.75, 0.25 * 0.75, 0.09, 0.25]) / math.sqrt(200_000)
    assert np.all(np.abs(means - [0.25, -0.25, 1.9, -3.5]) < 5 * spread)


@given(
    hnp.arrays(np.int64, st.integers(1, 5), elements=st.integers(-(2**63), 2**63 - 1)),
    st.integers(1, 2**40),
)
def test_coarsening_rounds_an_exact_sum_once_and_exactly(integers, factor):
    coarse = Grid(1.0).coarsen(integers, factor)
    for fine, rounded in zip(integers.tolist(), coarse.tolist(), strict=True):
        assert rounded == (2 * fine + factor) // (2 * factor)


def test_a_grid_of_bits_is_exact():
    assert Grid.of_bits(20).step == 2.0**-20
    assert Grid.of_bits(3).encode(np.array([1.0, -0.124, 0.126])).tolist() == [8, 0, 1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Grid(0.0), InvalidInput, "step must be a finite number above 0, not 0.0"),
        (lambda: Grid(-1.0), InvalidInput, "step must be"),
        (lambda: Grid(math.nan), InvalidInput, "step must be"),
        (lambda: Grid(1e-300), InvalidInput, "step must lie between"),
        (lambda: Grid(1.0).encode([1.0], "up"), InvalidInput, "rounding must be one of toward-zero"),
        (lambda: Grid(1.0).encode([1.0], "stochastic"), InvalidInput, "stream must be a SecureStream"),
        (lambda: Grid(1.0).encode([math.nan]), InvalidInput, "values must be finite"),
        (lambda: Grid(1.0).encode([-math.inf]), InvalidInput, "values must be finite"),
        (lambda: Grid(1.0).encode(["a"]), InvalidInput, "values must be numbers"),
        (lambda: Grid(1.0).encode([1e300]), OverflowRisk, "at most 2\\^52 steps"),
        (lambda: Grid(0.1).encode([2e11]), OverflowRisk, "at most 2\\^40 steps"),
        (lambda: Grid(1.0).norm(-1.0, 3), InvalidInput, "bound must be"),
        (lambda: Grid(1.0).sensitivity(1.0, 0), InvalidInput, "size must be an integer at least 1"),
        (lambda: Grid(1.0).coarsen(np.zeros(1, np.int64), 0), InvalidInput, "factor must be"),
        (lambda: Grid(1.0).coarsen(np.zeros(1), 2), InvalidInput, "integers must be an array of int64"),
        (lambda: Grid(1.0).decode(np.zeros(1)), InvalidInput, "integers must be an array of int64"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, CapeError)


def test_an_error_shows_no_value():
    with pytest.raises(CapeError) as caught:
        Grid(1.0).encode([123456789.0, math.nan])
    assert "123456789" not in str(caught.value)
