"""Where a Weibull or exponential regression starts: when rows leave and enter, counted by a first stage.

A row is in one cell of the table of events by times, and in one bin of the times at which rows enter.

Bins of the time are equal, but the first is halved many times: times near the beginning have very different
logarithms. From the counts follow a law without features, and where times are cut: nowhere, unless rows are
seen in the first bin. Their logarithms may be anything, and where people count whole days many times are 0;
these rows count as leaving at the beginning of the next bin in which rows are seen. All that is here is
post-processing. Tested in tests/unit/analyses/survival/test_parametric_start.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.marginals import Marginals
from cape.blocks import Axis, Counts, Times
from cape.blocks.law_scores import LEAST, Followed
from cape.core.arrays import Floats
from cape.data import Schema
from cape.stats.capping import Marginal, marginal
from cape.stats.score_steps import ScoreStep

__all__ = ["Begun", "Looked", "TimesSeen", "blocks_of", "clear", "events_of"]

EQUAL, HALVED = 16, 16  # bins, and how often the first is halved
SHAPED = 0.5  # the SD of the logarithm of the shape that is expected before anything is seen
_CLEAR = 1.5  # standard deviations of noise: with fewer events nothing is known
_SURE = 3.3  # standard deviations of noise
_NARROWEST, _WIDEST = 0.05, 20.0  # of a shape
_ROUNDS = 50
_WITHIN = 16  # points of a bin
_ROOTS = np.sqrt(np.array([73.0, 79.0]))  # multiples are evenly spread mod 1


def blocks_of(times: Times, schema: Schema) -> tuple[Counts, ...]:
    """Return the counts of rows by event and time, and those of rows by when they enter, if they may late."""
    column = schema.number(times.time)
    width = (column.high - column.low) / EQUAL
    first = column.low + width * 2.0 ** -np.arange(1, HALVED + 1)
    edges = np.unique(np.concatenate([np.linspace(column.low, column.high, EQUAL + 1), first]))
    entered = () if times.entry is None else (Counts((Axis(times.entry, edges),)),)
    return (Counts((Axis(times.event), Axis(times.time, edges))), *entered)


@dataclass(frozen=True)
class Begun:
    """A law without features.

    Attributes:
        level, shape: a row expects e^level u^shape events until u, a part of the span.
        events, doubt: how many there are, and the noise in that.
        mean, spread: the mean of the logarithms of times, over what is expected, and their variance.
    """

    level: float
    shape: float
    events: float
    doubt: float
    mean: float
    spread: float


@dataclass(frozen=True)
class TimesSeen:
    """Rows by when they leave, with an event and without, and by when they enter; with noise.

    Attributes:
        edges: of the bins, in parts of the span.
        events, censored: by bin.
        entered: by bin; None if all enter at the beginning.
        noise: of a count.
        sorts: how many values the event has.
    """

    edges: Floats
    events: Floats
    censored: Floats
    entered: Floats | None
    noise: float
    sorts: int = 2

    @classmethod
    def of(
        cls, blocks: tuple[Counts, ...], sums: tuple[tuple[Floats, ...], ...], noise: float, schema: Schema
    ) -> TimesSeen:
        """Return what these counts say."""
        axis = blocks[0].axes[1]
        column = schema.number(axis.column)
        assert axis.edges is not None  # it has edges
        by_event = np.asarray(sums[0][0], np.float64)
        return cls(
            (axis.edges - column.low) / (column.high - column.low),
            by_event[1],
            by_event.sum(axis=0) - by_event[1],
            np.asarray(sums[1][0], np.float64) if len(blocks) > 1 else None,
            noise,
            len(by_event),
        )

    @property
    def _left(self) -> Floats:
        return self.events + self.censored

    def marginal(self, schema: Schema, name: str, cap: tuple[float, float] | bool) -> Marginal:
        """Return the time with these ends; True chooses where it begins, and False leaves it as it is."""
        column = schema.number(name)
        edges = column.low + (column.high - column.low) * self.edges
        noise = self.noise * math.sqrt(self.sorts)
        if cap is True:
            clear = np.flatnonzero(self._left > _SURE * max(noise, 1e-9))
            least = float(edges[clear[1]]) if clear.size > 1 and clear[0] == 0 else column.low
            cap = (least, column.high)
        return marginal(edges, self._left, noise, cap=cap)

    @property
    def crowded(self) -> bool:
        """Whether rows are seen in the first bin."""
        return bool(self._left[0] > _SURE * max(self.noise * math.sqrt(self.sorts), 1e-9))

    @property
    def seen_events(self) -> tuple[float, float]:
        """How many events there are, and the noise in that."""
        return float(self.events.sum()), self.noise * math.sqrt(len(self.events))

    def begun(self, count: float, *, shaped: bool) -> Begun:
        """Return the law whose expected events are those that are seen, by bin; `count` rows there are."""
        noise = self.noise * math.sqrt(self.sorts)
        left = marginal(self.edges, self._left, noise, cap=False, rows=count).weights
        events = np.where(left > 0, self.events, 0.0)
        doubt = self.noise * math.sqrt(int((left > 0).sum()))
        total = min(max(float(events.sum()), 2 * doubt, 1.0), max(count, 1.0))
        stays = _tail(left)
        if self.entered is not None:
            stays = np.maximum(stays - _tail(np.where(self.entered > noise, self.entered, 0.0)), 0.0)
        at_risk = (stays[1:] + stays[:-1]) / 2
        if not at_risk.any():
            at_risk = np.full(len(left), count / 2)
        log = self._log_shape(at_risk, np.maximum(events, 0.0), total) if shaped else 0.0
        shape = math.exp(log)
        passed = np.diff(self.edges**shape)
        scale = float(at_risk @ passed)
        level = math.log(total / max(scale, 1e-300))
        parts = (np.arange(_WITHIN) + 0.5) / _WITHIN
        points = (self.edges[:-1, None] ** shape + passed[:, None] * parts) ** (1 / shape)
        logs = np.log(np.maximum(points, 1e-300))
        weights = at_risk * passed / max(scale, 1e-300)
        mean = float(weights @ logs.mean(axis=1))
        spread = float(weights @ (logs**2).mean(axis=1)) - mean**2
        return Begun(level, shape, total, doubt, mean, max(spread, 0.01 / shape**2))

    def made_up(self, many: int, logs: Floats, shape: float) -> Followed:
        """Return rows that follow a law, with these log-hazards until the end of the span, and leave without
        an event as those do that were seen."""
        ranks = (0.5 + np.arange(many)[:, None] * _ROOTS) % 1.0
        had = (np.log(-np.log(ranks[:, 0])) - logs) / shape
        noise = self.noise * math.sqrt(self.sorts)
        left = marginal(self.edges, self._left, noise, cap=False).weights
        stays = _tail(left)
        at_risk = np.maximum((stays[1:] + stays[:-1]) / 2, 1e-9)
        censored = np.where(left > 0, np.maximum(self.censored, 0.0), 0.0)
        staying = np.cumprod(np.append(1.0, 1 - np.minimum(censored / at_risk, 1.0)))
        gone = np.interp(1 - ranks[:, 1], 1 - staying, self.edges)
        until = np.log(np.maximum(np.where(ranks[:, 1] < staying[-1], 1.0, gone), LEAST))
        return Followed(
            np.clip(np.minimum(had, until), math.log(LEAST), 0.0),
            np.full(many, -math.inf),
            (had <= until).astype(np.float64),
        )

    def _log_shape(self, at_risk: Floats, events: Floats, total: float) -> float:
        """Return the likely logarithm of the shape; it is expected to be 0, with an SD of `SHAPED`.

        The events of a bin have the variance of a count and of noise, so that bins of noise alone say little.
        """
        log, power_logs = 0.0, np.log(np.where(self.edges > 0, self.edges, 1.0))
        for _ in range(_ROUNDS):
            shape = math.exp(log)
            power = self.edges**shape
            passed = np.diff(power)
            slope = shape * np.diff(power * power_logs) / np.maximum(passed, 1e-300)
            expected = at_risk * passed
            expected = expected * (total / max(float(expected.sum()), 1e-300))
            sure = expected / np.maximum(expected + self.noise**2, 1e-300)
            middle = float(expected * sure @ slope) / max(float(expected @ sure), 1e-300)
            away = sure * (slope - middle)
            score = float((events - expected) @ away) - log / SHAPED**2
            change = score / (float(expected @ (away * (slope - middle))) + SHAPED**-2.0)
            log += min(max(change, -0.5), 0.5)
            log = min(max(log, math.log(_NARROWEST)), math.log(_WIDEST))
        return log


def events_of(step: ScoreStep, times: TimesSeen) -> tuple[float, float]:
    """Return how many events there are, and the noise in that: counted by time, or as a step's scores say.

    Along the level, the weight of 1, curvature is how many events are expected, and the score how many there
    are beside those; what shortening took of it counts as noise.
    """
    counted, count_noise = times.seen_events
    level = np.linalg.inv(step.point.turn)[0]
    square = float(level @ level)
    beyond = 0.0 if step.point.beyond is None else step.point.beyond.excess
    of_curvature = math.sqrt(2) * step.curvature_noise * square
    noise = math.hypot(math.hypot(step.score_noise, beyond) * math.sqrt(square), of_curvature)
    if count_noise <= noise:
        return counted, count_noise
    return float(level @ step.curvature @ level + level @ step.score), noise


def clear(step: ScoreStep, times: TimesSeen) -> bool:
    """Return whether the number of events stands out of noise after a step."""
    events, noise = events_of(step, times)
    return events > _CLEAR * noise


def _tail(counts: Floats) -> Floats:
    """Return how many there are from the beginning of each bin on, and after the last."""
    return np.append(np.cumsum(counts[::-1])[::-1], 0.0)


@dataclass(frozen=True)
class Looked(Marginals):
    """What the first stage says of the features, and of times."""

    times: TimesSeen
