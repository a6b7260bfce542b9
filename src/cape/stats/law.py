"""The law of the noise in a released number, for intervals and tests: Gaussian, or of Laplace's family.

A sum over sites of the noise of a pure release is a difference of two gamma variables of the same shape (on
the grid: negative binomial ones, `cape.noise.polya`). Shape 1 is Laplace's law; colluding or late sites make
the shape larger, and so do sums of several such numbers, which come nearer to a Gaussian.

Claim. `cdf` and `quantile` are those of the noise plus an independent Gaussian sampling error, within 1e-6.
Reason. With shape a and scale b the characteristic function is (1 + b² t²)^-a = E exp(-t² G / 2) for a gamma
variable G of shape a and scale 2 b²: the noise is Gaussian with the variance G, and so is its sum with a
Gaussian, with the variance G + sampling². What is left is one integral over G. The trapezoidal rule after
g = exp(t - exp(-t)) has an error below 1e-8 (it is Laplace's law at a = 1, in closed form). The grid of
`cape.engine.calibration` has a million steps in a scale or more, so that the discrete law is this one within
1e-6.
Several numbers. A sum of independent noises of stds w_i has the excess kurtosis 3 sum(w^4) / (a sum(w²)²);
`combined` returns the shape with that kurtosis. That is exact for equal stds and in both extremes.
Tested in tests/unit/stats/test_law.py, against closed forms, mpmath and samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, ndtr, ndtri

from cape.core import check

__all__ = ["GAUSSIAN", "Law", "coarse"]

Floats = NDArray[np.float64]
_MOST_SHAPE = 100.0  # beyond it the excess kurtosis is below 0.03: a Gaussian
_RATIO = 1.1  # between shapes for which quantiles are computed, where there are many
_NODES = 181
_KNOTS = 97  # shares of noise in the variance, between which quantiles are interpolated
_STEPS = 80  # at most: mostly five
_NEAR = 1e-13


@dataclass(frozen=True)
class Law:
    """A symmetric law with standard deviation 1, scaled by the noise that a number has.

    Attributes:
        shape: of the two gamma variables whose difference it is; infinite for a Gaussian.
    """

    shape: float = math.inf

    def __post_init__(self) -> None:
        shape = check.real("shape", self.shape, least=0.5, infinite=True)
        object.__setattr__(self, "shape", shape if shape <= _MOST_SHAPE else math.inf)

    @property
    def std(self) -> float:
        """The standard deviation: 1, by which noise is stated."""
        return 1.0

    @property
    def gaussian(self) -> bool:
        """Whether it is a Gaussian."""
        return math.isinf(self.shape)

    @property
    def mean_absolute(self) -> float:
        """The mean of its absolute value, over its standard deviation."""
        if self.gaussian:
            return math.sqrt(2 / math.pi)
        a = self.shape  # E sqrt(G) of a gamma variable with mean 1, times that of a Gaussian
        return math.sqrt(2 / math.pi / a) * math.exp(math.lgamma(a + 0.5) - math.lgamma(a))

    def combined(self, *stds: float) -> Law:
        """Return the law of a sum of independent noises of this law with these standard deviations."""
        largest = max((check.real("stds", std, least=0.0) for std in stds), default=0.0)
        if self.gaussian or not largest:
            return self
        squares = [(std / largest) ** 2 for std in stds]
        return Law(self.shape * sum(squares) ** 2 / sum(square * square for square in squares))

    def cdf(self, x: ArrayLike, noise: ArrayLike = 1.0, sampling: ArrayLike = 0.0) -> Floats:
        """Return P(noise V + sampling Z <= x), with V of this law and Z a standard Gaussian."""
        x, noise, sampling = (np.asarray(each, float) for each in (x, noise, sampling))
        whole = np.hypot(noise, sampling)
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.where(whole > 0, x / whole, np.where(x >= 0, np.inf, -np.inf))
            share = np.where(whole > 0, (noise / whole) ** 2, 0.0)
        return np.asarray(self._scaled_cdf(scaled, share), np.float64)

    def quantile(self, probability: float, noise: ArrayLike = 1.0, sampling: ArrayLike = 0.0) -> Floats:
        """Return the x below which noise V + sampling Z lies with this probability."""
        probability = check.probability("probability", probability)
        noise, sampling = (np.asarray(each, float) for each in (noise, sampling))
        whole = np.hypot(noise, sampling)
        if self.gaussian:
            return np.asarray(ndtri(probability) * whole)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(whole > 0, (noise / whole) ** 2, 0.0)
        sign, tail = (-1.0, probability) if probability < 0.5 else (1.0, 1 - probability)
        return np.asarray(sign * whole * _interpolated(self.shape, tail, share))

    def made_of(self, normal: ArrayLike, uniform: ArrayLike) -> Floats:
        """Return samples made of standard Gaussian and uniform ones, for simulation from released numbers."""
        if self.gaussian:
            return np.asarray(normal, np.float64)
        return np.asarray(normal * np.sqrt(gammaincinv(self.shape, uniform) / self.shape))

    def _scaled_cdf(self, x: Floats, share: Floats) -> Floats:
        if self.gaussian:
            return np.asarray(ndtr(x))
        variances, weights = _variances(self.shape)
        total = np.zeros(np.broadcast_shapes(x.shape, share.shape))
        for variance, weight in zip(variances.tolist(), weights.tolist(), strict=True):
            total += weight * ndtr(x / np.sqrt(share * variance + (1 - share)))
        return total


GAUSSIAN = Law()


def coarse(law: Law) -> Law:
    """Return a law with slightly heavier tails out of few: the quantiles of each are computed once."""
    if law.gaussian:
        return law
    return Law(max(_RATIO ** math.floor(math.log(law.shape) / math.log(_RATIO) + 1e-9), 0.5))


@lru_cache(maxsize=256)
def _variances(shape: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of a gamma variable with this shape and mean 1."""
    most = math.log(shape + 12 * math.sqrt(shape) + 45)
    t = np.linspace(-4.6, most, _NODES)
    log = t - np.exp(-t)  # of g
    logs = shape * log - np.exp(log) + np.log1p(np.exp(-t))
    weights = np.exp(logs - logs.max())
    return np.exp(log) / shape, weights / weights.sum()


@lru_cache(maxsize=1024)
def _knots(shape: float, tail: float) -> tuple[Floats, Floats]:
    """Return shares of noise in the variance, and the upper quantile at each."""
    share = np.sin(np.linspace(0, math.pi / 2, _KNOTS)) ** 2
    return share, _solved(shape, tail, share)


def _interpolated(shape: float, tail: float, share: Floats) -> Floats:
    """Return upper quantiles: of few numbers one by one, of many by interpolation between knots."""
    share = np.clip(share, 0.0, 1.0)
    if share.size <= _KNOTS:
        return _solved(shape, tail, share)
    from scipy.interpolate import PchipInterpolator  # seldom needed, and slow to import

    return np.asarray(PchipInterpolator(*_knots(shape, tail))(share))


def _solved(shape: float, tail: float, share: Floats) -> Floats:
    """Return the x above which a standardised sum lies with probability `tail`, at most 1/2.

    Newton's method on the logarithm of that probability, which is linear in Laplace's tail; a step that
    leaves what the root is known to lie in is a bisection.
    """
    variances, weights = _variances(shape)
    stds = np.sqrt(share.reshape(-1, 1) * variances + (1 - share.reshape(-1, 1)))
    low, high = np.zeros(share.size), np.full(share.size, 2 - 2 * math.log(tail))
    x = np.full(share.size, float(-ndtri(tail)))
    for _ in range(_STEPS):
        z = x[:, None] / stds
        above = ndtr(-z) @ weights
        density = (np.exp(-z * z / 2) / stds) @ weights / math.sqrt(2 * math.pi)
        low, high = np.where(above > tail, x, low), np.where(above > tail, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = x + np.log(above / tail) * above / density
        new = np.where((new > low) & (new < high), new, (low + high) / 2)
        done = np.abs(new - x) <= _NEAR * (1 + x)
        x = new
        if done.all():
            break
    return x.reshape(share.shape)
