from __future__ import annotations

import pytest
from hypothesis import settings

from tests.slices import THOROUGH, examples, read, slices

SECONDS = {f"test {number}": 1.0 + number % 7 for number in range(50)} | {"long": 40.0}


def test_every_test_has_its_turn_once_in_so_many_days():
    first = 739_000  # the number of a day
    days = [read(f"{first + day}/6") for day in range(6)]
    assert sorted(turn for turn, _ in days) == [0, 1, 2, 3, 4, 5]
    taken = [test for turn, count in days for test in slices(SECONDS, count)[turn]]
    assert sorted(taken) == sorted(SECONDS)


def test_slices_take_about_equally_long():
    loads = [sum(SECONDS[test] for test in part) for part in slices(SECONDS, 6)]
    assert max(loads) - min(loads) <= 7
    assert [len(part) for part in slices({"long": 40.0, "short": 1.0, "other": 2.0}, 2)] == [1, 2]


@pytest.mark.parametrize("text", ["", "1", "1/0", "/6", "a/6", "1/6/2", "-1/6", "1/+6"])
def test_what_is_no_slice_is_refused(text):
    with pytest.raises(ValueError, match="a slice is written K/N"):
        read(text)


def test_property_tests_have_all_their_examples_in_the_thorough_profile_alone():
    before = settings.get_current_profile_name()
    try:
        settings.load_profile(THOROUGH)
        assert [examples(most).max_examples for most in (5, 40, 300)] == [5, 40, 300]
        settings.load_profile("cape")
        assert [examples(most).max_examples for most in (5, 40, 300)] == [5, 10, 60]
    finally:
        settings.load_profile(before)
