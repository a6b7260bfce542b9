"""Families of generalised linear models: what a row's target says about its linear predictor.

Claim. `Family.at` returns finite numbers g and h >= 0 for every linear predictor and target.
Reason. Linear predictors are cut where exponentials would overflow, far beyond what any table shows; g is the
slope of the row's log-likelihood there and h minus its second derivative, which is nowhere negative because
each of these log-likelihoods is concave in the predictor.
Tested in tests/unit/blocks/test_families.py against differences of the log-likelihood.

h is the observed curvature, not its mean under the family: the estimates of a model that is wrong solve the
same equations, and their errors follow from the curvature that the rows have.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, log_ndtr, xlogy

from cape.core import check
from cape.core.arrays import Floats

__all__ = [
    "TINY",
    "Cloglog",
    "Family",
    "Gamma",
    "Gaussian",
    "Logit",
    "NegativeBinomial",
    "Poisson",
    "Probit",
]

TINY = 1e-300  # in place of a length of 0
_FURTHEST = 30.0  # of linear predictors of logarithms: means from 1e-13 to 1e13
_LEAST, _MOST = 1e-7, 1e7  # of a dispersion
_HALF_LOG = 0.5 * math.log(2 * math.pi)


class Family(ABC):
    """A distribution of the target, given a linear predictor, with its link."""

    binary: ClassVar[bool] = False
    """Whether the target is a category of two values, as 0 or 1, rather than a number in its own unit."""

    @abstractmethod
    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return the slope of each row's log-likelihood in its predictor, and minus its second derivative."""

    @abstractmethod
    def mean(self, eta: Floats) -> Floats:
        """Return the mean of the target; of two categories the probability of the second."""

    @abstractmethod
    def link(self, mean: float) -> float:
        """Return the predictor of this mean."""

    @abstractmethod
    def deviance(self, eta: Floats, y: Floats) -> Floats:
        """Return twice by how much the log-likelihood of each row is below the largest possible."""


class _Binary(Family):
    binary = True

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        p = self.mean(eta)
        return np.asarray(-2 * np.log(np.maximum(np.where(y > 0.5, p, 1 - p), TINY)))


@dataclass(frozen=True)
class Logit(_Binary):
    """Log-odds."""

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        p, q = expit(eta), expit(-eta)
        return np.where(y > 0.5, q, -p), p * q

    def mean(self, eta: Floats) -> Floats:
        return np.asarray(expit(eta))

    def link(self, mean: float) -> float:
        return math.log(mean / (1 - mean))


@dataclass(frozen=True)
class Probit(_Binary):
    """The normal quantile of the probability."""

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        sign = np.where(y > 0.5, 1.0, -1.0)
        z = sign * np.clip(eta, -_FURTHEST, _FURTHEST)
        mills = np.exp(-0.5 * z * z - _HALF_LOG - log_ndtr(z))  # density over distribution
        return sign * mills, np.maximum(mills * (z + mills), 0.0)

    def mean(self, eta: Floats) -> Floats:
        return np.asarray(np.exp(log_ndtr(np.clip(eta, -_FURTHEST, _FURTHEST))))

    def link(self, mean: float) -> float:
        from scipy.special import ndtri

        return float(ndtri(mean))


@dataclass(frozen=True)
class Cloglog(_Binary):
    """log(-log(1 - p)): what grouped survival times with proportional hazards have."""

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        hazard = np.exp(np.clip(eta, -_FURTHEST, 6.0))
        odds = 1 / np.expm1(hazard)  # of no event; hazard odds goes from 1 to 0
        g = np.where(y > 0.5, hazard * odds, -hazard)
        # minus the slope of hazard / (e^hazard - 1) in the predictor, which is not negative
        bent = hazard * odds * (hazard * (1 + odds) - 1)
        return g, np.where(y > 0.5, np.maximum(bent, 0.0), hazard)

    def mean(self, eta: Floats) -> Floats:
        return np.asarray(-np.expm1(-np.exp(np.clip(eta, -_FURTHEST, 6.0))))

    def link(self, mean: float) -> float:
        return math.log(-math.log1p(-mean))


@dataclass(frozen=True)
class Gaussian(Family):
    """Numbers around a mean that is the predictor itself; scores are those of variance 1."""

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        return y - eta, np.ones(len(eta))

    def mean(self, eta: Floats) -> Floats:
        return eta

    def link(self, mean: float) -> float:
        return mean

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        return np.asarray((y - eta) ** 2)


def _exp(eta: Floats) -> Floats:
    return np.asarray(np.exp(np.clip(eta, -_FURTHEST, _FURTHEST)))


class _Log(Family):
    """Numbers of at least 0 with the logarithm of their mean as predictor."""

    def mean(self, eta: Floats) -> Floats:
        return _exp(eta)

    def link(self, mean: float) -> float:
        return math.log(max(mean, math.exp(-_FURTHEST)))


@dataclass(frozen=True)
class Poisson(_Log):
    """Counts whose variance is their mean."""

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        mean = _exp(eta)
        return y - mean, mean

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        mean = _exp(eta)
        return np.asarray(2 * np.maximum(xlogy(y, y / mean) - (y - mean), 0.0))


@dataclass(frozen=True)
class NegativeBinomial(_Log):
    """Counts whose variance is mean + alpha mean²."""

    alpha: float

    def __post_init__(self) -> None:
        check.real("alpha", self.alpha, least=_LEAST, most=_MOST)

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        mean = _exp(eta)
        per = 1 / (1 + self.alpha * mean)
        return (y - mean) * per, mean * per * ((1 + self.alpha * y) * per)

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        mean, alpha = _exp(eta), self.alpha
        ratio = (1 + alpha * y) / (1 + alpha * mean)
        return np.asarray(2 * np.maximum(xlogy(y, y / mean) - (y + 1 / alpha) * np.log(ratio), 0.0))


@dataclass(frozen=True)
class Gamma(_Log):
    """Numbers above 0 whose SD is proportional to their mean; scores are those of dispersion 1."""

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        ratio = y / _exp(eta)
        return ratio - 1, ratio

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        ratio = np.maximum(y, TINY) / _exp(eta)
        return np.asarray(2 * np.maximum(ratio - 1 - np.log(ratio), 0.0))
