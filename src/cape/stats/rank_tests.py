"""Rank tests of noisy counts by group and bin: ties and the noise are counted.

Claim. With the mid-rank R_b of each bin in the table of all groups, over n, the contrasts of mean ranks
between groups have, under equal distributions, mean 0, covariance I from sampling, and a known covariance
from noise: those of `independence` with one column of scores. So z' cov^-1 z is chi-square.
Reason. Noise in a bin also moves its mid-rank, which shifts a contrast with coefficients l_g by noise² sum(l)
sum_b (1/2 - R_b) / n: it is taken off. Without noise the statistic is that of Kruskal and Wallis, with ties,
or for two groups the square of that of Mann and Whitney.
Tested in tests/unit/stats/test_rank_tests.py, tests/unit/analyses/compare/test_rank_test.py.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtrc

from cape.core.arrays import Floats
from cape.stats.estimates import Estimate
from cape.stats.independence import Independence, group_contrasts

__all__ = ["larger", "ranked"]


def ranked(table: Floats, noise: float) -> Independence | None:
    """Return the test that all groups have the same distribution; None if nothing varies."""
    total = float(table.sum())
    shares, by_group = table.sum(axis=0) / total, table.sum(axis=1) / total
    places = np.cumsum(shares) - shares / 2
    centred = places - shares @ places
    spread = float(shares @ centred**2)
    left = group_contrasts(by_group)
    freedom = left.shape[1]
    blurred = noise**2 * float(centred @ centred)
    if spread <= 0 or total <= 1:
        return None
    shift = noise**2 * float((0.5 - places).sum()) / total * left.sum(axis=0)
    contrast = (left.T @ (table @ centred) - shift) * math.sqrt((total - 1) / (total**2 * spread))
    covariance = np.eye(freedom) + blurred / (total * spread) * (left.T @ left)
    statistic = float(contrast @ np.linalg.solve(covariance, contrast))
    return Independence(statistic, freedom, float(chdtrc(freedom, statistic)))


def larger(label: str, one: Floats, other: Floats, noise: float) -> Estimate:
    """Return the probability that a value of one group exceeds one of another, ties counting half.

    Its sampling error is that of the mean placements of both groups (DeLong). Noise counts to first order,
    and so does the product of the noise in both groups.
    """
    n, m = float(one.sum()), float(other.sum())
    below = (np.cumsum(other) - other / 2) / m  # of the other group, for each bin
    above = 1 - (np.cumsum(one) - one / 2) / n
    value = float(one @ below) / n
    of_one, of_other = (
        max(float(each @ (place - value) ** 2) / size, 0.0)
        for each, place, size in ((one, below, n), (other, above, m))
    )
    sampling = math.sqrt(of_one / max(n - 1, 1.0) + of_other / max(m - 1, 1.0))
    linear = float(((below - value) ** 2).sum()) / n**2 + float(((above - value) ** 2).sum()) / m**2
    bins = len(one)
    square = (bins * (bins - 1) / 2 + bins / 4) * noise**2 / (n * m) ** 2
    return Estimate(
        label, min(max(value, 0.0), 1.0), sampling, noise * math.sqrt(linear + square), (0.0, 1.0)
    )
