from __future__ import annotations

import numpy as np
import pytest

from cape.stats.estimates import Estimate
from cape.stats.together import by_lower_end, level_of_each, said_together


def test_all_intervals_hold_together():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=20)
    held = []
    for _ in range(2000):
        found = [Estimate("x", float(x), 0.0, 1.0) for x in truth + rng.normal(size=20)]
        ends = [each.interval(level_of_each(0.95, 20)) for each in found]
        held.append(all(low <= x <= high for x, (low, high) in zip(truth, ends, strict=True)))
    assert 0.94 < np.mean(held) < 0.97


def test_a_number_that_is_sure_comes_before_a_larger_one_that_is_not():
    sure, unsure, none = (Estimate(*each) for each in [("a", 1, 0, 0.1), ("b", 2, 0, 1.0), ("c", 0, 0, 0.1)])
    assert by_lower_end([none, unsure, sure], lambda each: each, 0.95, 3) == [sure, none, unsure]
    assert unsure.interval(0.95)[0] > 0, "by itself it would come before the last one"
    assert unsure.interval(level_of_each(0.95, 3))[0] < none.interval(level_of_each(0.95, 3))[0]


def test_it_is_said_for_how_many_intervals_hold_together():
    assert "for all 45 pairs" in said_together(0.95, 45, "pairs")
    assert "0.9989" in said_together(0.95, 45, "pairs")
    assert said_together(0.95, 1, "pairs") == ""
    assert level_of_each(0.95, 1) == pytest.approx(0.95)
