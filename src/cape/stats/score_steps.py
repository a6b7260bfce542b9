"""Newton's steps from noisy clipped scores: where to ask next, and what the last answer says.

A step knows, at weights w and in coordinates u = Tx, the sums over rows of clipped scores g, of their
curvature H (each row's clipped at a bound of its own) and of their spread, all with noise of known size.

*Next.* Weights move by H⁻¹g, where H is first drawn to a multiple of the identity as far as its noise
warrants (`shrunk`), and the step to 0 as far as its noise warrants (James and Stein). Coordinates are then
whitened by
H, so that a step's noise is alike in all directions and lengths of scores say how far out a row is. Earlier
curvatures count in later ones, less so the further weights have moved.

*The last one.* The estimate is w + T'H⁻¹g. Its errors are counted as covariances, each in full:
- sampling: H⁻¹ S H⁻¹ with S the spread, to which what clipping took of it is added;
- noise in g, and noise in H times the step;
- what clipping took of g. Its length is at most the excess of lengths over the bound; its direction is taken
  to be spread as scores are, or, for hazards, to be any that the spread allows. As one more independent
  error, of that size, it widens an interval of 90% or more by at least what a bias of at most that size
  needs, the quantile of a folded normal;
- for a curvature that changes with w, `BENT` of the last step, because H is that at w and not on the way;
- along directions in which noise hides the curvature, all that is taken to be possible of the weights.

The equation that is solved is that of unclipped scores, at any w: clipping changes what is summed, not what
is estimated, and what it changed is counted. So steps need not converge to where clipped scores add up to 0,
which is another point where a model is wrong.
Tested in tests/unit/stats/test_score_steps.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cape.core.arrays import Floats
from cape.stats.matrices import nearest_positive, shrunk, shrunk_blocks, spectral, symmetric_root
from cape.stats.score_norms import FALLS, Beyond, Lengths, edges_around

__all__ = [
    "BENT",
    "BENT_SECOND",
    "ENDLESS",
    "Errors",
    "Point",
    "ScoreStep",
    "errors",
    "for_predictions",
    "next_point",
]

# Chosen on half of the settings of `python -m benchmarks truth`, which says which; reported on the others.
FIRST_BOUND = 2.5  # times the length of a typical score, before lengths are seen
STEEP = 0.15  # of the curvature: noise in it that a longer bound on it may make
LEAST_CURVE, MOST_CURVE = 4.0, 60.0  # typical curvatures: how long that bound is
UNEVEN = 1.5  # SDs of curvatures in their mean: from there on that bound is longer
EXACT_CURVE = 1e4  # the same where there is no noise
DRIFT = 0.3  # how much a curvature changes as predictors change by an SD of 1
FURTHEST = 1.5  # the SD of predictors by which a step changes them at most, where curvature changes
FAR = 2.0  # SDs of predictors that the last step moves: from 1 / FAR on it is left off by more
BENT = 0.2  # of the last step: how far a curvature that changes may leave it off
BENT_SECOND = 0.35  # of a second or third step that is the last: its curvature is an earlier one in part
_HIDDEN = 0.5  # of the largest eigenvalue of noise: below that an eigenvalue is not divided by
ENDLESS = 10.0  # times the last step: what it is taken to have left where steps have no end
_PASSED = 0.5  # of the last step: from there on the one before says how curvature changes along it
_ALIKE = 0.6  # of noise: as much may hide an eigenvalue, however alike noise leaves them all
_FLAT = 1e-10  # of the largest eigenvalue: a direction in which features do not vary
_ROUNDED = 2.0**-38  # of the bound on curvature, per row: what rounding may show where nothing varies
_SURE = 2.0  # standard deviations
_CLEAR = 2.0  # times what hides an eigenvalue
_KEPT = 0.9  # of an estimate: from there on predictions draw it to nothing
_SETTLED = 3e-6  # the SD over people of a change of predictors


@dataclass(frozen=True)
class Point:
    """Where scores are asked for, and how they are clipped.

    Attributes:
        weights: w.
        turn: the rows of T.
        size: a typical length of scores, per root of the number of entries.
        bend: a typical curvature, per entry.
        uneven: the SD of curvatures over targets, in their mean.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be.
        edges: between which lengths are counted; none if they are not asked for.
        beyond: what the bound is expected to leave out; None if nothing is known of that.
        exact: whether there is no noise.
    """

    weights: Floats
    turn: Floats
    size: float
    bend: float
    uneven: float
    bound: float
    curve: float
    edges: tuple[float, ...] = ()
    beyond: Beyond | None = None
    exact: bool = False

    @classmethod
    def first(
        cls,
        weights: Floats,
        turn: Floats,
        size: float,
        bend: float,
        *,
        uneven: float = 0.0,
        noise: float,
        count: float,
        blocks: int = 1,
    ) -> Point:
        """Return where to ask first; `noise` is that of a sum whose rows are at most 1 long.

        With several blocks the curvature of a row is that of several directions.
        """
        width = len(weights)
        length = size * math.sqrt(width)
        curve = _curve(width, bend, uneven, noise, count) / math.sqrt(max(blocks, 1))
        edges = edges_around(length)
        return cls(weights, turn, size, bend, uneven, FIRST_BOUND * length, curve, edges, exact=noise == 0)

    def unclipped(self, longest: float, lengths: Lengths, noise: float, falls: float) -> Point:
        """Return the point with the longest score that is possible there as its bound, of which these lengths
        were seen before; or, where scores have become much longer, with a bound that clips some."""
        if longest <= self.bound * math.sqrt(2):
            return replace(self, bound=longest, beyond=Beyond(longest, 0.0, 0.0, 0.0))
        beyond = replace(lengths, longest=math.inf).best(noise, len(self.weights), falls)
        return replace(self, bound=beyond.bound, beyond=beyond)


def _curve(width: int, bend: float, uneven: float, noise: float, count: float) -> float:
    """Return the bound on the curvature of a row: longer where noise is small beside rows."""
    typical = width * bend
    if noise == 0:
        return EXACT_CURVE * typical
    longest = STEEP * count / (math.sqrt(2 * width) * noise * width)
    least = LEAST_CURVE * max(1.0, uneven / UNEVEN)
    return typical * min(max(longest, least), MOST_CURVE)


@dataclass(frozen=True)
class ScoreStep:
    """Sums at a point, in units of u, with their noise.

    Attributes:
        curvature_noise, spread_noise: above the diagonal; sqrt 2 times that on it.
        curved: whether the curvature changes with the weights.
        left: how far the step may end from where scores add up to 0, in its own length.
        blocks: how many predictors of the same features there are, whose curvatures are shrunk toward each
            other; what that leaves of noise counts. With 0 all noise counts.
        expected: what is known of the curvature beforehand, per row and in units of `bend`, toward which it
            is shrunk; None for the identity.
        count_noise: the noise in the number of rows, 0 if that is public.
        rounding: what rounding of other sums may show of curvature where nothing varies.
        persons: how many rows of a person count at most. Where these are several, the spread is that of what
            persons add up to, and clipping may have taken so many times as much of it.
        hides: the least part of the noise that may hide an eigenvalue, however alike noise leaves them all.
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
    left: float = BENT
    blocks: int = 0
    expected: Floats | None = None
    count_noise: float = 0.0
    rounding: float = 0.0
    persons: int = 1
    hides: float = _ALIKE

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

    def after(self, earlier: Sequence[ScoreStep]) -> ScoreStep:
        """Return the step with how far it may end from where scores are 0, as these steps before it show.

        Where curvature fades as weights move on, by exp(-r) over the length of this step, and goes on to,
        what is left of scores after x such lengths is 1 - (1 - exp(-r x)) / r: 0 at x = -log(1 - r) / r, and
        nowhere if r >= 1, as where a feature separates two categories.
        """
        if not self.curved:
            return self
        change, likely = self.change, self.likely
        whole, length = float(change @ likely @ change), float(change @ change)
        # a standard deviation of noise may have made curvature look as if it faded
        now = max(float(change @ self.curvature @ change), 0.0) + math.sqrt(2) * self.curvature_noise * length
        fades = 0.0
        for each in earlier:
            way = np.linalg.solve(self.point.turn.T, self.point.weights - each.point.weights)
            passed = float(change @ likely @ way) / max(whole, 1e-300)
            there = np.linalg.solve(each.point.turn.T, self.point.turn.T @ change)
            noise = math.sqrt(2) * each.curvature_noise * float(there @ there)
            then = float(there @ each.curvature @ there) - noise
            if passed > _PASSED and then > now:
                fades = max(fades, math.log(then / max(now, 1e-300)) / passed)
        if not fades:
            return self
        left = ENDLESS if fades >= 1 else -math.log1p(-fades) / fades - 1
        return replace(self, left=min(max(left, BENT), ENDLESS))

    def beside(self, earlier: ScoreStep, moved: float) -> ScoreStep:
        """Return the step with a score in which an earlier one counts, as it is expected to be here.

        To choose where to ask next: what is estimated at the end rests on the last score alone.
        """
        if not self.score_noise:
            return self
        turn = self.point.turn @ np.linalg.inv(earlier.point.turn)
        change = np.linalg.solve(earlier.point.turn.T, self.point.weights - earlier.point.weights)
        passed = earlier.likely @ change
        rough = DRIFT * min(moved, 1.0) * float(np.linalg.norm(passed))
        of_curvature = earlier.curvature_noise * float(np.linalg.norm(change))
        noise = float(np.linalg.norm(turn, 2)) * math.hypot(earlier.score_noise, of_curvature, rough)
        here, there = self.score_noise**-2, max(noise, 1e-300) ** -2
        mixed = (here * self.score + there * (turn @ (earlier.score - passed))) / (here + there)
        return replace(self, score=mixed, score_noise=(here + there) ** -0.5)

    @property
    def endless(self) -> bool:
        """Whether curvature fades as fast as steps go on, so that no weights are an end."""
        return self.left >= ENDLESS

    @property
    def _shrunk(self) -> tuple[Floats, float, float]:
        """The likely curvature, the noise that counts in it, and the noise that may hide it."""
        whole = self.curvature_noise
        if not whole:
            return self.curvature, 0.0, 0.0
        if not self.blocks and self.expected is None:
            likely, kept = shrunk(self.curvature, whole)
            kept = max(kept, math.sqrt(2 / (self.width * (self.width + 1))))  # the multiple has noise as well
            return likely, whole, max(kept, self.hides) * whole
        likely, left = self._toward(self.curvature, whole, self.count * self.point.bend)
        return likely, left, left

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
        if self.spread_noise and not self.blocks and self.expected is None:
            spread = shrunk(spread, self.spread_noise)[0]
        elif self.spread_noise:
            spread = self._toward(spread, self.spread_noise, float(np.trace(spread)) / self.width)[0]
        return nearest_positive((spread + spread.T) / 2)

    @property
    def curvature_left(self) -> float:
        """The noise that counts in the likely curvature."""
        return self._shrunk[1]

    @property
    def curvature_hidden(self) -> float:
        """The noise in the likely curvature, if it is as even as it is drawn to be."""
        return self._shrunk[2]

    @property
    def _axes(self) -> tuple[Floats, Floats, float, float]:
        """Eigenvalues and axes of the likely curvature, below which one noise hides it, and rounding."""
        likely, _, noise = self._shrunk
        values, vectors = np.linalg.eigh((likely + likely.T) / 2)
        rounded = max(_ROUNDED * self.point.curve * self.count, self.rounding)
        flat = max(_FLAT * float(values[-1]), rounded, 1e-300)
        edge = _HIDDEN * spectral(self.width, noise)
        return values, vectors, edge + flat, flat

    @property
    def _inverses(self) -> Floats:
        """What scores are multiplied by along axes: 1 over the eigenvalue, and less where that is hidden."""
        values, _, edge, flat = self._axes
        return np.where(values > flat, np.maximum(values, 0.0) / np.maximum(values, edge) ** 2, 0.0)

    @property
    def flat(self) -> Floats:
        """The axes along which features do not vary, or rounding hides it, in columns."""
        values, vectors, _, flat = self._axes
        return np.asarray(vectors[:, values <= flat])

    @property
    def inverse(self) -> Floats:
        """The inverse of the likely curvature, where noise does not hide it."""
        vectors = self._axes[1]
        return np.asarray((vectors * self._inverses) @ vectors.T)

    @property
    def likely(self) -> Floats:
        """The curvature that is likely, positive."""
        values, vectors, edge, _ = self._axes
        return np.asarray((vectors * np.maximum(values, edge)) @ vectors.T)

    @property
    def pull(self) -> Floats:
        """Which part of what is left to the weights a step does not go, as a matrix in units of u."""
        values, vectors, _, _ = self._axes
        return np.asarray((vectors * (1 - np.maximum(values, 0.0) * self._inverses)) @ vectors.T)

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
        flat = values * middle <= 2 * step._axes[3]
        values = np.where(flat, 1.0, np.clip(values, 1 / most, most))
        turn = (vectors / np.sqrt(values)) @ vectors.T @ turn
        bend = max(middle / step.count, 1e-300)
    bound, beyond = FIRST_BOUND * size * math.sqrt(width), None
    if step.lengths is not None:
        beyond = step.lengths.best(noise, width, falls)
        bound = max(beyond.bound, bound) if lengths else beyond.bound
        beyond = step.lengths.beyond(bound, falls) if lengths else beyond
    curve = _curve(width, bend, point.uneven, noise, step.count) / math.sqrt(max(step.blocks, 1))
    edges = edges_around(size * math.sqrt(width)) if lengths else ()
    found = Point(weights, turn, size, bend, point.uneven, bound, curve, edges, beyond, noise == 0)
    return found, step.moved(change)


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


def _furthest(spread: Floats, beyond: Beyond) -> Floats:
    """Return the largest part of what was clipped that may lie along each direction, as a matrix.

    Rows beyond the bound make up a part of the spread of clipped scores whose trace is known. Where the
    spread exceeds that of the direction that has least, so much of it may be theirs; the rest of them is
    taken to lie in all directions alike.
    """
    values, vectors = np.linalg.eigh(spread)
    theirs = beyond.rows * beyond.bound**2
    parts = 1 / len(spread) + (values - values[0]) / max(theirs, 1e-300)
    return np.asarray((vectors * np.minimum(parts, 1.0)) @ vectors.T)


def errors(step: ScoreStep, possible: Floats, bent: float = BENT, *, alike: bool = True) -> Errors:
    """Return what the last step says; no weight is taken to be larger than what is possible.

    `bent` is how far a curvature that changes may leave the last step off, in parts of it. `alike` says
    whether what was clipped is taken to be spread over directions as scores are; otherwise as much of it is
    taken to lie along each as the spread of clipped scores allows.
    """
    point, inverse, change = step.point, step.inverse, step.change
    beyond = point.beyond or Beyond(point.bound, 0.0, 0.0, 0.0)
    spread = step.likely_spread
    trace = float(np.trace(spread))
    shape = spread / trace if trace > 0 else np.eye(step.width) / step.width
    shape = shape if alike else _furthest(spread, beyond)
    back = point.turn.T

    def seen(matrix: Floats) -> Floats:
        turned = back @ inverse @ matrix @ inverse @ back.T
        return np.asarray((turned + turned.T) / 2)

    one = np.eye(step.width)
    square = float(change @ change)
    noise = step.score_noise**2 + step.curvature_left**2 * square
    far = max(1.0, FAR * step.moved(change))
    left = max(step.left, bent * far) * (back @ change) if step.curved else np.zeros(step.width)
    weights, pull = point.weights + back @ change, back @ step.pull @ np.linalg.inv(back)
    if not step.curvature_noise:  # of all weights that fit the same, those that are least
        way = back @ step.flat / possible[:, None]
        pull = possible[:, None] * (way @ np.linalg.pinv(way)) / possible
        weights = weights - pull @ weights
    privacy = (
        seen(noise * one),
        seen(beyond.excess**2 * shape),
        np.outer(left, left),
        (pull * possible**2) @ pull.T,
    )
    # what noise hides altogether is not further off than anything can be
    error = np.sqrt(np.maximum(sum(np.diag(each) for each in privacy), 1e-300))
    most = np.minimum(1.0, 2 * possible / error)
    noisy, clipped, unsettled, hidden = (most[:, None] * each * most for each in privacy)
    weights = np.where(most < 1, np.clip(weights, -possible, possible), weights)
    sampling = seen(spread + step.persons * beyond.spread * shape)
    return Errors(weights, sampling, noisy, clipped, unsettled, hidden, pull)


def for_predictions(step: ScoreStep, origin: Floats) -> tuple[Floats, float]:
    """Return weights to predict with, and which part of what was estimated they keep.

    Where noise is a good part of what they are away from the origin, where no feature counts, they are drawn
    there as far as noise warrants (James and Stein), by the upper end of what noise may have made; and along
    axes on which the curvature does not stand clear of noise.
    """
    step = replace(step, hides=0.0)  # a prediction needs what is likely, and no interval rests on it
    estimate = step.point.weights + step.point.turn.T @ step.change
    if not step.score_noise:
        return estimate, 1.0
    away = np.linalg.solve(step.point.turn.T, estimate - origin)
    values, vectors, edge, _ = step._axes
    clear = np.maximum(1 - (_CLEAR * edge / np.maximum(values, edge)) ** 2, 0.0)
    seen, likely = (vectors * clear) @ vectors.T, step.likely
    noise = step.score_noise**2 + step.curvature_hidden**2 * float(step.change @ step.change)
    parts = noise * clear**2 * np.maximum(values, edge) * step._inverses**2
    most = float(parts.sum()) + _SURE * math.sqrt(2 * float(parts @ parts))
    drawn = seen @ away
    drawn = drawn * max(0.0, 1 - most / max(float(drawn @ likely @ drawn), 1e-300))
    kept = math.sqrt(float(drawn @ likely @ drawn) / max(float(away @ likely @ away), 1e-300))
    if kept >= _KEPT:
        return estimate, 1.0
    return origin + step.point.turn.T @ drawn, kept
