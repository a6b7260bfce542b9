"""Intervals whose squared error is itself seen through noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from cape.analyses.regression.inference import Reach, Unsure, z_and_p
from cape.stats.estimates import Estimate


def covered(sampling: float, privacy: float, level: float) -> float:
    """The coverage where noise of 1 is in the squared sampling error, by integration over that noise."""
    noise = np.linspace(-6, 6, 2001)
    density = np.exp(-noise * noise / 2)
    true = math.sqrt(sampling + privacy)
    reach = [Unsure(0.0, sampling + each, privacy, 1.0)(level)[1] for each in noise]
    return float(density @ (2 * ndtr(np.array(reach) / true) - 1) / density.sum())


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("privacy", [0.0, 0.3, 1.0, 3.0])
def test_noise_in_the_squared_error_costs_no_coverage(level: float, privacy: float) -> None:
    for sampling in (0.1, 0.3, 1.0, 2.0, 4.0, 10.0, 30.0):
        found = covered(sampling, privacy, level)
        assert found >= level - 0.002
        if sampling + privacy >= 4:
            assert found <= level + 0.01


def test_counting_the_noise_is_what_keeps_the_level() -> None:
    noise = np.random.default_rng(1).normal(size=100_000)
    true = 2.0
    plain = 1.96 * np.sqrt(np.maximum(true + noise, 0.0))
    assert np.mean(2 * ndtr(plain / math.sqrt(true)) - 1) < 0.91


def test_without_noise_it_is_the_normal_interval() -> None:
    low, high = Unsure(1.0, 3.0, 1.0, 0.0)(0.95)
    assert (low, high) == pytest.approx((1 - 1.96 * 2, 1 + 1.96 * 2), rel=1e-4)
    assert Unsure(1.0, 3.0, 1.0, 0.0, bias=0.5)(0.95)[1] == pytest.approx(high + 0.5)


def test_it_is_never_narrower_than_privacy_alone_asks_for() -> None:
    assert Unsure(0.0, -2.0, 4.0, 0.1)(0.95)[1] == pytest.approx(1.96 * 2, rel=1e-4)


@pytest.mark.parametrize("doubt", [0.0, 0.2, 3.0])
@pytest.mark.parametrize("sampling", [-0.5, 0.5, 4.0])
@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_p_agrees_with_the_interval_at_every_level(doubt: float, sampling: float, bias: float) -> None:
    interval = Unsure(2.5, sampling, 1.0, doubt, bias)
    z, p = z_and_p(Estimate("age", 2.5, 1.0, 1.0, at=interval))
    assert math.isnan(z)  # no z is both over the standard error and that of P
    assert interval(1 - p)[0] == pytest.approx(0.0, abs=1e-9)
    other = Unsure(-2.5, sampling, 1.0, doubt, bias)
    assert z_and_p(Estimate("age", -2.5, 1.0, 1.0, at=other))[1] == pytest.approx(p)


def test_what_a_bias_may_explain_is_no_evidence() -> None:
    for at in (Unsure(1.0, 1.0, 1.0, 0.1, bias=1.5), Reach(1.0, 1.4, 1.5)):
        z, p = z_and_p(Estimate("age", 1.0, 1.0, 1.0, at=at))
        assert math.isnan(z)
        assert p == 1.0
