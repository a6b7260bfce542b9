"""The baseline hazard by cell of time, with what is known of the features of those at risk.

It begins with what the first question of a Cox regression released (`Baseline.first`), and is corrected by
every later one (`Baseline.after`). Nothing here reads a row. Hazards are drawn to a constant one, and those
of strata to one another, as far as noise hides what they are. The level of the baseline and its slope in time
are found with the coefficients, so that these do not depend on them; on the rest of its shape they depend by
as much as the features of those at risk do not change along a line in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cape.blocks import Exposure
from cape.blocks.exposure import middles
from cape.blocks.martingale import STEEP
from cape.core.arrays import Floats
from cape.engine.query import Answer
from cape.stats.matrices import CLEAR, shrunk, spectral, symmetric

__all__ = ["Baseline"]

SHAPE = 0.7  # the SD of the logarithm of hazards over time that is expected before anything is seen
APART = 0.3  # the same for strata beside the hazard of all, each with a level of its own
DOUBTED = 3.0  # times chance: as far as means within strata are drawn to those of all events
MOST_OF = 0.9  # of the events: the tilt rises until so many have happened
_LEAVING = 0.3  # the same for numbers at risk, beside a steady rate of leaving
_RIDGE = 0.15  # of the largest eigenvalue of noise, added to what features are whitened by
_FLAT = 1e-6
_LEAST = 0.1  # of what a constant hazard expects, and of the mean variance of features
_LARGEST = 0.98  # of a hazard: the most by which it falls at a time
_TINY = 1e-300
_FEWEST = 1e-6  # events: with fewer, nothing is known of a slope


@dataclass(frozen=True)
class Baseline:
    """Hazards by cell, of a row whose features are `centre`.

    Attributes:
        hazards: the events that a row expects in each cell.
        doubt: the variance of the noise in their logarithms.
        means: for each cell, the mean of x - centre over those in its stratum who have the event.
        unsure: for each cell, the variance of these means, in units of that of x - centre.
        tilt: for each cell, a line from -1/2 to 1/2 along the time that hazards make; empty for one bin.
        centre: the mean of x over events.
        turn: what whitens x - centre over events.
        spread: the variance of x about these means, over events.
        events: how many there are in each cell.
        at_risk: how many rows are in each cell, on average over it.
        clear: how many events there must be to tell them from noise.
        strata: how many strata there are.
        lean: for each, the variance of what is not known of the slope of logarithms of hazards in time,
            beside that of all.
    """

    hazards: Floats
    doubt: Floats
    means: Floats
    unsure: Floats
    centre: Floats
    turn: Floats
    spread: Floats
    events: Floats
    at_risk: Floats
    clear: float
    tilt: Floats
    strata: int = 1
    lean: tuple[float, ...] = ()

    @property
    def longest(self) -> float:
        """What a row at the centre expects if it is at risk throughout, in the stratum where that is most."""
        return float(self.hazards.reshape(self.strata, -1).sum(axis=1).max())

    @property
    def total(self) -> float:
        """How many events there are."""
        return float(self.events.sum())

    @classmethod
    def first(cls, answer: Answer, block: Exposure) -> Baseline:
        """Return what the first question says."""
        sums, noise = answer.sums[0], answer.noise[0]
        bins, strata = block.follow_up.times.bins, block.follow_up.many(answer.schema)
        rows, _ = answer.complete_rows(block.reads)
        rows = max(rows, 1.0)
        entering = block.follow_up.times.entry is not None
        number = _Clear(float(sums[4].sum()), noise[4] * math.sqrt(strata))
        exits, events_seen = (each.reshape(strata, bins) for each in sums[1:3])

        def stratum(at: slice, share: float, shape: Floats, vary: float) -> _Stratum:
            """Return the hazards of some strata together."""
            many = len(range(strata)[at])
            return _Stratum(
                exits[at].sum(axis=0),
                events_seen[at].sum(axis=0),
                float(sums[3][at].sum()),
                float(sums[4][at].sum()),
                float(sums[5][at].sum()),
                [math.sqrt(many) * each for each in noise],
                rows,
                share,
                entering,
                shape,
                vary,
            )

        widths = np.diff(block.follow_up.times.edges)
        together = stratum(slice(None), 1.0, widths / float(widths.mean()), SHAPE)
        found = [together]
        if strata > 1:
            shape = together.hazards / float(together.hazards.mean())
            found = [stratum(slice(at, at + 1), 1 / strata, shape, APART) for at in range(strata)]
        hazards, events, doubt, at_risk = (
            np.concatenate([getattr(each, name) for each in found])
            for name in ("hazards", "events", "doubt", "at_risk")
        )
        width = len(sums[7])
        tilt = np.tile(_tilt(together.hazards, together.events), strata)
        total = float(events.sum())
        centre = _inside(sums[6].reshape(strata, width).sum(axis=0) / total)
        second = symmetric(sums[7], sums[8]) / total - np.outer(centre, centre)
        of_noise = noise[8] / total
        spread, turn = _whitened(second, of_noise)
        means, unsure = _means(sums[6].reshape(strata, width), noise[6], events, centre, spread)
        return cls(
            hazards,
            doubt,
            means,
            unsure,
            centre,
            turn,
            spread,
            events,
            at_risk,
            number.edge,
            tilt,
            strata,
            tuple(each.lean for each in found) if strata > 1 else (),
        )

    def whitened(self, curvature: Floats, noise: float) -> Baseline:
        """Return the baseline with features whitened by the curvature of a step, level first, if it is clear.

        Rows that were shortened count there as they do in scores.
        """
        number = float(curvature[0, 0])
        if number <= CLEAR * spectral(len(curvature), noise):
            return self
        inner, white = _whitened(curvature[1:, 1:] / number, noise / number)
        back = np.linalg.inv(self.turn)
        spread = back @ inner @ back.T
        times = float(np.trace(self.spread)) / float(np.trace(spread))
        return replace(self, turn=white @ self.turn, spread=spread, unsure=self.unsure * times)

    @property
    def misled(self) -> float:
        """How far noise in the hazards and in the means moves scores together, as a standard deviation."""
        return math.sqrt(float((self.doubt * self.events**2 * self.unsure).sum()))

    def after(
        self, moved: Floats, noise: float, kept: float, along: tuple[float, float], change: Floats
    ) -> Baseline:
        """Return the baseline after a question, at weights that change.

        `moved` are events less what was expected, by cell, with this noise; `kept` is the part of what rows
        expect that counts; `along` are the changes of level and tilt, which were found with the weights: they
        make up what of `moved` goes along a line. As weights of x - centre change by d, the hazard at the
        centre of a stratum goes with the mean hazard of those at risk: by mean·d + d'Vd / 2 of its logarithm
        less.
        """
        level, steeper = along
        found = np.maximum(kept * self.events, _TINY)
        line = self.tilt if len(self.tilt) else np.zeros(len(found))
        moved = moved - found * _line(moved, found, line)
        slopes, lean = np.zeros(len(found)), self.lean
        if self.strata > 1 and noise:
            each = zip(moved.reshape(self.strata, -1), found.reshape(self.strata, -1), self.lean, strict=True)
            tilts = [_tilted(rest, noise, of, variance) for rest, of, variance in each]
            slopes = np.concatenate([slope for slope, _ in tilts])
            moved = moved - found * slopes
            lean = tuple(left for _, left in tilts)
        gain = self.doubt / (self.doubt + (noise / found) ** 2 + _TINY)
        expected = np.maximum(found - gain * moved, _LEAST * found)
        curved = float(change @ self.spread @ change) / 2
        log = np.log1p(np.clip(gain * moved / expected, -_LARGEST, 1.0)) + np.clip(slopes, -1.0, 1.0)
        log = log + level + steeper * line - self.means @ change - curved
        return replace(
            self,
            hazards=self.hazards * np.exp(np.clip(log, -50.0, 50.0)),
            doubt=self.doubt * (1 - gain) + curved**2 + 1e-12,
            lean=tuple(left + curved**2 for left in lean),
        )


@dataclass(frozen=True)
class _Clear:
    """A number with noise, and what it is at least taken to be."""

    value: float
    noise: float

    @property
    def edge(self) -> float:
        return max(3 * self.noise, 1.0)

    @property
    def at_least(self) -> float:
        return max(self.value, self.edge)


class _Stratum:
    """Hazards of one stratum: events over time at risk, drawn to hazards of a given shape."""

    def __init__(
        self,
        exits: Floats,
        events: Floats,
        staying: float,
        total: float,
        time: float,
        noise: Sequence[float],
        rows: float,
        share: float,
        entering: bool,
        shape: Floats,
        vary: float,
    ) -> None:
        bins = len(exits)
        _, exit_noise, event_noise, _, total_noise, time_noise, *_ = noise
        number = _Clear(total, total_noise).at_least
        later = np.concatenate([np.cumsum(exits[::-1])[::-1], [0.0]]) + staying
        backward = (later[:-1] + later[1:]) / 2
        back_noise = exit_noise * np.sqrt(np.arange(bins, 0, -1.0) + 1)
        here, here_noise = rows, 0.0
        if share < 1 or entering:
            trust = (share * rows) ** 2 / ((share * rows) ** 2 + back_noise[0] ** 2)
            here = max(trust * float(later[0]) + (1 - trust) * share * rows, 1.0)
            here_noise = float(back_noise[0])
        spent = min(max(time, 3 * time_noise, 0.02 * here), here)
        steady = np.full(bins, spent) if entering else _steady(here, spent, bins)
        seen, seen_noise = backward, back_noise
        if not entering and exit_noise > 0:
            forward = here - np.cumsum(exits) + exits / 2
            front_noise = np.hypot(here_noise, exit_noise * np.sqrt(np.arange(1.0, bins + 1)))
            weight = back_noise**2 / (front_noise**2 + back_noise**2)
            seen = weight * forward + (1 - weight) * backward
            seen_noise = front_noise * back_noise / np.hypot(front_noise, back_noise)
        trust = (_LEAVING * steady) ** 2 / ((_LEAVING * steady) ** 2 + seen_noise**2 + _TINY)
        at_risk = np.maximum(trust * np.clip(seen, 0.0, None) + (1 - trust) * steady, 1e-3 * here / bins)
        likely = number / float(at_risk @ shape) * at_risk * shape
        slope, self.lean = _tilted(events - likely, event_noise, likely, vary**2)
        likely = likely * np.exp(slope)
        likely = likely * (number / float(likely.sum()))
        trust = (vary * likely) ** 2 / ((vary * likely) ** 2 + event_noise**2 + _TINY)
        least = _LEAST * likely
        found = np.maximum(trust * events + (1 - trust) * likely, least if event_noise > 0 else _TINY)
        self.events = found * (number / float(found.sum()))
        self.at_risk = at_risk
        self.hazards = np.maximum(self.events, least) / at_risk
        self.doubt = 1 / (vary**-2.0 + likely**2 / (event_noise**2 + 1e-12))
        if exit_noise > 0:
            self.doubt = self.doubt + 1 / (_LEAVING**-2.0 + (at_risk / seen_noise) ** 2)


def _tilted(moved: Floats, noise: float, expected: Floats, variance: float) -> tuple[Floats, float]:
    """Return the line in time by which logarithms of hazards go up, and the variance left of its slope.

    It is drawn to 0 if the slope had this variance before. A line is known better than single hazards are.
    """
    if len(moved) == 1:  # a constant hazard
        return np.zeros(1), 0.0
    g = middles(len(moved))
    g = g - float(expected @ g) / float(expected.sum())
    weight = max(float(expected @ g**2), _FEWEST)
    chance = noise**2 * float(g @ g) / weight**2
    gain = variance / (variance + chance + _TINY)
    return gain * float(g @ moved) / weight * g, variance * (1 - gain)


def _whitened(second: Floats, noise: float) -> tuple[Floats, Floats]:
    """Return second moments less what is likely to be noise, and what whitens them as far as that goes."""
    width = len(second)
    mean = float(np.trace(second)) / width
    middle = max(mean, noise, _FLAT)
    spread, _ = shrunk(second + (middle - mean) * np.eye(width), noise)
    values, vectors = np.linalg.eigh(spread)
    values = np.maximum(values, _LEAST * middle)
    edge = _RIDGE * spectral(width, noise) + _FLAT * middle
    return (vectors * values) @ vectors.T, (vectors / np.sqrt(values + edge)) @ vectors.T


def _steady(rows: float, spent: float, bins: int) -> Floats:
    """Return the numbers at risk by bin if rows leave at a constant rate, which makes up the time spent."""
    low, high = 1e-9, 200.0
    for _ in range(60):
        rate = (low + high) / 2
        if rows * -math.expm1(-rate) / rate > spent:
            low = rate
        else:
            high = rate
    return np.asarray(rows * np.exp(-low * (np.arange(bins) + 0.5) / bins))


def _tilt(hazards: Floats, events: Floats) -> Floats:
    """Return a line from -1/2 to 1/2 along the time that hazards make, until most events have happened."""
    if len(hazards) == 1:  # a constant hazard
        return np.zeros(0)
    time = np.cumsum(hazards) - hazards / 2
    last = max(int(np.searchsorted(np.cumsum(events), MOST_OF * float(events.sum()))), 1)
    time = np.minimum(time, time[min(last, len(time) - 1)]) - time[0]
    away = time - float(events @ time) / float(events.sum())
    return np.asarray(STEEP * away / float(np.abs(away).max())).clip(-STEEP, STEEP)


def _line(moved: Floats, expected: Floats, line: Floats) -> Floats:
    """Return the constant and multiple of a line that best explain what moved, per event expected."""
    total = float(expected.sum())
    away = line - float(expected @ line) / total
    weight = float(expected @ away**2)
    return np.asarray(
        float(moved.sum()) / total + (float(moved @ away) / weight * away if weight > _FEWEST else 0.0)
    )


def _means(
    sums: Floats, sum_noise: float, events: Floats, centre: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """Return the means of x - centre over those at risk, one for each stratum, and how unsure they are.

    At risk, weighted by their hazards, rows have the features that those with an event have. Means are drawn
    to 0 as far as they are no larger than sampling and noise make them (James and Stein, with `DOUBTED` times
    what these make: a mean that noise made shortens every score).
    """
    strata, width = sums.shape
    bins = len(events) // strata
    if strata == 1:  # the level is found with the coefficients
        return np.zeros((bins, width)), np.zeros(bins)
    variance = float(np.trace(spread)) / width
    number = events.reshape(strata, bins).sum(axis=1)
    chance = (sum_noise / number) ** 2 + variance / number
    apart = _drawn(sums / number[:, None] - centre, chance[:, None])
    return np.repeat(apart, bins, axis=0), np.repeat(chance / variance, bins)


def _drawn(values: Floats, chance: Floats | float) -> Floats:
    """Return values drawn to 0 by how much of them is chance, all by the same factor."""
    total = float((values**2 / (chance + _TINY)).sum())
    return values * max(0.0, 1 - DOUBTED * values.size / total) if total > 0 else values


def _inside(point: Floats) -> Floats:
    return np.asarray(point / max(1.0, float(np.linalg.norm(point))))
