from __future__ import annotations

import math

import pytest

from cape.show.numbers import between, p_value, rounded


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (54.3712, 0.52, "54.37"),
        (54.3712, 0.0996, "54.37"),  # an error of 0.10
        (54.3712, 5.2, "54.4"),
        (54.3712, 52.0, "54"),
        (1234567.0, 45678.0, "1,235,000"),
        (-0.0001, 0.52, "0.00"),
        (569.0, 0.0, "569"),
        (0.5, 0.0, "0.500"),
        (1.5e-12, 2.3e-13, "1.50e-12"),
        (1.23456e18, 4.5e15, "1.2346e+18"),
        (math.inf, 1.0, "∞"),
        (2.0, math.nan, "2"),
        (365.0, math.nan, "365"),
        (-0.0, math.nan, "0"),
        (0.0, 4e-6, "0"),
        (7.9e-6, 4e-6, "0.0000079"),
        (0.0, 0.004, "0.0000"),
        (math.nan, math.nan, "-"),
    ],
)
def test_a_value_ends_where_the_second_digit_of_its_error_does(value, error, text):
    assert rounded(value, error) == text


def test_people_are_not_counted_in_parts():
    assert rounded(151.34, 0.32, 0) == "151"
    assert rounded(15134.0, 320.0, 0) == "15,130"


def test_an_interval_has_the_digits_of_its_value():
    assert between((1.9812, 2.1049), 0.031) == "1.981 to 2.105"
    assert between((math.nan, 1.0), 0.1) == "not known"


@pytest.mark.parametrize(
    ("p", "text"), [(0.0, "<0.001"), (9.9e-4, "<0.001"), (0.001, "0.001"), (0.25, "0.250"), (math.nan, "-")]
)
def test_a_small_p_is_not_written_out(p, text):
    assert p_value(p) == text
