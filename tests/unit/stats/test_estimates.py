from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import InvalidInput
from cape.stats.estimates import Estimate, Estimates


class Ends:
    def __init__(self, low: float, high: float) -> None:
        self.ends = low, high

    def __call__(self, level: float) -> tuple[float, float]:
        return self.ends


numbers = st.floats(-1e6, 1e6)
errors = st.one_of(st.floats(0, 1e6), st.just(math.nan))
estimates = st.builds(
    Estimate,
    label=st.text(max_size=3),
    value=numbers,
    sampling=errors,
    privacy=errors,
    within=st.sampled_from([(-math.inf, math.inf), (0.0, 5.0), (0.0, math.inf)]),
    at=st.one_of(st.none(), st.builds(Ends, numbers, numbers)),
)


@given(st.lists(estimates, max_size=6), st.floats(0.01, 0.99))
def test_columns_say_what_each_estimate_says(each: list[Estimate], level: float) -> None:
    columns = Estimates.of(each)
    assert repr(list(columns)) == repr(each)
    assert list(columns.labels) == [e.label for e in each]
    assert np.array_equal(columns.standard_errors, [e.standard_error for e in each], equal_nan=True)
    found = np.stack(columns.intervals(level), axis=1).reshape(-1, 2)
    assert np.array_equal(found, np.reshape([e.interval(level) for e in each], (-1, 2)), equal_nan=True)
    assert columns == Estimates.of(each)
    assert repr(list(columns[1:][::-1])) == repr(each[1:][::-1])


def test_estimates_are_a_sequence_of_views() -> None:
    one, two = Estimate("a", 1.0, 0.0, 2.0), Estimate("b", 3.0, 1.0, 0.5, (0.0, 9.0), Ends(1.0, 2.0))
    found = Estimates.of([one, two])
    assert (len(found), found[0], found[-1], found[1:], tuple(found)) == (2, one, two, [two], (one, two))
    assert found == (one, two)
    assert found != (two, one)
    assert found != Estimates.of([one])
    assert found != Estimates.of([one, Estimate("b", 3.0, 1.0, 0.5, (0.0, 8.0), two.at)])
    assert two in found
    with pytest.raises(IndexError):
        found[2]
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 7.0


def test_as_many_values_as_labels_are_wanted() -> None:
    with pytest.raises(InvalidInput, match="2 labels"):
        Estimates(["a", "b"], [1.0, 2.0, 3.0], 0.0, 0.0)
    with pytest.raises(InvalidInput, match="2 labels"):
        Estimates(["a", "b"], 1.0, 0.0, 0.0)


def test_a_long_column_is_printed_in_part() -> None:
    assert "and 999,990 more" in repr(Estimates([""] * 1_000_000, np.zeros(1_000_000), 0.0, 1.0))


def test_an_interval_beyond_what_is_possible_ends_where_that_ends():
    for value, end in ((127.0, 100.0), (-127.0, -100.0)):
        one = Estimate("difference", value, 1.0, 1.0, (-100.0, 100.0))
        assert one.interval(0.5) == (end, end)
        assert [float(each[0]) for each in Estimates.of([one]).intervals(0.5)] == [end, end]
