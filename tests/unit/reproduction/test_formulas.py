"""The paper's formulas that no release uses, and every figure that their docstrings quote."""

import math

import pytest

from cape.core.errors import InvalidInput
from cape.privacy import correlated, delta, paper
from reproduction import formulas

CASES = [
    (
        formulas.conventional_delta,
        {"epsilon": 1.0, "tau": 1.0, "sites": 5, "samples": 100},
        {"epsilon": [-1.0], "tau": [0.0], "sites": [0], "samples": [1], "form": ["other"]},
    ),
    (formulas.size_penalty, {"sizes": [1, 2]}, {"sizes": [[], [0, 1], [1.5]]}),
    (formulas.gain, {"sites": 5}, {"sites": [0], "colluding": [5]}),
]


def test_the_tail_bound_is_valid_but_loose_with_the_right_loss():
    for m in (0.1, 0.5, 2.0):
        # one site alone: sensitivity 1/N = m tau
        for e in (m * m / 2 + m, m * m / 2 + 4 * m):
            bound = formulas.conventional_delta(e, 1 / m, 1, 1)
            assert delta(e, m) < bound


def test_conventional_delta_in_its_three_forms():
    # S = 10, N = 1000: mu = S^1.5/(N tau)
    m = 10**1.5 / (1000 * 0.1)
    for e in (0.1, 0.5, 1.0):
        tail = formulas.conventional_delta(e, 0.1, 10, 1000)
        exact = formulas.conventional_delta(e, 0.1, 10, 1000, "exact")
        classical = formulas.conventional_delta(e, 0.1, 10, 1000, "classical")
        assert exact == delta(e, m) < tail
        assert classical == pytest.approx(min(1.0, 1.25 * math.exp(-((e / m) ** 2) / 2)))
    d = formulas.conventional_delta(1.0, 0.1, 10, 1000, "classical")
    assert paper.classical_tau(1.0, d, sensitivity=10 / 1000) == pytest.approx(0.1 / math.sqrt(10))
    x = (1.0 - m * m / 2) / m
    tail = formulas.conventional_delta(1.0, 0.1, 10, 1000)
    assert tail == pytest.approx(2 / x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi))
    assert formulas.conventional_delta(1e-3, 0.01, 10, 1000) == 1.0


@pytest.mark.parametrize(("e", "sites", "samples"), [(1e-3, 10, 1000), (0.1, 30, 5000)])
def test_delta_is_below_delta_conv_in_the_figures(e, sites, samples):
    colluding = math.ceil(sites / 3) - 1
    for power in range(-8, 9):
        tau = 10 ** (power / 4)
        printed = paper.theorem1(e, tau, sites, colluding, samples).delta
        assert printed <= formulas.conventional_delta(e, tau, sites, samples)


def test_unequal_sizes_cost_what_the_remark_says():
    hospitals = formulas.size_penalty([303, 294, 123, 200])
    assert hospitals.penalty == pytest.approx(1.50, abs=0.005)
    assert hospitals.lower == pytest.approx(1.0)
    total = 303 + 294 + 123 + 200
    assert hospitals.upper == pytest.approx(total**2 / 64 * (1 / (total - 3) ** 2 + 3))
    assert hospitals.lower < hospitals.penalty < hospitals.upper
    # the first condition of Proposition 2 holds, and its conclusion does not
    assert hospitals.convex_condition
    assert not hospitals.general_condition
    equal = formulas.size_penalty([50] * 4)
    assert equal.penalty == pytest.approx(1.0)
    assert equal.general_condition
    extreme = formulas.size_penalty([97, 1, 1, 1])
    assert extreme.penalty == pytest.approx(extreme.upper)


def test_another_sensitivity_may_be_given():
    slow = formulas.size_penalty([10, 20, 30], sensitivity=lambda n: n**-0.5)
    assert slow.penalty == pytest.approx(60 / 27 * (1 / 10 + 1 / 20 + 1 / 30))
    assert slow.lower == pytest.approx(1 / 3)
    assert not slow.convex_condition
    assert not slow.general_condition


def test_the_printed_gain_ignores_collusion():
    assert formulas.gain(5) == formulas.gain(5, 1) == 5.0
    assert correlated.gain(1.0, math.inf, 5, 1) == pytest.approx(4.0)
    assert correlated.gain(1.0, "paper", 5, 1) == pytest.approx(2.7, abs=0.05)


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        pytest.param(function, right | {name: value}, name, id=f"{function.__name__}-{name}-{value}")
        for function, right, wrong in CASES
        for name, values in wrong.items()
        for value in values
    ],
)
def test_the_argument_is_named(function, arguments, name):
    with pytest.raises(InvalidInput, match=rf"\b{name}\b"):
        function(**arguments)


def test_a_sensitivity_that_is_not_positive_is_refused():
    with pytest.raises(InvalidInput, match=r"sensitivity\(3\) must be a finite number above 0, not -1"):
        formulas.size_penalty([1, 2], sensitivity=lambda n: -1)
