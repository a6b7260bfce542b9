"""Several intervals that hold together, and an order of numbers by what is sure of them.

Claim. Of K intervals at the level 1 - (1 - level) / K all cover with a probability of at least `level`,
whatever goes together with what (Bonferroni): also the one that is picked because it stands out.
Tested in tests/unit/stats/test_together.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from cape.stats.estimates import Estimate

__all__ = ["by_lower_end", "level_of_each", "said_together"]

_T = TypeVar("_T")


def level_of_each(level: float, many: int) -> float:
    """Return the level of each of so many intervals that hold together at `level`."""
    return 1 - (1 - level) / max(many, 1)


def by_lower_end(
    found: Iterable[_T], estimate: Callable[[_T], Estimate], level: float, many: int
) -> list[_T]:
    """Return them by the lower ends of intervals that hold together, then by value, the largest first."""
    each = level_of_each(level, many)
    return sorted(found, key=lambda one: (-estimate(one).interval(each)[0], -estimate(one).value))


def said_together(level: float, many: int, what: str) -> str:
    """Return the sentence that says so below a table of `what`, in the plural."""
    if many < 2:
        return ""
    return (
        f"Sorted by the lower end of the interval. Intervals hold together, at {level:.0%}, for all {many:,} "
        f"{what}: each one by itself at {level_of_each(level, many):.4g} (Bonferroni)."
    )
