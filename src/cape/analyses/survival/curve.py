"""A survival curve at the edges of bins: intervals, bands, quantiles and the restricted mean.

The curve is Kaplan and Meier's, exp(-L) for the cumulative hazard L of `Hazard`; it falls and lies in [0, 1],
because no more rows have an event than are exposed. Its intervals are those of L.

*Bands* have the form of the intervals with a larger q, such that the largest error over the known edges lies
within q standard errors with the level's probability: simulated from the covariance of the errors, with a
fixed seed. They fall, as the curve does, because a bound at one time holds for all later or earlier ones.

*Quantiles* lie in the bins at whose start the curve may still be above, and at whose end it may be below: the
interval is from the first of these bins' starts to the last one's end, so that it holds whatever the times
within a bin are. The value is read off the curve.

Between edges the hazard is constant, so that the area below the curve in a bin is its width times (S - S') /
log(S / S'); with `at_edges` the curve is a step that falls at the edges. *Restricted means* are areas until a
horizon. Past the known edges the area is that of any curve that falls from the last interval on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from cape.analyses.empty import nobody
from cape.analyses.survival.hazard import Hazard
from cape.analyses.survival.risk_table import RiskTable
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate
from cape.stats.laplace_tails import stretched
from cape.stats.simulation import generator

__all__ = ["Area", "SurvivalCurve", "quantile_of"]

_DRAWS, _FEW = 20_000, 4_000
_SMALL = 64  # edges up to which more draws are made
_SEED = 2021
_LEAST = 1e-12  # survival, below which its logarithm says nothing
_SMALL_FALL = 1e-4


def quantile_of(level: float) -> float:
    """Return how many standard errors a normal interval reaches."""
    return float(ndtri((1 + level) / 2))


def _falling(ends: Floats) -> Floats:
    return (np.minimum.accumulate(ends) + np.maximum.accumulate(ends[::-1])[::-1]) / 2


@dataclass(frozen=True)
class SurvivalCurve:
    """The survival of one group at the edges: `edges` begin with the time at which all are at risk."""

    edges: Floats
    table: RiskTable

    @cached_property
    def hazard(self) -> Hazard:
        """Minus the logarithm of the curve."""
        return Hazard(self.table)

    @property
    def known(self) -> int:
        """At how many edges after the first exposures are clear of noise."""
        return self.hazard.known

    @cached_property
    def survival(self) -> Floats:
        """The curve at all edges, 1 at the first."""
        return np.append(1.0, np.exp(-self.hazard.values))

    @cached_property
    def unbiased(self) -> Floats:
        """The curve at the known edges from counts without constraints; it need not fall."""
        return np.append(1.0, np.exp(-self.hazard.unbiased))

    def intervals(self, level: float) -> tuple[Floats, Floats]:
        """Return the interval at each edge by itself; its ends fall, as the curve does.

        They are half way between their running minimum and their running maximum from the right, which both
        fall.
        """
        lows, highs = map(_falling, self._ends(quantile_of(level) * self._further(level)))
        return np.minimum(lows, self.survival), np.maximum(highs, self.survival)

    def band(self, level: float) -> tuple[Floats, Floats]:
        """Return bounds within which the whole curve lies at this level."""
        critical = self._critical(level)
        one = min(2 * float(ndtr(critical)) - 1, 1 - 1e-12)  # the level at a single edge
        lows, highs = self._ends(critical * self._further(one))
        return np.maximum.accumulate(lows[::-1])[::-1], np.minimum.accumulate(highs)

    def _further(self, level: float) -> Floats:
        """Return how much further noise reaches at each known edge than a Gaussian would.

        Until an edge it adds up over the events of as many bins: few of them, near the start, are the worst.
        """
        drawn, blurred = self.hazard.errors
        law, further = self.table.blur.law, np.ones(self.known)
        for place in range(0 if law.gaussian else self.known):
            together = law.combined(*[1.0] * (place + 1))
            further[place] = stretched(together, level, blurred[place], drawn[place])
        return further

    def _ends(self, q: Floats) -> tuple[Floats, Floats]:
        lows, highs = self.hazard.reach(q)
        return np.append(1.0, np.exp(-highs)), np.append(1.0, np.exp(-lows))

    def _critical(self, level: float) -> float:
        """Return how many standard errors hold all errors at this level."""
        covariance = self.hazard.covariance
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        there = spread > 0
        if there.sum() < 2:
            return quantile_of(level)
        scaled = covariance[np.ix_(there, there)] / np.outer(spread[there], spread[there])
        values, vectors = np.linalg.eigh(scaled)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = _DRAWS if len(scaled) <= _SMALL else _FEW
        drawn = generator(_SEED).normal(size=(draws, len(scaled))) @ root.T
        return float(np.quantile(np.abs(drawn).max(1), level))

    def estimates(self, labels: list[str]) -> list[Estimate]:
        """Return the survival at each edge after the first."""
        known, found = self.known, []
        drawn, blurred = self.hazard.errors
        for place, label in enumerate(labels):
            value = float(self.survival[place + 1])
            if place < known:
                errors = value * float(drawn[place]), value * float(blurred[place])
            else:
                low, high = (ends[place + 1] for ends in self.intervals(0.95))
                errors = 0.0, float(high - low) / 2
            found.append(Estimate(label, value, *errors, (0.0, 1.0), _AtEdge(self, place + 1)))
        return found

    def time_of(self, survival: float, curve: Floats | None = None) -> float:
        """Return when the curve reaches a survival: infinity if it does not."""
        found = self.survival if curve is None else curve
        reached = np.flatnonzero(found <= survival + 1e-12)
        if not len(reached):
            return math.inf
        place = int(reached[0])
        if place == 0 or self.table.at_edges:
            return float(self.edges[place])
        above, below = float(found[place - 1]), max(float(found[place]), _LEAST)
        level = max(survival, _LEAST)
        part = math.log(above / level) / math.log(above / below) if above > below else 1.0
        return float(self.edges[place - 1] + part * (self.edges[place] - self.edges[place - 1]))

    def quantile(self, label: str, prob: float) -> Estimate:
        """Return the time by which a share of people have had the event: the last edge if it is later."""
        survival = 1 - prob
        first, last = float(self.edges[0]), float(self.edges[-1])
        interval = _QuantileInterval(self, survival)
        if not self.known:
            return Estimate(label, (first + last) / 2, 0.0, (last - first) / 2, (first, math.inf), interval)
        if nobody(*self.table.seen_events):  # a curve that falls by noise alone has no such time
            return Estimate(label, last, 0.0, (last - first) / 2, (first, math.inf), interval)
        value = self._shifted(survival)
        at = np.minimum(np.searchsorted(self.edges[1:], value), self.known - 1)
        errors = [survival * float(error[at]) for error in self.hazard.errors]
        drawn, blurred = (
            (self._shifted(survival - error) - self._shifted(survival + error)) / 2 for error in errors
        )
        return Estimate(label, value, drawn, blurred, (first, math.inf), interval)

    def _shifted(self, survival: float) -> float:
        return min(self.time_of(min(max(survival, 0.0), 1.0)), float(self.edges[-1]))

    def area(self, horizon: float) -> Area:
        """Return the mean time until the event or the horizon, whichever is first."""
        return Area(self, horizon)


@dataclass(frozen=True)
class _AtEdge:
    """The interval of the survival at one edge."""

    curve: SurvivalCurve
    place: int

    def __call__(self, level: float) -> tuple[float, float]:
        lows, highs = self.curve.intervals(level)
        return float(lows[self.place]), float(highs[self.place])


@dataclass(frozen=True)
class _QuantileInterval:
    """From the start of the first bin that may hold the quantile to the end of the last one."""

    curve: SurvivalCurve
    survival: float

    def __call__(self, level: float) -> tuple[float, float]:
        edges = self.curve.edges
        lows, highs = self.curve.intervals(level)
        above, below = highs > self.survival, lows <= self.survival
        first = int(np.argmax(below)) if below.any() else len(edges) - 1
        last = len(edges) - 1 - int(np.argmax(above[::-1]))  # at the first edge all survive
        if last == len(edges) - 1:
            return float(edges[max(first - 1, 0)]), math.inf
        return float(edges[max(min(first - 1, last), 0)]), float(edges[max(last + 1, first)])


def _between(falls: Floats) -> tuple[Floats, Floats]:
    """Return (1 - exp(-x)) / x and its derivative for falls x of log S."""
    small = np.abs(falls) < _SMALL_FALL
    x = np.where(small, 1.0, falls)
    mean = np.where(small, 1 - falls / 2 + falls**2 / 6, -np.expm1(-x) / x)
    slope = np.where(small, -0.5 + falls / 3, (np.exp(-x) - mean) / x)
    return mean, slope


@dataclass(frozen=True)
class Area:
    """The area below a curve until a horizon."""

    curve: SurvivalCurve
    horizon: float

    @cached_property
    def lengths(self) -> Floats:
        """How much of each bin lies before the horizon."""
        edges = self.curve.edges
        return np.asarray((np.minimum(edges[1:], self.horizon) - edges[:-1]).clip(min=0.0))

    def _of(self, curve: Floats) -> tuple[float, Floats]:
        """Return the area below a curve in its bins, and how it changes with log S at their ends."""
        bins = len(curve) - 1
        long, wide = self.lengths[:bins], np.diff(self.curve.edges[: bins + 1])
        slopes = np.zeros(bins + 1)
        if self.curve.table.at_edges:
            slopes[:-1] = long * curve[:-1]
            return float(slopes.sum()), slopes[1:]
        logs = np.log(np.maximum(curve, _LEAST))
        part = long / wide
        mean, falling = _between(part * (logs[:-1] - logs[1:]))
        areas = long * curve[:-1] * mean  # of a hazard that is constant until the horizon
        bend = long * curve[:-1] * falling * part
        slopes[:-1] += areas + bend
        slopes[1:] -= bend
        return float(areas.sum()), slopes[1:]

    @property
    def _start(self) -> float:
        """Nobody has the event before the lower bound of the time."""
        return min(float(self.curve.edges[0]), self.horizon)

    @cached_property
    def value(self) -> float:
        """The area below the curve that is shown."""
        return self._start + self._of(self.curve.survival)[0]

    @cached_property
    def errors(self) -> tuple[float, float]:
        """The standard errors from sampling and from noise, of the part until the last known edge."""
        known, hazard = self.curve.known, self.curve.hazard
        if not known:
            return 0.0, 0.0
        _, slopes = self._of(self.curve.survival[: known + 1])
        earlier = np.minimum.outer(np.arange(known), np.arange(known))
        drawn, blurred = slopes @ hazard.sampling[earlier] @ slopes, slopes @ hazard.noise @ slopes
        return math.sqrt(max(float(drawn), 0.0)), math.sqrt(max(float(blurred), 0.0))

    @property
    def rest(self) -> float:
        """How much time there is between the last known edge and the horizon."""
        return float(self.lengths[self.curve.known :].sum())

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the interval."""
        curve, known = self.curve, self.curve.known
        middle = self._start + self._of(curve.unbiased)[0]
        reach = quantile_of(level) * math.hypot(*self.errors)
        _, highs = curve.intervals(level)
        most = self.rest * float(highs[known])
        return min(middle - reach, self.value), max(middle + reach + most, self.value)

    def estimate(self, label: str) -> Estimate:
        """Return the restricted mean with its interval."""
        drawn, blurred = self.errors
        blurred = math.hypot(blurred, self.rest / math.sqrt(12))
        return Estimate(label, self.value, drawn, blurred, (0.0, self.horizon), self)

    def less(self, other: Area, label: str) -> Estimate:
        """Return the difference to the area of another group."""
        drawn, blurred = (math.hypot(a, b) for a, b in zip(self.errors, other.errors, strict=True))
        blurred = math.hypot(blurred, self.rest / math.sqrt(12), other.rest / math.sqrt(12))
        within = -self.horizon, self.horizon
        return Estimate(label, self.value - other.value, drawn, blurred, within, _Apart(self, other))


@dataclass(frozen=True)
class _Apart:
    """The interval of a difference of areas: distances of both intervals' ends, squared and added."""

    one: Area
    other: Area

    def __call__(self, level: float) -> tuple[float, float]:
        (low, high), (other_low, other_high) = self.one(level), self.other(level)
        a, b = self.one.value, self.other.value
        if self.one.rest + self.other.rest > 0:
            return low - other_high, high - other_low
        return a - b - math.hypot(a - low, other_high - b), a - b + math.hypot(high - a, b - other_low)
