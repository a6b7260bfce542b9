"""Correlated noise: the table of the design, calibration and its worst case, and what the aggregate costs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import PrivacyLeakWarning
from cape.privacy import correlated, paper

SLACK = 1 + 1e-12

# S, S_C, paper's formula, exact: v' Sigma^-1 v at Delta = tau = 1 (docs/guarantee.md)
TABLE = [
    (5, 0, 1.1667, 1.6667),
    (5, 1, 1.3194, 1.8750),
    (10, 3, 1.2956, 2.2078),
    (30, 9, 1.1088, 2.3502),
    (100, 33, 1.0409, 2.4679),
]


@pytest.mark.parametrize(("sites", "colluding", "printed", "exact"), TABLE)
def test_the_table_of_the_paper_and_the_exact_loss(sites, colluding, printed, exact):
    local = 1 / math.sqrt(sites)
    assert correlated.mu(1.0, local, 1.0, sites, colluding) ** 2 == pytest.approx(exact, abs=5e-5)
    assert correlated.mu(1.0, local, "paper", sites, colluding) ** 2 == pytest.approx(exact, abs=5e-5)
    # Delta = S/N = 1
    theorem = paper.theorem1(1.0, 1.0, sites, colluding, samples=sites)
    assert theorem.sigma_z**2 == pytest.approx(printed, abs=5e-5)


def test_the_conventional_scheme_has_no_correlated_noise():
    for sites, colluding, missing in [(1, 0, 0), (5, 0, 0), (5, 3, 1)]:
        found = correlated.mu(3.0, 2.0, 0.0, sites, colluding, missing=missing)
        assert found == pytest.approx(1.5)


sites_and_colluding = st.integers(1, 60).flatmap(
    lambda sites: st.tuples(st.just(sites), st.integers(0, sites - 1))
)
scale = st.floats(-6.0, 6.0).map(lambda x: 10.0**x)
noises = st.one_of(scale, st.just(math.inf), st.just(0.0), st.just("paper"))


@given(scale, scale, sites_and_colluding, noises)
def test_calibration_inverts_mu(target, sensitivity, crowd, noise):
    sites, colluding = crowd
    local = correlated.local_std(target, sensitivity, sites, colluding, noise)
    assert correlated.mu(sensitivity, local, noise, sites, colluding) == pytest.approx(target, rel=1e-12)


@pytest.mark.parametrize("noise", [0.0, 1e-5, 0.3, 1.0, 3.0, 1e5, math.inf, "paper"])
@pytest.mark.parametrize(("sites", "colluding", "min_sites"), [(7, 2, 4), (7, 0, 1), (10, 3, 10), (6, 5, 6)])
def test_calibration_holds_whatever_is_lost_and_when(noise, sites, colluding, min_sites):
    local = correlated.local_std(0.7, 2.0, sites, colluding, noise, min_sites)
    fixed = local * math.sqrt(sites) if noise == "paper" else noise
    worst = 0.0
    for at_start in range(min_sites, sites + 1):  # lost before the correlated noise is fixed
        for missing in range(at_start - min_sites + 1):  # lost after it
            found = correlated.mu(2.0, local, fixed, at_start, colluding, missing=missing)
            assert found <= 0.7 * SLACK
            worst = max(worst, found)
    assert worst == pytest.approx(0.7, rel=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0, math.inf, "paper"])
@pytest.mark.parametrize(("sites", "colluding", "min_sites"), [(7, 2, 4), (7, 0, 1), (10, 3, 10), (6, 5, 6)])
@pytest.mark.parametrize("person_sites", [1, 2, 3, 6])
def test_calibration_holds_for_a_person_at_several_sites(noise, sites, colluding, min_sites, person_sites):
    local = correlated.local_std(0.7, 2.0, sites, colluding, noise, min_sites, person_sites=person_sites)
    fixed = local * math.sqrt(sites) if noise == "paper" else noise
    worst = 0.0
    for at_start in range(min_sites, sites + 1):
        for missing in range(at_start - min_sites + 1):
            if noise == math.inf and missing:
                continue
            for bad in range(colluding + 1):  # fewer may collude, and a person be at more honest sites
                left = at_start - bad - missing
                spread = min(person_sites, left)
                found = correlated.mu(2.0, local, fixed, at_start, bad, missing=missing, person_sites=spread)
                assert found <= 0.7 * SLACK
                worst = max(worst, found)
    if person_sites <= min_sites - colluding or noise != math.inf:
        assert worst == pytest.approx(0.7, rel=1e-12)


@given(scale, scale, st.floats(1e-3, 1e3), sites_and_colluding, st.floats(1.001, 5.0))
def test_mu_is_monotone_in_every_argument(sensitivity, local, noise, crowd, more):
    sites, colluding = crowd

    def mu(sensitivity=sensitivity, local=local, noise=noise * local, **others):
        arguments = {"sites": sites, "colluding": colluding} | others
        return correlated.mu(sensitivity, local, noise, **arguments)

    here = mu()
    assert mu(sensitivity=sensitivity * more) > here
    assert mu(local=local * more) < here
    assert mu(noise=noise * local * more) <= here * SLACK
    assert mu(noise=math.inf) <= here * SLACK
    assert here <= mu(noise=0.0) * SLACK
    assert mu(sites=sites + 1) <= here * SLACK
    if colluding:
        assert mu(colluding=colluding - 1) <= here * SLACK
    if colluding + 1 < sites:
        assert mu(missing=1) <= here * SLACK
        assert mu(noise=math.inf, missing=1) > mu(noise=math.inf)


@given(scale, sites_and_colluding, st.floats(1.001, 5.0))
def test_the_calibrated_noise_is_monotone(noise, crowd, more):
    sites, colluding = crowd
    here = correlated.local_std(1.0, 1.0, sites, colluding, noise)
    assert correlated.local_std(more, 1.0, sites, colluding, noise) <= here * SLACK
    assert correlated.local_std(1.0, more, sites, colluding, noise) >= here / SLACK
    assert correlated.local_std(1.0, 1.0, sites, colluding, noise * more) <= here * SLACK
    assert correlated.local_std(1.0, 1.0, sites + 1, colluding, noise) <= here * SLACK
    assert correlated.local_std(1.0, 1.0, sites, colluding, noise, colluding + 1) >= here / SLACK


def test_the_aggregate_carries_what_no_longer_cancels():
    assert correlated.aggregate_std(2.0, 5.0, 9) == pytest.approx(6.0)
    assert correlated.aggregate_std(2.0, math.inf, 9, missing=5) == pytest.approx(4.0)
    # (9 - 3)(4 + 3 * 25/9)
    assert correlated.aggregate_std(2.0, 5.0, 9, missing=3) == pytest.approx(math.sqrt(74.0))
    # the paper's variances: a factor 1 + k
    assert correlated.aggregate_std(2.0, "paper", 9, missing=3) == pytest.approx(math.sqrt(96.0))


def test_the_aggregate_variance_is_that_of_the_noises():
    sites, missing, alpha, gamma = 6, 2, 1.7, 0.4
    weights = [1 - (sites - missing) / sites] * (sites - missing)
    weights += [-(sites - missing) / sites] * missing
    variance = alpha**2 * sum(w * w for w in weights) + (sites - missing) * gamma**2
    found = correlated.aggregate_std(gamma, alpha, sites, missing)
    assert found == pytest.approx(math.sqrt(variance))


@given(sites_and_colluding, scale)
def test_ring_masks_cost_exactly_the_colluders_share(crowd, local):
    sites, colluding = crowd
    assert correlated.pooled_ratio(local, math.inf, sites, colluding) == sites / (sites - colluding)
    assert correlated.pooled_ratio(local, math.inf, sites) == 1.0


@given(sites_and_colluding, scale, scale)
def test_the_pooled_ratio_is_the_aggregate_over_the_curator(crowd, local, noise):
    sites, colluding = crowd
    for missing in {0, (sites - colluding) // 2}:
        mu = correlated.mu(1.0, local, noise, sites, colluding, missing=missing)
        carried = correlated.aggregate_std(local, noise, sites, missing)
        ratio = correlated.pooled_ratio(local, noise, sites, colluding, missing)
        assert ratio == pytest.approx((carried * mu) ** 2, rel=1e-9)
        assert missing or ratio >= sites / (sites - colluding) / SLACK


@pytest.mark.parametrize(("sites", "colluding"), [(1, 0), (5, 1), (10, 3), (100, 33)])
def test_the_gain_at_equal_privacy(sites, colluding):
    honest = sites - colluding
    assert correlated.gain(0.3, math.inf, sites, colluding) == pytest.approx(honest)
    assert correlated.gain(0.3, "paper", sites, colluding) == pytest.approx(
        (sites + 1) * honest / (sites + honest)
    )
    assert correlated.gain(0.3, 0.0, sites, colluding) == pytest.approx(1.0)
    for missing in range(honest):
        masked = correlated.gain(0.3, math.inf, sites, colluding, missing)
        assert masked == pytest.approx(honest - missing)


def test_the_default_number_of_colluders_warns_where_it_is_none():
    assert [correlated.default_colluding(s) for s in (4, 5, 6, 7, 10, 30, 100)] == [1, 1, 1, 2, 3, 9, 33]
    for sites in (1, 2, 3):
        with pytest.warns(PrivacyLeakWarning, match=f"with {sites} site"):
            assert correlated.default_colluding(sites) == 0
