"""What a generalised linear model does with its family between steps: where to start, and what is typical.

All of it is post-processing of released sums. A family of numbers starts from a linear regression of its
target, or of a logarithm of it, which no outlying target moves far; what it says about the predictor is only
used to start from. After each step, how long scores are is read from their curvature and their spread, with
what clipping took away added as if they were normal, and the dispersion follows from the two.
Tested in tests/unit/analyses/regression/test_glm.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betainc, gammainccinv, gammaincinv, ndtr, ndtri

from cape.analyses.regression.scores import LOGISTIC, Point, Scale, Step
from cape.blocks.families import (
    TINY,
    Cloglog,
    Family,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Poisson,
    Probit,
    Start,
)
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.stats.matrices import nearest_positive

__all__ = ["LIKELIHOODS", "Binary", "Likelihood", "Numbers"]

FAR = 12.0  # SDs: where no noise asks for clipping, none is clipped that is nearer
NEAR = 2.0  # the shortest bound on scores, in those of log-odds: skewed targets lose more by it
HEAVY = 100.0  # the same for curvature, in typical ones
DEVIANCE = 30.0  # times the dispersion: the largest deviance of a row that counts
_LEAST = 1e-9  # of the mean of a count
_HALVINGS = 60
_CHANGED = 4.0  # how many times as large an SD may become from one step to the next
_REDISPERSED = 2.0  # the same for a dispersion
_FURTHEST = 15.0  # of predictors of typical rows
_NEARBY = 1.1  # times a dispersion, for slopes
_MOST_SPREAD = 3.0  # of predictors, as an SD
_RANKS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
_NARROW = 1e-9  # of the middle of bounds: at least that much is half their width
_TARGETS = 24  # for each predictor
_SMALLEST, _LARGEST = 1e-6, 1e6  # of a dispersion


@dataclass(frozen=True)
class Likelihood:
    """A family with its link, as `GLM` names them.

    Attributes:
        family, link: their names.
        predictor: what is linear in the features, in words.
        ratio: what the exponential of a coefficient is, in words; empty if it is nothing.
    """

    family: str
    link: str
    predictor: str
    ratio: str = ""

    def check(self, target: str, schema: Schema) -> None:
        """Raise `InvalidInput` for a target that the family does not fit."""
        raise NotImplementedError

    def mean(self, eta: Floats) -> Floats:
        """Return the mean of the target, or the probability of the second category."""
        raise NotImplementedError


@dataclass(frozen=True)
class Binary(Likelihood):
    """Two categories: steps start at a predictor of 0, and their scale stays as it is."""

    scale: Scale = LOGISTIC

    def check(self, target: str, schema: Schema) -> None:
        column = schema[target]
        if isinstance(column, Number) or len(column.values) != 2:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {target!r} must have two categories for family 'binomial'; the schema gives it "
                f"{found}. For more use family='multinomial' or, if they are ordered, 'ordinal'"
            )

    def start(self, width: int) -> Point:
        """Return a predictor of 0, where no score is clipped."""
        p, q, times, bent = (np.max(each) for each in self.scale.family.likely(np.zeros(1)))  # type: ignore[attr-defined]
        return Point(np.zeros(width), np.eye(width), float(times * max(p, q)), float(bent), self.scale)

    def mean(self, eta: Floats) -> Floats:
        p: Floats = self.scale.family.likely(eta)[0]  # type: ignore[attr-defined]
        return np.asarray(p)


@dataclass(frozen=True)
class Numbers(Likelihood):
    """Numbers: a family with a dispersion, which steps estimate.

    Attributes:
        least: what the target must be above; None for nothing.
        logarithm: what is added before its logarithm is taken to start from; None for no logarithm.
        made: the family with a dispersion.
        dispersed: what the dispersion is called; empty if there is none.
    """

    least: float | None = None
    open: bool = False
    logarithm: float | None = None
    made: Callable[[float], Family] = Gaussian
    dispersed: str = ""

    def check(self, target: str, schema: Schema) -> None:
        column = schema[target]
        if not isinstance(column, Number):
            raise InvalidInput(
                f"target {target!r} must be a number with bounds for family {self.family!r}; the schema "
                "gives it categories, for which there are families 'binomial', 'multinomial' and 'ordinal'"
            )
        if self.least is not None and (column.low < self.least or (self.open and column.low == self.least)):
            wanted = f"above {self.least:g}" if self.open else f"of at least {self.least:g}"
            raise InvalidInput(
                f"target {target!r} must have a lower bound {wanted} for family {self.family!r}, not "
                f"{column.low:g}"
            )

    def mean(self, eta: Floats) -> Floats:
        return eta if self.logarithm is None else np.exp(np.minimum(eta, 700.0))

    def start(self, column: Number, width: int) -> Point:
        """Return the question for a linear regression of the target, or of its logarithm."""
        ends = Start(self.logarithm, 0.0).value(np.array([column.low, column.high]))
        middle = float(ends[0] / 2 + ends[1] / 2)
        half = max(float(ends[1] / 2 - ends[0] / 2), _NARROW * max(1.0, abs(middle)))
        scale = Scale(Start(self.logarithm, middle), half, 1.0, half, 1.0, 1.0)
        return Point(np.zeros(width), np.eye(width), half, 1.0, scale)

    def started(self, step: Step, first: float, shift: float) -> Step:
        """Return the first answer as a step about the predictor, with the scale of scores for the next one.

        `first` is the entry of x that is the same in all rows, 0 if there is none; `shift` is what the
        predictor has beside w·x.
        """
        family = step.point.scale.family
        assert isinstance(family, Start)
        count, curvature = step.count, step.curvature
        middle = self._values(shift)
        if first:
            total = max(float(curvature[0, 0]) / first**2, 0.01 * count)
            noise = step.score_noise / first / total
            middle = family.middle - float(step.score[0]) / first / total
            if self.logarithm is None:  # no further than bounds allow, and nearer as noise hides it
                half = step.point.bound
                away = min(max(middle - family.middle, -half), half)
                middle = family.middle + away / (1 + (2 * noise / half) ** 2)
        # the score at another constant than the middle of the bounds
        moved = step.score + (middle - family.middle) * (curvature[0] / first if first else 0.0)
        eta, steep, at = middle, 1.0, middle
        if self.logarithm is not None:
            if first:
                middle = max(middle, noise, 1 / count) if self.logarithm else middle
            at = max(math.exp(min(middle, 30.0)) - self.logarithm, _LEAST)
            eta, steep = math.log(at), (at + self.logarithm) / at
        size = max(float(np.trace(curvature)), 0.01 * count)
        spread = float(np.trace(step.spread)) / size - (middle - family.middle) ** 2
        doubt = step.spread_noise * math.sqrt(len(moved)) / size
        weights = np.zeros(len(moved))
        if first:
            weights[0] = (eta - shift) / first
        times = 1.0 if self.logarithm is None else (steep * at) ** 2  # from g to the target
        usual = (step.point.bound / 3) ** 2 if self.logarithm is None else self._usual(at)
        scale = self._first_scale(at, _blended(usual, times * spread, times * doubt))
        point = replace(step.point, weights=weights, bound=steep * step.point.bound)
        return replace(
            step,
            point=point,
            score=steep * np.asarray(moved),
            spread=steep**2 * (step.spread - (middle - family.middle) ** 2 * curvature),
            score_noise=steep * step.score_noise,
            after=scale,
        )

    def _values(self, eta: float) -> float:
        """Return what the first regression would find at a predictor."""
        return eta if self.logarithm is None else math.log(math.exp(min(eta, 30.0)) + self.logarithm)

    def _usual(self, mean: float) -> float:
        """Return the variance that a target of this mean is expected to have before any is seen."""
        return {"poisson": mean, "gamma": mean**2 / 2}.get(self.family, mean + mean**2 / 2)

    def _first_scale(self, mean: float, variance: float) -> Scale:
        """Return the scale of scores, for a target of this mean and variance."""
        if self.family == "gaussian":
            return self._scale(variance, 1.0, variance)
        if self.family == "gamma":
            return self._scale(variance / mean**2, 1.0, variance / mean**2)
        if self.family == "poisson":
            return self._scale(0.0, mean, max(variance, mean))
        alpha = max(variance - mean, 0.1 * mean**2) / mean**2
        return self._scale(alpha, mean / (1 + alpha * mean), mean / (1 + alpha * mean))

    def spread_by(self, variance: float) -> Scale:
        """Return the scale of a family with an identity link whose residuals have this variance."""
        return self._scale(variance, 1.0, variance)

    def _scale(self, dispersion: float, weight: float, squared: float) -> Scale:
        if self.family == "gaussian":  # a variance, in whatever unit the target has
            dispersion = min(max(dispersion, 1e-200), 1e200)
        else:
            dispersion = min(max(dispersion, _SMALLEST), _LARGEST)
        deviation = math.sqrt(squared)
        limit = DEVIANCE * squared / weight
        bend = 1 / deviation if self.family == "gaussian" else 1.0  # nothing but where it is cut
        return Scale(
            self.made(dispersion), deviation, weight, FAR * deviation, HEAVY * weight, limit, NEAR, bend=bend
        )

    def told(self, scale: Scale) -> float:
        """Return the dispersion of a scale's family."""
        family = scale.family
        if isinstance(family, NegativeBinomial):
            return family.alpha
        return (
            family.dispersion if isinstance(family, (Gamma, Gaussian)) else scale.deviation**2 / scale.weight
        )

    def next(self, step: Step, first: float) -> Scale:
        """Return the scale that a step shows; `first` is the entry of x that is the same in all rows."""
        was, size = step.point.scale, step.count * len(step.score)
        typical = step.point.bound / math.sqrt(len(step.score))  # what the factor of a usual row is cut at
        within = (was.deviation / _CHANGED, was.deviation * _CHANGED)
        doubt = step.spread_noise * math.sqrt(len(step.score))
        square = max(float(np.trace(step.spread)), 0.0) / size
        deviation = math.sqrt(_blended(was.deviation**2, _uncut(square, typical, *within) ** 2, doubt / size))
        kept = 1 - 2 * float(ndtr(-typical / deviation))
        weight = max(float(np.trace(step.curvature)) / size / kept, was.weight / _CHANGED**2)
        weight = min(weight, was.weight * _CHANGED**2)
        if self.family == "gaussian":
            return self._scale(deviation**2, 1.0, deviation**2)
        if self.family == "poisson":
            return self._scale(0.0, weight, deviation**2)
        dispersion = self._dispersed(step, _Typical(step, first), self.told(was))[0]
        if self.family == "gamma":
            return self._scale(dispersion, 1.0, dispersion)
        return self._scale(dispersion, weight, weight)

    def _dispersed(self, step: Step, typical: _Typical, was: float) -> tuple[float, float]:
        """Return the dispersion that a step shows, and by how much its logarithm may be off."""
        made, width = self.made, len(step.score)
        total = max(float(np.trace(step.curvature)), 0.01 * step.count * width * step.point.scale.weight)
        ratio = max(float(np.trace(step.spread)) / total, TINY)
        noise = step.spread_noise * math.sqrt(width) / total / ratio
        found = typical.dispersion(made, ratio, was)
        steep = (
            math.log(typical.ratio(made, found * _NEARBY)) - math.log(typical.ratio(made, found))
        ) / math.log(_NEARBY)
        sampled = math.sqrt((2 + 6 * found) * (1 + 2 / width) / step.count)
        doubt = math.hypot(noise, sampled) / max(steep, 0.01)
        return _blended(was, found, found * noise / max(steep, 0.1)), min(doubt, _REDISPERSED)

    def adjusted(self, step: Step, first: float) -> Step:
        """Return the last step without what its scores had on average because the dispersion was another.

        Clipped scores have mean 0 for the dispersion that they were asked with. How far another one moves
        predictors is subtracted, and counted as far as the dispersion is not known.
        """
        if self.family in ("gaussian", "poisson") or not first:
            return step
        typical = _Typical(step, first)
        found, doubt = self._dispersed(step, typical, self.told(step.point.scale))
        shift = typical.shift(self.made, found)
        steep = (typical.shift(self.made, found * _NEARBY) - shift) / math.log(_NEARBY)
        moved = step.curvature @ typical.constant
        return replace(
            step,
            score=step.score - shift * moved,
            spread=step.spread + (steep * doubt) ** 2 * np.outer(moved, moved),
        )


class _Typical:
    """Typical rows of a step, whose targets are of a family: which dispersion explains the spread of scores.

    Beside the curvature h uu', that of ss' is E[g²] / h times as large. Predictors have the mean and the SD
    that the curvature gives them, with h as weights; lengths of u are those of normal features.
    """

    def __init__(self, step: Step, first: float) -> None:
        curvature, point = nearest_positive(step.curvature), step.point
        weights = np.linalg.solve(point.turn.T, point.weights)
        unit = np.zeros(len(weights))
        unit[0] = 1.0
        constant = np.linalg.solve(point.turn.T, unit / first) if first else np.zeros(len(weights))
        total = float(constant @ curvature @ constant) if first else step.count * point.scale.weight
        mean = float(constant @ curvature @ weights) / max(total, TINY)
        square = float(weights @ curvature @ weights) / max(total, TINY)
        deviation = min(math.sqrt(max(square - mean**2, 0.0)), _MOST_SPREAD)
        mean = min(max(mean, -_FURTHEST), _FURTHEST)
        predictors, lengths = (
            mean + deviation * ndtri(_RANKS),
            np.sqrt(2 * gammaincinv(len(weights) / 2, _RANKS)),
        )
        self._eta, self._length = (each.ravel() for each in np.meshgrid(predictors, lengths))
        self._point, self.constant = point, constant

    def _told(self, made: Callable[[float], Family], dispersion: float, power: int) -> Floats:
        """Return E[g^power] / h of each row, if targets have this dispersion."""
        y, chance = _outcomes(made(dispersion), self._eta)
        eta, length = (np.repeat(each, y.shape[1]) for each in (self._eta, self._length))
        point = self._point
        g, h = point.scale.family.factors(eta, y.ravel(), length, length**2, point.bound, point.curve)
        return np.asarray((chance.ravel() * g**power / np.maximum(h, TINY)).reshape(y.shape).sum(axis=1))

    def ratio(self, made: Callable[[float], Family], dispersion: float) -> float:
        """Return the trace of ss' over that of the curvature."""
        squares = self._length**2
        return max(float((self._told(made, dispersion, 2) * squares).sum() / squares.sum()), TINY)

    def shift(self, made: Callable[[float], Family], dispersion: float) -> float:
        """Return how far scores move predictors on average."""
        return float(np.clip(self._told(made, dispersion, 1).mean(), -_MOST_SPREAD, _MOST_SPREAD))

    def dispersion(self, made: Callable[[float], Family], ratio: float, was: float) -> float:
        """Return the dispersion for which they have this ratio."""
        low, high = was / _REDISPERSED, was * _REDISPERSED
        for _ in range(_HALVINGS // 4):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.ratio(made, middle) < ratio else (low, middle)
        return math.sqrt(low * high)


def _blended(before: float, found: float, noise: float) -> float:
    """Return a positive number that was found with noise, nearer to what it was before as noise hides it."""
    if not noise < _LARGEST * max(found, TINY):
        return before
    found = max(found, noise, TINY)
    trust = 1 / (1 + 4 * (noise / found) ** 2)
    return math.exp((1 - trust) * math.log(before) + trust * math.log(found))


def _outcomes(family: Family, eta: Floats) -> tuple[Floats, Floats]:
    """Return likely targets at each predictor, and their probabilities."""
    mean = np.exp(np.clip(eta, -_FURTHEST, _FURTHEST))[:, None]
    if isinstance(family, Gamma):
        left = 1 - (np.arange(_TARGETS) + 0.5) / _TARGETS
        chance = np.broadcast_to(left**2 / (left**2).sum(), (len(mean), _TARGETS))  # ranks are 1 - left³
        found = gammainccinv(1 / family.dispersion, left**3) * mean
        total = np.maximum((chance * found).sum(axis=1, keepdims=True), TINY)
        return found / total * mean, chance
    assert isinstance(family, NegativeBinomial)
    r = 1 / family.alpha
    most = mean * (1 + 20 * np.sqrt(1 / mean + family.alpha)) + 20
    steps = np.arange(_TARGETS + 1) / _TARGETS
    edges = np.maximum(np.floor(most * steps**2), np.arange(_TARGETS + 1))  # cells of whole numbers
    upto = betainc(r, np.maximum(edges, 1e-9), 1 / (1 + family.alpha * mean)) * (edges > 0)
    upto[:, -1] = 1.0
    found, chance = (edges[:, :-1] + edges[:, 1:] - 1) / 2, np.diff(upto, axis=1)
    return found / np.maximum((chance * found).sum(axis=1, keepdims=True), TINY) * mean, chance


def _uncut(square: float, limit: float, low: float, high: float) -> float:
    """Return the SD of normal numbers whose mean square is this after they were cut at a limit."""
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        k = limit / middle
        tail = float(ndtr(-k))
        density = math.exp(-k * k / 2) / math.sqrt(2 * math.pi)
        found = middle**2 * (1 - 2 * tail - 2 * k * density + 2 * k * k * tail)
        low, high = (middle, high) if found < square else (low, middle)
    return math.sqrt(low * high)


def _fixed(family: Family, weight: float, most: float) -> Scale:
    return Scale(family, math.sqrt(weight), weight, most, 4 * weight, 16.0)


LIKELIHOODS: dict[tuple[str, str], Likelihood] = {
    (each.family, each.link): each
    for each in (
        Numbers("gaussian", "identity", "the target"),
        Binary("binomial", "logit", "log-odds", "odds ratio", replace(LOGISTIC, deviance=16.0)),
        Binary("binomial", "probit", "probits", "", _fixed(Probit(), 2 / math.pi, 6.0)),
        Binary(
            "binomial", "cloglog", "log hazards", "hazard ratio", _fixed(Cloglog(), 1 / (math.e - 1), 10.0)
        ),
        Numbers(
            "poisson", "log", "log rates", "rate ratio", least=0.0, logarithm=1.0, made=lambda _: Poisson()
        ),
        Numbers(
            "negative-binomial",
            "log",
            "log rates",
            "rate ratio",
            least=0.0,
            logarithm=1.0,
            made=NegativeBinomial,
            dispersed="alpha",
        ),
        Numbers(
            "gamma",
            "log",
            "log means",
            "ratio of means",
            least=0.0,
            open=True,
            logarithm=0.0,
            made=Gamma,
            dispersed="dispersion",
        ),
    )
}
"""By the names of family and link; the first link of a family is its default."""
