"""How well a generalised linear model fits, from the sums of its last step: deviance, dispersion.

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
from typing import Protocol

import numpy as np
from scipy.special import entr, ndtri

from cape.analyses.regression.likelihoods import Likelihood
from cape.analyses.regression.score_regression_estimate import Fitted
from cape.blocks.families import Family, NegativeBinomial
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate, unknown
from cape.stats.score_steps import ScoreStep

__all__ = [
    "ALPHA",
    "AtLeast",
    "alpha_of",
    "deviance_of",
    "deviance_of_constant",
    "deviance_of_share",
    "dispersion",
    "share_of",
]

ALPHA = "alpha"
_FEW = 3.0  # times its noise: below that a number is not known


class _Last(Protocol):
    """A last step, with the deviance at its point."""

    @property
    def change(self) -> Floats: ...
    @property
    def curvature(self) -> Floats: ...
    @property
    def deviance(self) -> float: ...
    @property
    def deviance_noise(self) -> float: ...


@dataclass(frozen=True)
class AtLeast:
    """An interval without an upper end."""

    value: float
    error: float

    def __call__(self, level: float) -> tuple[float, float]:
        return self.value - float(ndtri((1 + level) / 2)) * self.error, math.inf


def deviance_of(last: _Last) -> Estimate:
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


def deviance_of_share(share: float, noise: float, count: float) -> tuple[float, float]:
    """Return the deviance of a constant for two categories, whose second has this share, and its noise."""
    slope = 2 * abs(math.log(max(share, 1e-9) / max(1 - share, 1e-9)))
    return 2 * count * float(entr(share) + entr(1 - share)), count * slope * noise


def deviance_of_constant(
    deviance: Estimate, last: ScoreStep, intercept: bool, fitted: Fitted
) -> tuple[float, float]:
    """Return the deviance of a constant, and its noise beside that of the model's own deviance.

    It is the model's and the quadratic form of the slopes, as in Wald's test: an approximation.
    """
    turn = last.point.turn
    weights = np.linalg.solve(turn.T, last.point.weights + turn.T @ last.change)
    curvature = last.likely
    if intercept:  # the constant is a combination of u: what is left of the slopes beside it
        constant = np.linalg.inv(turn.T)[:, 0]
        beside = curvature @ constant
        curvature = curvature - np.outer(beside, beside) / max(float(constant @ beside), 1e-300)
        weights = weights - constant * float(constant @ weights) / max(float(constant @ constant), 1e-300)
    quadratic = float(weights @ curvature @ weights)
    length = math.sqrt(float(weights @ weights))
    noise = last.curvature_noise * length**2 + 2 * last.score_noise * length
    return deviance.value + max(quadratic, 0.0), noise


def alpha_of(steps: Sequence[ScoreStep], mean: float, family: Family | None = None) -> float:
    """Return the alpha of a negative binomial with which the spread of scores is their curvature, on average.

    Without noise that is found by iteration, from the ratio of the two at the last alpha: with a mean m it is
    about (1 + alpha m) over (1 + last alpha m). With noise that would follow the noise. There, at a typical
    mean m, the variance of the target is what the spread says, times (1 + alpha m)²; it should be
    m (1 + alpha m).
    """
    last = steps[-1]
    if not last.score_noise and isinstance(family, NegativeBinomial):
        if last.persons > 1:  # what a person's rows add up to says nothing of the variance of one
            return family.alpha
        ratio = float(np.trace(last.spread)) / max(float(np.trace(last.curvature)), 1e-300)
        return max((ratio * (1 + family.alpha * mean) - 1) / mean, 1e-3)
    size, bend = last.point.size**2, last.point.bend
    if last.lengths is not None:
        seen = last.lengths.typical()
        size = size if seen is None else seen**2 / last.width
    # bend = m / (1 + alpha m) gives 1 + alpha m, and size = variance / (1 + alpha m)²
    per = max(mean / bend, 1.0)
    variance = size * per**2
    return max((variance - mean) / mean**2, 1e-3)


def dispersion(step: ScoreStep, likelihood: Likelihood, family: Family) -> Estimate | None:
    """Return the dispersion that the last step shows, with errors as if the family were right."""
    if not likelihood.dispersed:
        return None
    width = step.width
    if likelihood.family == "gaussian":
        total, freedom = deviance_of(step), max(step.count - width, 1.0)
        value = total.value / freedom
        sampled = value * math.sqrt(2 * step.persons / freedom)  # rows of a person may be alike
        return Estimate("dispersion", value, sampled, total.privacy / freedom, (0.0, math.inf))
    if isinstance(family, NegativeBinomial):
        return Estimate(ALPHA, family.alpha, 0.0, 0.0, (0.0, math.inf))
    if step.persons > 1:  # the spread of what a person's rows add up to, not of targets
        return unknown("dispersion", 0.0, math.inf)
    # what shortening took is not added: it is a bound, which may be many times what there is
    hidden = step.point.beyond is not None and step.point.beyond.spread > 0
    spread, curvature = float(np.trace(step.spread)), float(np.trace(step.curvature))
    if not curvature > _FEW * step.curvature_noise * math.sqrt(2 * width):
        return unknown("dispersion", 0.0, math.inf)
    # at the point of the last step, targets lie about means that this step has still moved
    moved = float(step.change @ step.curvature @ step.change) / step.count
    value = max(spread / curvature - max(moved, 0.0), 0.0)
    noise = step.spread_noise * math.sqrt(2 * width) / curvature
    noise = math.hypot(noise, value * step.curvature_noise * math.sqrt(2 * width) / curvature, moved)
    sampled = value * math.sqrt((2 + 6 * value) / step.count)
    found = Estimate("dispersion", value, sampled, noise, (0.0, math.inf))
    return replace(found, at=AtLeast(found.value, found.standard_error)) if hidden else found
