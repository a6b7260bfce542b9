"""The model of a Weibull or exponential regression: ratios of hazards and of times, predicted survival."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cape.analyses.regression.effects import effect_table, effects, forest, plainly, ratios_of
from cape.analyses.regression.joint import Joint, Tested
from cape.analyses.regression.limited import Limited
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined
from cape.show import Figure, Shown, Table
from cape.show.numbers import count, counted, number
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["Law", "SurvivalRegressionModel"]


@dataclass(frozen=True)
class Law:
    """Until u, a part of the whole time, a row at the centre has the cumulative hazard e^log u^shape."""

    log: float
    shape: float


@dataclass(frozen=True, repr=False)
class SurvivalRegressionModel(Tested, Shown):
    """Hazards that follow a law in time, their logarithms linear in the features.

    Attributes:
        estimates: log-hazards per unit of each feature.
        shape: the shape of Weibull's law; empty for an exponential one.
        weights: log-hazards for x - centre, with x as sites make it.
        centre: about the mean of x.
        law: of a row at the centre.
        span: from when and until when times were counted.
        joint: the estimates together, with the covariances of their errors.
        rounds: the steps that were made, after the first question.
        events: how many there are, as released; `events_noise` is the noise in that.
        faults: what is wrong with the data, in sentences.
        count: how many complete rows there are.
        limited: what was capped and shortened.
    """

    time: str
    event: str
    had: Any
    distribution: str
    design: Design
    schema: Schema
    estimates: tuple[Estimate, ...]
    shape: tuple[Estimate, ...]
    weights: tuple[float, ...]
    centre: tuple[float, ...]
    law: Law
    span: tuple[float, float]
    joint: Joint
    rounds: int
    events: float
    count: float
    limited: Limited
    note: str
    faults: tuple[str, ...] = ()
    events_noise: float = 0.0

    def describe(self) -> str:
        """Return what was done."""
        of = (
            f"{self.distribution} regression of {self.event} by {self.time} on {joined(self.design.features)}"
        )
        return f"{of}, in {count(self.rounds + 1, 'step')}"

    @cached_property
    def coefficients(self) -> dict[str, float]:
        """Log-hazards per unit of each feature; of a category, against its first value."""
        return {each.label: each.value for each in self.estimates}

    @property
    def hazard_ratios(self) -> dict[str, float]:
        """By what hazards are multiplied for one unit more of each feature."""
        return ratios_of(self.coefficients)

    @property
    def time_ratios(self) -> dict[str, float]:
        """By what times to the event are multiplied for one unit more of each feature: e^(-b / shape)."""
        return ratios_of({label: -value / self.law.shape for label, value in self.coefficients.items()})

    def log_hazards(self, data: Any) -> Floats:
        """Return log-hazards of each row against one at the centre: see `Units.rows` for what data may be."""
        x = Units(self.design, self.schema).rows(data)
        return np.asarray((x - np.array(self.centre)) @ np.array(self.weights))

    def predict_survival(self, data: Any, times: Any) -> Floats:
        """Return the survival of each row at each time, (rows, times); NaN where a feature is missing.

        Times may lie beyond those that were seen: the law goes on.
        """
        at, (low, high) = np.atleast_1d(np.asarray(times, np.float64)), self.span
        if at.ndim != 1 or not (np.isfinite(at).all() and (at >= 0).all()):
            raise InvalidInput("times must be numbers from 0 on")
        past = np.maximum(at - low, 0.0) / (high - low)
        log = np.clip(self.law.log + self.log_hazards(data), -700.0, 700.0)
        return np.asarray(np.exp(-np.exp(log)[:, None] * past[None, :] ** self.law.shape))

    def predict_quantile(self, data: Any, part: float = 0.5) -> Floats:
        """Return the time by which this part of rows like each has had the event: the median by default."""
        if not 0 < part < 1:
            raise InvalidInput(f"part must be between 0 and 1, as 0.5 for the median, not {part!r}")
        low, high = self.span
        log = (math.log(-math.log1p(-part)) - self.law.log - self.log_hazards(data)) / self.law.shape
        return np.asarray(low + (high - low) * np.exp(np.clip(log, -700.0, 700.0)))

    @property
    def title(self) -> str:
        """What stands above the table."""
        events = counted(self.events, self.events_noise, "event")
        return f"hazard of {self.schema.label(self.event)} = {self.had} ({events})"

    def tables(self) -> Sequence[Table]:
        """Return ratios of hazards and coefficients with errors."""
        return [effect_table(self.estimates, self.coefficients, self.schema, self.title, "hazard ratio")]

    def figures(self) -> Sequence[Figure]:
        """Return the ratios of hazards on one axis."""
        what = f"Hazard ratio of {self.schema.title(f'{self.event}={self.had}')}"
        return forest(self.estimates, self.schema, what, ratios=True)

    def notes(self) -> Sequence[str]:
        """Return what errors are, and the shape."""
        notes = [
            *self.limited.notes(self.schema, self.count),
            f"Standard errors are robust{', and count the noise' if self.events_noise else ''}.",
        ]
        for each in self.shape:
            low, high = each.interval()
            notes.append(f"Shape of Weibull's law: {number(each.value)} ({number(low)} to {number(high)}).")
        notes = [*self.faults, *notes]
        return [*notes, self.note] if self.note else notes

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: coefficients and ratios per what `per` says, predictions per unit."""
        units = Units(self.design, self.schema)
        said = plainly(self.estimates, self.coefficients, self.schema)
        centre = units.back(np.array([self.centre]))[0].tolist()
        return plain(
            {
                "time": self.time,
                "event": self.event,
                "had": self.had,
                "distribution": self.distribution,
                "coefficients": said["coefficients"],
                "hazard_ratios": {e.label: e.ratio_to_dict() for e in effects(self.estimates, self.schema)},
                "covariance": self.covariance.to_dict(),
                "law": {
                    "shape": self.law.shape,
                    "shape_interval": list(self.shape[0].interval()) if self.shape else None,
                    "cumulative_hazard": math.exp(self.law.log),
                    "from": self.span[0],
                    "until": self.span[1],
                    "centre": dict(zip(units.names, centre, strict=True)),
                },
                "predictions": {"coefficients": self.coefficients},
                "steps": self.rounds,
                "events": self.events,
                "rows": self.count,
                "limited": self.limited.to_dict(),
                "faults": list(self.faults),
            }
        )
