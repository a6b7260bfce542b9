"""How far intervals and tests reach where noise has heavier tails than a Gaussian: Laplace's does.

Errors are a Gaussian one from sampling and privacy noise of a known law (`cape.noise.Law`). Formulas that
count standard errors by a normal or Student's quantile keep them, stretched by how much further the true law
reaches at that level. Statistics that are sums of squares keep chi-square, matched to the mean and the
variance that the excess kurtosis of the noise gives them.
Tested in tests/unit/stats/test_laplace_tails.py and, for coverage, in
tests/unit/analyses/test_laplace_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import chdtrc, ndtri

from cape.core.arrays import Floats
from cape.stats.law import Law, coarse

__all__ = ["as_normal", "chi_square", "coarse", "excess", "stretched"]


def stretched(law: Law, level: float, noise: float | Floats, sampling: float | Floats) -> Floats:
    """Return how many times as far an interval reaches as if the noise were a Gaussian."""
    if law.gaussian:
        return np.ones(np.broadcast_shapes(np.shape(noise), np.shape(sampling)))
    whole = np.hypot(noise, sampling)
    reach = coarse(law).quantile((1 + level) / 2, noise, sampling)
    usual = float(ndtri((1 + level) / 2)) * whole
    return np.divide(reach, usual, out=np.ones_like(np.asarray(reach)), where=usual > 0)


def as_normal(law: Law, deviate: float, noise: float, sampling: float) -> float:
    """Return the standard normal deviate with the tail of an error of so many standard errors."""
    whole = math.hypot(noise, sampling)
    if law.gaussian or whole <= 0:
        return deviate
    tail = float(law.cdf(-abs(deviate) * whole, noise, sampling))
    return math.copysign(-float(ndtri(max(tail, 1e-300))), deviate)


def excess(law: Law, parts: Sequence[float], total: float) -> float:
    """Return the excess kurtosis of an error of this variance, of which noises have these variances."""
    if law.gaussian or total <= 0:
        return 0.0
    return 3 / law.shape * sum(part**2 for part in parts) / total**2


def chi_square(freedom: float, statistic: float, more: float = 0.0) -> float:
    """Return the upper tail of a sum of squares, whose variance noise makes larger than 2 freedom by
    `more`."""
    grown = 1 + more / (2 * freedom)
    return float(chdtrc(freedom / grown, statistic / grown))
