"""Log-odds that are normal over people, as those of normal features are: their scale, and the Hessian.

With s the logistic function and z = w0 + x·w the log-odds, all that is needed are E[s(z)], E[s'(z)] and
moments of s'(z), which depend on the mean and the variance of z alone. The trapezoid rule gives them: s(z)
has its nearest poles at pi / spread standard deviations from the real line, so that steps of 0.1 standard
deviations are wrong by about exp(-2 pi² / (0.1 spread)), 1e-15 at the largest spread, and what lies beyond 8
by 1e-15.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

__all__ = ["MOST_MOVED", "MOST_SPREAD", "hessian", "normal_odds"]

Floats = NDArray[np.float64]

_Z = np.linspace(-8.0, 8.0, 161)
_NORMAL = np.exp(-(_Z**2) / 2)
_NORMAL /= _NORMAL.sum()
# An assumption, which results name: no column changes log-odds by more than 20 as it goes through its range.
# Odds of e^20 are 5e8 to 1, and no table has the rows to tell them from larger ones.
MOST_MOVED = 20.0
# The standard deviation of what is spread evenly over that range. Where features separate the categories, a
# start with more would leave a Hessian that noise hides: tests/sklearn/test_estimators.py.
MOST_SPREAD = MOST_MOVED / math.sqrt(12)


def normal_odds(explained: float, share: float, centred: bool) -> tuple[float, float, float]:
    """Return the mean of normal log-odds, their standard deviation, and E[s'].

    With v their variance, the least-squares fit explains 4 v E[s']² of the variance of y, and E[s] is
    `share`; without an intercept their mean is 0.
    """

    def centre(spread: float) -> float:
        if not centred or share == 0.5:
            return 0.0
        # E[s(z)] < E[exp(z)] = exp(centre + spread²/2): it is below `share` at one end, above at the other
        far = spread**2 / 2 - math.log(min(share, 1 - share))
        return float(brentq(lambda at: _NORMAL @ expit(at + spread * _Z) - share, -far, far))

    def slope(spread: float) -> float:
        odds = expit(centre(spread) + spread * _Z)
        return float(_NORMAL @ (odds * (1 - odds)))

    def excess(spread: float) -> float:
        return 4 * (spread * slope(spread)) ** 2 - explained

    if explained <= 0:
        spread = 0.0
    else:
        spread = MOST_SPREAD if excess(MOST_SPREAD) <= 0 else float(brentq(excess, 0.0, MOST_SPREAD))
    return centre(spread), spread, slope(spread)


def hessian(weights: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Return the mean Hessian of the logistic loss at weights of (1, x), if x is normal."""
    along = covariance @ weights[1:]
    spread = math.sqrt(max(float(weights[1:] @ along), 0.0))
    odds = expit(float(weights[0] + mean @ weights[1:]) + spread * _Z)
    bend = _NORMAL * odds * (1 - odds)
    # Moments of s' with z in units of its spread; x is its mean, plus `push` for each of these units, and a
    # part that has nothing to do with z.
    zeroth, first, second = float(bend.sum()), float(bend @ _Z), float(bend @ _Z**2)
    push = along / spread if spread > 0 else np.zeros_like(along)
    beside = first * np.outer(mean, push)
    inner = zeroth * (np.outer(mean, mean) + covariance) + beside + beside.T
    inner = inner + (second - zeroth) * np.outer(push, push)
    edge = zeroth * mean + first * push
    return np.block([[np.full((1, 1), zeroth), edge[None, :]], [edge[:, None], inner]])
