"""What second moments say about Newton steps: where to start, what noise would hide, what a step leaves.

The Hessian at given weights is that of normal features (`normal_odds`), which is near enough for all three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cape.analyses.matrices import CLEAR, spectral
from cape.analyses.regression.newton import Step
from cape.analyses.regression.normal_odds import hessian
from cape.analyses.regression.odds import Fit, Reading

__all__ = ["INTERCEPT", "Outlook", "frame"]

Floats = NDArray[np.float64]

# What stands before x in the vector (c, x) / sqrt(1 + c²) of a Newton step: rows are about that long. `python
# -m benchmarks.logistic_choices 40 INTERCEPT`: with half of it intervals of skewed features at epsilon 4 are
# 1.5 times as wide, with twice of it those of strong effects 3 times.
INTERCEPT = 0.5
# Gauss and Legendre's rule for the mean over the way, exact for a Hessian that is a polynomial of degree 5.
_AT, _WEIGHT = np.polynomial.legendre.leggauss(3)


def frame(width: int, intercept: bool) -> Floats:
    """Return the matrix F that makes a step's vector of (1, x): its weights w are F'w for (1, x)."""
    if not intercept:
        return np.eye(width + 1)[1:]
    return np.diag([INTERCEPT] + [1.0] * width) / math.sqrt(1 + INTERCEPT**2)


@dataclass(frozen=True)
class Outlook:
    """What a likely reading of second moments, with its fit, says about the steps that may follow."""

    reading: Reading
    fit: Fit

    @property
    def frame(self) -> Floats:
        """What makes a step's vector of (1, x)."""
        return frame(self.reading.sums.width, self.reading.centred)

    @property
    def start(self) -> Floats:
        """The weights to start from."""
        return np.asarray(np.linalg.pinv(self.frame.T) @ self.fit.weights)

    def start_error(self, bold: Fit) -> Floats:
        """Return the covariance of its errors, with what bold weights differ by counted as one more."""
        apart = bold.weights - self.fit.weights
        back = np.linalg.pinv(self.frame.T)
        return np.asarray(back @ (self.fit.sampling + self.fit.privacy + np.outer(apart, apart)) @ back.T)

    def _hessian(self, weights: Floats) -> Floats:
        F = self.frame
        whole = hessian(F.T @ weights, self.reading.mean_x, self.reading.covariance[0])
        return np.asarray(F @ whole @ F.T)

    def hidden(self, noise: float) -> float:
        """Return the share of the variance of x along directions that such noise in the Hessian would hide.

        Noise in the second moments may have made an eigenvalue look larger than it is, which is taken off.
        Along a direction that is clear of noise, a step's own noise changes log-odds by little: by at most
        1.2 / sqrt(d) standard deviations over people, all d directions together.
        """
        count, F = self.reading.sums.count, self.frame
        mean_hessian = self._hessian(self.start)
        values, vectors = np.linalg.eigh(count * mean_hessian)
        bend = float(hessian(self.fit.weights, self.reading.mean_x, self.reading.covariance[0])[0, 0])
        added = count * self.reading.square_noise * bend
        clear = values - added > max(CLEAR * spectral(len(values), noise), 1e-9 * count)
        covariance = F @ np.pad(self.reading.covariance[0], (1, 0)) @ F.T
        varied = np.einsum("ij,ik,kj->j", vectors, covariance, vectors)
        if not (self.reading.varies and clear.any()):
            return 1.0
        return float(varied[~clear].sum() / varied.sum())

    def remainder(self, step: Step, before: Floats) -> tuple[Floats, Floats]:
        """Return how far a step ends from where the gradient is 0, and the covariance of what may add to it.

        With H the Hessian before the step and G its mean on the way, the gradient says G times the way to
        go, and a step goes H^-1 of it. What is wrong along directions that noise hides turns it further.
        """
        on_the_way = sum(
            weight / 2 * self._hessian(step.weights + (1 + at) / 2 * step.change)
            for at, weight in zip(_AT, _WEIGHT, strict=True)
        )
        turned = step.inverse @ (on_the_way - self._hessian(step.weights)) * step.count
        hidden = turned @ step.hidden
        return np.asarray(turned @ step.change), np.asarray(hidden @ before @ hidden.T)
