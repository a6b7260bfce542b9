"""Ratios of hazards from tables: those of Cox's regression, with noise and sampling in their errors."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from cape.analyses.survival.hazard_ratios import HazardRatios, hazard_ratios
from cape.analyses.survival.risk_table import risk_tables
from cape.blocks.survival import woven

END = 15.0


def rows(many, rng, kind, groups=2):
    """Groups, times and events; hazards of "crossing" groups are not proportional."""
    group = rng.integers(0, groups, many)
    unit = rng.exponential(size=many)
    if kind == "crossing":
        time = np.where(group > 0, 6 * unit**0.5, 7 * unit**1.2)
    else:
        time = unit / (0.15 * np.exp(0.5 * group))
    censored = rng.uniform(0, 20, many)
    had = (time <= censored) & (time < END)
    return group, np.minimum(np.minimum(time, censored), END), had


def tables(group, time, had, bins, noise, rng, groups=2, at_edges=False):
    edges = np.linspace(0, END, bins + 1)
    cell = np.where(time >= END, bins - at_edges, np.clip(np.searchsorted(edges, time) - 1, 0, bins - 1))
    counts = np.zeros((groups, 2, bins + 1))
    np.add.at(counts, (group, had.astype(int), cell), 1)
    released = counts @ woven(bins + 1).matrix.T
    return risk_tables(released + rng.normal(0, noise, released.shape), noise, None, at_edges)


def cox(group, time, had, strata=None, groups=2):
    """Coefficients and robust errors of the same regression, by statsmodels' scores."""
    from statsmodels.duration.hazard_regression import PHReg  # takes a second

    x = (group[:, None] == np.arange(1, groups)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = PHReg(time, x, status=had.astype(int), ties="breslow", strata=strata).fit()
    residuals = fit.score_residuals
    bread = fit.cov_params()
    return fit.params, bread @ (residuals.T @ residuals) @ bread


@pytest.mark.parametrize("groups", [2, 4])
def test_without_noise_ratios_and_robust_errors_are_those_of_cox(groups):
    rng = np.random.default_rng(groups)
    group, time, had = rows(900, rng, "proportional", groups)
    time = np.ceil(time)  # times are ends of bins
    found = hazard_ratios([tables(group, time, had, 15, 0.0, rng, groups, at_edges=True)])
    values, covariance = cox(group, time, had, groups=groups)
    assert found.values[1:] == pytest.approx(values, abs=1e-6)
    assert found.sampling[1:, 1:] == pytest.approx(covariance, rel=0.03, abs=1e-5)
    assert not found.privacy.any()


def test_strata_have_baselines_of_their_own():
    rng = np.random.default_rng(5)
    group, time, had = rows(900, rng, "proportional")
    site = rng.integers(0, 3, 900)
    time = np.ceil(np.minimum(time * (1 + site), END))
    strata = [
        tables(group[site == s], time[site == s], had[site == s], 15, 0.0, rng, at_edges=True)
        for s in range(3)
    ]
    assert hazard_ratios(strata).values[1:] == pytest.approx(cox(group, time, had, site)[0], abs=1e-6)


@pytest.mark.parametrize("kind", ["proportional", "crossing"])
@pytest.mark.parametrize(("many", "noise"), [(700, 2.0), (700, 6.0), (6000, 20.0)])
def test_errors_are_those_of_noise_and_of_sampling(kind, many, noise):
    """Whether hazards are proportional or not; z against the population's fit."""
    rng = np.random.default_rng(many)
    truth = hazard_ratios([tables(*rows(400_000, rng, kind), 20, 0.0, rng)]).values[1]
    z = []
    for _ in range(150):
        found = hazard_ratios([tables(*rows(many, rng, kind), 20, noise, rng)])
        z.append((found.values[1] - truth) / math.sqrt(found.sampling[1, 1] + found.privacy[1, 1]))
    assert np.mean(np.abs(z) < 1.96) > 0.91
    assert 0.8 < np.std(z) < 1.25  # a wrong scale of noise or sampling is seen


@pytest.mark.slow(4)
@pytest.mark.parametrize(("many", "noise", "parts"), [(686, 6.0, 5), (3000, 6.0, 20), (3000, 20.0, 5)])
def test_errors_hold_where_noise_hides_who_is_at_risk_in_small_strata(many, noise, parts):
    """All follow-up counts: where it ends early, hazards that cross have another ratio."""
    rng, z = np.random.default_rng(many), []

    def strata(drawn, noise):
        of = rng.integers(0, parts, len(drawn[0]))
        return [tables(*(each[of == part] for each in drawn), 40, noise, rng) for part in range(parts)]

    truth = hazard_ratios(strata(rows(400_000, rng, "crossing"), 0.0)).values[1]
    for _ in range(120):
        found = hazard_ratios(strata(rows(many, rng, "crossing"), noise))
        z.append((found.values[1] - truth) / math.sqrt(found.sampling[1, 1] + found.privacy[1, 1]))
    assert np.mean(np.abs(z) < 1.96) > 0.85  # .90 to .94 of 400
    assert 0.7 < np.std(z) < 1.3


def test_noise_alone_makes_as_much_error_as_is_said():
    """The same rows again and again: what varies is noise."""
    rng = np.random.default_rng(1)
    drawn = rows(3000, rng, "proportional")
    found: list[HazardRatios] = [hazard_ratios([tables(*drawn, 20, 12.0, rng)]) for _ in range(200)]
    spread = np.std([each.values[1] for each in found])
    assert spread == pytest.approx(math.sqrt(np.mean([each.privacy[1, 1] for each in found])), rel=0.12)


@pytest.mark.parametrize("noise", [0.0, 500.0])
def test_where_a_group_has_no_events_or_noise_hides_all_nothing_is_said(noise):
    rng = np.random.default_rng(2)
    group, time, had = rows(300, rng, "proportional")
    had &= group == 0
    assert hazard_ratios([tables(group, time, had, 20, noise, rng)]) is None
