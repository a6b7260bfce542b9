"""Clipped scores of a regression: how far one row moves them, and what noisy ones say.

Claim. A row adds (s, zz', ss') with |s| <= 1, |z| <= 1 and z parallel to s, in the block's units. With
weights 1, b = 1 and m = 0.3 on their sums (off-diagonals counted twice) and c on the count, one row changes
the sums, each divided by its scale, by at most sqrt(4 + b) under replace-one if c <= 3 - m, and by sqrt(1 +
b + m + c) under add-remove: the spread ss' is free.
Reason. Let r and a be the lengths of s and of zz', and k the cosine between s and -s'. The change, squared,
is

    f = r² + r'² + 2 r r' k + b (a² + a'² - 2 a a' k²) + m (r⁴ + r'⁴ - 2 r² r'² k²).

It is convex in a and in a', and in r and r' because 2 - 4 m >= 0, so each of the four is 0 or 1.

- *r = 0* (or r' = 0): f <= 1 + m + 2 b <= 4 + b.
- *r = r' = 1, and a or a' is 0*: f <= 2 + 2 k + b + 2 m (1 - k²), which rises up to k = 1: 4 + b.
- *All are 1*: f = 2 + 2 k + 2 t (1 - k²) with t = b + m has its top at k = 1 / (2 t), where it is
  2 + 2 t + 1 / (2 t): 4.985 for t = 1.3.
- *A row that is added, left out, or replaced by an incomplete one* changes the sums, squared, by 1 + b + m
  + c at most.

Where deviances are asked for too, each between 0 and 1, they have a weight of `_DEVIANCE`, and one row moves
the sums by that much more, squared. Where the directions of scores that are cut are asked for, vectors of
length 1 or 0 with a weight of `_BEYOND`, one row moves the sums by 4 times that more, squared, and by once
that under add-remove.

*What clipping takes.* Of the sum of scores that are not clipped, that of clipped ones misses c E V, with c
the bound, V the sum of directions of the scores that are cut, and E by how much these are longer than c, in
c. V is 0 on average where residuals are symmetric, so that E does not matter; for normal ones E is 1/3 to
1/2. `EXCESS` V is added. What noise in V leaves is counted as noise, and `LONGER` V where V is more than
noise and a wrong centre explain: tails are then long on one side.

Rounding moves each entry of s and z by at most three steps of 2^-20 and makes neither longer. Sums of
products are those of truncated vectors, which are parallel no more: a difference of two rows moves by at
most 6 sqrt(d) (1 + 2 sqrt(b) + 2 sqrt(m)) steps by that, and 8 in place of 6 are added.
Tested in tests/unit/analyses/regression/test_logistic_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaincinv

from cape.blocks import Design
from cape.blocks.block import T_BITS
from cape.blocks.families import Family, Logit
from cape.core.arrays import Floats
from cape.engine.query import Answer
from cape.stats.matrices import nearest_positive, shrunk, spectral, symmetric

__all__ = [
    "ASYMMETRIC",
    "LOGISTIC",
    "Belief",
    "Point",
    "Scale",
    "Step",
    "clipping",
    "left_of",
]

_CURVE, _SPREAD = 1.0, 0.3
_DEVIANCE = 0.02
_BEYOND = 0.5
_ALONE = 1 + _CURVE + _SPREAD
_FLOAT = 1 + 1e-12
_TINY = 1e-150
_FLAT = 1e-6  # of a row: where there is no noise there is still rounding
# Measured on logistic regressions of skewed columns.
RIDGE = 0.3  # of the largest eigenvalue of noise, halved: added to what rows are whitened by
NEAR = 0.3  # the shortest bound on scores, in lengths of a typical row
FAR = 1.35  # the same for a bound that leaves most rows as they are
MISFIT = 0.03  # how far clipping of most rows may move estimates where the model is wrong: see `clipping`
ROUGH = 0.1  # the share of the sampling variance that noise may add before scores are clipped for it
BENT = 0.01  # the noise in the curvature, per row of log-odds 0, before it is clipped for it
LEFT = 0.6  # of the change of log-odds, squared, that a step may be wrong by
_SMALL = 0.02  # of the sampling variance: noise that does not hide by how much steps change predictors
_SLOW, _SLOWEST = 0.5, 0.9  # of the change before: where steps are not near the end, and the most that counts
SILENT = 1e-6  # of the sampling variance: noise that is not worth the earlier steps
_STEEPEST = _FLAT**-0.5  # how many times as large a direction may become
_SETTLED = 1e-5  # the SD over people of a change of predictors: the next one is its square
EXCESS = 0.5  # how much longer than the bound scores are that are cut, on average, in bounds
LONGER = 4.0  # the same where residuals are visibly not symmetric
ASYMMETRIC = 0.97  # how certain that must be
EARLIER = 3.0  # times that: what counts against a step as soon as there is a later one


@dataclass(frozen=True)
class Scale:
    """A family, and what is typical of its scores: what clipping goes by.

    Attributes:
        family: what the target is like.
        deviation: the SD of what makes u the score.
        weight: what makes uu' the curvature.
        most: the largest that the first can be.
        most_weight: the largest that the second can be.
        deviance: the largest deviance of a row that counts; 0 if none is asked for.
        near: the shortest bound on scores, in that of log-odds.
        far: the same for a bound that leaves most rows as they are.
        bend: how much a change of predictors by 1 changes scores beside what is linear.
        beyond: whether the directions of scores that are cut are asked for.
        wide: how many times as long as noise alone suggests scores may be.
    """

    family: Family
    deviation: float
    weight: float
    most: float
    most_weight: float
    deviance: float = 0.0
    near: float = 1.0
    far: float = 1.0
    bend: float = 1.0
    beyond: bool = False
    wide: float = 1.0


LOGISTIC = Scale(Logit(), 0.5, 0.25, 1.0, 0.25)


@dataclass(frozen=True)
class Point:
    """Where scores are asked for, and how they are clipped: see `Scores`."""

    weights: Floats
    turn: Floats
    bound: float
    curve: float
    scale: Scale = LOGISTIC

    @classmethod
    def first(cls, width: int) -> Point:
        """Return log-odds of 0, where no score is longer than 1/2 and none is clipped."""
        return cls(np.zeros(width), np.eye(width), 0.5, 0.25)

    @property
    def whole(self) -> bool:
        """Whether no row can be clipped: |x| <= 1."""
        longest = float(np.linalg.norm(self.turn, 2))
        halved = self.scale is LOGISTIC and not self.weights.any()
        most, weight = 0.5 if halved else self.scale.most, self.scale.most_weight
        return self.bound >= most * longest and self.curve >= weight * longest**2


@dataclass(frozen=True)
class Step:
    """Noisy sums over rows of scores, of their curvature and spread at a point, in units of u.

    Along eigenvectors of the curvature that its noise hides, nothing is known. Of an eigenvalue l that is
    above the largest one of noise, e, the part e² / l is taken to be noise.
    """

    point: Point
    score: Floats
    curvature: Floats
    spread: Floats
    score_noise: float
    curvature_noise: float  # above the diagonal
    count: float
    spread_noise: float = 0.0  # on the diagonal
    deviance: float = math.nan
    deviance_noise: float = math.nan
    after: Scale | None = None  # of the next step, where a start says it
    beyond: Floats | None = None  # the directions of scores that were cut
    beyond_noise: float = 0.0
    found: Floats | None = None  # scores as they were clipped
    deviation: float = 0.0  # of residuals, as it shows; 0 for that of its scale
    least_cut: float = 0.0  # of what clipping takes, whatever it shows itself

    @classmethod
    def of(cls, answer: Answer, design: Design, point: Point) -> Step:
        """Return what an answer to `score_query` at this point holds."""
        _, score, square, cross, spread, beside, *more = answer.sums[0]
        _, score_noise, _, curvature_noise, spread_noise, _, *more_noise = answer.noise[0]
        count, _ = answer.complete_rows(design.columns)
        limit = point.scale.deviance
        return cls(
            point,
            point.bound * score,
            point.curve * symmetric(square, cross),
            point.bound**2 * symmetric(spread, beside),
            point.bound * score_noise,
            point.curve * curvature_noise,
            max(count, 1.0),
            point.bound**2 * spread_noise,
            limit * float(more[0][0]) if limit else math.nan,
            limit * more_noise[0] if limit else math.nan,
            beyond=np.asarray(more[-1]) if point.scale.beyond else None,
            beyond_noise=more_noise[-1] if point.scale.beyond else 0.0,
        ).completed

    @property
    def completed(self) -> Step:
        """The step with what clipping is likely to have taken from the sum of scores added again."""
        if self.beyond is None:
            return self
        return replace(self, score=self.score + EXCESS * self.point.bound * self.beyond, found=self.score)

    @property
    def _asymmetry(self) -> float:
        """The square of V, the directions of scores that were cut, over that of noise in it.

        Less what V has if residuals are symmetric around another centre, which the scores say.
        """
        if self.beyond is None or self.found is None:
            return 0.0
        deviation = self.deviation or self.point.scale.deviation
        k = self.point.bound / deviation / math.sqrt(len(self.score))
        per = 2 * math.exp(-k * k / 2) / math.sqrt(2 * math.pi) / max(math.erf(k / math.sqrt(2)), _TINY)
        per /= deviation
        found = self.beyond - per * self.found
        noise = math.hypot(self.beyond_noise, per * self.score_noise)
        return float(found @ found) / max(noise, _TINY) ** 2

    def lopsided(self, certain: float) -> bool:
        """Whether more scores are cut on one side than noise explains, with this certainty."""
        return self._asymmetry > 2 * float(gammaincinv(len(self.score) / 2, certain))

    @property
    def cut(self) -> float:
        """The standard deviation of what is left of that, as far as it is not known, in every direction."""
        if self.beyond is None:
            return self.least_cut
        usual = 2 * float(gammaincinv(len(self.score) / 2, ASYMMETRIC))
        seen = max(0.0, 1 - usual / max(self._asymmetry, _TINY))
        square = LONGER**2 * seen * float(self.beyond @ self.beyond) + 2 * (EXCESS * self.beyond_noise) ** 2
        return max(self.point.bound * math.sqrt(square), self.least_cut)

    @property
    def silent(self) -> bool:
        """Whether noise is too small to make earlier steps worth their while."""
        return self.score_noise == 0 or self.noise_part < SILENT

    @property
    def settled(self) -> bool:
        """Whether there is no noise, and nothing is left to change: further steps would be the same."""
        return self.score_noise == 0 and self.moved < _SETTLED

    @cached_property
    def trusting(self) -> Step:
        """The step with the curvature that is likely: nearer to a multiple of the identity, which rows that
        were whitened have, as far as noise hides that it is not."""
        curvature, kept = shrunk(self.curvature, self.curvature_noise)
        of_mean = 2 / (len(curvature) * (len(curvature) + 1))  # the part of noise that the multiple has
        noise = math.sqrt(max(kept, of_mean)) * self.curvature_noise
        return replace(self, curvature=curvature, curvature_noise=noise)

    @cached_property
    def _seen(self) -> tuple[Floats, Floats, Floats]:
        """Inverses of the eigenvalues that stand out, 0 for others; what of these is not noise; the axes."""
        values, vectors = np.linalg.eigh(self.curvature)
        step = math.ldexp(math.sqrt(self.point.curve), 1 - T_BITS)  # two steps of the grid of z
        edge = max(spectral(len(values), self.curvature_noise), _FLAT * self.count, step**2 * self.count)
        clear = values > edge
        safe = np.where(clear, values, 1.0)
        return np.where(clear, 1 / safe, 0.0), np.where(clear, safe - edge**2 / safe, 0.0), vectors

    @cached_property
    def change(self) -> Floats:
        """The Newton step, in u."""
        inverses, _, vectors = self._seen
        return np.asarray(-vectors @ (inverses * (vectors.T @ self.score)))

    @property
    def target(self) -> Floats:
        """The weights after it."""
        return np.asarray(self.point.weights + self.point.turn.T @ self.change)

    @property
    def moved(self) -> float:
        """By how much it changed predictors, without noise: as an SD over people, or a bit less.

        change'H change is the sum of v h (u·change)² over rows, with v <= 1 and, for log-odds, h <= 1/4.
        """
        of_noise = self.score_noise**2 * float(self._seen[0].sum())
        square = float(self.change @ self.curvature @ self.change) - of_noise
        return math.sqrt(max(square, 0.0) / self.count / self.point.scale.weight)

    @property
    def noise_part(self) -> float:
        """The variance of noise in scores, over that from sampling rows."""
        return self.score_noise**2 * len(self.score) / max(float(np.trace(self.spread)), _TINY)

    def toward(self, weights: Floats, furthest: float) -> Floats:
        """Return weights, or what is on the way to them from here where they change predictors too far."""
        away = np.linalg.solve(self.point.turn.T, weights - self.point.weights)
        square = float(away @ nearest_positive(self.curvature) @ away) / self.count / self.point.scale.weight
        return np.asarray(
            self.point.weights + min(1.0, furthest / math.sqrt(max(square, _TINY))) * self.point.turn.T @ away
        )

    @property
    def left(self) -> Floats:
        """How far it may have ended from where scores are 0: second order in what it changed."""
        return np.asarray(LEFT * self.point.scale.bend * self.moved * (self.point.turn.T @ self.change))

    @property
    def sampling(self) -> Floats:
        """The covariance of the target from having sampled people: the sandwich, whatever rows are like."""
        inverses, _, vectors = self._seen
        bread = self.point.turn.T @ (vectors * inverses) @ vectors.T
        return np.asarray(bread @ nearest_positive(self.spread) @ bread.T)

    def precision(self, covariance: Floats) -> Floats:
        """Return how much the step tells, if the covariance of the weights is this before it.

        Noise e in the scores and E in the curvature, at a point that is d away, make e + E d.
        """
        _, kept, vectors = self._seen
        back = np.linalg.inv(self.point.turn)
        away = back.T @ covariance @ back + np.outer(self.change, self.change)
        eye = np.eye(len(away))
        rounding = 2 * self.point.scale.deviation * _FLAT * self.count  # scores have a unit, 1/2 for log-odds
        rounding += math.ldexp(self.point.bound * math.sqrt(self.count), -T_BITS)
        noise = (self.score_noise**2 + rounding**2 + self.cut**2) * eye
        noise = noise + self.curvature_noise**2 * (np.trace(away) * eye + away)
        told = back @ (vectors * kept) @ vectors.T
        return np.asarray(told @ np.linalg.solve(noise, told.T))

    def turn(self, first: bool) -> Floats:
        """Return what whitens rows, weighted as the curvature weights them, as far as noise lets it.

        After the first step |u|² is as large as u is wide, on average; later ones leave its size as it is.
        Where rows hardly differ, one step after the other would blow up what is rounding.
        """
        values, vectors = np.linalg.eigh(self.curvature)
        edge = RIDGE * spectral(len(values), self.curvature_noise) / 2 + _FLAT * self.count
        size = self.count * self.point.scale.weight if first else max(float(values.mean()), edge)
        white = (vectors * np.sqrt(size / (np.maximum(values, 0.0) + edge))) @ vectors.T
        left, sizes, right = np.linalg.svd(white @ self.point.turn)
        return np.asarray((left * np.minimum(sizes, _STEEPEST)) @ right)

    def next(self, weights: Floats, turn: Floats, share: float, scale: Scale) -> Point:
        """Return where to ask next; the last step has `share` times the share of this one.

        Scores and curvature are clipped where the last step's noise would be large beside them otherwise.
        """
        score = self.score_noise / self.point.bound / math.sqrt(share)
        curve = self.curvature_noise / self.point.curve / math.sqrt(share)
        bound, most = clipping(self.count, len(weights), score, curve, scale.near, scale.far)
        longest = float(np.linalg.norm(turn, 2))
        return Point(
            weights,
            turn,
            min(2 * scale.deviation * scale.wide * bound, scale.most * longest),
            min(4 * scale.weight * most, scale.most_weight * longest**2),
            scale,
        )


def left_of(steps: Sequence[Step]) -> Floats:
    """Return how far the last step may have ended from where scores are 0.

    Where noise is small, a step that changed predictors by a part r of what the one before did is not near
    the end yet: the changes that follow add up to r / (1 - r) of it.
    """
    last = steps[-1]
    if len(steps) == 1 or any(each.noise_part > _SMALL for each in steps[-2:]):
        return last.left
    part = min(last.moved / max(steps[-2].moved, _TINY), _SLOWEST)
    if part < _SLOW:
        return last.left
    slow = part / (1 - part) * (last.point.turn.T @ last.change)
    return np.asarray(np.where(np.abs(slow) > np.abs(last.left), slow, last.left))


def clipping(
    count: float, width: int, score: float, curve: float, near: float = 1.0, far: float = 1.0
) -> tuple[float, float]:
    """Return the bounds on scores and on curvature, for noise of `score` and `curve` in units of these.

    Scores are as long as noise allows that adds no more than `ROUGH` of the sampling variance, and at least
    as long as `NEAR` says; curvature likewise. Units are those of log-odds near 0, where what makes u the
    score has an SD of 1/2, and uu' is multiplied by 1/4.

    Where predictors are not linear, another weighting of rows has another best line. With n rows a bound b
    below `FAR` may move estimates by about `MISFIT` sqrt(n) (1 - b / FAR) sampling errors, and its noise is
    2 b `score` / sqrt(n) of these: the sum of their squares is least at FAR A / (A + N FAR²), with
    A = n MISFIT² and N = 4 score² / n, and scores are at least that long.
    """
    typical, score, curve = math.sqrt(width), max(score, _TINY), max(curve, _TINY)
    far, misfit = far * FAR * typical, MISFIT**2 * count
    fitting = far * misfit / (misfit + (2 * far * score) ** 2 / count)
    bound = max(near * NEAR * typical, fitting, math.sqrt(ROUGH * count / 4) / score)
    most = max(2 * NEAR**2 * width, BENT * count / 4 / curve)
    return bound, most


@dataclass(frozen=True)
class Belief:
    """What steps say about weights that were normal with a known covariance around an origin before.

    Attributes:
        mean: the weights.
        covariance: how far they may be off, in all.
        noise: the part of it that is noise.
        pull: how much of the true weights, less the origin, is missing from the mean, as a matrix.
    """

    mean: Floats
    covariance: Floats
    noise: Floats
    pull: Floats

    @classmethod
    def after(cls, steps: list[Step], covariance: Floats, origin: Floats | None = None) -> Belief:
        """Return what these steps say, in turn."""
        eye = np.eye(len(covariance))
        belief = cls(np.zeros(len(eye)) if origin is None else origin, covariance, np.zeros_like(eye), eye)
        for i, step in enumerate(steps):
            belief = belief.told(step, steps[i - 1].left if i else np.zeros(len(eye)))
        return belief

    def told(self, step: Step, left: Floats) -> Belief:
        """Return what is known after one more step, if the one before left that much."""
        wrong = EARLIER**2 * np.outer(left, left)
        precision = step.precision(self.covariance + wrong)
        covariance = np.linalg.inv(np.linalg.inv(self.covariance + wrong) + precision)
        covariance = (covariance + covariance.T) / 2
        gain = covariance @ precision
        rest = np.eye(len(gain)) - gain
        return Belief(
            self.mean + gain @ (step.target - self.mean),
            covariance,
            rest @ (self.noise + wrong) @ rest.T + covariance @ precision @ covariance,
            rest @ self.pull,
        )
