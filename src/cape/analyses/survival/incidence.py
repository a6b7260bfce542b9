"""The cumulative incidence of one event among several that compete: Aalen and Johansen's estimate.

F_j(e_k) adds up S d_j / E over bins, S the share of people without any event at a bin's start. What it adds
over the survival curve is which event ends it: the incidences and the curve add up to 1.

*Errors.* From sampling those of the delta method (Marubini and Valsecchi); from noise those of the linear
part: dF(t) / df_i = -(F(t) - F(i)) for the hazard f_i of a bin, and S / E for its own events. Intervals have
the form of those of hazards, and are cut at what the curve leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cape.analyses.survival.curve import SurvivalCurve, quantile_of
from cape.analyses.survival.hazard import wilson
from cape.analyses.survival.risk_table import RiskTable
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate

__all__ = ["Incidence"]


@dataclass(frozen=True)
class Incidence:
    """How many have had one event, `cause`, by each edge after the first."""

    curve: SurvivalCurve
    cause: int

    @cached_property
    def values(self) -> Floats:
        """The incidence that is shown."""
        return np.cumsum(self._steps(self.curve.table))

    def _steps(self, table: RiskTable) -> Floats:
        exposed = np.where(table.exposed > 0, table.exposed, 1.0)
        share = np.where(table.exposed > 0, table.deaths / exposed, 0.0).clip(max=1.0)
        before = np.append(1.0, np.cumprod(1 - share)[:-1])
        return np.asarray(before * np.where(table.exposed > 0, table.events[self.cause] / exposed, 0.0))

    @cached_property
    def _parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        """In the known bins: survival before, share of the event, exposure, and F(t) - F(i) for i <= t."""
        known, table = self.curve.known, self.curve.table
        exposed = table.exposed[:known]
        later = np.tril(np.subtract.outer(self.values[:known], self.values[:known]))
        return self.curve.survival[:known], table.events[self.cause, :known] / exposed, exposed, later

    @cached_property
    def sampling(self) -> Floats:
        """The sampling variance at the known edges."""
        before, share, exposed, later = self._parts
        ones = np.tril(np.ones_like(later))
        own = before**2 * share * (1 - share) / exposed
        return np.asarray(
            later**2 @ self.curve.hazard.variance_steps + ones @ own - 2 * later @ (before * share / exposed)
        ).clip(min=0.0)

    @cached_property
    def noise(self) -> Floats:
        """The variance of the noise at the known edges."""
        before, share, exposed, later = self._parts
        table, known = self.curve.table, self.curve.known
        ones, hazard = np.tril(np.ones_like(later)), self.curve.hazard
        direct = np.zeros((known, table.events.shape[0], table.bins))
        by_exposure = np.zeros((known, table.bins))
        left = np.maximum(exposed - table.deaths[:known], 0.5)
        direct[:, :, :known] = -(later / left)[:, None, :]
        direct[:, self.cause, :known] += ones * before / exposed
        by_exposure[:, :known] = later * hazard.variance_steps - ones * before * share / exposed
        return np.diag(table.blur.covariance(table.chained(direct, by_exposure))).clip(min=0.0)

    def intervals(self, level: float) -> tuple[Floats, Floats]:
        """Return the interval at each edge after the first."""
        known, table = self.curve.known, self.curve.table
        values = self.values[:known]
        unbiased = np.cumsum(self._steps(table.free or table)[:known])
        alone = np.cumsum(1 / table.exposed[:known]) / np.arange(1, known + 1)
        per = np.divide(self.sampling, values, out=alone, where=values > 0)
        lows, highs = wilson(unbiased, per, self.noise, quantile_of(level))
        lows, highs = np.minimum(lows, values), np.maximum(highs, values).clip(max=1.0)
        hidden = table.bins - known
        last = float(lows[-1]) if known else 0.0
        return np.append(lows, np.full(hidden, last)), np.append(highs, np.ones(hidden))

    def estimates(self, labels: list[str]) -> list[Estimate]:
        """Return the incidence by each edge after the first."""
        found = []
        for place, (label, value) in enumerate(zip(labels, self.values.tolist(), strict=True)):
            at = _AtEdge(self, place)
            if place < self.curve.known:
                errors = float(self.sampling[place]) ** 0.5, float(self.noise[place]) ** 0.5
            else:
                low, high = at(0.95)
                errors = 0.0, (high - low) / 2
            found.append(Estimate(label, value, *errors, (0.0, 1.0), at))
        return found


@dataclass(frozen=True)
class _AtEdge:
    """The interval of the incidence by one edge."""

    incidence: Incidence
    place: int

    def __call__(self, level: float) -> tuple[float, float]:
        lows, highs = self.incidence.intervals(level)
        return float(lows[self.place]), float(highs[self.place])
