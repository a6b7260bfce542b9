"""Lower bounds on the privacy loss from the errors of a test, and an interval for a noise scale.

Claim. A test that was fixed before its runs were looked at makes false alarms with rate f and misses with
rate m. If the mechanism is mu-GDP then mu >= Phi^-1(1 - f) - Phi^-1(m); if it is (epsilon, delta)-DP then
epsilon >= log((1 - delta - m) / f), and the same with f and m exchanged. With p = (f + m) / 2 also
mu >= -2 Phi^-1(p) and epsilon >= log((1 - delta) / p - 1). Put upper confidence limits for f and m, or for p,
and the right side is a lower confidence bound.
Reason. All are what the definitions say of this one test (Dong, Roth and Su 2022; Kairouz, Oh and Viswanath
2015), those with p at the point of the trade-off where f + m is least; they fall in f, m and p. The limits
are those of Clopper and Pearson (1934), which hold for every number of runs. For p it is that of all errors
together, as if every run had the rate p: with as many runs of each table that is the worst case, since of all
sums of coins with the same mean the binomial one has the heaviest lower tail up to one below its mean
(Hoeffding 1956), and where a tail has less than half of all probability it ends below that.
Nothing is assumed about the mechanism or the law of its noise; the runs must be independent.
The error that is allowed is divided by two: one half for p, one quarter for f and for m. One limit is nearer
to the truth than two where both rates are alike; two are where one of them is tiny.
Tested in tests/unit/audit/test_bounds.py: coverage, exact on a whole trade-off, on Gaussians and on
randomised response.

`noise_scale` and `laplace_scale` do assume something (the law of the noise), and say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import betaincinv, ndtri

__all__ = [
    "Errors",
    "best_threshold",
    "epsilon_bound",
    "errors_of",
    "laplace_scale",
    "mu_bound",
    "noise_scale",
    "upper_rate",
]

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Errors:
    """The errors of a test: false alarms among runs without the record, misses among runs with it."""

    alarms: int
    without: int
    misses: int
    present: int


def errors_of(says: Bits, present: Bits) -> Errors:
    """Count the errors of a test that decides for each run whether the record is present."""
    return Errors(
        int((says & ~present).sum()),
        int((~present).sum()),
        int((~says & present).sum()),
        int(present.sum()),
    )


def upper_rate(errors: int, runs: int, error: float) -> float:
    """Return Clopper and Pearson's upper limit for a rate; it is too low with probability <= `error`."""
    if errors >= runs:
        return 1.0
    return float(betaincinv(errors + 1, runs - errors, 1 - error))


def mu_bound(errors: Errors, error: float) -> float:
    """Return a lower bound on mu that is too high with probability at most `error`; 0 if there is none."""
    alarms, misses, mean = _limits(errors, error)
    return max(0.0, float(-ndtri(alarms) - ndtri(misses)), float(-2 * ndtri(mean)))


def epsilon_bound(errors: Errors, delta: float, error: float) -> float:
    """Return a lower bound on epsilon at delta that is too high with probability at most `error`.

    It needs no assumption, but n runs cannot show more than about log(n / 8).
    """
    alarms, misses, mean = _limits(errors, error)
    ways = [(1 - delta - misses, alarms), (1 - delta - alarms, misses), (1 - delta - mean, mean)]
    return max([0.0, *(math.log(top / below) for top, below in ways if top > 0)])


def _limits(errors: Errors, error: float) -> tuple[float, float, float]:
    """Return upper limits for false alarms, for misses, and for the mean of both."""
    wrong, runs = errors.alarms + errors.misses, errors.without + errors.present
    return (
        upper_rate(errors.alarms, errors.without, error / 4),
        upper_rate(errors.misses, errors.present, error / 4),
        upper_rate(wrong, runs, error / 2) if errors.without == errors.present else 1.0,
    )


def best_threshold(scores: Floats, present: Bits, error: float) -> float:
    """Return the threshold with the best bound on these runs, for use on *other* runs."""
    without, with_it = np.sort(scores[~present]), np.sort(scores[present])
    tried = np.unique(np.quantile(scores, np.linspace(0.01, 0.99, 99)))
    bounds = []
    for threshold in tried:
        alarms = without.size - int(np.searchsorted(without, threshold, side="right"))
        misses = int(np.searchsorted(with_it, threshold, side="right"))
        bounds.append(mu_bound(Errors(alarms, without.size, misses, with_it.size), error))
    return float(tried[int(np.argmax(bounds))])


def noise_scale(sum_of_squares: float, count: int, error: float) -> tuple[float, float]:
    """Return an interval for the scale of normal noise whose claimed scale is 1.

    If residuals are independent and normal with mean 0, as the design says, the interval misses the scale
    with probability at most `error`. This tests the code, not the guarantee, because it uses the data.
    """
    low = math.sqrt(sum_of_squares / stats.chi2.isf(error / 2, count))
    high = math.sqrt(sum_of_squares / stats.chi2.ppf(error / 2, count))
    return low, high


def laplace_scale(sum_of_sizes: float, count: int, error: float) -> tuple[float, float]:
    """Return an interval for the scale of Laplace noise whose claimed scale is 1.

    Magnitudes of Laplace noise are exponential, so that twice their sum over the scale is chi-square with
    2 `count` degrees of freedom. As `noise_scale`, this tests the code.
    """
    low = 2 * sum_of_sizes / stats.chi2.isf(error / 2, 2 * count)
    high = 2 * sum_of_sizes / stats.chi2.ppf(error / 2, 2 * count)
    return float(low), float(high)
