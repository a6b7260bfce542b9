"""Limits of requests: what passes in any time, and that the table of addresses stays small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cape.desk.access.limits import Buckets
from tests.slices import examples
from tests.unit.desk.clock import Clock


@examples(60)
@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from("ab")), max_size=60))
def test_in_any_time_at_most_burst_and_rate_pass(steps: list[tuple[float, str]]):
    clock = Clock()
    buckets = Buckets(rate=2, burst=5, clock=clock)
    passed: list[tuple[float, str]] = []
    for wait, key in steps:
        clock.now += wait
        if buckets.take(key):
            passed.append((clock.now, key))
    for key in "ab":
        times = [at for at, of in passed if of == key]
        for i, start in enumerate(times):
            for j in range(i, len(times)):
                assert j - i + 1 <= 5 + 2 * (times[j] - start) + 1e-6


def test_who_waits_may_go_on():
    clock = Clock()
    buckets = Buckets(rate=1, burst=2, clock=clock)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    assert buckets.take("b")
    clock.now += 1
    assert [buckets.take("a") for _ in range(2)] == [True, False]


def test_the_table_of_addresses_is_bounded():
    clock = Clock()
    buckets = Buckets(rate=1, burst=1, clock=clock)
    taken = [buckets.take(str(number)) for number in range(10_050)]
    assert sum(taken) == 10_000, "beyond it, new addresses wait"
    clock.now += 1
    assert buckets.take("new"), "buckets that are full again are forgotten"
