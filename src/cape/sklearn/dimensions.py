"""How many principal components to keep, from what was released: post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = ["by_share", "likeliest"]

Floats = NDArray[np.float64]


def by_share(variances: Floats, share: float) -> int:
    """Return the fewest components that have more than this share of the variance of all."""
    total = float(variances.sum())
    return 1 if total <= 0 else min(int((np.cumsum(variances) / total <= share).sum()) + 1, len(variances))


def likeliest(variances: Floats, rows: float) -> int:
    """Return Minka's choice: the number whose probabilistic PCA explains so many rows best.

    By Laplace's approximation of the evidence (Minka 2000, "Automatic choice of dimensionality for PCA",
    equation 77). Variances are taken as they were released, the largest first; that noise makes small ones
    uneven is not counted, so that a small budget keeps too many. Two that are nearer each other than their
    sampling error count as that far apart: correcting for noise can make them equal.
    """
    width = len(variances)
    known = [k for k in range(1, width) if variances[k - 1] > 0]
    return max(known, key=lambda k: _evidence(variances, k, rows), default=1)


def _evidence(variances: Floats, k: int, rows: float) -> float:
    """Return the logarithm of the evidence for k components."""
    width = len(variances)
    rest = max(float(variances[k:].mean()), 1e-300)
    sides = (width - np.arange(k)) / 2
    directions = float((gammaln(sides) - math.log(math.pi) * sides).sum()) - k * math.log(2)
    fit = -rows / 2 * (float(np.log(variances[:k]).sum()) + (width - k) * math.log(rest))
    free = width * k - k * (k + 1) / 2
    smoothed = np.concatenate([variances[:k], np.full(width - k, rest)])
    first, second = np.triu_indices(width, 1)
    first, second = first[first < k], second[first < k]
    least = math.sqrt(2 / rows) * variances[first]  # the sampling error of a variance
    apart = [np.maximum(each[first] - each[second], least) for each in (variances, smoothed)]
    terms = np.log(apart[0]) + np.log(apart[1]) - np.log(smoothed[first]) - np.log(smoothed[second])
    curvature = float(terms.sum()) + len(terms) * math.log(rows)
    return directions + fit + math.log(2 * math.pi) * (free + k) / 2 - curvature / 2 - k * math.log(rows) / 2
