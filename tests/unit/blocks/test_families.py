"""Slopes of the log-likelihood of every family: those of differences, finite, of mean 0 where it is true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cape.blocks.families import Cloglog, Gamma, Gaussian, Logit, NegativeBinomial, Poisson, Probit
from cape.core.errors import InvalidInput

ETAS = (-3.0, -0.5, 0.7, 3.0)
COUNTS = np.arange(600.0)
RANKS = (np.arange(4000) + 0.5) / 4000


def binary(family):
    return lambda e: stats.bernoulli(family.mean(np.asarray(e)))


# the family, its distribution, and what a slope is multiplied by to be that of the log-likelihood
FAMILIES = {
    "poisson": (Poisson(), lambda e: stats.poisson(np.exp(e)), 1.0),
    "negative binomial": (
        NegativeBinomial(0.7),
        lambda e: stats.nbinom(1 / 0.7, 1 / (1 + 0.7 * np.exp(e))),
        1.0,
    ),
    "gamma": (Gamma(), lambda e: stats.gamma(1 / 0.8, scale=0.8 * np.exp(e)), 1 / 0.8),
    "gaussian": (Gaussian(), lambda e: stats.norm(e, np.sqrt(2.0)), 1 / 2.0),
    **{
        name: (family, binary(family), 1.0)
        for name, family in (("logit", Logit()), ("probit", Probit()), ("cloglog", Cloglog()))
    },
}


def targets(distribution):
    """Likely targets and their probabilities."""
    if isinstance(distribution.dist, stats.rv_continuous):
        return distribution.ppf(RANKS), np.full(len(RANKS), 1 / len(RANKS))
    counts = COUNTS[:2] if distribution.dist.name == "bernoulli" else COUNTS
    return counts, distribution.pmf(counts)


def log_likelihood(distribution, y):
    continuous = isinstance(distribution.dist, stats.rv_continuous)
    return distribution.logpdf(y) if continuous else distribution.logpmf(y)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("eta", ETAS)
def test_slope_and_curvature_are_those_of_differences_of_the_log_likelihood(name, eta):
    family, distribution, times = FAMILIES[name]
    y, chance = targets(distribution(eta))
    y = y[chance > 1e-6]
    step = 1e-4
    below, here, above = (log_likelihood(distribution(eta + d), y) for d in (-step, 0.0, step))
    g, h = family.at(np.full(len(y), eta), y)
    assert times * g == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-4)
    assert times * h == pytest.approx((2 * here - above - below) / step**2, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("eta", ETAS)
def test_where_the_family_is_true_slopes_have_mean_0_and_their_variance_is_the_curvature(name, eta):
    family, distribution, times = FAMILIES[name]
    y, chance = targets(distribution(eta))
    g, h = family.at(np.full(len(y), eta), y)
    assert chance @ g == pytest.approx(0, abs=2e-3 * np.sqrt(chance @ g**2))
    assert times * (chance @ g**2) == pytest.approx(chance @ h, rel=1e-2)
    assert chance @ y == pytest.approx(float(family.mean(np.array([eta]))[0]), rel=1e-3, abs=1e-3)
    assert family.link(float(family.mean(np.array([eta]))[0])) == pytest.approx(eta, abs=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
@given(eta=st.floats(-1e6, 1e6), y=st.floats(0, 1e100))
def test_no_row_makes_what_is_not_a_number(name, eta, y):
    family = FAMILIES[name][0]
    target = np.array([float(y > 0.5) if family.binary else max(y, 1e-3)])
    with np.errstate(over="ignore"):
        g, h = family.at(np.array([eta]), target)
    assert np.isfinite(g).all()
    assert np.isfinite(h).all()
    assert (h >= 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_deviance_is_twice_what_the_log_likelihood_lacks(name):
    family, distribution, times = FAMILIES[name]
    etas = np.linspace(-2, 2, 9)
    y = targets(distribution(0.4))[0]
    y = np.unique(y[: 600 : max(len(y) // 40, 1)])
    best = np.nanmax(log_likelihood(distribution(np.linspace(-12, 12, 4801)[:, None]), y), axis=0)
    for eta in etas:
        wanted = 2 * (best - log_likelihood(distribution(eta), y)) / times
        assert family.deviance(np.full(len(y), eta), y) == pytest.approx(wanted, rel=1e-3, abs=2e-2)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), 1e9])
def test_an_alpha_that_cannot_be_right(alpha):
    with pytest.raises(InvalidInput, match="alpha"):
        NegativeBinomial(alpha)
