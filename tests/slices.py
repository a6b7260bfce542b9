"""Which tests run every time, and which slice of the others is a day's turn.

`make test` leaves out what is slow: tests marked `@pytest.mark.slow(seconds)`, and of a parametrised test the
cases that `@pytest.mark.slow_cases("case", ..., seconds=...)` names, or those that `quick_cases` does not,
or all but one in `one_in(count)`.
Property tests (`examples`) run with a fifth of their examples. `--slice=K/N` runs one of N slices of all
that, with all examples. K counts modulo N: the number of a day gives another slice every day, and N days all.
Slices take about the same time, by the seconds on an idle core that the markers say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import settings

THOROUGH = "thorough"  # the profile of Hypothesis in which property tests have all their examples
FEWER = 5  # in the other one they have so many times fewer,
AT_LEAST = 10  # but not less than this


def examples(most: int, **more: Any) -> settings:
    """Return the settings of a property test that has so many examples when it is thorough."""
    thorough = settings.get_current_profile_name() == THOROUGH
    return settings(max_examples=most if thorough else min(most, max(AT_LEAST, most // FEWER)), **more)


def read(text: str) -> tuple[int, int]:
    """Return which of how many slices "K/N" names."""
    if not re.fullmatch("[0-9]+/[1-9][0-9]*", text):
        raise ValueError(f"a slice is written K/N, such as 2/6, not {text!r}")
    turn, count = map(int, text.split("/"))
    return turn % count, count


def slices(seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Return the tests in so many parts that take about equally long: the next one to the least."""
    parts: list[list[str]] = [[] for _ in range(count)]
    load = [0.0] * count
    for test in sorted(seconds, key=lambda test: (-seconds[test], test)):
        least = load.index(min(load))
        parts[least].append(test)
        load[least] += seconds[test]
    return parts
