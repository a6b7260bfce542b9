"""Values of categories at which a law of time sees no events, though many rows have them.

Where all events have another value, ratios of hazards have no end. How many events there are at a value is
what the law expects there and the score along its 0 and 1 (`parametric_start.events_along`).
Tested in tests/unit/analyses/survival/test_cox_separated.py.
"""

from __future__ import annotations

import numpy as np

from cape.analyses.survival.cox_separated import Separated, one_value
from cape.analyses.survival.parametric_start import Looked, events_along
from cape.blocks.units import Units
from cape.data import Schema
from cape.stats.score_steps import ScoreStep

__all__ = ["values_without_events"]

_HIDDEN, _SURE = 2.0, 3.0  # standard deviations of noise: events that it hides, and that it cannot


def values_without_events(step: ScoreStep, looked: Looked, units: Units, schema: Schema) -> list[Separated]:
    """Return the values at which noise hides whether there are events, though many rows have them."""
    found = []
    total = max(events_along(step, np.eye(step.width)[0])[0], 0.0)
    for name in units.design.sources:
        if name not in looked.shares:
            continue
        labels = [f"{name}={value}" for value in schema.category(name).values[1:]]
        if not set(labels) <= set(units.names):
            continue
        places = [1 + units.names.index(label) for label in labels]
        axes = np.zeros((1 + len(places), step.width))
        axes[1:, places] = np.diag(1 / units.matrix.diagonal()[places])
        axes[0] = -axes[1:].sum(axis=0)
        axes[0, 0] = 1.0
        hidden = []
        for place, (axis, share) in enumerate(zip(axes, looked.shares[name], strict=True)):
            events, noise = events_along(step, axis)
            if events < _HIDDEN * noise and total * float(share) > _SURE * noise:
                hidden.append(place)
        if len(hidden) < len(axes):
            found += [one_value(name, place, labels, schema) for place in hidden]
    return found
