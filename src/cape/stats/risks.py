"""Risk differences, risk ratios and odds ratios of noisy counts, with intervals that count the noise.

The difference has Newcombe's interval, of intervals of both shares that count noise. A ratio has the usual
interval of its logarithm, to which noise adds its own variance (`proportions.apart`).
Tested in tests/unit/stats/test_risks.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cape.core.arrays import Floats
from cape.stats.estimates import Estimate, unknown
from cape.stats.moments import enough
from cape.stats.proportions import Share, apart

__all__ = ["LEAST_CELL", "RATIOS", "Ratio", "risks"]

LEAST_CELL = 0.5
"""What an empty cell counts as in a ratio, at least."""


def risks(table: Floats, noise: float) -> list[Estimate]:
    """Return the risk difference, the risk ratio and the odds ratio of the second row against the first."""
    known = all(enough(float(row.sum()), noise * math.sqrt(2)) for row in table)
    if not known:
        ratios = [replace(unknown(label, 0.0, math.inf, 1.0), privacy=1.0) for label in RATIOS]
        return [unknown("risk difference", -1.0, 1.0), *ratios]
    control, exposed = (Share.of(float(row[1]), float(row.sum()), noise, 2) for row in table)
    value = exposed.value - control.value
    estimates = [
        Estimate(
            "risk difference",
            value,
            math.hypot(exposed.sampling, control.sampling),
            math.hypot(exposed.noise, control.noise),
            (-1.0, 1.0),
            _Difference(exposed, control),
        )
    ]
    cells = np.maximum(table, max(noise, LEAST_CELL))  # a ratio of counts that noise or chance made 0
    control, exposed = (Share.of(float(row[1]), float(row.sum()), noise, 2) for row in cells)
    for label, (of, slope, drawn) in RATIOS.items():
        ratio = math.exp(of(exposed.value) - of(control.value))
        sampling = math.sqrt(drawn(exposed) + drawn(control))
        blurred = math.hypot(*(slope(each.value) * each.noise for each in (exposed, control)))
        empty = bool((table <= 0).any())
        at = Ratio(exposed, control, label, empty)
        estimates.append(Estimate(label, ratio, ratio * sampling, ratio * blurred, (0.0, math.inf), at))
    return estimates


@dataclass(frozen=True)
class _Difference:
    """Newcombe's interval of a difference of shares, of intervals that count noise."""

    one: Share
    other: Share

    def __call__(self, level: float) -> tuple[float, float]:
        (low, high), (other_low, other_high) = self.one(level), self.other(level)
        p, q = self.one.value, self.other.value
        return p - q - math.hypot(p - low, other_high - q), p - q + math.hypot(high - p, q - other_low)


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _of_risk(share: Share) -> float:
    return 1 / share.part - 1 / share.whole


def _of_odds(share: Share) -> float:
    return 1 / share.part + 1 / (share.whole - share.part)


_Form = tuple[Callable[[float], float], Callable[[float], float], Callable[[Share], float]]

RATIOS: dict[str, _Form] = {  # the logarithm that is compared, its derivative, its variance from sampling
    "risk ratio": (math.log, lambda p: 1 / p, _of_risk),
    "odds ratio": (_logit, lambda p: 1 / (p * (1 - p)), _of_odds),
}


@dataclass(frozen=True)
class Ratio:
    """The interval of a ratio: the usual one of its logarithm, in which noise counts too.

    If a cell is empty, or noise could have made it so, it is open on the side that this leaves open.
    `correlation` is that of the noise in the two shares.
    """

    one: Share
    other: Share
    label: str
    empty: bool
    correlation: float = 0.0

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the interval at a level."""
        of, _, drawn = RATIOS[self.label]
        if self.empty:
            return 0.0, math.inf
        low, high = apart(self.one, self.other, level, of, drawn, self.correlation)
        return math.exp(max(low, -700.0)) if low > -math.inf else 0.0, (
            math.exp(high) if high < 700.0 else math.inf
        )
