"""The baseline of a Cox regression, cell by cell: what is known of it, and where those at risk are.

A step's scores are those of the partial likelihood where hazards are Breslow's and offsets are the means of
those at risk. Elsewhere they add up to that plus, cell by cell, (events less what is expected) times (the
mean at risk less the offset), exactly, and whether the model is true or not: what is wrong in both is
multiplied, so that rough ones do, and `misled` says how much is left.

*Hazards.* Each step releases events less what was expected, by cell and in all: Kalman's filter, with
`doubt`, the covariance of what is not known of these numbers, makes hazards of them. As weights change, the
mean hazard of those at risk does, which hazards make up for to second order.

*Means.* The mean of those at risk at the fit, over all events, is that of rows with an event. Those of
groups of cells are taken to be too, drawn to the mean of all as far as noise and chance warrant. Before any
is asked for they are guessed. A column that lies in few bins of the first question may be anywhere in them,
and weights then move its mean by nobody knows how much: `coarse` says so (`cox_coarse`).

*Curvature.* About offsets it is that about means, and the square of what offsets were wrong by: of that
`mistaken` says how much there is, as means that were asked for show.
Tested in tests/unit/analyses/survival/test_cox_baseline.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.core.arrays import Floats, Integers

__all__ = ["REACH", "Hazards", "Left"]

GROUPS = 4  # of cells with as many events each, whose means at risk are asked for
_SHAPE = 0.7  # the SD of logarithms of hazards in time that is expected before anything is seen
_NEAR = 0.25  # of the axis: hazards so far apart go together by 1 / e
_DRIFT, _APART = 0.2, 0.5  # the SD of means at risk over time and over strata, in SDs of features
_FAR_OFF, _SKEWED = 0.04, 0.09  # of a guessed mean: its variance, and that over the squared change it makes
_CURVED = 0.3  # of a change of predictors, squared: how far hazards may be off after it
REACH = 2.0  # events by which a row moves the baseline at most, unless many rows expect more
_LONGEST = 9  # times that is made longer by sqrt 2 at most
_CLEAR = 1.5  # standard deviations of noise: with fewer events nothing is known
_SQUARED = 3.0  # times the variance of a normal number: its square is rarely further off than twice that
_LEAST, _MOST = 0.2, 5.0  # times: what one step changes a hazard by
_EXACT = 1e-6  # of the events: the noise that sums over them are taken to have where there is none
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

    def reach(self, rates: Floats, risk: Floats, noise: float) -> tuple[float, float]:
        """Return how many events a row may move the baseline by, and how many are lost by that.

        Where people are followed until nearly all have had the event, rows expect many: as few are shortened
        as the noise, so much for each event that a row may move, is worth. `risk` are hazards of made-up rows
        against one at the centre.
        """
        at_risk = np.minimum.accumulate(self.at_risk[0], axis=1)
        leaving = at_risk - np.append(at_risk[:, 1:], np.zeros((len(at_risk), 1)), axis=1)
        expected = np.cumsum(rates.reshape(at_risk.shape), axis=1).reshape(-1)
        found = []
        for each in REACH * 2.0 ** (np.arange(_LONGEST + 1) / 2):
            over = np.maximum(np.outer(expected, risk) - each, 0.0).mean(axis=1)
            found.append((float(each), float(leaving.reshape(-1) @ over)))
        return min(found, key=lambda one: math.hypot(noise * one[0], one[1]))


@dataclass(frozen=True)
class Hazards:
    """What is known of the baseline; arrays by cell, strata one after the other.

    Attributes:
        rates: the events that a row at the centre expects in each cell.
        events: how many there are in each, about.
        doubt: for each stratum the covariance of events less what is expected by `rates`.
        groups: which group of cells each is in.
        means: of x - centre over events, by group, as released.
        precision: the inverse of the covariance of the noise in their sums over events, in units of x; 0
            before they are asked for.
        spread: what makes x of whitened features.
        guess: the mean of x - centre at risk if features were normal, which weights move by the covariance.
        unsure: the variance of what is wrong with that, in units of whitened features.
        coarse: the covariance of what bins leave unknown of it, in units of x.
        lumped: the same of the mean of x, which is what lacks in the variance of x too.
    """

    rates: Floats
    events: Floats
    doubt: Floats
    groups: Integers
    means: Floats
    precision: Floats
    spread: Floats
    guess: Floats
    unsure: float
    coarse: Floats
    lumped: Floats

    @property
    def strata(self) -> int:
        """How many strata there are."""
        return len(self.doubt)

    @property
    def total(self) -> float:
        """How many events there are."""
        return float(self.events.sum())

    @classmethod
    def first(cls, left: Left, widths: Floats, turn: Floats, coarse: Floats | None = None) -> Hazards:
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
        coarse = np.zeros((width, width)) if coarse is None else coarse
        many = int(groups.max()) + 1
        return cls(
            np.maximum(events / at_risk, 1e-12).reshape(-1),
            np.maximum(events, 1e-9).reshape(-1),
            doubt,
            groups,
            np.zeros((many, width)),
            np.zeros((width, width)),
            np.asarray(np.linalg.inv(turn), np.float64),
            np.zeros(width),
            _FAR_OFF,
            coarse,
            coarse,
        )

    @property
    def offsets(self) -> Floats:
        """The means of x - centre over those at risk, by cell, as far as they are known."""
        return self._drawn[0][self.groups]

    @property
    def mean(self) -> tuple[Floats, Floats]:
        """The mean of x - centre over all events, as far as it is known, with the covariance of its error."""
        level = self.spread @ self._drawn[1] @ self.spread.T
        return self.offsets.T @ self.events / self.total, np.asarray(level)

    def _whitened(self, covariance: Floats) -> Floats:
        turn = np.linalg.inv(self.spread)
        return np.asarray(turn @ covariance @ turn.T)

    @property
    def _drawn(self) -> tuple[Floats, Floats, float]:
        """Means by group, and of what is not known the covariance of their level, in units of whitened
        features, and the variance of each about it."""
        one = np.eye(len(self.guess))
        prior = self.unsure * one + self._whitened(self.coarse)
        if not self.precision.any():
            return np.broadcast_to(self.guess, self.means.shape), prior, _DRIFT**2
        events = np.bincount(self.groups, self.events, len(self.means))
        share = events / events.sum()
        noise = self._whitened(np.asarray(np.linalg.inv(self.precision), np.float64))
        middle, of_all = share @ self.means, len(events) / events.sum() ** 2 * noise
        trust = np.linalg.solve(prior + of_all, prior).T
        away = np.linalg.solve(self.spread, middle - self.guess)
        both = self.guess + self.spread @ trust @ away
        level = trust @ of_all
        chances = float(np.trace(noise)) / len(noise) / events**2
        parts = (self.means - middle).reshape(self.strata, -1, self.means.shape[1])
        weights, chance = (each.reshape(self.strata, -1) for each in (events, chances + 1 / events))
        found, unsure = np.zeros_like(parts), 0.0
        for axis, likely in ((1, _APART**2), (0, _DRIFT**2)):  # strata, then times within all strata
            if parts.shape[1 - axis] == 1:
                continue
            of = weights.sum(axis=axis, keepdims=True)
            effect = (weights[:, :, None] * (parts - found)).sum(axis=axis, keepdims=True) / of[:, :, None]
            doubt = (weights**2 * chance).sum(axis=axis, keepdims=True) / of**2
            gain = likely / (likely + doubt)
            found = found + gain[:, :, None] * effect
            unsure += float((of * likely * doubt / (likely + doubt)).sum() / of.sum())
        return both + found.reshape(self.means.shape), level, unsure

    def mistaken(self, before: Hazards, score: Floats, turn: Floats) -> tuple[Floats, float]:
        """Return how much of the curvature about offsets from before is what these were wrong by, and how far
        that may be off; in units of `turn` x, of which the released scores are.

        Means at risk are those of rows with an event less the scores of the partial likelihood.
        """
        known = self._drawn[1]
        away = (self.offsets - before.offsets) @ turn.T - score / self.total
        back = turn @ self.spread
        plain = replace(self, coarse=np.zeros_like(self.coarse))._drawn[1]
        left = back @ (known - plain) @ back.T
        most = max(float(np.linalg.eigvalsh((left + left.T) / 2)[-1]), 0.0)
        far = math.sqrt(float(self.events @ (away**2).sum(axis=1)) / self.total)
        found = (away * self.events[:, None]).T @ away + self.total * left
        return found, self.total * (_SQUARED * most + 2 * far * math.sqrt(most))

    def misled(self, beyond: Floats | None = None) -> float:
        """Return how far what is wrong in hazards and in offsets moves scores together, as an SD."""
        _, known, unsure = self._drawn
        level, found = float(np.linalg.eigvalsh(known)[-1]), 0.0
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

    def doubted(self, lost: float) -> Hazards:
        """Return hazards of which so many events are not known, since rows were shortened."""
        parts = lost * (self.events / self.total).reshape(self.strata, -1)
        return replace(self, doubt=self.doubt + parts[:, :, None] * parts[:, None, :])

    def with_means(self, sums: Floats, noise: float, turn: Floats) -> Hazards:
        """Return hazards that know the sums of T(x - centre) over events by group, with this noise."""
        events = np.maximum(np.bincount(self.groups, self.events, len(self.means)), 1e-6)
        spread = np.asarray(np.linalg.inv(turn), np.float64)
        means = (sums / events[:, None]) @ spread.T
        here = turn.T @ turn / max(noise, _EXACT * self.total) ** 2
        if not noise:
            return replace(self, means=means, precision=here, spread=spread)
        both = here + self.precision
        mixed = np.asarray(np.linalg.solve(both, here @ means.T + self.precision @ self.means.T).T)
        return replace(self, means=mixed, precision=both, spread=spread)

    def centred(self, weights: Floats) -> tuple[Hazards, Floats]:
        """Return the same about the mean at risk as centre, and how far away that is; at these weights."""
        away = self.offsets.T @ self.events / self.total
        moved = replace(
            self,
            rates=self.rates * math.exp(float(np.clip(weights @ away, -5.0, 5.0))),
            means=self.means - away,
            guess=self.guess - away,
        )
        return moved, away

    def after(self, change: Floats, moved: float) -> Hazards:
        """Return hazards at weights that change so; over events, predictors move by an SD of `moved`.

        The mean at risk goes with the weights. Until the new ones it moved the mean hazard by as much as the
        mean at the end does, less half of what is in between.
        """
        way = self.spread.T @ change
        away, lumped = float(way @ way), self.lumped @ change
        there = replace(
            self,
            guess=self.guess + self.spread @ way,
            unsure=self.unsure + _SKEWED * away,
            coarse=self.coarse + np.outer(lumped, lumped),
        )
        log = there.offsets @ change - moved**2 / 2
        _, level, unsure = there._drawn
        variance = (_CURVED * moved**2) ** 2 + float(way @ level @ way)
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
