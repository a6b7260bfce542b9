"""The paper's formulas as printed, and every figure that their docstrings quote."""

import math

import pytest

from cape.errors import InvalidInput
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


def test_the_tail_bound_is_valid_but_loose_with_the_right_loss():
    for m in (0.1, 0.5, 2.0):
        # one site alone: sensitivity 1/N = m tau
        for e in (m * m / 2 + m, m * m / 2 + 4 * m):
            bound = paper.conventional_delta(e, 1 / m, 1, 1)
            assert delta(e, m) < bound


def test_conventional_delta_in_its_three_forms():
    # S = 10, N = 1000: mu = S^1.5/(N tau)
    m = 10**1.5 / (1000 * 0.1)
    for e in (0.1, 0.5, 1.0):
        tail = paper.conventional_delta(e, 0.1, 10, 1000)
        exact = paper.conventional_delta(e, 0.1, 10, 1000, "exact")
        classical = paper.conventional_delta(e, 0.1, 10, 1000, "classical")
        assert exact == delta(e, m) < tail
        assert classical == pytest.approx(min(1.0, 1.25 * math.exp(-((e / m) ** 2) / 2)))
    d = paper.conventional_delta(1.0, 0.1, 10, 1000, "classical")
    assert paper.classical_tau(1.0, d, sensitivity=10 / 1000) == pytest.approx(0.1 / math.sqrt(10))
    x = (1.0 - m * m / 2) / m
    tail = paper.conventional_delta(1.0, 0.1, 10, 1000)
    assert tail == pytest.approx(2 / x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi))
    assert paper.conventional_delta(1e-3, 0.01, 10, 1000) == 1.0


@pytest.mark.parametrize(("e", "sites", "samples"), [(1e-3, 10, 1000), (0.1, 30, 5000)])
def test_delta_is_below_delta_conv_in_the_figures(e, sites, samples):
    colluding = math.ceil(sites / 3) - 1
    for power in range(-8, 9):
        tau = 10 ** (power / 4)
        printed = paper.theorem1(e, tau, sites, colluding, samples).delta
        assert printed <= paper.conventional_delta(e, tau, sites, samples)


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


def test_unequal_sizes_cost_what_the_remark_says():
    hospitals = paper.size_penalty([303, 294, 123, 200])
    assert hospitals.penalty == pytest.approx(1.50, abs=0.005)
    assert hospitals.lower == pytest.approx(1.0)
    total = 303 + 294 + 123 + 200
    assert hospitals.upper == pytest.approx(total**2 / 64 * (1 / (total - 3) ** 2 + 3))
    assert hospitals.lower < hospitals.penalty < hospitals.upper
    # the first condition of Proposition 2 holds, and its conclusion does not
    assert hospitals.convex_condition
    assert not hospitals.general_condition
    equal = paper.size_penalty([50] * 4)
    assert equal.penalty == pytest.approx(1.0)
    assert equal.general_condition
    extreme = paper.size_penalty([97, 1, 1, 1])
    assert extreme.penalty == pytest.approx(extreme.upper)


def test_another_sensitivity_may_be_given():
    slow = paper.size_penalty([10, 20, 30], sensitivity=lambda n: n**-0.5)
    assert slow.penalty == pytest.approx(60 / 27 * (1 / 10 + 1 / 20 + 1 / 30))
    assert slow.lower == pytest.approx(1 / 3)
    assert not slow.convex_condition
    assert not slow.general_condition


def test_the_printed_gain_ignores_collusion():
    assert paper.gain(5) == paper.gain(5, 1) == 5.0
    assert correlated.gain(1.0, math.inf, 5, 1) == pytest.approx(4.0)
    assert correlated.gain(1.0, "paper", 5, 1) == pytest.approx(2.7, abs=0.05)
