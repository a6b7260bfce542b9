"""The paper's formulas as printed, and every figure that their docstrings quote."""

import math

import pytest

from cape.core.errors import InvalidInput
from cape.privacy import correlated, delta, epsilon, mu, paper


def test_theorem1_is_what_is_printed():
    # S = 4, S_C = 1, N = 100, tau = 0.5, by hand: 64/(0.25 * 1e4 * 5) * (5/3 + 3/17)
    variance = 64 / 12500 * (5 / 3 + 3 / 17)
    found = paper.theorem1(1.0, 0.5, 4, 1, 100)
    assert found.mu_z == pytest.approx(variance / 2)
    assert found.sigma_z == pytest.approx(math.sqrt(variance))
    x = (1.0 - found.mu_z) / found.sigma_z
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    assert found.delta == pytest.approx(2 * density / x)
    assert found == paper.Theorem1(*found)


def test_theorem1_says_nothing_up_to_its_mean_loss():
    mean = paper.theorem1(1.0, 1.0, 10, 3, 10).mu_z
    for e in (0.0, mean / 2, mean, mean * 1.0001):
        assert paper.theorem1(e, 1.0, 10, 3, 10).delta == 1.0
    assert 0.0 < paper.theorem1(3 * mean + 3, 1.0, 10, 3, 10).delta < 1.0
    assert paper.theorem1(1.0, 1e9, 10, 3, 10).delta == 0.0


def test_theorem1_has_no_meaning_for_too_many_colluders():
    assert paper.theorem1(1.0, 1.0, 10, 6, 100).sigma_z > 0
    with pytest.raises(InvalidInput, match=r"colluding must be below .* 6\.055 .* not 7"):
        paper.theorem1(1.0, 1.0, 10, 7, 100)


def test_theorem1_understates_the_loss():
    for sites in range(1, 200):
        colluding = max(0, math.ceil(sites / 3) - 1)
        printed = paper.theorem1(1.0, 1.0, sites, colluding, samples=10 * sites)
        exact = correlated.mu(0.1, 1 / math.sqrt(sites), "paper", sites, colluding)
        if sites > 2:
            assert printed.sigma_z < exact
        assert exact**2 / printed.sigma_z**2 < 2.5
    assert exact**2 / printed.sigma_z**2 > 2.4


def test_the_classical_formula_fails_where_its_docstring_says():
    def true_delta(e, d):
        return delta(e, 1 / paper.classical_tau(e, d))

    assert true_delta(10.0, 1e-5) == pytest.approx(2.3e-5, rel=0.02)
    assert true_delta(10.0, 0.01) == pytest.approx(0.041, rel=0.02)
    assert paper.classical_tau(10.0, 1e-5) * mu(10.0, 1e-5) == pytest.approx(0.97, abs=0.005)
    assert paper.classical_tau(1.0, 1e-5) * mu(1.0, 1e-5) == pytest.approx(1.30, abs=0.005)
    assert epsilon(1e-5, 1 / paper.classical_tau(1.0, 1e-5)) == pytest.approx(0.75, abs=0.005)
    for e in (0.01, 0.1, 1.0):
        for d in (1e-8, 1e-3, 0.1):
            assert true_delta(e, d) < d
    assert paper.classical_tau(2.0, 1e-3, 3.0) == 3.0 * paper.classical_tau(2.0, 1e-3)
