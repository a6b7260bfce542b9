"""Regularised losses, perturbed (Chaudhuri, Monteleoni and Sarwate 2011).

J(w) = (1/n) sum loss(x·w, y) + (k/2) |w|², n public rows, ||x|| <= 1, a loss that is convex in x·w with a
first derivative of at most `slope` and a second of at most `bend`.

*Output perturbation* adds noise to the minimiser. Replacing a row moves it by at most 2 slope / (n k)
(their corollary 8), so noise of density exp(-(n k epsilon / (2 slope)) |b|) makes it epsilon-private.

*Objective perturbation* minimises J(w) + b·w / n + (extra/2) |w|², with noise of density
exp(-(epsilon' / (2 slope)) |b|). Their algorithm 2, for slope = 1: epsilon' = epsilon - log(1 + 2 bend/(n k)
+ bend²/(n k)²) and extra = 0; where that is not above 0, epsilon' = epsilon/2 and
extra = bend / (n (exp(epsilon/4) - 1)) - k. The loss must have two continuous derivatives.

*Losses.* Logistic: slope 1, bend 1/4. Squared: its derivative has no bound, so residuals are clipped. It is
r²/2 up to |r| = 3/4, its second derivative falls to 0 in a straight line up to 5/4, and from there on it
rises with slope 1: slope 1, bend 1, two continuous derivatives, for any w. It is the square for whoever is
predicted to within three quarters of half the target's range; no bound on w has to be guessed.

*The ridge* k, where people give none, depends on public numbers only. It makes what their proofs bound least
for true weights of length 1: sqrt(D (D + 1)) 2 slope / (n epsilon) for objective perturbation (|b|²/(2 n² k)
+ k/2), and the cube root of 8 bend slope² (D + 1) / (n epsilon)² for output perturbation (noise of that size
in a loss whose second derivatives add up to `bend`, + k/2).

A row that misses a cell adds nothing: replacing one by it moves less than replacing it by another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cape.core.errors import InvalidInput
from cape.noise import SecureStream
from reproduction.literature.data import Pooled
from reproduction.literature.noise import spherical

__all__ = [
    "ClippedSquare",
    "LogLoss",
    "Loss",
    "minimiser",
    "objective_perturbation",
    "output_perturbation",
    "split",
]

Floats = NDArray[np.float64]

_MOST_STEPS = 200
_HALVINGS = 40
_DONE = 1e-13


class Loss(ABC):
    """A convex function of x·w."""

    slope: float
    bend: float

    @abstractmethod
    def __call__(self, z: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return values and the first two derivatives in z."""


class LogLoss(Loss):
    """log(1 + exp(-y z)), for y = -1 or 1."""

    slope, bend = 1.0, 0.25

    def __call__(self, z: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return values and the first two derivatives in z."""
        p = expit(-y * z)
        return np.logaddexp(0.0, -y * z), -y * p, p * (1 - p)


class ClippedSquare(Loss):
    """(z - y)² / 2 up to |z - y| = 3/4, a straight line from 5/4 on."""

    slope, bend = 1.0, 1.0
    _low, _high = 0.75, 1.25

    def __call__(self, z: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return values and the first two derivatives in z."""
        size = np.abs(z - y)
        inner = np.minimum(size, self._high)
        over = np.maximum(inner - self._low, 0.0)
        width = self._high - self._low
        values = inner**2 / 2 - over**3 / (6 * width) + (size - inner)
        first = np.sign(z - y) * (inner - over**2 / (2 * width))
        return values, first, 1 - over / width


def output_perturbation(
    data: Pooled, loss: Loss, ridge: float | None, epsilon: float, stream: SecureStream
) -> tuple[Floats, float]:
    """Return the weights of x, and the ridge."""
    if ridge is None:
        square = 8 * loss.bend * loss.slope**2 * (data.width + 1) / (data.rows * epsilon) ** 2
        ridge = square ** (1 / 3)
    if not ridge > 0:
        raise InvalidInput(f"ridge must be above 0 for output perturbation, or 'auto', not {ridge:g}")
    best = minimiser(data, loss, ridge, np.zeros(data.width))
    return best + spherical(data.width, data.rows * ridge * epsilon / (2 * loss.slope), stream), ridge


def objective_perturbation(
    data: Pooled, loss: Loss, ridge: float | None, epsilon: float, stream: SecureStream
) -> tuple[Floats, float]:
    """Return the weights of x, and the ridge with what is added to it."""
    if ridge is None:
        size = math.sqrt(data.width * (data.width + 1))
        ridge = 2 * loss.slope * size / (data.rows * epsilon)
    left, extra = split(epsilon, data.rows, ridge, loss.bend)
    push = spherical(data.width, left / (2 * loss.slope), stream) / data.rows
    return minimiser(data, loss, ridge + extra, push), ridge + extra


def split(epsilon: float, rows: int, ridge: float, bend: float) -> tuple[float, float]:
    """Return epsilon' and what is added to the ridge."""
    part = bend / (rows * ridge) if ridge > 0 else math.inf
    left = epsilon - 2 * math.log1p(part)  # (1 + part)² is 1 + 2 part + part²
    if left > 0:
        return left, 0.0
    return epsilon / 2, bend / (rows * math.expm1(epsilon / 4)) - ridge


def minimiser(data: Pooled, loss: Loss, ridge: float, push: Floats) -> Floats:
    """Return where J(w) + push·w is least, by Newton steps, halved where they would go up."""
    x, y, eye = data.x, data.y, np.eye(data.width)

    def total(w: Floats, values: Floats) -> float:
        return float(values.sum()) / data.rows + ridge / 2 * float(w @ w) + float(push @ w)

    w = np.zeros(data.width)
    values, first, second = loss(x @ w, y)
    for _ in range(_MOST_STEPS):
        gradient = x.T @ first / data.rows + ridge * w + push
        step = np.linalg.solve((x.T * second) @ x / data.rows + ridge * eye, gradient)
        gain = float(gradient @ step)
        if gain <= _DONE * ridge:
            return w - step
        height, length = total(w, values), 1.0
        for _ in range(_HALVINGS):
            there = w - length * step
            values, first, second = loss(x @ there, y)
            if total(there, values) <= height - length * gain / 4:
                break
            length /= 2
        w = there
    return w
