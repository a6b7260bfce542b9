"""The baseline of a Cox regression, cell by cell: what is known of it, and where those at risk are.

A step's scores are those of the partial likelihood where hazards are Breslow's and offsets are the means of
those at risk. Elsewhere they add up to that plus, cell by cell, (events less what is expected) times (the
mean at risk less the offset), exactly, and whether the model is true or not: what is wrong in both is
multiplied, so that rough ones do, and `misled` says how much is left.

*Hazards.* Each step releases events less what was expected, by cell and in all: Kalman's filter, with
`doubt`, the covariance of what is not known of these numbers, makes hazards of them. As weights change, the
mean hazard of those at risk does, which hazards make up for to second order.

*Means.* The mean of those at risk at the fit, over all events, is that of rows with an event. Those of
groups of cells are taken to be too, drawn to the mean of all as far as noise and chance warrant.
Tested in tests/unit/analyses/survival/test_cox_baseline.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.core.arrays import Floats, Integers

__all__ = ["Hazards", "Left"]

GROUPS = 4  # of cells with as many events each, whose means at risk are asked for
_SHAPE = 0.7  # the SD of logarithms of hazards in time that is expected before anything is seen
_NEAR = 0.25  # of the axis: hazards so far apart go together by 1 / e
_DRIFT, _APART = 0.2, 0.5  # the SD of means at risk over time and over strata, in SDs of features
_FAR_OFF, _SKEWED = 0.04, 0.09  # of a guessed mean: its variance, and that over the squared change it makes
_CURVED = 0.3  # of a change of predictors, squared: how far hazards may be off after it
_CLEAR = 1.5  # standard deviations of noise: with fewer events nothing is known
_LEAST, _MOST = 0.2, 5.0  # times: what one step changes a hazard by
_TINY = 1e-300


@dataclass(frozen=True)
class Left:
    """Who leaves when, as it was released; all but totals and staying by (strata, bins)."""

    censored: Floats
    events: Floats
    staying: Floats
    totals: Floats
    entering: Floats | None
    noise: float
    total_noise: float
    rows: float

    @property
    def clear(self) -> bool:
        """Whether the number of events stands out of noise."""
        many = min(float(self.totals.sum()), self.rows)
        return many > _CLEAR * self.total_noise * math.sqrt(len(self.totals))

    @property
    def at_risk(self) -> tuple[Floats, Floats]:
        """Rows in each cell, on average over it, and the noise in that."""
        strata, bins = self.events.shape
        leaving = self.censored + self.events
        net = leaving if self.entering is None else leaving - self.entering
        later = np.cumsum(net[:, ::-1], axis=1)[:, ::-1] + self.staying[:, None]
        found = later - net / 2
        many = np.arange(bins, 0, -1.0) + 1
        noise = np.broadcast_to(self.noise * np.sqrt(many), found.shape)
        if self.entering is None and strata == 1 and self.noise > 0:
            forward = self.rows - np.cumsum(leaving, axis=1) + leaving / 2
            ahead = self.noise * np.sqrt(np.arange(1.0, bins + 1))[None, :]
            weight = noise**2 / (noise**2 + ahead**2)
            found, noise = weight * forward + (1 - weight) * found, noise * ahead / np.hypot(noise, ahead)
            found = np.minimum.accumulate(found, axis=1)
        return np.maximum(found, np.maximum(noise, 1e-9 + 1e-3 * self.rows / bins / strata)), noise


@dataclass(frozen=True)
class Hazards:
    """What is known of the baseline; arrays by cell, strata one after the other.

    Attributes:
        rates: the events that a row at the centre expects in each cell.
        events: how many there are in each, about.
        doubt: for each stratum the covariance of events less what is expected by `rates`.
        groups: which group of cells each is in.
        means: of x - centre over events, by group, as released.
        chance: the variance of their noise, in units of whitened features; infinite before they are asked.
        spread: what makes x of whitened features.
        guess: the mean of x - centre at risk if features were normal, which weights move by the covariance.
        unsure: the variance of what is wrong with that, in units of whitened features.
    """

    rates: Floats
    events: Floats
    doubt: Floats
    groups: Integers
    means: Floats
    chance: Floats
    spread: Floats
    guess: Floats
    unsure: float

    @property
    def strata(self) -> int:
        """How many strata there are."""
        return len(self.doubt)

    @property
    def total(self) -> float:
        """How many events there are."""
        return float(self.events.sum())

    @classmethod
    def first(cls, left: Left, widths: Floats, turn: Floats) -> Hazards:
        """Return what the first question says; `widths` are those of bins."""
        strata, bins = left.events.shape
        at_risk, doubtful = left.at_risk
        totals = np.maximum(np.minimum(left.totals, left.rows), max(min(left.total_noise, left.rows), 1e-6))
        likely = at_risk * widths / widths.mean()
        likely *= (totals / likely.sum(axis=1))[:, None]
        events, doubt = likely.copy(), np.zeros((strata, bins, bins))
        near = np.exp(-np.abs(np.subtract.outer(np.arange(bins), np.arange(bins))) / (_NEAR * bins))
        for at in range(strata):
            scale = np.outer(likely[at], likely[at])
            before = scale * (_SHAPE**2 * near + (left.total_noise / totals[at]) ** 2) + np.diag(likely[at])
            seen, of_events = _updated(
                before,
                left.events[at] - likely[at],
                left.noise,
                float(left.totals[at] - likely[at].sum()),
                left.total_noise,
            )
            least = 0.05 * likely[at] if left.noise else np.zeros(bins)
            events[at] = np.maximum(likely[at] + seen, least)
            of_risk = events[at] * doubtful[at] / at_risk[at]
            doubt[at] = of_events + np.outer(of_risk, of_risk) * near
        groups = _groups(events)
        width = len(turn)
        many = int(groups.max()) + 1
        return cls(
            np.maximum(events / at_risk, 1e-12).reshape(-1),
            np.maximum(events, 1e-9).reshape(-1),
            doubt,
            groups,
            np.zeros((many, width)),
            np.full(many, math.inf),
            np.asarray(np.linalg.inv(turn), np.float64),
            np.zeros(width),
            _FAR_OFF,
        )

    @property
    def offsets(self) -> Floats:
        """The means of x - centre over those at risk, by cell, as far as they are known."""
        return self._drawn[0][self.groups]

    @property
    def _drawn(self) -> tuple[Floats, float, float]:
        """Means by group, and the variances of what is not known of their level, and of each about it."""
        if not np.isfinite(self.chance).all():
            return np.broadcast_to(self.guess, self.means.shape), self.unsure, _DRIFT**2
        events = np.bincount(self.groups, self.events, len(self.means))
        share = events / events.sum()
        middle, level = share @ self.means, float(share**2 @ self.chance)
        trust = self.unsure / (self.unsure + level)
        both = trust * middle + (1 - trust) * self.guess
        level *= trust
        parts = (self.means - middle).reshape(self.strata, -1, self.means.shape[1])
        weights, chance = (each.reshape(self.strata, -1) for each in (events, self.chance + 1 / events))
        found, unsure = np.zeros_like(parts), 0.0
        for axis, prior in ((1, _APART**2), (0, _DRIFT**2)):  # strata, then times within all strata
            if parts.shape[1 - axis] == 1:
                continue
            of = weights.sum(axis=axis, keepdims=True)
            effect = (weights[:, :, None] * (parts - found)).sum(axis=axis, keepdims=True) / of[:, :, None]
            doubt = (weights**2 * chance).sum(axis=axis, keepdims=True) / of**2
            gain = prior / (prior + doubt)
            found = found + gain[:, :, None] * effect
            unsure += float((of * prior * doubt / (prior + doubt)).sum() / of.sum())
        return both + found.reshape(self.means.shape), level, unsure

    def misled(self, beyond: Floats | None = None) -> float:
        """Return how far what is wrong in hazards and in offsets moves scores together, as an SD."""
        _, level, unsure = self._drawn
        found = 0.0
        groups = self.groups.reshape(self.strata, -1)
        for at, doubt in enumerate(self.doubt):
            whole = doubt if beyond is None else doubt + np.outer(beyond[at], beyond[at])
            same = groups[at][:, None] == groups[at][None, :]
            found += level * float(whole.sum()) + unsure * float(whole[same].sum())
        return math.sqrt(max(found, 0.0))

    def seen(self, level: Floats, level_noise: float, cells: Floats, noise: float) -> tuple[Hazards, Floats]:
        """Return hazards after a step, and what it says of events less what was expected."""
        bins = self.doubt.shape[1]
        doubt, found = self.doubt.copy(), np.zeros((self.strata, bins))
        for at, moved in enumerate(cells.reshape(self.strata, bins)):
            found[at], doubt[at] = _updated(doubt[at], moved, noise, float(level[at]), level_noise)
        moved = found.reshape(-1)
        if noise:  # events may be known no better than what was expected
            times = np.where(moved < 0, self.events / (self.events - moved), 1 + moved / self.events)
            times = times.clip(_LEAST, _MOST)
        else:
            times = np.clip(self.events / np.maximum(self.events - moved, _TINY), 0.0, 1e3)
        return replace(self, rates=np.maximum(self.rates * times, 1e-12), doubt=doubt), found

    def with_means(self, sums: Floats, noise: float, turn: Floats) -> Hazards:
        """Return hazards that know the sums of T(x - centre) over events by group, with this noise."""
        events = np.maximum(np.bincount(self.groups, self.events, len(self.means)), 1e-6)
        spread = np.linalg.inv(turn)
        means = (sums / events[:, None]) @ spread.T
        chance = (noise / events) ** 2 + 1e-12
        here = 1 / chance
        there = np.where(np.isfinite(self.chance), 1 / self.chance, 0.0)
        both = here + there
        if not noise:
            here, both = np.ones_like(here), np.ones_like(here)
            there = np.zeros_like(here)
        mixed = (here[:, None] * means + there[:, None] * self.means) / both[:, None]
        return replace(
            self, means=mixed, chance=1 / (1 / chance + there), spread=np.asarray(spread, np.float64)
        )

    def after(self, change: Floats, moved: float) -> Hazards:
        """Return hazards at weights that change so; over events, predictors move by an SD of `moved`.

        The mean at risk goes with the weights. Until the new ones it moved the mean hazard by as much as the
        mean at the end does, less half of what is in between.
        """
        away = float(np.sum((self.spread.T @ change) ** 2))
        there = replace(
            self,
            guess=self.guess + self.spread @ (self.spread.T @ change),
            unsure=self.unsure + _SKEWED * away,
        )
        log = there.offsets @ change - moved**2 / 2
        _, level, unsure = there._drawn
        variance = (_CURVED * moved**2) ** 2 + away * level
        groups, events = (each.reshape(self.strata, -1) for each in (self.groups, self.events))
        doubt = self.doubt.copy()
        for at in range(self.strata):
            same = groups[at][:, None] == groups[at][None, :]
            doubt[at] += np.outer(events[at], events[at]) * (variance + away * unsure * same)
        return replace(there, rates=self.rates * np.exp(-np.clip(log, -5.0, 5.0)), doubt=doubt)


def _updated(
    before: Floats, cells: Floats, noise: float, level: float, level_noise: float
) -> tuple[Floats, Floats]:
    """Return the mean and covariance of numbers of which each, and their sum, was seen with noise."""
    if not noise:
        return cells, np.zeros_like(before)
    gain = np.linalg.solve(before + noise**2 * np.eye(len(cells)), before).T
    mean, after = gain @ cells, before - gain @ before
    one = after.sum(axis=1)
    per = one / (float(one.sum()) + level_noise**2 + _TINY)
    after = after - np.outer(per, one)
    return mean + per * (level - float(mean.sum())), (after + after.T) / 2


def _groups(events: Floats) -> Integers:
    """Return which group each cell is in: for each stratum as many, with about as many events each."""
    strata, bins = events.shape
    by_bin = events.sum(axis=0)
    place = (np.cumsum(by_bin) - by_bin / 2) / by_bin.sum()
    many = min(GROUPS, bins)
    within = np.clip((place * many).astype(np.int64), 0, many - 1)
    within = np.unique(within, return_inverse=True)[1].reshape(-1)
    many = int(within.max()) + 1
    return np.asarray((np.arange(strata)[:, None] * many + within[None, :]).reshape(-1), np.int64)
