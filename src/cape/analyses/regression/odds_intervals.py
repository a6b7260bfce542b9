"""From weights of (1, x) and their errors to coefficients in the columns' own units, with intervals."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cape.analyses.regression.inference import Between, Reach, widest
from cape.analyses.regression.normal_odds import MOST_MOVED
from cape.analyses.regression.odds import Fit
from cape.blocks.units import Units
from cape.engine.query import Estimate

__all__ = ["after_steps", "from_moments", "standard_errors"]

Floats = NDArray[np.float64]


def standard_errors(units: Units, covariance: Floats) -> Floats:
    """Return those of the intercept and the coefficients, given the covariance of weights of (1, x)."""
    return np.sqrt(np.maximum(np.diag(units.covariance(covariance)), 0.0))


def after_steps(
    units: Units, weights: Floats, sampling: Floats, privacy: Floats, left: Floats
) -> list[Estimate]:
    """Return the intercept and the coefficients after the last Newton step.

    The interval is the normal one, made wider on both sides by how far off the last step may have ended.
    """
    values, bias = units.values(weights), np.abs(units.values(left))
    of_sampling, of_noise = (standard_errors(units, each) for each in (sampling, privacy))
    estimates = []
    for i, label in enumerate(("intercept", *units.names)):
        value, sampled, noise, off = (float(each[i]) for each in (values, of_sampling, of_noise, bias))
        reach = Reach(value, math.hypot(sampled, noise), off)
        estimates.append(Estimate(label, value, sampled, math.hypot(noise, off), at=reach))
    return estimates


def from_moments(units: Units, cautious: Fit, bold: Fit | None) -> list[Estimate]:
    """Return the intercept and the coefficients of second moments alone.

    The interval reaches from the cautious estimate to the bold one, each with its own error; without a bold
    one it is all that is possible. The truth is as likely anywhere between the two, so that their distance
    adds a third of its square to the variance.
    """
    values, most = units.values(cautious.weights), widest(units, MOST_MOVED, MOST_MOVED)
    of_sampling, of_noise = (
        standard_errors(units, cautious.sampling),
        standard_errors(units, cautious.privacy),
    )
    other = cautious if bold is None else bold
    ends, far = units.values(other.weights), standard_errors(units, other.sampling + other.privacy)
    estimates = []
    for i, label in enumerate(("intercept", *units.names)):
        value, end, sampled, noise = (float(each[i]) for each in (values, ends, of_sampling, of_noise))
        limit = max(float(most[i]), abs(value))
        errors = (limit, limit) if bold is None else (math.hypot(sampled, noise), float(far[i]))
        noise = limit if bold is None else math.hypot(noise, (end - value) / math.sqrt(3))
        interval = Between((value, end), errors)
        estimates.append(Estimate(label, value, sampled, noise, (-limit, limit), interval))
    return estimates
