from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Axis
from cape.blocks.bins import Bins
from cape.core.errors import InvalidInput


def searched(edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(17, 5000), st.integers(0, 2**32 - 1))
def test_even_edges_give_what_a_search_gives(start: float, span: float, count: int, seed: int) -> None:
    edges = np.linspace(start, start + span, count + 1)
    random = np.random.default_rng(seed).uniform(start - 0.1 * span, start + 1.1 * span, 200)
    values = np.concatenate([random, edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    bins = Bins.of(edges)
    assert bins.find(values).tolist() == searched(edges, values).tolist()


def test_a_hundred_thousand_even_bins_are_found_by_arithmetic() -> None:
    edges = np.linspace(18, 90, 100_001)
    bins = Bins.of(edges)
    assert bins.width is not None
    values = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 99), [-1e300, 1e300]])
    assert (bins.find(values) == searched(edges, values)).all()


@pytest.mark.parametrize(
    "edges",
    [
        np.array([0.0, 1.0]),
        np.array([0.0, 1.0, 10.0, 100.0]),
        np.cumsum(np.random.default_rng(1).uniform(0.1, 1, 100)),
        np.linspace(0, 1, 101) ** 2,
        1e17 + np.arange(50) * 16.0,  # even, but each edge has lost digits
    ],
)
def test_other_edges_are_searched(edges: np.ndarray) -> None:
    bins = Bins.of(edges)
    values = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf), [-1e9, 1e19]])
    assert bins.width is None
    assert bins.find(values).tolist() == searched(edges, values).tolist()


@pytest.mark.parametrize("count", [3, 100])
def test_missing_is_in_no_bin(count: int) -> None:
    bins = Bins.of(np.linspace(0, 1, count + 1))
    assert bins.find(np.array([np.nan, 0.5, np.nan]))[[0, 2]].tolist() == [-1, -1]


@pytest.mark.parametrize(
    "given",
    [
        [0, 1, 2.5],
        (0.0, 1.0, 2.5),
        (edge for edge in (0.0, 1.0, 2.5)),
        np.array([0, 1, 2.5], np.float32),
        np.array([-0.0, 1, 2.5]),
        [np.float64(0), Fraction(1), 2.5],
    ],
)
def test_edges_of_any_kind_make_the_same_axis(given: Iterable[float]) -> None:
    axis = Axis("x", given)
    assert axis == Axis("x", (0.0, 1.0, 2.5))
    assert hash(axis) == hash(Axis("x", (0.0, 1.0, 2.5)))
    assert axis != Axis("y", (0.0, 1.0, 2.5))
    assert axis != Axis("x", (0.0, 1.0, 2.6))
    assert axis != Axis("x")


def test_edges_stay_as_they_were_checked() -> None:
    given = np.linspace(0, 1, 5)
    axis = Axis("x", given)
    given[0] = 7.0
    assert axis.edges is not None
    assert axis.edges[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        axis.edges[0] = 7.0


@pytest.mark.parametrize(
    "given",
    [
        [],
        [1.0],
        [1.0, 1.0],
        np.linspace(1, 0, 100),
        np.ones((2, 2)),
        np.array([0, math.inf]),
        [0.0, math.nan],
        [False, True],
        np.array([False, True]),
        [0.0, True],
        ["0", "1"],
        [0, 10**400],
    ],
)
def test_edges_that_are_not_rising_numbers_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="edges"):
        Axis("x", given)
