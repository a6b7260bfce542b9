"""Estimates of sites brought together: statsmodels' without noise, and honest with it."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import chi2, t
from statsmodels.stats.meta_analysis import combine_effects

from cape.stats.meta_analysis import Effect, Synthesis

VALUES = np.array([0.10, 0.50, 0.20, 0.90, 0.40])
VARIANCES = np.array([0.01, 0.02, 0.015, 0.03, 0.01])


def synthesis(values, variances, privacy=0.0, doubt=0.0):
    each = zip("abcdefgh", values, variances, strict=False)
    return Synthesis(tuple(Effect(site, float(y), float(v), privacy, doubt) for site, y, v in each))


@pytest.mark.parametrize("seed", range(5))
def test_without_noise_all_is_as_in_statsmodels(seed):
    rng = np.random.default_rng(seed)
    variances = rng.uniform(0.01, 0.1, 6)
    values = rng.normal(0.3, 0.1 + 0.2 * seed, 6)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an iteration that goes below 0 on its way
        known = combine_effects(values, variances, method_re="iterated")
        moments = combine_effects(values, variances, method_re="chi2").tau2
    ours = synthesis(values, variances)
    assert ours.test.statistic == pytest.approx(known.q, abs=1e-6)
    assert ours.test.p_value == pytest.approx(known.test_homogeneity().pvalue, abs=1e-6)
    assert ours.fixed == pytest.approx(known.mean_effect_fe, abs=1e-6)
    assert ours.errors(0.0)[0] == pytest.approx(known.sd_eff_w_fe, abs=1e-6)
    assert ours.i2(ours.moment_tau2) == pytest.approx(max(known.i2, 0.0), abs=1e-6)
    assert ours.moment_tau2 == pytest.approx(max(moments, 0.0), abs=1e-6)
    if ours.tau2 > 0:
        assert ours.tau2 == pytest.approx(known.tau2, abs=1e-5)
        assert ours.random == pytest.approx(known.mean_effect_re, abs=1e-6)
        assert ours.errors(ours.tau2)[0] == pytest.approx(known.sd_eff_w_re_hksj, abs=1e-5)


def test_noise_is_part_of_the_variance_and_not_of_i2():
    clear, noisy = synthesis(VALUES, VARIANCES), synthesis(VALUES, VARIANCES, privacy=0.05)
    known = combine_effects(VALUES, VARIANCES + 0.05, method_re="iterated")
    assert noisy.test.statistic == pytest.approx(known.q, abs=1e-6)
    assert noisy.test.p_value > clear.test.p_value
    assert noisy.tau2 < clear.tau2
    tau2 = noisy.moment_tau2
    weights = 1 / VARIANCES
    typical = 4 / (weights.sum() - (weights**2).sum() / weights.sum())
    assert noisy.i2(tau2) == pytest.approx(tau2 / (tau2 + typical))
    sampling, privacy = noisy.errors(noisy.tau2)
    shares = 1 / (VARIANCES + 0.05 + noisy.tau2)
    shares /= shares.sum()
    assert privacy == pytest.approx(np.sqrt(0.05 * (shares**2).sum()))
    assert np.hypot(sampling, privacy) == pytest.approx(
        1 / np.sqrt((1 / (VARIANCES + 0.05 + noisy.tau2)).sum())
    )


def test_the_interval_of_tau2_ends_where_q_has_its_quantiles():
    ours = synthesis(VALUES, VARIANCES)
    for level in (0.9, 0.95):
        for end, tail in zip(ours.tau2_interval(level), ((1 - level) / 2, (1 + level) / 2), strict=True):
            q = combine_effects(VALUES, VARIANCES + end).q
            assert chi2.sf(q, 4) == pytest.approx(tail, abs=1e-6)
    agreed = synthesis(np.full(5, 0.3), VARIANCES)
    assert agreed.tau2 == 0
    assert agreed.tau2_interval(0.95)[0] == 0


def test_an_uncertain_variance_makes_tests_and_intervals_wider():
    sure, unsure = synthesis(VALUES, VARIANCES), synthesis(VALUES, VARIANCES, doubt=1e-4)
    assert unsure.test.p_value > sure.test.p_value
    assert unsure.test.freedom[1] < 100 < sure.test.freedom[1]
    assert unsure.fixed_interval(0.95)[1] > sure.fixed_interval(0.95)[1]
    assert unsure.tau2_interval(0.95)[0] < sure.tau2_interval(0.95)[0]


def test_a_prediction_interval_holds_the_mean_and_grows_with_tau2():
    near, far = synthesis(VALUES, VARIANCES), synthesis(2 * VALUES, VARIANCES)
    for each in (near, far):
        low, high = each.prediction_interval(0.95)
        mean = each.random_interval(0.95)
        assert low < mean[0] < mean[1] < high
        narrow = each.prediction_interval(0.8)
        assert low < narrow[0] < narrow[1] < high
    widths = [np.diff(each.prediction_interval(0.95))[0] for each in (near, far)]
    assert widths[1] > 1.5 * widths[0]


@pytest.mark.slow(6)
def test_a_new_site_lies_in_the_prediction_interval_as_often_as_it_says():
    """Five sites, 200 times: 95% to three standard errors."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(200):
        values = rng.normal(0, 0.3, 5) + rng.normal(0, np.sqrt(VARIANCES))
        low, high = synthesis(values, VARIANCES).prediction_interval(0.95)
        held += low <= rng.normal(0, 0.3) <= high
    assert held >= 180


def test_equal_sites_without_any_other_error_have_students_interval():
    ours = synthesis(VALUES, np.full(5, 1e-9))
    low, high = ours.random_interval(0.95)
    reach = t.ppf(0.975, 4) * VALUES.std(ddof=1) / np.sqrt(5)
    assert (low, high) == pytest.approx((VALUES.mean() - reach, VALUES.mean() + reach), abs=0.005 * reach)
    ahead = t.ppf(0.975, 4) * VALUES.std(ddof=1) * np.sqrt(1 + 1 / 5)
    assert ours.prediction_interval(0.95)[1] == pytest.approx(VALUES.mean() + ahead, abs=0.005 * ahead)


def test_what_sites_say_without_one_is_what_the_others_say():
    ours = synthesis(VALUES, VARIANCES)
    rest = synthesis(np.delete(VALUES, 1), np.delete(VARIANCES, 1))
    assert ours.without("b").random == pytest.approx(rest.random)
    assert ours.without("b").many == 4
    assert pickle.loads(pickle.dumps(ours)) == ours


def test_a_site_that_knows_all_and_others_that_know_nothing_have_an_error_of_tau2():
    """Information about tau² is 0 then, and rounding makes it less."""
    for large in 10.0 ** np.arange(4, 40):
        found = synthesis([0.1, 0.2, 0.3], [1.0, 7 * large, 3 * large])
        assert np.isfinite(found.tau2_errors).all()
