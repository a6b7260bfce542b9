"""How well a generalised linear model fits, from the sums of its steps: deviance, dispersion, score test.

All of it is post-processing. The deviance is a released sum at the last point, less what the last step
gained, 2 change'H change / 2. What features explain of it is exact for two categories without an offset and
weights, whose share is released; for others it is the quadratic form of the slopes, as in Wald's test, and
is said to be approximate. The variance of a gaussian family is the deviance per row. That of others is seen
in the spread of scores: where these were clipped, targets that are far out show as less than they are, and
the interval of a dispersion has no upper end.
Tested in tests/unit/analyses/regression/test_glm.py and test_glm_ugly.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import entr, gammaincc, ndtri

from cape.analyses.regression.joint import WaldTest
from cape.analyses.regression.likelihoods import Binary, Likelihood, Numbers
from cape.analyses.regression.scores import Step
from cape.blocks.families import NegativeBinomial
from cape.stats.estimates import Estimate, unknown
from cape.stats.matrices import nearest_positive

__all__ = ["AtLeast", "deviance_of", "dispersion", "explained", "score_test", "share_of"]

_FEW = 3.0  # times its noise: below that a number is not known


@dataclass(frozen=True)
class AtLeast:
    """An interval without an upper end."""

    value: float
    error: float

    def __call__(self, level: float) -> tuple[float, float]:
        return self.value - float(ndtri((1 + level) / 2)) * self.error, math.inf


def explained(
    steps: Sequence[Step], likelihood: Likelihood, first: float, plain: bool
) -> tuple[Estimate, Estimate]:
    """Return the deviance, and the share of that of a constant which features explain: a pseudo-R².

    `first` is the entry of x that is the same in all rows, 0 if there is none; `plain` says that rows differ
    in features and target alone, without an offset and weights.
    """
    deviance = deviance_of(steps[-1])
    found = share_of(deviance, *_constant(steps, likelihood, first, plain))
    return deviance, unknown("pseudo-R²", 0.0, 1.0) if found is None else found


def deviance_of(last: Step) -> Estimate:
    """Return the deviance after the last step."""
    gained = float(last.change @ last.curvature @ last.change)
    value = max(last.deviance - gained, 0.0)
    return Estimate("deviance", value, 0.0, last.deviance_noise, (0.0, math.inf))


def share_of(deviance: Estimate, constant: float, beside: float) -> Estimate | None:
    """Return which share of a constant's deviance is explained; None if noise hides it.

    `beside` is the noise in that of the constant, beside that of the model's own deviance.
    """
    value, noise = deviance.value, deviance.privacy
    if not constant > _FEW * math.hypot(noise, beside):
        return None
    share = min(max(1 - value / constant, 0.0), 1.0)
    error = math.hypot(noise, (1 - share) * beside) / constant
    return Estimate("pseudo-R²", share, 0.0, error, (0.0, 1.0))


def _constant(
    steps: Sequence[Step], likelihood: Likelihood, first: float, plain: bool
) -> tuple[float, float]:
    """Return the deviance of a constant, and its noise beside that of the model's own deviance."""
    start, last = steps[0], steps[-1]
    if isinstance(likelihood, Binary) and first and plain:
        eta, one = np.zeros(2), np.ones(2)  # where steps start, no score is clipped
        none, some = likelihood.scale.family.factors(eta, np.arange(2.0), one, one, math.inf, math.inf)[0]
        per = first * float(some - none) * start.count
        share = (float(start.score[0]) - first * float(none) * start.count) / per
        noise = start.score_noise / abs(per)
        share = min(max(share, 0.0), 1.0)
        slope = 2 * abs(math.log(max(share, 1e-9) / max(1 - share, 1e-9)))
        return 2 * start.count * float(entr(share) + entr(1 - share)), start.count * slope * noise
    weights = np.linalg.solve(last.point.turn.T, last.target)
    curvature = nearest_positive(last.curvature)
    if first:
        # the constant is a combination of u: what is left of the slopes beside it
        constant = np.linalg.inv(last.point.turn.T)[:, 0]
        beside = curvature @ constant
        curvature = curvature - np.outer(beside, beside) / max(float(constant @ beside), 1e-300)
    quadratic = float(weights @ curvature @ weights)
    noise = last.curvature_noise * float(weights @ weights) + 2 * last.score_noise * math.sqrt(
        float(weights @ weights)
    )
    return deviance_of(last).value + max(quadratic, 0.0), noise


def dispersion(step: Step, likelihood: Likelihood, first: float) -> Estimate | None:
    """Return the dispersion that the last step shows, with errors as if the family were right."""
    if not isinstance(likelihood, Numbers):
        return None
    scale, width = likelihood.next(step, first), len(step.score)
    if likelihood.family == "gaussian":
        total, freedom = deviance_of(step), max(step.count - width, 1.0)
        value = total.value / freedom
        sampled = value * math.sqrt(2 / freedom)
        return Estimate("dispersion", value, sampled, total.privacy / freedom, (0.0, math.inf))
    squared, weight = scale.deviation**2, scale.weight
    noise = step.spread_noise / math.sqrt(width) / step.count
    sampled = math.sqrt((1 + 2 / width) / step.count)
    if likelihood.family == "negative-binomial":
        assert isinstance(scale.family, NegativeBinomial)
        alpha = scale.family.alpha
        mean = weight / max(1 - alpha * weight, 1e-3)
        steep = (1 + alpha * mean) / mean
        error = sampled * steep * math.sqrt(2 + 6 * alpha + 1 / (mean * (1 + alpha * mean)))
        return _at_least(Estimate("alpha", alpha, error, noise / weight * steep, (0.0, math.inf)), step)
    value = squared / weight
    tails = {"gamma": 6 * value, "poisson": 1 / weight}[likelihood.family]
    sampled = value * sampled * math.sqrt(2 + tails)
    return _at_least(Estimate("dispersion", value, sampled, noise / weight, (0.0, math.inf)), step)


def _at_least(found: Estimate, step: Step) -> Estimate:
    """Return a dispersion without an upper end where scores were clipped."""
    return found if step.point.whole else replace(found, at=AtLeast(found.value, found.standard_error))


def score_test(start: Step, first: float, names: Sequence[str]) -> WaldTest:
    """Return Rao's score test of whether no feature matters, from the first step, with noise counted.

    Where none does, the scores there are independent of the features: their variance about their mean, times
    the features' second moments about their means, is the covariance of what is tested.
    """
    labels, many = tuple(names), len(names)
    unknown_test = WaldTest(labels, math.nan, many, math.nan)
    curvature, score, count = start.trusting.curvature, start.score, start.count
    weight = start.point.scale.weight
    corner = float(curvature[0, 0])
    if not first or corner <= 0:
        return unknown_test
    beside = curvature[1:, 0] / corner
    left = score[1:] - beside * score[0]
    spread = _centred(start, first, count)
    inner = nearest_positive(curvature[1:, 1:] - corner * np.outer(beside, beside)) / weight
    noise = start.score_noise**2 * (np.eye(many) + np.outer(beside, beside))
    noise = noise + (start.curvature_noise * float(score[0]) / corner) ** 2 * np.eye(many)
    covariance = spread * inner + noise
    try:
        found = float(left @ np.linalg.solve(covariance, left))
    except np.linalg.LinAlgError:
        return unknown_test
    if not math.isfinite(found) or found < 0:
        return unknown_test
    return WaldTest(labels, found, many, float(gammaincc(many / 2, found / 2)))


def _centred(start: Step, first: float, count: float) -> float:
    """Return the variance of what makes x the score."""
    square = float(start.spread[0, 0]) / first**2 / count
    mean = float(start.score[0]) / first / count
    return max(square - mean**2, 1e-12)
