"""What bounds cost: how much of the noise a column's bounds make, beside what sampling does anyway.

Noise in a mean or in a slope is proportional to the width of bounds. Where a column is expected to lie in a
small part of them, tighter ones that still hold `REACH` of its SDs on both sides of its mean are planned too;
cells beyond count as the bound. Where bounds make noise larger than the sampling error, and tighter ones
clearly less, the plan says both.
Tested in tests/unit/engine/test_bounds_price.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cape.core.errors import InvalidInput
from cape.data import Number, Schema

__all__ = ["BoundsPrice", "price_of_bounds"]

REACH = 5.0
_DIGITS = 2  # of bounds that are proposed
_COSTLY = 1.0  # sampling errors
_CLEARLY = 1.5  # times less noise
_CHANGED = 1.1
_NAMED = 3


@dataclass(frozen=True)
class BoundsPrice:
    """What the bounds of one column cost.

    Attributes:
        bounds, tighter: as they are, and as they could be.
        cost: the noise of the median number that depends on them, in sampling errors.
        then: the same with tighter ones.
    """

    column: str
    bounds: tuple[float, float]
    tighter: tuple[float, float]
    cost: float
    then: float

    def sentence(self, title: str) -> str:
        """Return it in words; `title` is how people call the column."""
        (low, high), (least, most) = self.bounds, self.tighter
        cut = [f"higher values count as {most:g}"] if most < high else []
        cut += (
            [f"lower ones as {least:g}" if cut else f"lower values count as {least:g}"] if least > low else []
        )
        return (
            f"Bounds {low:g} to {high:g} of {title} cost {self.cost:.2g} times the sampling error; with "
            f"{least:g} to {most:g}, where {' and '.join(cut)}, {self.then:.2g}."
        )

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "column": self.column,
            "bounds": list(self.bounds),
            "cost": self.cost,
            "tighter": list(self.tighter),
            "cost_then": self.then,
        }


def price_of_bounds(
    schema: Schema,
    columns: Sequence[str],
    noise: Mapping[str, float],
    sampling: Callable[[], Mapping[str, float]],
    planned: Callable[[Schema], Mapping[str, float]],
) -> tuple[BoundsPrice, ...]:
    """Return the prices of bounds that are worth tightening, the highest first.

    `sampling` returns the sampling errors of the same labels as those of the noise; `planned` plans the noise
    with other bounds.
    """
    found: list[BoundsPrice] = []
    drawn: Mapping[str, float] | None = None
    for name in columns:
        column = schema[name]
        tight = _tighter(column) if isinstance(column, Number) else None
        if not isinstance(column, Number) or tight is None:
            continue
        with suppress(InvalidInput):  # edges outside of them
            less, drawn = planned(schema.changed({name: tight})), sampling() if drawn is None else drawn
            both = sorted(
                (noise[label] / drawn[label], less[label] / drawn[label])
                for label in noise
                if drawn.get(label, 0.0) > 0 and noise[label] > _CHANGED * less.get(label, math.inf)
            )
            if both:
                now, then = both[(len(both) - 1) // 2]
                if now > _COSTLY and now > _CLEARLY * then:
                    ends = (column.low, column.high), (tight.low, tight.high)
                    found.append(BoundsPrice(name, *ends, now, then))
    return tuple(sorted(found, key=lambda each: -each.cost / each.then)[:_NAMED])


def _tighter(column: Number) -> Number | None:
    """Return a column with bounds around what is expected of it; None if its own are about as tight."""
    expected = column.expected
    if expected is None or column.date:
        return None
    reach = REACH * expected.sd
    unit = 10.0 ** (math.floor(math.log10(2 * reach)) - _DIGITS + 1)
    unit = max(unit, 1.0) if column.integer else unit
    low = max(column.low, math.floor((expected.mean - reach) / unit) * unit)
    high = min(column.high, math.ceil((expected.mean + reach) / unit) * unit)
    if (column.high - column.low) < _CLEARLY * (high - low):
        return None
    with suppress(InvalidInput):
        return replace(column, low=_written(low), high=_written(high))
    return None


def _written(bound: float) -> float:
    return float(f"{bound:.12g}")
