"""Intervals and tests reach as far as the law of the noise does."""

from __future__ import annotations

import math

import pytest
from scipy.special import chdtrc, ndtr

from cape.stats.laplace_tails import as_normal, chi_square, excess, stretched
from cape.stats.law import GAUSSIAN, Law


def test_laplace_noise_alone_reaches_as_far_as_its_quantile():
    assert float(stretched(Law(1.0), 0.95, 3.0, 0.0)) == pytest.approx(
        math.log(20) / math.sqrt(2) / 1.959964, rel=1e-5
    )
    assert float(stretched(Law(1.0), 0.95, 0.0, 2.0)) == pytest.approx(1.0)
    assert float(stretched(GAUSSIAN, 0.95, 3.0, 1.0)) == 1.0


def test_a_deviate_keeps_its_tail():
    t = 2.5  # the tail of Laplace's law at so many standard deviations is exp(-sqrt(2) t) / 2
    assert 2 * ndtr(-as_normal(Law(1.0), t, 1.0, 0.0)) == pytest.approx(math.exp(-math.sqrt(2) * t), rel=1e-5)
    assert as_normal(Law(1.0), -t, 1.0, 0.0) == pytest.approx(-as_normal(Law(1.0), t, 1.0, 0.0))
    assert as_normal(Law(1.0), t, 0.0, 1.0) == pytest.approx(t)
    assert as_normal(GAUSSIAN, t, 1.0, 1.0) == t


def test_a_sum_of_squares_varies_as_the_kurtosis_says():
    """One squared Laplace variable of variance 1: its variance is 2 + 3, and a matched chi-square is
    close."""
    assert chi_square(3, 4.0) == pytest.approx(float(chdtrc(3, 4.0)))
    more = excess(Law(1.0), [1.0], 1.0)
    assert more == 3.0
    wanted = math.exp(-math.sqrt(2) * 2.118)  # 0.05
    assert chi_square(1, 2.118**2, more) == pytest.approx(wanted, abs=0.012)
    assert chi_square(1, 2.118**2) < 0.7 * wanted
