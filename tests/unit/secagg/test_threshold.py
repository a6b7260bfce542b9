"""The smallest safe threshold, by counting every way in which a liar could collect answers."""

from __future__ import annotations

import pytest

from cape.core.errors import InvalidInput
from cape.secagg import smallest_threshold


def two_stories_possible(n: int, colluding: int, t: int) -> bool:
    """Whether honest sites, split in any way, and colluders, counted twice, give t answers to both."""
    honest = n - colluding
    return any(first + colluding >= t and honest - first + colluding >= t for first in range(honest + 1))


@pytest.mark.parametrize("n", range(2, 30))
def test_it_is_the_smallest_that_no_liar_can_meet_twice(n):
    for colluding in range(n - 1):
        t = smallest_threshold(n, colluding)
        assert not two_stories_possible(n, colluding, t)
        assert t == 2 or two_stories_possible(n, colluding, t - 1)
        assert t > colluding


@pytest.mark.parametrize("n", range(2, 30))
def test_a_curious_aggregator_needs_one_more_than_the_colluders(n):
    for colluding in range(n):
        assert smallest_threshold(n, colluding, lying=False) == max(2, colluding + 1)


@pytest.mark.parametrize(("sites", "colluding"), [(1, 0), (5, 5), (5, -1), (5.0, 1)])
def test_bad_counts_are_refused(sites, colluding):
    with pytest.raises(InvalidInput):
        smallest_threshold(sites, colluding)
