"""The event that tells float Gaussians apart (privacy through real-valued noise fails), and ours not.

A sum of 0 or of 1 plus float noise. An answer y below 1/2 is a multiple of 2^-53 if the sum was 1: the
addition 1 + g rounds to that spacing. If the sum was 0, y is g itself, with all its finer bits. So one
look at y's last bits tells which, although the scale of the noise promises little difference.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from cape.noise import discrete_gaussian
from cape.privacy import delta
from tests.unit.noise.statistics import ERROR_RATE

COUNT = 200_000
STD = 1.0


def too_fine(y):
    small = np.abs(y) < 0.5
    return small & (np.ldexp(y, 53) != np.rint(np.ldexp(y, 53)))


def test_numpys_float_gaussian_is_told_apart():
    rng = np.random.default_rng(3)
    with_zero = too_fine(0.0 + rng.normal(0, STD, COUNT)).mean()
    with_one = too_fine(1.0 + rng.normal(0, STD, COUNT)).mean()
    assert with_one == 0.0
    assert with_zero > 0.2
    # what (epsilon, delta) promises at this scale: P(event | 0) <= e^eps P(event | 1) + delta
    epsilon = 5.0
    assert with_zero > np.exp(epsilon) * with_one + delta(epsilon, 1.0 / STD) + 0.1


def test_integer_noise_is_not(stream):
    """Neither that event nor any residue of the answer tells the sums apart."""
    step = 2.0**-16
    answers = [round(total / step) + discrete_gaussian(STD / step, COUNT, stream) for total in (0.0, 1.0)]
    assert not any(too_fine(y * step).any() for y in answers)
    for bits in (1, 4, 8):
        tables = [np.bincount(y & ((1 << bits) - 1), minlength=1 << bits) for y in answers]
        assert stats.chi2_contingency(np.array(tables)).pvalue > ERROR_RATE
