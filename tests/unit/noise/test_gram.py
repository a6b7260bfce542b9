from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import InvalidInput, OverflowRisk
from cape.noise import exact_gram, exact_products

RNG = np.random.default_rng(7)


def integers_of(x, bits):
    return [[int(v) for v in row] for row in np.trunc(x * 2.0**bits)]


def dot(p, q):
    rows = list(zip(p, q, strict=True))
    return [[sum(r[i] * s[j] for r, s in rows) for j in range(len(q[0]))] for i in range(len(p[0]))]


@given(st.integers(1, 24), st.integers(1, 70), st.integers(1, 6), st.integers(0, 2**32))
def test_sums_are_the_true_integer_sums(bits, rows, columns, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, columns))
    x[rng.random(x.shape) < 0.1] = 1.0
    gram = exact_gram(x, bits=bits, rounding="toward-zero")
    whole = integers_of(x, bits)
    assert gram.x.tolist() == [sum(column) for column in zip(*whole, strict=True)]
    assert gram.xx.tolist() == dot(whole, whole)
    assert gram.rows == rows


def test_sums_over_many_chunks_are_bit_identical_under_any_order_of_rows():
    x = RNG.uniform(-1, 1, (50_000, 13))
    order = RNG.permutation(len(x))
    one, two = (exact_gram(a, rounding="toward-zero") for a in (x, x[order]))
    assert np.array_equal(one.x, two.x)
    assert np.array_equal(one.xx, two.xx)
    # floats are not: the reason for all this
    assert not np.array_equal(x.T @ x, x[order].T @ x[order])


def test_values_already_on_the_grid_give_the_same_and_are_checked():
    x = np.trunc(RNG.uniform(-1, 1, (9_000, 5)) * 2**20) / 2**20
    checked, rounded = exact_gram(x), exact_gram(x, rounding="toward-zero")
    assert np.array_equal(checked.xx, rounded.xx)
    assert np.array_equal(checked.x, rounded.x)
    x[8_999, 4] += 2.0**-40
    with pytest.raises(InvalidInput, match="x must hold finite multiples of 2\\^-20"):
        exact_gram(x)


def test_the_largest_values_stay_exact_in_a_full_chunk():
    x = np.ones((4096, 3))
    x[::2, 0] = 1 - 2.0**-20
    gram = exact_gram(x)
    assert gram.xx[1, 1] == 4096 << 40
    assert gram.xx[0, 1] == 2048 * ((1 << 40) + ((1 << 20) - 1 << 20))


def test_no_rows_sum_to_zero():
    gram = exact_gram(np.zeros((0, 2)))
    assert gram.rows == 0
    assert gram.xx.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2]])
def test_any_memory_layout_will_do(layout):
    x = np.trunc(RNG.uniform(-1, 1, (5_000, 4)) * 2**20) / 2**20
    assert np.array_equal(exact_gram(layout(x)).xx, exact_gram(x).xx)


@pytest.mark.parametrize("rounding", [None, "toward-zero"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_without_being_shown(bad, rounding):
    x = np.full((10, 2), 0.5)
    x[3, 1] = bad
    with pytest.raises(InvalidInput, match="finite"):
        exact_gram(x, rounding=rounding)


@pytest.mark.parametrize("rounding", [None, "toward-zero"])
def test_values_too_large_to_be_exact_are_refused(rounding):
    with pytest.raises(OverflowRisk, match="magnitude at most 1"):
        exact_gram(np.full((4096, 2), 2.0), rounding=rounding)


def test_totals_beyond_64_bits_are_refused():
    # 2^63 / 2^48 = 2^15 rows of ones at 24 bits
    with pytest.raises(OverflowRisk, match="fewer bits or fewer rows"):
        exact_gram(np.ones((1 << 15, 1)), bits=24)
    assert exact_gram(np.ones((1 << 14, 1)), bits=24).xx[0, 0] == 1 << 62


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact_gram(np.zeros(3)), "x must have rows and columns, not 1 dimensions"),
        (lambda: exact_gram(np.zeros((3, 2), int)), "x must be an array of float64, not int64"),
        (lambda: exact_gram([["a"]]), "x must be an array of float64"),
        (lambda: exact_gram(np.zeros((3, 2)), bits=25), "bits must be an integer at least 1 and at most 24"),
        (lambda: exact_gram(np.zeros((3, 2)), rounding="nearest"), "rounding must be"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


@given(st.integers(0, 40), st.integers(1, 5), st.integers(0, 2**32))
def test_products_of_whole_steps_are_the_true_integer_sums(rows, columns, seed):
    steps = np.random.default_rng(seed).integers(-(2**20), 2**20 + 1, (columns, rows)).astype(float)
    whole = [[int(k) for k in column] for column in steps]
    wanted = [[sum(p * q for p, q in zip(a, b, strict=True)) for b in whole] for a in whole]
    assert exact_products(steps).tolist() == wanted
    assert exact_products(steps[:, ::-1]).tolist() == wanted


def test_products_over_many_chunks_are_exact_and_do_not_depend_on_the_order():
    # odd numbers near the limit: past 2^53 their squares could not be added without rounding
    steps = 2.0**20 - RNG.choice([1.0, 3.0, 5.0], (4, 30_001))
    found = exact_products(steps)
    whole = [[int(k) for k in column] for column in steps]
    assert found.tolist() == [[sum(p * q for p, q in zip(a, b, strict=True)) for b in whole] for a in whole]
    assert np.array_equal(exact_products(steps[:, RNG.permutation(30_001)]), found)
    assert not np.array_equal((steps @ steps.T).astype(np.int64), found)


def test_products_that_may_not_be_exact_are_refused():
    with pytest.raises(OverflowRisk, match="magnitude at most 1"):
        exact_products(np.full((2, 4096), 2.0**21))
    for bad in (np.nan, np.inf):
        with pytest.raises(InvalidInput, match="finite"):
            exact_products(np.array([[1.0, bad]]))
