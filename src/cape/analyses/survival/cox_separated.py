"""Values of categories at which a Cox regression sees no events, though many rows have them.

Where all events have another value, ratios of hazards have no end, and steps end where they end. The mean
over events of a value's 0 and 1, which baselines need, is the share of events there. A value is named where
that may be none beside noise, where certainly more would be seen if events came to all rows alike, and where
its estimated hazard is much lower than that of the other values.
Tested in tests/unit/analyses/survival/test_cox_separated.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from cape.analyses.regression.faults import events_only
from cape.analyses.survival.cox_steps import Fit
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.data import Schema
from cape.stats.estimates import Estimate

__all__ = ["Open", "Separated", "opened", "separated_values"]

_HIDDEN = 2.0  # standard deviations of noise: a share of events that it hides
_SURE = 2.5  # the same: a share that would be seen
_LOWER = 1.5  # of log-hazards: how much lower one is at least at such a value


@dataclass(frozen=True)
class Open:
    """An interval around an estimate, with a normal error on one side and an end far away on the other."""

    value: float
    error: float
    end: float

    def __call__(self, level: float) -> tuple[float, float]:
        reach = -math.copysign(float(ndtri((1 + level) / 2)) * self.error, self.end)
        ends = self.value + reach, math.copysign(max(abs(self.end), abs(self.value)), self.end)
        return min(ends), max(ends)


def opened(estimate: Estimate, end: float) -> Estimate:
    """Return an estimate whose interval goes on to an end that is far away; its error is as wide."""
    at = Open(estimate.value, estimate.standard_error, end)
    wide = max(abs(end - estimate.value) / 2, estimate.privacy)
    return replace(estimate, privacy=wide, at=at)


@dataclass(frozen=True)
class Separated:
    """A value of a category at which no events are seen.

    Attributes:
        name, value: which.
        sides: by label, on which side its coefficient has no end: 1 for above, -1 for below.
    """

    name: str
    value: str
    sides: tuple[tuple[str, float], ...]

    def text(self, schema: Schema) -> str:
        """Return what to know of it."""
        only = events_only(self.name, self.value, schema)
        return (
            f"{only}. Estimates may have no end, and say only the direction. Drop {schema.label(self.name)}"
        )


def separated_values(fit: Fit, weights: Floats, units: Units, schema: Schema) -> list[Separated]:
    """Return the values at which noise hides whether there are events, though many rows have them."""
    if fit.marginals is None or not fit.clear or not fit.scored[-1].step.score_noise:
        return []
    found = []
    for name in fit.design.sources:
        if name not in fit.marginals.shares:
            continue
        labels = [f"{name}={value}" for value in schema.category(name).values[1:]]
        if not set(labels) <= set(units.names):
            continue
        places = [units.names.index(label) for label in labels]
        size = units.matrix[1:, 1:].diagonal()[places]
        axes = np.zeros((len(places) + 1, len(units.names)))
        axes[1:, places] = np.diag(1 / size)
        axes[0] = -axes[1:].sum(axis=0)
        logs = np.append(0.0, size * weights[places])
        hidden = _without_events(fit, axes, fit.marginals.shares[name], logs)
        if 0 < len(hidden) < len(axes):
            found += [_one(name, place, labels, schema) for place in hidden]
    return found


def _one(name: str, place: int, labels: Sequence[str], schema: Schema) -> Separated:
    sides = [(label, 1.0) for label in labels] if place == 0 else [(labels[place - 1], -1.0)]
    return Separated(name, str(schema.category(name).values[place]), tuple(sides))


def _without_events(fit: Fit, axes: Floats, shares: Floats, logs: Floats) -> list[int]:
    """Return the values without events; `axes` make the 0 and 1 of each of x, but for a constant."""
    mean, covariance = fit.hazards.mean
    found = []
    for place, (axis, share) in enumerate(zip(axes, shares, strict=True)):
        first = 1.0 if place == 0 else 0.0  # the reference is what no other value is
        middle = first + float(axis @ (fit.centre + mean))
        noise = math.sqrt(max(float(axis @ covariance @ axis), 0.0))
        others = float(np.delete(shares, place) @ np.delete(logs, place)) / max(1 - float(share), 1e-9)
        if (
            middle < _HIDDEN * noise
            and float(share) - max(middle, 0.0) > _SURE * noise
            and logs[place] < others - _LOWER
        ):
            found.append(place)
    return found
