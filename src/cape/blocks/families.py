"""Families of generalised linear models: what a row's target says about its linear predictor, clipped.

Claim. `Family.factors` returns g and h with |g| (length) <= bound and h (square) <= curve up to rounding, for
every target, and g has mean 0 over targets of the family with that linear predictor, whatever is clipped.
Reason. *Two categories.* Every function of the target with mean 0 is a multiple of p - y. The multiple is the
largest, up to the likelihood's own, for which neither category is too long; it does not depend on y.
*Numbers.* With r = w (mean - y) the score, y is cut to where |r| <= c, its mean there under the family is
subtracted (Cantoni and Ronchetti 2001), and what is left is at most c + |a| long, a the mean that was
subtracted: times c / (c + |a|) it is at most c long. A weight that depends on x alone would have to allow for
the largest target of all.
In both cases h, the expected slope of g, is E[g s], s the score (the derivative of E[g] = 0), and where it is
too large both are multiplied by the same number, which depends on x alone.
Tested in tests/unit/blocks/test_families.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import betainc, expit, gammainc, log_ndtr, ndtr, pdtr, xlogy

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
    "Start",
]

TINY = 1e-300  # in place of a length of 0
_FURTHEST = 30.0  # of linear predictors of logarithms: means from 1e-13 to 1e13
_FEW = 40.0  # counts whose probabilities are added up one by one
_LEAST, _MOST = 1e-7, 1e7  # of a dispersion: what special functions were tested with
_NEVER = 12.0  # SDs, and as many counts: a target is not further from its mean than that


class Family(ABC):
    """A distribution of the target, given a linear predictor."""

    binary: ClassVar[bool] = False
    """Whether the target is a category of two values, as 0 or 1, rather than a number in its own unit."""

    @abstractmethod
    def factors(
        self, eta: Floats, y: Floats, length: Floats, square: Floats, bound: float, curve: float
    ) -> tuple[Floats, Floats]:
        """Return, for each row, what u is multiplied by to be its score, and uu' to be its curvature."""

    @abstractmethod
    def deviance(self, eta: Floats, y: Floats) -> Floats:
        """Return twice by how much the log-likelihood of each row is below the largest possible."""


class _Binary(Family):
    """Two categories."""

    binary = True

    def factors(
        self, eta: Floats, y: Floats, length: Floats, square: Floats, bound: float, curve: float
    ) -> tuple[Floats, Floats]:
        p, q, times, bent = self.likely(eta)
        longest = times * np.maximum(p, q) * length
        v = np.minimum(bound / np.maximum(longest, TINY), curve / np.maximum(bent * square, TINY))
        v = np.minimum(v, 1.0)
        return v * times * (p - y), v * bent

    @abstractmethod
    def likely(self, eta: Floats) -> tuple[Floats, Floats, Floats | float, Floats]:
        """Return p, 1 - p, the slope of p over p (1 - p), and the information about eta."""

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        p, q, _, _ = self.likely(eta)
        return np.asarray(-2 * np.log(np.maximum(np.where(y > 0.5, p, q), TINY)))


@dataclass(frozen=True)
class Logit(_Binary):
    """Log-odds."""

    def likely(self, eta: Floats) -> tuple[Floats, Floats, Floats | float, Floats]:
        p = np.asarray(expit(eta))
        return p, 1 - p, 1.0, p * (1 - p)


@dataclass(frozen=True)
class Probit(_Binary):
    """The normal quantile of the probability."""

    def likely(self, eta: Floats) -> tuple[Floats, Floats, Floats | float, Floats]:
        eta = np.clip(eta, -_FURTHEST, _FURTHEST)
        log = -0.5 * (eta * eta + math.log(2 * math.pi))
        times = np.exp(log - log_ndtr(eta) - log_ndtr(-eta))
        return np.asarray(ndtr(eta)), np.asarray(ndtr(-eta)), times, times * np.exp(log)


@dataclass(frozen=True)
class Cloglog(_Binary):
    """log(-log(1 - p)): what grouped survival times with proportional hazards have."""

    def likely(self, eta: Floats) -> tuple[Floats, Floats, Floats | float, Floats]:
        hazard = np.exp(np.clip(eta, -_FURTHEST, 6.0))
        p, q = -np.expm1(-hazard), np.exp(-hazard)
        times = hazard / p
        return p, q, times, times * hazard * q


class _Numeric(Family):
    """Numbers with a known distribution around their mean."""

    def factors(
        self, eta: Floats, y: Floats, length: Floats, square: Floats, bound: float, curve: float
    ) -> tuple[Floats, Floats]:
        mean, times, spread = self.likely(eta)
        c = bound / np.maximum(length, TINY)
        with np.errstate(over="ignore"):  # a row of length 0 is not cut at all
            reach = c / times
        cut = np.clip(y, mean - reach, mean + reach)
        g, h = times * (mean - cut), self.information(mean, times)
        active = reach < _NEVER * (spread + self.grain)
        if active.any():
            at = np.flatnonzero(active)
            moved, kept = self.cut(mean[at], reach[at])
            moved = moved * (times[at] if isinstance(times, np.ndarray) else times)
            scale = c[at] / (c[at] + np.abs(moved))
            g[at] = (g[at] + moved) * scale
            h[at] = h[at] * np.clip(kept, 0.0, 1.0) * scale
        flat = np.minimum(curve / np.maximum(h * square, TINY), 1.0)
        return g * flat, h * flat

    grain: ClassVar[float] = 0.0
    """How far apart possible targets are."""

    @abstractmethod
    def likely(self, eta: Floats) -> tuple[Floats, Floats | float, Floats | float]:
        """Return the mean, what residuals are multiplied by to be scores, and the SD."""

    @abstractmethod
    def information(self, mean: Floats, times: Floats | float) -> Floats:
        """Return the expected slope of a score that is not clipped; a new array."""

    @abstractmethod
    def cut(self, mean: Floats, reach: Floats) -> tuple[Floats, Floats]:
        """Return how far a target's mean moves as it is cut to this distance from it, and which part of its
        covariance with itself is left."""


def _exp(eta: Floats) -> Floats:
    return np.asarray(np.exp(np.clip(eta, -_FURTHEST, _FURTHEST)))


@dataclass(frozen=True)
class Poisson(_Numeric):
    """Counts whose variance is their mean; the logarithm of the mean is linear."""

    grain = 1.0

    def likely(self, eta: Floats) -> tuple[Floats, Floats | float, Floats | float]:
        mean = _exp(eta)
        return mean, 1.0, np.sqrt(mean)

    def information(self, mean: Floats, times: Floats | float) -> Floats:
        return mean.copy()

    def cut(self, mean: Floats, reach: Floats) -> tuple[Floats, Floats]:
        """E[Y; Y <= k] is mean P(Y <= k - 1), and the covariance of f(Y) and Y is mean E[f(Y + 1) - f(Y)]."""
        high = mean + reach
        k = np.floor(high)
        upto, before = _upto_count(k, mean)
        moved = high * (1 - upto) - mean * (1 - before)
        kept = before + (high - k) * (upto - before)
        at = np.flatnonzero(reach <= mean)
        if at.size:
            low, mean = (mean - reach)[at], mean[at]
            k = np.floor(low)
            upto, before = _upto_count(k, mean)
            moved[at] += low * upto - mean * before
            kept[at] += (k + 1 - low) * (upto - before) - upto
        return moved, kept

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        mean = _exp(eta)
        return np.asarray(2 * (xlogy(y, y / mean) - (y - mean)))


def _upto_count(k: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return P(Y <= k) and P(Y < k) of Poisson variables, by their terms where these are few.

    Which way it goes depends on each row alone.
    """
    upto, before = np.empty(len(k)), np.empty(len(k))
    few = (k <= _FEW) & (mean <= _FEW)
    at = np.flatnonzero(~few)
    if at.size:
        upto[at] = pdtr(k[at], mean[at])
        before[at] = np.where(k[at] >= 1, pdtr(np.maximum(k[at] - 1, 0.0), mean[at]), 0.0)
    at = np.flatnonzero(few)
    if at.size:
        k, mean = k[at], mean[at]
        term = np.exp(-mean)
        total, last = term.copy(), np.where(k < 1, term, 0.0)
        for j in range(1, int(k.max()) + 1):
            term *= mean
            term /= j
            np.add(total, term, out=total, where=k >= j)
            np.copyto(last, term, where=k == j)
        upto[at], before[at] = total, total - last
    return upto, before


@dataclass(frozen=True)
class NegativeBinomial(_Numeric):
    """Counts whose variance is mean + alpha mean²; the logarithm of the mean is linear."""

    alpha: float
    grain = 1.0

    def __post_init__(self) -> None:
        check.real("alpha", self.alpha, least=_LEAST, most=_MOST)

    def likely(self, eta: Floats) -> tuple[Floats, Floats | float, Floats | float]:
        mean = _exp(eta)
        more = 1 + self.alpha * mean
        return mean, 1 / more, np.sqrt(mean * more) + self.alpha * mean

    def information(self, mean: Floats, times: Floats | float) -> Floats:
        return np.asarray(mean * times)

    def cut(self, mean: Floats, reach: Floats) -> tuple[Floats, Floats]:
        """With Y' the size-biased Y, E[Y f(Y)] = mean E[f(Y')], and Y' - 1 is negative binomial again."""
        low, high = np.maximum(mean - reach, 0.0), mean + reach
        r, p = 1 / self.alpha, 1 / (1 + self.alpha * mean)
        after = (r + 1) * self.alpha * mean  # the mean of Y' - 1
        plain, biased = np.zeros(len(mean)), np.zeros(len(mean))
        for end, sign in ((low, -1.0), (high, 1.0)):
            k = np.floor(end)
            f, g, h = (_upto(r + i, k - i, p) for i in range(3))
            # what is cut off beyond the end: E[(end - Y); Y beyond], of Y and of Y'
            if sign > 0:
                plain += end * (1 - f) - mean * (1 - g)
                biased += end * (1 - g) - (1 - g) - after * (1 - h)
            else:
                plain += end * f - mean * g
                biased += end * g - g - after * h
        return plain, ((1 + after - mean) + biased - plain) * p

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        mean, a = _exp(eta), self.alpha
        return np.asarray(2 * (xlogy(y, y / mean) - (y + 1 / a) * np.log((1 + a * y) / (1 + a * mean))))


def _upto(r: float, k: Floats, p: Floats) -> Floats:
    """Return P(Y <= k) of a negative binomial variable; k is whole and may be below 0."""
    return np.where(k >= 0, betainc(r, np.maximum(k, 0.0) + 1, p), 0.0)


@dataclass(frozen=True)
class Gamma(_Numeric):
    """Positive numbers whose SD is a multiple of their mean; the logarithm of the mean is linear."""

    dispersion: float

    def __post_init__(self) -> None:
        check.real("dispersion", self.dispersion, least=_LEAST, most=_MOST)

    def likely(self, eta: Floats) -> tuple[Floats, Floats | float, Floats | float]:
        mean = _exp(eta)
        size = math.sqrt(self.dispersion)
        return mean, 1 / mean, mean * (size + self.dispersion)

    def information(self, mean: Floats, times: Floats | float) -> Floats:
        return np.ones(len(mean))

    def cut(self, mean: Floats, reach: Floats) -> tuple[Floats, Floats]:
        """E[Y; Y <= k] is mean times that probability for one more in shape."""
        shape = 1 / self.dispersion
        high, low = 1 + reach / mean, np.maximum(1 - reach / mean, 0.0)
        f, g = gammainc(shape, shape * high), gammainc(shape + 1, shape * high)
        moved, kept = high * (1 - f) - (1 - g), g
        at = np.flatnonzero(low)
        if at.size:
            low = low[at]
            f, g = gammainc(shape, shape * low), gammainc(shape + 1, shape * low)
            moved[at] += low * f - g
            kept[at] -= g
        return mean * moved, kept

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        ratio = np.maximum(y / _exp(eta), TINY)
        return np.asarray(2 * (ratio - 1 - np.log(ratio)))


@dataclass(frozen=True)
class Gaussian(_Numeric):
    """Numbers with the same variance everywhere; the mean is linear.

    The curvature is that of scores that are not clipped: what clipping takes from scores is asked for beside
    them and added again (`Scores.directions`), which makes up for the slope that it takes.
    """

    dispersion: float

    def __post_init__(self) -> None:
        check.real("dispersion", self.dispersion, least=1e-200, most=1e200)

    def likely(self, eta: Floats) -> tuple[Floats, Floats | float, Floats | float]:
        return eta, 1.0, math.sqrt(self.dispersion)

    def information(self, mean: Floats, times: Floats | float) -> Floats:
        return np.ones(len(mean))

    def cut(self, mean: Floats, reach: Floats) -> tuple[Floats, Floats]:
        return np.zeros(len(mean)), np.ones(len(mean))

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        return (y - eta) ** 2


@dataclass(frozen=True)
class Start(Family):
    """No likelihood, but where to start: the target, or a logarithm of it, minus a constant.

    Sums of these scores and of their curvature are the normal equations of a linear regression.

    Attributes:
        logarithm: None, or what is added to the target before its logarithm is taken.
        middle: the constant.
    """

    logarithm: float | None
    middle: float

    def value(self, y: Floats) -> Floats:
        return y if self.logarithm is None else np.log(np.maximum(y + self.logarithm, TINY))

    def factors(
        self, eta: Floats, y: Floats, length: Floats, square: Floats, bound: float, curve: float
    ) -> tuple[Floats, Floats]:
        g = self.middle - self.value(y)
        c = bound / np.maximum(length, TINY)
        return np.clip(g, -c, c), np.minimum(curve / np.maximum(square, TINY), 1.0)

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        return np.zeros(len(y))
