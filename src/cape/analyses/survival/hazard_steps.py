"""Steps of a Cox regression: where scores are asked for, how they are clipped, and what is made of them.

The steps are those of a logistic regression (`cape.analyses.regression.scores`), along a level of the
baseline and the weights of x - centre. Scores along a tilt of the baseline are taken out of those along the
weights (`HazardStep.at`): these then do not depend on its slope in time to first order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.scores import FAR, MISFIT, NEAR, ROUGH, Belief, Point, Step
from cape.analyses.survival.baseline import Baseline
from cape.blocks import Design, FollowUp, Martingale
from cape.blocks.steps import ONE
from cape.core.arrays import Floats
from cape.engine.query import Answer
from cape.stats.matrices import nearest_positive, spectral, symmetric

__all__ = ["HazardStep", "Place", "believed", "clipping", "tilt_noise"]

REACH = 1.25  # what one row may move the baseline by at least: an event, and what it expects elsewhere
CELL = 0.1  # of the events in a cell: the noise that a longer reach may make
BENT = 0.02  # the noise in the curvature, in events, before it is clipped for it
LEFT = 0.5  # of the change of log-hazards, squared, that a step may be wrong by: a Poisson likelihood's
CERTAIN = 3.0  # times noise: from there on the curvature along the tilt is more than events say
KNOWN = 0.9  # of the tilt's direction: so much of it must stand out of noise
STEEPER = 1.0  # the most by which one step changes the tilt
SURPRISE = 3.0  # times what noise explains of a step's distance from earlier ones, squared
_TINY = 1e-150
_FLAT = 1e-6  # of an event: where there is no noise there is still rounding
_ROUNDS = 30


@dataclass(frozen=True)
class Place:
    """Where scores are asked for: a baseline, the level that it had, and the weights of x - centre.

    `drift` says how the means of those at risk go with the tilt, for the test of proportional hazards.
    """

    baseline: Baseline
    level: float
    weights: Floats
    drift: Floats | None = None

    @property
    def turn(self) -> Floats:
        """What whitens (1, x - centre)."""
        width = len(self.weights)
        found = np.eye(width + 1)
        found[1:, 1:] = self.baseline.turn
        return found

    def block(
        self,
        design: Design,
        follow_up: FollowUp,
        clip: tuple[float, float, float] = (2.0, 4.0, REACH),
        trend: Floats | None = None,
    ) -> Martingale:
        """Return the scores to ask for, clipped to a bound, a curve and a reach."""
        baseline = self.baseline
        unit = float(baseline.hazards.max())
        whole = np.clip(np.rint(baseline.hazards * (ONE / unit)), 1, ONE).astype(np.int64)
        return Martingale(
            design,
            follow_up,
            _numbers(self.weights),
            _numbers(baseline.centre),
            tuple(_numbers(row) for row in baseline.turn),
            tuple(int(each) for each in whole),
            unit,
            tuple(_numbers(row) for row in baseline.means @ baseline.turn.T),
            *clip,
            _numbers(baseline.tilt),
            () if trend is None else _numbers(trend),
            () if trend is None or self.drift is None else _numbers(self.drift),
        )

    @property
    def longest(self) -> float:
        """The longest that a score can be if nothing is clipped, since |x| <= 1."""
        baseline = self.baseline
        turn = self._away * float(np.linalg.norm(baseline.turn, 2))
        offset = float(np.linalg.norm(baseline.means @ baseline.turn.T, axis=1).max())
        return max(1.0, baseline.longest * self._steepest) * (math.hypot(1.0, 1.0, turn) + 2 * offset)

    @property
    def furthest(self) -> float:
        """The most that a row can move the baseline: an event, and what it expects, cell by cell."""
        largest = float(self.baseline.hazards.max()) * self._steepest
        return math.sqrt(1 + largest * self.baseline.longest * self._steepest)

    @property
    def _away(self) -> float:
        return 1 + float(np.linalg.norm(self.baseline.centre))

    @property
    def _steepest(self) -> float:
        """The largest hazard of a row, in hazards of one at the centre."""
        return math.exp(min(self._away * float(np.linalg.norm(self.weights)), 50.0))


def clipping(place: Place, unit: float) -> tuple[float, float, float]:
    """Return the bounds on scores, curvature and baseline for noise of `unit`, in units of these, at the end.

    As in a logistic regression (`cape.analyses.regression.scores.clipping`), for scores of variance 1 per
    event in place of 1/4 per row.
    """
    events, width, unit = place.baseline.total, len(place.weights) + 1, max(unit, _TINY)
    typical, longest = math.sqrt(width), place.longest
    far, misfit = FAR * typical, MISFIT**2 * events
    fitting = far * misfit / (misfit + (far * unit) ** 2 / events)
    most = max(2 * NEAR**2 * width, BENT * events / unit)
    bound = max(NEAR * typical, fitting, math.sqrt(ROUGH * events) / unit)
    bound = min(bound, math.sqrt(most), longest)  # a row of this length has that curvature
    reach = max(REACH, CELL * events / len(place.baseline.hazards) / unit)
    return bound, min(most, longest**2), max(min(reach, place.furthest), 1.0)


@dataclass(frozen=True)
class HazardStep(Step):
    """A step along the level and the weights; `count` is the number of events.

    Attributes:
        spread_noise: above the diagonal.
        steeper: by how much the tilt changes the baseline if level and weights stay, its noise, and that of
            each entry of `lean`.
        lean: how level and weights go with the tilt: what changes it as they do.
        shape: the variance of the tilt from sampling, if it is solved for with all else.
    """

    spread_noise: float = 0.0
    steeper: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lean: Floats | None = None
    shape: float = 0.0

    @classmethod
    def at(cls, answer: Answer, block: Martingale, place: Place) -> HazardStep:
        """Return what an answer to a question at this place holds."""
        _, score, square, cross, spread, beside = answer.sums[0][:6]
        _, score_noise, _, curvature_noise, _, spread_noise = answer.noise[0][:6]
        events = max(place.baseline.total, 1.0)
        found = _Sums(
            block.bound * score,
            block.curve * symmetric(square, cross),
            block.bound**2 * symmetric(spread, beside),
            block.bound * score_noise,
            block.curve * curvature_noise,
            block.bound**2 * spread_noise,
        )
        lean, steeper, shape = None, (0.0, 0.0, 0.0), 0.0
        if block.tilt:
            shape = found.of_tilt(place.baseline, events)
            found, lean, steeper = found.without_tilt(place.baseline, events)
        weights = np.concatenate([[place.level], place.weights])
        return cls(
            Point(weights, place.turn, block.bound, block.curve),
            found.score,
            found.curvature,
            found.spread,
            math.hypot(found.score_noise, place.baseline.misled) if score_noise else 0.0,
            found.curvature_noise,
            events,
            found.spread_noise,
            steeper=steeper,
            lean=lean,
            shape=shape,
        )

    def tilted(self, change: Floats, variance: float, most: float = STEEPER) -> float:
        """Return by how much the tilt changes if level and weights do, drawn to 0 if it had this variance."""
        if self.lean is None:
            return 0.0
        moved, noise, _ = self.steeper
        away = np.linalg.solve(self.point.turn.T, change)
        gain = 1.0 if math.isinf(variance) else variance / (variance + noise**2)
        found = (moved - float(self.lean @ away)) * gain
        return min(max(found, -most), most)

    def precision(self, covariance: Floats) -> Floats:
        """Return how much the step tells, if the covariance of the weights is this before it.

        Noise e in the scores and E in the curvature, at a point that is d away, make e + E d. Along what
        stands out of noise, d is the change that was found and what noise did to it, whatever was known
        before; elsewhere it is as before. Where that is more than what was known, this counts.
        """
        inverses, kept, vectors = self._seen
        turned = np.linalg.inv(self.point.turn)
        before, eye = turned.T @ covariance @ turned, np.eye(len(covariance))
        inverse = (vectors * inverses) @ vectors.T
        dark = vectors[:, inverses == 0]
        fixed = np.outer(self.change, self.change) + dark @ (dark.T @ before @ dark) @ dark.T
        least = (self.score_noise**2 + (_FLAT * self.count) ** 2) * eye

        def made(away: Floats) -> Floats:
            return np.asarray(least + self.curvature_noise**2 * (np.trace(away) * eye + away))

        away = fixed
        for _ in range(_ROUNDS):
            away = fixed + inverse @ made(away) @ inverse
        if np.trace(away) > np.trace(before):
            away = before + np.outer(self.change, self.change)
        told = turned @ (vectors * kept) @ vectors.T
        return np.asarray(told @ np.linalg.solve(made(away), told.T))

    @property
    def bread(self) -> Floats:
        """From scores to weights."""
        inverses, _, vectors = self._seen
        return np.asarray(self.point.turn.T @ (vectors * inverses) @ vectors.T)

    @property
    def moved(self) -> float:
        """By how much it changed log-hazards, as a standard deviation over events, without noise."""
        of_noise = self.score_noise**2 * float(self._seen[0].sum())
        square = float(self.change @ self.curvature @ self.change) - of_noise
        return math.sqrt(max(square, 0.0) / self.count)

    @property
    def left(self) -> Floats:
        """How far it may have ended from where scores are 0: second order in what it changed."""
        return np.asarray(LEFT * self.moved * (self.point.turn.T @ self.change))


def tilt_noise(step: HazardStep, belief: Belief) -> float:
    """Return the variance of the tilt after a step from noise: its own, that of what is believed of level and
    weights, of how these go with it, and what is left of second order."""
    if step.lean is None:
        return 0.0
    moved, noise, unsure = step.steeper
    back = np.linalg.inv(step.point.turn)
    covariance = back.T @ belief.covariance @ back
    away = back.T @ (belief.mean - step.point.weights)
    of_others = max(0.0, float(step.lean @ covariance @ step.lean)) + unsure**2 * float(np.trace(covariance))
    change = moved - float(step.lean @ away)
    return noise**2 + of_others + unsure**2 * float(away @ away) + (LEFT * change**2) ** 2


@dataclass(frozen=True)
class _Sums:
    """Sums of scores, curvature and spread along (1, tilt, x - centre), and the noise of each."""

    score: Floats
    curvature: Floats
    spread: Floats
    score_noise: float
    curvature_noise: float
    spread_noise: float

    def without_tilt(
        self, baseline: Baseline, events: float
    ) -> tuple[_Sums, Floats, tuple[float, float, float]]:
        """Return the sums along (1, x - centre) less what goes with the tilt, and the change of that.

        With k the curvature along the tilt, and c its products with the others, scores s become s - c t / k,
        t that of the tilt, and the curvature C - cc' / k: what is left if the tilt is solved for. k is known
        well, from events by cell, unless what is expected is far off, which it shows; c is drawn to 0 as far
        as noise hides it (James and Stein). What is wrong in c counts as noise as far as the tilt was wrong.
        """
        rest = np.delete(np.arange(len(self.score)), 1)
        k = self._along_tilt(baseline, events)
        cross = self.curvature[1, rest]
        chance = len(cross) * self.curvature_noise**2
        clear = max(0.0, 1 - chance / (float(cross @ cross) + _TINY))
        lean, tilt = clear * cross / k, float(self.score[1])
        wrong = math.sqrt(max(clear, 1 / len(cross))) * self.curvature_noise / k
        longer = 1 + float(lean @ lean)
        less = np.eye(len(self.score))[rest]
        less[:, 1] = -lean
        curvature = self.curvature[np.ix_(rest, rest)] - k * np.outer(lean, lean)
        return (
            _Sums(
                less @ self.score,
                curvature,
                less @ self.spread @ less.T,
                math.hypot(self.score_noise * math.sqrt(longer), wrong * max(abs(tilt), self.score_noise)),
                self.curvature_noise,
                self.spread_noise * longer,
            ),
            lean,
            (-tilt / k, self.score_noise / k, wrong),
        )

    def _along_tilt(self, baseline: Baseline, events: float) -> float:
        """Return the curvature along the tilt."""
        kept = min(max(float(self.curvature[0, 0]), self.curvature_noise, _FLAT * events) / events, 1.0)
        known = kept * float(baseline.events @ baseline.tilt**2) if self.curvature_noise else 0.0
        seen = float(self.curvature[1, 1]) - CERTAIN * self.curvature_noise
        return max(known, seen, _FLAT * events)

    def of_tilt(self, baseline: Baseline, events: float) -> float:
        """Return the variance of the tilt from sampling, level and weights solved for too."""
        curvature = self.curvature.copy()
        curvature[1, 1] = self._along_tilt(baseline, events)
        values, vectors = np.linalg.eigh(curvature)
        edge = max(spectral(len(values), self.curvature_noise), _FLAT * events)
        inverses = np.where(values > edge, 1 / np.maximum(values, edge), 0.0)
        row = (vectors[1] * inverses) @ vectors.T
        if float(vectors[1] ** 2 @ (values > edge)) < KNOWN:  # noise hides what goes with the tilt
            row = np.eye(len(values))[1] / curvature[1, 1]
        return max(0.0, float(row @ nearest_positive(self.spread) @ row))  # never below 0 but for rounding


def believed(steps: Sequence[Step], covariance: Floats) -> Belief:
    """Return what steps say about level and weights that had this covariance around 0 before.

    A step also depends on the baseline that it was made at. Where it ends further from what earlier ones said
    than noise explains, these were made at a baseline that was off, and count for less along the difference.
    Without noise the last one says it all.
    """
    if steps and not steps[-1].score_noise:
        steps = steps[-1:]
    belief = Belief.after([], covariance)
    for i, step in enumerate(steps):
        left = steps[i - 1].left if i else np.zeros(len(covariance))
        apart = step.target - belief.mean
        precision = step.precision(belief.covariance)
        within = precision - precision @ np.linalg.solve(
            precision + np.linalg.inv(belief.covariance), precision
        )
        square = float(apart @ within @ apart)
        if i and square > SURPRISE * len(apart):
            left = left + apart * (1 - SURPRISE * len(apart) / square)
        belief = belief.told(step, left)
    return belief


def _numbers(values: Floats) -> tuple[float, ...]:
    return tuple(map(float, values))
