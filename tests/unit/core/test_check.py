from __future__ import annotations

import math

import numpy as np
import pytest

from cape.core import check
from cape.core.errors import CapeError, InvalidInput


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1)])
def test_a_number_comes_back_as_a_float(value):
    assert check.real("x", value) == 1.0
    assert type(check.real("x", value)) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", b"1", None, True, np.True_, [1, 2], 1j, object()])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(InvalidInput, match="x must be a finite number"):
        check.real("x", value)


def test_infinity_passes_where_it_is_meant():
    assert check.real("x", math.inf, infinite=True) == math.inf


@pytest.mark.parametrize(("limits", "value"), [({"above": 0}, 0.0), ({"least": 1}, 0.5), ({"most": 2}, 3.0)])
def test_the_range_is_kept_and_named(limits, value):
    with pytest.raises(InvalidInput, match=f"x must be .*{next(iter(limits))}.*, not {value}"):
        check.real("x", value, **limits)


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.True_, np.array([1, 2])])
def test_what_is_no_integer_is_refused(value):
    with pytest.raises(InvalidInput, match="n must be an integer"):
        check.integer("n", value)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.1, math.nan, math.inf, "0.5", None])
def test_what_is_no_probability_is_refused(value):
    with pytest.raises(InvalidInput, match="delta must lie strictly between 0 and 1"):
        check.probability("delta", value)


def test_shapes():
    assert check.shape("size", 3) == (3,)
    assert check.shape("size", (2, 0)) == (2, 0)
    for wrong in (-1, 1.5, (2, -1), "3", None):
        with pytest.raises(InvalidInput, match="size must be a count or a shape"):
            check.shape("size", wrong)


def test_an_array_of_another_type_is_named_and_not_shown():
    with pytest.raises(InvalidInput, match="x must be an array of int64, not float64") as caught:
        check.array_of("int64", "x", np.array([123456.0]))
    assert "123456" not in str(caught.value)


def test_a_long_value_is_cut():
    with pytest.raises(CapeError) as caught:
        check.real("x", "y" * 1000)
    assert len(str(caught.value)) < 150


def escaped(text: str) -> str:
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


@pytest.mark.parametrize("most", [0, 1, 3, 4, 5, 9, 10, 11, 80])
@pytest.mark.parametrize(
    "text", ["", "x" * 9, "x" * 200, "\n" * 5, "xxx\n" * 30, "\u200b" * 80, "\ud800\U000e0001"]
)
def test_a_plain_text_is_never_longer_than_it_may_be(text: str, most: int):
    found = check.plain(text, most)
    assert len(found) <= max(most, 3)
    assert found.isprintable()
    if len(escaped(text)) <= most:
        assert found == escaped(text)
    else:
        start = found.removesuffix("...")
        assert start in [escaped(text[:end]) for end in range(most + 1)], "no escape is cut"
