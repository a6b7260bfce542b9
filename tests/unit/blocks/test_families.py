"""Clipped scores of every family: never too long, of mean 0, with the right slope."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cape.blocks.families import Cloglog, Gamma, Gaussian, Logit, NegativeBinomial, Poisson, Probit, Start
from cape.core.errors import InvalidInput

ETAS = (-3.0, -0.5, 0.7, 3.0)
BOUNDS = (0.02, 0.3, 1.0, 2.5, 6.0, 30.0)
COUNTS = np.arange(600.0)
RANKS = (np.arange(4000) + 0.5) / 4000


def spread_out(distribution, counts):
    """Targets and their probabilities."""
    if counts:
        return COUNTS, distribution.pmf(COUNTS)
    return distribution.ppf(RANKS), np.full(len(RANKS), 1 / len(RANKS))


FAMILIES = {
    "poisson": (Poisson(), lambda e: stats.poisson(np.exp(e)), True, 1.0),
    "negative binomial": (
        NegativeBinomial(0.7),
        lambda e: stats.nbinom(1 / 0.7, 1 / (1 + 0.7 * np.exp(e))),
        True,
        1.0,
    ),
    "gamma": (Gamma(0.8), lambda e: stats.gamma(1 / 0.8, scale=0.8 * np.exp(e)), False, 0.8),
    "gaussian": (Gaussian(2.0), lambda e: stats.norm(e, np.sqrt(2.0)), False, 2.0),
    **{
        name: (family, lambda e, f=family: stats.bernoulli(f.likely(np.array([e]))[0][0]), None, 1.0)
        for name, family in (("logit", Logit()), ("probit", Probit()), ("cloglog", Cloglog()))
    },
}


def factors(family, eta, y, bound, curve=1e9, length=1.0):
    ones = np.full(len(y), length)
    return family.factors(np.full(len(y), eta), y, ones, ones**2, bound, curve)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_clipped_score_is_short_has_mean_0_and_its_slope_is_the_curvature(name):
    family, distribution, counts, dispersion = FAMILIES[name]
    for eta in ETAS:
        made = distribution(eta)
        y, chance = (np.arange(2.0), made.pmf([0, 1])) if counts is None else spread_out(made, counts)
        free, _ = factors(family, eta, y, 1e9, length=1e-9)
        for bound in BOUNDS:
            g, h = factors(family, eta, y, bound)
            assert np.abs(g).max() <= bound * (1 + 1e-9)
            assert abs(chance @ g) < 2e-3 * min(bound, 1.0)
            slope = 1.0 if name == "gaussian" else chance @ (g * free) / dispersion
            assert h[0] == pytest.approx(slope, rel=1e-2, abs=1e-4)


def test_a_score_that_is_only_cut_would_be_found_out():
    """Without what is subtracted, the mean of skewed targets is not 0."""
    y, chance = spread_out(stats.poisson(2.0), True)
    assert abs(chance @ np.clip(2.0 - y, -1.0, 1.0)) > 0.05


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("eta", [-1e99, -40.0, 0.0, 40.0, 1e99])
def test_no_predictor_and_no_length_makes_a_score_that_is_not_a_number(name, eta):
    family, _, counts, _ = FAMILIES[name]
    y = np.array([0.0, 1.0]) if counts is None else np.array([1e-3, 1.0, 60.0, 1e15])
    for length in (0.0, 1e-150, 1.0, 1e60):
        g, h = factors(family, eta, y, 0.3, curve=0.1, length=length)
        assert np.isfinite(g).all()
        assert np.isfinite(h).all()
        assert (h >= 0).all()
        assert (np.abs(g) * length <= 0.3 * (1 + 1e-9)).all()
        assert (h * length**2 <= 0.1 * (1 + 1e-9)).all()
        assert not np.isnan(family.deviance(np.full(len(y), eta), y)).any()


def test_a_row_has_the_same_score_alone_and_among_others():
    rng = np.random.default_rng(1)
    eta, length = rng.normal(1, 2, 500), rng.gamma(2.0, size=500)
    for family, _, counts, _ in FAMILIES.values():
        y = rng.integers(0, 2, 500).astype(float) if counts is None else rng.gamma(1.0, 9.0, 500)
        whole = family.factors(eta, y, length, length**2, 1.0, 1.0)
        for i in range(0, 500, 25):
            one = slice(i, i + 1)
            alone = family.factors(eta[one], y[one], length[one], length[one] ** 2, 1.0, 1.0)
            assert [each[0] for each in alone] == [each[i] for each in whole]


def test_a_start_is_a_linear_regression_of_the_logarithm():
    start, y = Start(1.0, 0.5), np.array([0.0, 3.0, 1e9])
    g, h = start.factors(np.zeros(3), y, np.ones(3), np.ones(3), 3.0, 1.0)
    assert g.tolist() == pytest.approx([0.5, 0.5 - np.log(4.0), -3.0])
    assert h.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("made", [Gamma, Gaussian, NegativeBinomial])
@pytest.mark.parametrize("dispersion", [np.nan, np.inf, 0.0, 1e-300, 1e300])
def test_a_dispersion_that_special_functions_do_not_bear_is_refused(made, dispersion):
    with pytest.raises(InvalidInput):
        made(dispersion)


@pytest.mark.parametrize("made", [Gamma, NegativeBinomial])
@pytest.mark.parametrize("dispersion", [1e-7, 1e-3, 1e3, 1e7])
def test_no_dispersion_makes_a_score_that_is_not_a_number(made, dispersion):
    rng, family = np.random.default_rng(0), made(dispersion)
    eta, y = rng.uniform(-35, 35, 4000), np.exp(rng.uniform(-230, 230, 4000))
    length = np.exp(rng.uniform(-30, 70, 4000))
    g, h = family.factors(eta, y, length, length**2, 1.0, 1.0)
    assert np.isfinite(g).all()
    assert np.isfinite(h).all()
    assert (h >= 0).all()
    assert np.isfinite(family.deviance(eta, y)).all()
