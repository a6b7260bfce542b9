"""The law of noise: against closed forms, an integral in many digits, and samples."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import kstest, laplace, norm

from cape.core.errors import InvalidInput
from cape.stats.estimates import Estimate, Estimates
from cape.stats.law import GAUSSIAN, Law

LAPLACE = Law(1.0)


def draw(law, random, size):
    return law.made_of(random.standard_normal(size), random.random(size))


@pytest.mark.parametrize("probability", [1e-9, 0.01, 0.3, 0.5, 0.75, 0.975, 1 - 1e-6])
def test_shape_1_is_laplace(probability):
    exact = laplace.ppf(probability) / math.sqrt(2)
    assert float(LAPLACE.quantile(probability)) == pytest.approx(exact, abs=1e-7)
    assert float(LAPLACE.cdf(exact)) == pytest.approx(probability, rel=1e-6)


def test_an_infinite_or_large_shape_is_gaussian():
    assert Law(1000.0) == GAUSSIAN
    assert float(GAUSSIAN.quantile(0.975, 3.0, 4.0)) == pytest.approx(5 * norm.ppf(0.975), rel=1e-12)
    assert float(Law(99.0).quantile(0.975)) == pytest.approx(norm.ppf(0.975), abs=3e-3)


@pytest.mark.parametrize("shape", [1.25, 2.0, 5.0])
def test_the_cdf_is_that_of_the_bessel_density(shape):
    b = 1 / mpmath.sqrt(2 * shape)  # so that the standard deviation is 1

    def density(x):
        order, z = shape - mpmath.mpf(1) / 2, abs(x) / b
        return (
            (z / 2) ** order * mpmath.besselk(order, z) / (b * mpmath.gamma(shape) * mpmath.sqrt(mpmath.pi))
        )

    for x in (0.4, 2.0):
        exact = 0.5 + mpmath.quad(density, [mpmath.mpf("1e-12"), x / 2, x])
        assert float(Law(shape).cdf(x)) == pytest.approx(float(exact), abs=1e-7)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.93, 0.999, 1.0])
def test_quantiles_invert_the_cdf_with_sampling_error(share):
    noise, sampling = 7 * math.sqrt(share), 7 * math.sqrt(1 - share)
    for probability in (0.025, 0.6, 0.995):
        found = Law(1.25).quantile(probability, noise, sampling)
        assert float(Law(1.25).cdf(found, noise, sampling)) == pytest.approx(probability, abs=2e-7)


def test_samples_have_the_law_and_another_shape_is_rejected():
    drawn = draw(Law(1.25), np.random.default_rng(3), 20_000)
    assert kstest(drawn, Law(1.25).cdf).pvalue > 1e-3
    assert kstest(drawn, Law(3.0).cdf).pvalue < 1e-6
    assert np.abs(drawn).mean() == pytest.approx(Law(1.25).mean_absolute, rel=0.02)


def test_sums_of_numbers_come_nearer_to_a_gaussian():
    assert LAPLACE.combined(2.0, 2.0, 2.0) == Law(3.0)
    assert LAPLACE.combined(5.0, 0.0) == LAPLACE
    assert GAUSSIAN.combined(1.0, 2.0) == GAUSSIAN
    assert LAPLACE.combined(2e200, 2e200) == LAPLACE.combined(2e-200, 2e-200) == Law(2.0)
    random = np.random.default_rng(4)
    total = draw(LAPLACE, random, 40_000) + 2 * draw(LAPLACE, random, 40_000)
    law = LAPLACE.combined(1.0, 2.0)
    assert np.abs(total < law.quantile(0.975, math.sqrt(5))).mean() == pytest.approx(0.975, abs=0.003)


def test_no_noise_at_all_is_exact():
    assert float(LAPLACE.quantile(0.9, 0.0, 0.0)) == 0.0
    assert LAPLACE.cdf([-1.0, 0.0, 1.0], 0.0) == pytest.approx([0.0, 1.0, 1.0])


def test_a_shape_is_a_number():
    with pytest.raises(InvalidInput, match="shape"):
        Law(0.1)


def test_intervals_follow_the_law_of_the_release_unless_an_estimate_has_its_own():
    own = Estimate("own", 1.0, 0.0, 2.0, law=GAUSSIAN)
    found = Estimates.of([own, Estimate("theirs", 1.0, 0.0, 2.0)]).under(LAPLACE)
    lows, highs = found.intervals(0.95)
    assert highs - 1.0 == pytest.approx([2 * norm.ppf(0.975), 2 * laplace.ppf(0.975) / math.sqrt(2)])
    assert [e.interval(0.95) for e in found] == [pytest.approx(p) for p in zip(lows, highs, strict=True)]
    assert found[1:][0].law == LAPLACE
    assert found != Estimates.of([own, own]).under(LAPLACE)


def test_quantiles_of_many_numbers_are_those_of_each():
    noise = np.linspace(0.0, 3.0, 300)
    for level in (0.6, 0.975):
        many = Law(1.25).quantile(level, noise, 1.0)
        few = np.concatenate([Law(1.25).quantile(level, part, 1.0) for part in np.split(noise, 10)])
        assert many == pytest.approx(few, rel=1e-5)
