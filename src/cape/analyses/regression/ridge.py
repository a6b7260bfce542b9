"""Least squares from second moments with known Gaussian noise: a ridge that the noise sets, and no data.

All of this is post-processing: it sees released sums and how large their noise is, nothing else.

*Origin.* With the mean of y and the means of x, both drawn to 0 as far as noise hides them, as the new origin
(a, m), a prediction is m + w·(x - a), and its loss is that of predicting m plus

    l(w) = w'C w - 2 c·w,   C = sum of (x - a)(x - a)',   c = sum of (x - a)(y - m).

*Ridge.* w(k) = M c with M = (C + k)^-1, for k from a floor upward at which C + k is positive definite with a
margin of the noise's own size: such a w exists whatever the noise has made of C. The noisy l(w(k)) is too
good to be true, because w has followed the noise. By Stein's lemma the expected difference is known: with
noise of variance s² in the sums of xy, t² in xx' (in its norm), u² in x and v² in y, and h = a·w - m,

    L(k) = l(w) + 2 s² tr M + t² (w'M w + |w|² tr M) + 2 u² (h² tr M + 2 h w'M a + |w|² a'M a) + 2 v² a'M a

estimates the true l(w(k)) without bias, up to how noise moves the origin. The k with the least L, plus a
quarter of its standard deviation, is taken.

*Safety.* What is predicted must not be worse than the middle of the target's bounds. The mean is drawn to it
until four standard deviations of noise cannot cost more than a twentieth of the loss, and w is 0 unless
L + 3 standard deviations is below a twenty-fifth of it; the loss itself comes from the sum of y², less 3
standard deviations of its noise.
Tested in tests/unit/analyses/regression/test_ridge.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.moments import SecondMoments
from cape.core.arrays import Floats
from cape.stats.matrices import spectral

__all__ = ["CAUTION", "FLOOR", "LEAST", "MARGIN", "SURE", "Fit", "fit"]


MARGIN = 0.25  # of the noise's largest eigenvalue, that C + k stays clear of 0
LEAST = 1e-3  # of it, the smallest ridge that is tried
CAUTION = 0.25  # standard deviations of an estimated loss that count against a ridge
SURE = 3.0  # and that weights must be better than none by
_HARM = 0.04
_HARM_OF_MEAN = 0.05
_FAR = 4.0  # standard deviations of the mean's noise that are guarded against
_STEPS = 96
FLOOR = 1e-10  # of a row: where there is no noise there is still rounding


@dataclass(frozen=True)
class Fit:
    """A prediction weights·x + intercept, within the target's bounds.

    Attributes:
        weights: of x.
        intercept: where x is 0.
        ridge: what was added to the sum of xx'; infinite if all weights are 0.
        loss: an estimate of its mean squared error over the rows, in units of y.
    """

    weights: Floats
    intercept: float
    ridge: float
    loss: float


def fit(sums: SecondMoments, *, centred: bool, ridge: float | None = None) -> Fit:
    """Return the prediction. `ridge`, in units of rows, is used as it is unless noise needs more."""
    if not sums.enough:
        return Fit(np.zeros(sums.width), 0.0, math.inf, 1.0)
    n = sums.count
    least_loss = min(1.0, max(0.0, (sums.yy - 3 * sums.yy_noise) / n))
    m, a = 0.0, np.zeros(sums.width)
    C, c = sums.xx, sums.xy
    if centred:
        m = _mean(sums.y / n, sums.y_noise / n, least_loss)
        a, kept = _origin(sums)
        cross = np.outer(sums.x, a)
        # where a is the noisy mean itself, its square is too large by the noise's variance
        bias = kept * (2 - kept) * sums.x_noise**2 / n
        C = C - cross - cross.T + n * np.outer(a, a) + bias * np.eye(sums.width)
        c = c - a * sums.y - m * (sums.x - n * a)
    values, vectors = np.linalg.eigh(C)
    z, a_turned = vectors.T @ c, vectors.T @ a
    around = sums.xx_noise**2 + 4 * sums.x_noise**2 * float(a @ a) / (sums.width + 1)
    edge = spectral(sums.width, math.sqrt(around / 2))
    floor = max(MARGIN * edge - float(values[0]), LEAST * edge) + FLOOR * max(n, 1.0)
    if ridge is None:
        top = 1e3 * max(float(np.abs(values).max()), floor)
        penalties = np.geomspace(floor, top, _STEPS)
    else:
        penalties = np.array([max(ridge, floor)])
    estimated, error, weights = _losses(sums, values, z, a_turned, m, penalties)
    safe = estimated + SURE * error <= _HARM * n * least_loss
    scores = np.where(safe, estimated + CAUTION * error, math.inf)
    best = int(np.argmin(scores))
    base = max(0.0, sums.yy / n - 2 * m * sums.y / n + m * m) if centred else max(0.0, sums.yy / n)
    if ridge is None and not scores[best] < 0:
        return Fit(np.zeros(sums.width), m, math.inf, min(base, 1.0))
    w = vectors @ weights[best]
    loss = min(max(base + float(estimated[best]) / n, 0.0), 1.0)
    return Fit(w, m - float(a @ w), float(penalties[best]), loss)


def _losses(
    sums: SecondMoments, values: Floats, z: Floats, a: Floats, m: float, penalties: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return for each ridge the estimated l(w), its standard deviation, and w, in the basis of C."""
    inverse = 1 / (values + penalties[:, None])  # M, one row a ridge
    w = inverse * z
    square = (w * w).sum(axis=1)
    trace = inverse.sum(axis=1)
    along = w @ a
    h = along - m
    a_inverse = inverse @ (a * a)
    s, t, u, v = (noise**2 for noise in (sums.xy_noise, sums.xx_noise, sums.x_noise, sums.y_noise))
    estimated = (
        (w * w) @ values
        - 2 * (w @ z)
        + 2 * s * trace
        + t * ((w * w * inverse).sum(axis=1) + trace * square)
        + 2 * u * (h * h * trace + 2 * h * ((w * inverse) @ a) + square * a_inverse)
        + 2 * v * a_inverse
    )
    # twice the variance at a given w: w follows the noise, at most so much more (exact as k grows)
    error = np.sqrt(2 * (4 * s * square + t * square**2 + 4 * u * h * h * square + 4 * v * along**2))
    return estimated, error, w


def _mean(mean: float, noise: float, least_loss: float) -> float:
    """Return the mean of y, drawn to 0 as far as noise could make it worse than 0.

    mean (1 - k² noise² / mean²) at four standard deviations, if the truth is 0, is (4 - k²/4) noise: k is
    such that its square is a twentieth of the loss, and 0, no change at all, where noise is small beside
    it.
    """
    far = math.sqrt(max(0.0, _FAR * (_FAR * noise - math.sqrt(_HARM_OF_MEAN * least_loss)) * noise))
    if abs(mean) <= far:
        return 0.0
    return min(max(mean * (1 - (far / mean) ** 2), -1.0), 1.0)


def _origin(sums: SecondMoments) -> tuple[Floats, float]:
    """Return the means of x, by James and Stein drawn to 0, within the ball, and how much of them is kept."""
    means = sums.x / sums.count
    square = float(means @ means)
    if square == 0:
        return means, 0.0
    kept = max(0.0, 1 - sums.width * (sums.x_noise / sums.count) ** 2 / square)
    return kept * means / max(1.0, kept * math.sqrt(square)), kept
