"""Newton's steps from noisy clipped scores: where to ask next, and what the last answer says.

A step knows, at weights w and in coordinates u = Tx, the sums over rows of clipped scores g, of their
curvature H (each row's clipped at a bound of its own) and of their spread, all with noise of known size.

*Next.* Weights move by H⁻¹g, where H is first drawn to a multiple of the identity as far as its noise warrants
(`shrunk`), and the step to 0 as far as its noise warrants (James and Stein). Coordinates are then whitened by
H, so that a step's noise is alike in all directions and lengths of scores say how far out a row is. Earlier
curvatures count in later ones, less so the further weights have moved.

*The last one.* The estimate is w + T'H⁻¹g. Its errors are counted as covariances, each in full:
- sampling: H⁻¹ S H⁻¹ with S the spread, to which what clipping took of it is added;
- noise in g, and noise in H times the step;
- what clipping took of g. Its length is at most the excess of lengths over the bound; its direction is taken
  to be spread as scores are. As one more independent error, of that size, it widens an interval by at least
  what a bias of at most that size needs (the quantile of a folded normal: tests/unit/stats);
- for a curvature that changes with w, `BENT` of the last step, because H is that at w and not on the way;
- along directions in which noise hides the curvature, all that is taken to be possible of the weights.

The equation that is solved is that of unclipped scores, at any w: clipping changes what is summed, not what
is estimated, and what it changed is counted. So steps need not converge to where clipped scores add up to 0,
which is another point where a model is wrong.
Tested in tests/unit/stats/test_score_steps.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.core.arrays import Floats
from cape.stats.matrices import nearest_positive, shrunk, shrunk_blocks, spectral, symmetric_root
from cape.stats.score_norms import FALLS, Beyond, Lengths, edges_around

__all__ = ["Errors", "Point", "ScoreStep", "errors", "next_point"]

# Chosen on half of the settings of `python -m benchmarks truth`, which says which; reported on the others.
FIRST_BOUND = 2.5  # times the length of a typical score, before lengths are seen
STEEP = 0.15  # of the curvature: noise in it that a longer bound on it may make
LEAST_CURVE, MOST_CURVE = 4.0, 60.0  # typical curvatures: how long that bound is
EXACT_CURVE = 1e4  # the same where there is no noise
DRIFT = 0.3  # how much a curvature changes as predictors change by an SD of 1
FURTHEST = 1.5  # the SD of predictors by which a step changes them at most, where curvature changes
BENT = 0.2  # of the last step: how far a curvature that changes may leave it off
_HIDDEN = 0.5  # of the largest eigenvalue of noise: below that an eigenvalue is not divided by
_FLAT = 1e-10  # of the largest eigenvalue: a direction in which features do not vary
_SETTLED = 3e-6  # the SD over people of a change of predictors


@dataclass(frozen=True)
class Point:
    """Where scores are asked for, and how they are clipped.

    Attributes:
        weights: w.
        turn: the rows of T.
        size: a typical length of scores, per root of the number of entries.
        bend: a typical curvature, per entry.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be.
        edges: between which lengths are counted; none if they are not asked for.
        beyond: what the bound is expected to leave out; None if nothing is known of that.
    """

    weights: Floats
    turn: Floats
    size: float
    bend: float
    bound: float
    curve: float
    edges: tuple[float, ...] = ()
    beyond: Beyond | None = None

    @classmethod
    def first(
        cls,
        weights: Floats,
        turn: Floats,
        size: float,
        bend: float,
        *,
        noise: float,
        count: float,
        blocks: int = 1,
    ) -> Point:
        """Return where to ask first; `noise` is that of a sum whose rows are at most 1 long.

        With several blocks the curvature of a row is that of several directions.
        """
        width = len(weights)
        length = size * math.sqrt(width)
        curve = _curve(width, bend, size, noise, count) / math.sqrt(blocks)
        return cls(weights, turn, size, bend, FIRST_BOUND * length, curve, edges_around(length))


def _curve(width: int, bend: float, size: float, noise: float, count: float) -> float:
    """Return the bound on the curvature of a row: longer where noise is small beside rows."""
    typical = width * bend
    if noise == 0:
        return EXACT_CURVE * typical
    longest = STEEP * count / (math.sqrt(2 * width) * noise * width)
    least = LEAST_CURVE * max(1.0, size / bend / 1.5)
    return typical * min(max(longest, least), MOST_CURVE)


@dataclass(frozen=True)
class ScoreStep:
    """Sums at a point, in units of u, with their noise.

    Attributes:
        curvature_noise, spread_noise: above the diagonal; sqrt 2 times that on it.
        curved: whether the curvature changes with the weights.
        blocks: how many predictors of the same features there are, whose curvatures are shrunk toward each
            other; what that leaves of noise counts. With 0 all noise counts.
        expected: what is known of the curvature beforehand, per row and in units of `bend`, toward which it
            is shrunk; None for the identity.
    """

    point: Point
    count: float
    score: Floats
    curvature: Floats
    spread: Floats
    score_noise: float
    curvature_noise: float
    spread_noise: float
    lengths: Lengths | None
    curved: bool
    deviance: float = math.nan
    deviance_noise: float = math.nan
    blocks: int = 0
    expected: Floats | None = None

    @property
    def width(self) -> int:
        """How many weights there are."""
        return len(self.score)

    def with_earlier(self, earlier: ScoreStep, moved: float) -> ScoreStep:
        """Return the step with a curvature in which an earlier one counts; predictors moved by that SD."""
        if not self.curvature_noise:
            return self
        turn = self.point.turn @ np.linalg.inv(earlier.point.turn)
        noise = float(np.linalg.norm(turn, 2)) ** 2 * earlier.curvature_noise
        if self.curved:
            noise = math.hypot(noise, DRIFT * min(moved, 1.0) * self.count * self.point.bend)
        here, there = self.curvature_noise**-2, max(noise, 1e-300) ** -2
        before = turn @ earlier.curvature @ turn.T
        if self.expected is not None:
            root = symmetric_root(self.expected)
            before = root @ before @ root
        mixed = (here * self.curvature + there * before) / (here + there)
        return replace(self, curvature=mixed, curvature_noise=(here + there) ** -0.5)

    @property
    def _shrunk(self) -> tuple[Floats, float]:
        """The likely curvature, and the noise that counts in it."""
        if not self.curvature_noise:
            return self.curvature, 0.0
        if not self.blocks:
            return shrunk(self.curvature, self.curvature_noise)[0], self.curvature_noise
        return self._toward(self.curvature, self.curvature_noise, self.count * self.point.bend)

    def _toward(self, matrix: Floats, noise: float, size: float) -> tuple[Floats, float]:
        """Return a matrix that was expected to be the expected one of this size, and the noise left in it."""
        one = np.eye(self.width)
        apart = 0 * one if self.expected is None else size * (self.expected - one)
        found, left = shrunk_blocks(matrix - apart, noise, max(self.blocks, 1))
        return nearest_positive(found + apart), left

    @property
    def likely_spread(self) -> Floats:
        """The spread that is likely, positive."""
        spread = self.spread
        if self.spread_noise:
            spread = self._toward(spread, self.spread_noise, float(np.trace(spread)) / self.width)[0]
        return nearest_positive((spread + spread.T) / 2)

    @property
    def curvature_left(self) -> float:
        """The noise that counts in the likely curvature."""
        return self._shrunk[1]

    @property
    def _axes(self) -> tuple[Floats, Floats, float]:
        """Eigenvalues and axes of the likely curvature, and below which eigenvalue noise hides it."""
        likely, noise = self._shrunk
        values, vectors = np.linalg.eigh((likely + likely.T) / 2)
        edge = _HIDDEN * spectral(self.width, noise) + _FLAT * max(float(values[-1]), 0.0)
        return values, vectors, max(edge, 1e-300)

    @property
    def inverse(self) -> Floats:
        """The inverse of the likely curvature, where noise does not hide it."""
        values, vectors, edge = self._axes
        return np.asarray((vectors / np.maximum(values, edge)) @ vectors.T)

    @property
    def likely(self) -> Floats:
        """The curvature that is likely, positive."""
        values, vectors, edge = self._axes
        return np.asarray((vectors * np.maximum(values, edge)) @ vectors.T)

    @property
    def pull(self) -> Floats:
        """Which part of what is left to the weights a step does not go, as a matrix in units of u."""
        values, vectors, edge = self._axes
        return np.asarray((vectors * (1 - np.maximum(values, 0.0) / np.maximum(values, edge))) @ vectors.T)

    @property
    def change(self) -> Floats:
        """The whole Newton step, in u."""
        return np.asarray(self.inverse @ self.score)

    def moved(self, change: Floats) -> float:
        """Return by what SD over people this change of weights changes predictors."""
        square = float(change @ self.likely @ change) / self.count / self.point.bend
        return math.sqrt(max(square, 0.0))

    @property
    def drawn(self) -> Floats:
        """The step as far as it is more than noise, and not further than the curvature can be trusted."""
        change, likely = self.change, self.likely
        square = float(change @ likely @ change)
        of_noise = self.score_noise**2 * float(np.trace(self.inverse @ likely @ self.inverse))
        change = change * max(0.0, 1 - of_noise / max(square, 1e-300))
        return change * min(1.0, FURTHEST / max(self.moved(change), 1e-300)) if self.curved else change

    @property
    def settled(self) -> bool:
        """Whether there is no noise, and nothing is left to change: further steps would be the same."""
        return self.score_noise == 0 and self.moved(self.change) < _SETTLED


def next_point(
    step: ScoreStep, *, whiten: bool, lengths: bool, noise: float, falls: float = FALLS
) -> tuple[Point, float]:
    """Return where to ask next, and by what SD predictors move.

    `noise` is that of a sum whose rows are at most 1 long, in the next step.
    """
    point, width = step.point, step.width
    change = step.drawn
    weights = point.weights + point.turn.T @ change
    turn, size, bend = point.turn, point.size, point.bend
    if step.lengths is not None:
        seen = step.lengths.typical()
        size = size if seen is None else seen / math.sqrt(width)
    if whiten:
        likely = step.likely
        middle = float(np.trace(likely)) / width
        values, vectors = np.linalg.eigh(likely / middle)
        # along axes that noise hides a turn would follow the noise; beyond, anything is possible
        most = 20.0 if step.curvature_noise else 1e12
        turn = (vectors / np.sqrt(np.clip(values, 1 / most, most))) @ vectors.T @ turn
        bend = max(middle / step.count, 1e-300)
    bound, beyond = FIRST_BOUND * size * math.sqrt(width), None
    if step.lengths is not None:
        beyond = step.lengths.best(noise, width, falls)
        bound = max(beyond.bound, bound) if lengths else beyond.bound
        beyond = step.lengths.beyond(bound, falls) if lengths else beyond
    curve = _curve(width, bend, size, noise, step.count) / math.sqrt(max(step.blocks, 1))
    edges = edges_around(size * math.sqrt(width)) if lengths else ()
    return Point(weights, turn, size, bend, bound, curve, edges, beyond), step.moved(change)


@dataclass(frozen=True)
class Errors:
    """The estimate of a last step, in units of x, and the covariances of its errors.

    Attributes:
        weights: the estimate.
        sampling: from having sampled rows.
        noise: from noise in the sums.
        clipped: from what clipping took of scores.
        unsettled: from steps that end before they have arrived.
        hidden: from directions in which noise hides everything.
        pull: which part of each weight these directions are.
    """

    weights: Floats
    sampling: Floats
    noise: Floats
    clipped: Floats
    unsettled: Floats
    hidden: Floats
    pull: Floats


def errors(step: ScoreStep, possible: Floats) -> Errors:
    """Return what the last step says; no weight is taken to be larger than what is possible."""
    point, inverse, change = step.point, step.inverse, step.change
    beyond = point.beyond or Beyond(point.bound, 0.0, 0.0, 0.0)
    spread = step.likely_spread
    trace = float(np.trace(spread))
    shape = spread / trace if trace > 0 else np.eye(step.width) / step.width
    back = point.turn.T

    def seen(matrix: Floats) -> Floats:
        turned = back @ inverse @ matrix @ inverse @ back.T
        return np.asarray((turned + turned.T) / 2)

    one = np.eye(step.width)
    square = float(change @ change)
    noise = step.score_noise**2 + step.curvature_left**2 * square
    bent = BENT * (back @ change) if step.curved else np.zeros(step.width)
    pull = back @ step.pull @ np.linalg.inv(back)
    return Errors(
        point.weights + back @ change,
        seen(spread + beyond.spread * shape),
        seen(noise * one),
        seen(beyond.excess**2 * shape),
        np.outer(bent, bent),
        (pull * possible**2) @ pull.T,
        pull,
    )
