"""Groups in which nobody is, and columns that do not vary, as released numbers show it: named, in sentences.

A count is clear of its noise if it is `_CLEAR` times as large, so that one in thousands of empty groups is
taken for one with somebody in it; where there is noise, a sentence says that noise may hide what is there.
Tested in tests/unit/analyses/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cape.data import Schema
from cape.engine.arguments import joined
from cape.stats.estimates import Estimate, is_hidden

__all__ = ["empty_groups", "nobody", "same_everywhere", "unknown_groups"]

_CLEAR = 3.5  # times its noise: a count that is larger is surely not none
_NOBODY = 0.5  # rows


def nobody(count: float, noise: float) -> bool:
    """Return whether nobody is seen among so many rows, with this noise."""
    return count < max(_CLEAR * noise, _NOBODY)


def empty_groups(by: str, sizes: Mapping[Any, tuple[float, float]], schema: Schema) -> list[str]:
    """Return a sentence on the values of a column in which nobody is; `sizes` are counts with their noise."""
    empty = [value for value, (count, noise) in sizes.items() if nobody(count, noise)]
    if not empty:
        return []
    noisy = any(sizes[value][1] > 0 for value in empty)
    named = joined([schema.title(f"{by}={value}") for value in empty])
    groups, it = ("groups", "them") if len(empty) > 1 else ("group", "it")
    who = (
        f"Noise hides whether anybody is in the {groups} {named}"
        if noisy
        else f"Nobody is in the {groups} {named}"
    )
    known = "little" if noisy else "nothing"
    return [
        f"{who}: {known} can be said of {it}, or of what is compared with {it}. Leave {it} out with where."
    ]


def unknown_groups(by: str, estimates: Sequence[Estimate], schema: Schema, *, private: bool) -> list[str]:
    """Return a sentence on the values of a column of which every number is hidden, by their labels."""
    hidden = []
    for value in schema.category(by).values:
        ours = [each for each in estimates if each.label.endswith(f" | {by}={value}")]
        if ours and all(map(is_hidden, ours)):
            hidden.append(schema.title(f"{by}={value}"))
    if not hidden:
        return []
    them = "it" if len(hidden) == 1 else "them"
    why = f"noise hides {them}" if private else "too few rows are, or nothing varies there"
    return [f"Nothing is known of {joined(hidden)}: nobody is in {them}, or {why}."]


def same_everywhere(names: Sequence[str], schema: Schema, *, noisy: bool) -> list[str]:
    """Return a sentence on columns that do not vary, or whose variance noise hides."""
    if not names:
        return []
    named = joined([schema.label(name) for name in names])
    if noisy:
        return [f"Noise hides whether {named} {'varies' if len(names) == 1 else 'vary'} at all."]
    return [f"{named} {'does' if len(names) == 1 else 'do'} not vary."]
