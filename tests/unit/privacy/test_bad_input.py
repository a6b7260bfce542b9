"""Every bad argument raises `InvalidInput`, and the message names the argument and the value."""

import math

import numpy as np
import pytest

from cape.core.errors import CapeError, InvalidInput
from cape.privacy import (
    Budget,
    Guarantee,
    compose,
    correlated,
    delta,
    epsilon,
    mu,
    paper,
    subsampled,
)

NAN, INF = math.nan, math.inf

# function, arguments that are right, {argument: values that are not}
CASES = [
    (delta, {"epsilon": 1.0, "mu": 1.0}, {"epsilon": [-1.0, NAN, "1", True, None, 1j], "mu": [-1e-9, NAN]}),
    (
        epsilon,
        {"delta": 1e-5, "mu": 1.0},
        {"delta": [0.0, 1.0, -0.1, 1.1, NAN, INF, "x"], "mu": [-1.0, NAN, [1.0, -2.0]]},
    ),
    (mu, {"epsilon": 1.0, "delta": 1e-5}, {"delta": [0, 1, 2.0, NAN, [0.5, 1.0]], "epsilon": [-1.0, NAN]}),
    (
        correlated.mu,
        {"sensitivity": 1.0, "local_std": 1.0, "correlated_std": 1.0, "sites": 5, "colluding": 1},
        {
            "sensitivity": [0.0, -1.0, NAN, INF],
            "local_std": [0.0, -1.0, NAN, INF, "a"],
            "correlated_std": [-1.0, NAN, "ring", None, 1e200],
            "sites": [0, -3, 2.5, 5.0, "5", None],
            "colluding": [5, 6, -1, 0.5, True],
            "missing": [4, -1, 1.0],
        },
    ),
    (
        correlated.local_std,
        {"mu": 1.0, "sensitivity": 1.0, "sites": 5, "colluding": 2, "correlated_std": INF},
        {
            "mu": [0.0, -1.0, NAN, INF],
            "sensitivity": [0.0, NAN],
            "sites": [0, 1.5],
            "colluding": [5, -1],
            "correlated_std": [-1.0, NAN, "x"],
            "min_sites": [2, 0, -1, 6, 3.0],
        },
    ),
    (
        correlated.aggregate_std,
        {"local_std": 1.0, "correlated_std": 1.0, "sites": 5},
        {"local_std": [-1.0, INF], "correlated_std": [-1.0], "sites": [0], "missing": [5, -1]},
    ),
    (
        correlated.pooled_ratio,
        {"local_std": 1.0, "correlated_std": 1.0, "sites": 5},
        {"local_std": [-1.0], "correlated_std": [-1.0], "sites": [0], "colluding": [5], "missing": [5]},
    ),
    (correlated.default_colluding, {"sites": 5}, {"sites": [0, 1.0, "x"]}),
    (
        correlated.graph_mu,
        {"sensitivity": 1.0, "local_std": 1.0, "edges": {(0, 1): 1.0}},
        {
            "sensitivity": [0.0, NAN],
            "local_std": [-1.0, INF, "a", [1.0, -1.0], [], [1.0, NAN], {1.0, 2.0}],
            "edges": [
                {(0, 0): 1.0},
                {(0, -1): 1.0},
                {(0, 1): -1.0},
                {(0, 1): NAN},
                {(0, 1, 2): 1.0},
                {5: 1.0},
                {(0, 1.5): 1.0},
            ],
            "colluding_sites": [[2], [-1], [0, 1]],
            "missing_sites": [[2], [0.0]],
            "sites": [0, 1.0],
        },
    ),
    (correlated.star, {"sites": 5, "std": 1.0}, {"sites": [0], "std": [-1.0, NAN], "hub": [5, -1]}),
    (correlated.tree, {"sites": 5, "std": 1.0}, {"branching": [0, 1.5]}),
    (
        paper.theorem1,
        {"epsilon": 1.0, "tau": 1.0, "sites": 5, "colluding": 1, "samples": 100},
        {
            "epsilon": [-1.0, NAN, INF],
            "tau": [0.0, -1.0, NAN],
            "sites": [0, 1.5],
            "colluding": [5, -1, 4],
            "samples": [4, 10.0],
        },
    ),
    (
        paper.classical_tau,
        {"epsilon": 1.0, "delta": 1e-5},
        {"epsilon": [0.0, NAN], "delta": [0.0, 1.0], "sensitivity": [0.0, -1.0]},
    ),
    (
        subsampled,
        {"noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 10, "delta": 1e-5},
        {
            "noise_multiplier": [0.0, -1.0, NAN, INF],
            "sampling_rate": [0.0, 1.1, NAN],
            "steps": [0, 1.5],
            "delta": [0.0, 1.0, NAN],
            "adjacency": ["replace-special", None],
            "grid": [0.0, -1.0],
        },
    ),
    (
        subsampled,
        {"noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 10, "epsilon": 1.0},
        {"epsilon": [-1.0, NAN, INF]},
    ),
    (
        Budget,
        {"epsilon": 1.0, "delta": 1e-5},
        {"epsilon": [-1.0, NAN, INF, "1"], "delta": [False, 1.0, NAN], "spent": [-0.1, 1.1]},
    ),
    (Guarantee, {"mu": 1.0}, {"mu": [-1.0, NAN, INF, None]}),
]
FLAT = [
    pytest.param(function, right | {name: value}, name, id=f"{function.__name__}-{name}-{value}")
    for function, right, wrong in CASES
    for name, values in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("function", "arguments", "name"), FLAT)
def test_the_argument_is_named(function, arguments, name):
    with pytest.raises(InvalidInput, match=rf"\b{name}\b") as caught:
        function(**arguments)
    assert isinstance(caught.value, CapeError)
    assert isinstance(caught.value, ValueError)


def test_the_message_says_what_would_be_right():
    with pytest.raises(InvalidInput, match=r"delta must lie strictly between 0 and 1, not 1\.5"):
        mu(1.0, 1.5)
    with pytest.raises(InvalidInput, match="colluding must be an integer at least 0 and at most 4, not 5"):
        correlated.mu(1.0, 1.0, 1.0, 5, 5)
    with pytest.raises(InvalidInput, match="min_sites must be an integer at least 3 and at most 5, not 2"):
        correlated.local_std(1.0, 1.0, 5, 2, 1.0, 2)


def test_arrays_are_checked_cell_by_cell():
    with pytest.raises(InvalidInput, match=r"delta must lie .* not 2\.0"):
        epsilon(np.array([0.1, 2.0]), 1.0)
    with pytest.raises(InvalidInput, match="mu must hold real numbers, not values of dtype"):
        delta(1.0, np.array(["a", "b"]))
    with pytest.raises(InvalidInput, match="mu must hold real numbers, not values of dtype bool"):
        delta(1.0, np.array([True, False]))
    with pytest.raises(InvalidInput, match=r"must have shapes that broadcast, not \(2,\) and \(3,\)"):
        delta([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInput, match="mu must be a number or an array, not a ragged list"):
        delta(1.0, [[1.0], [1.0, 2.0]])
    with pytest.raises(InvalidInput, match="mus must be a number at least 0"):
        compose(1.0, -1.0)
