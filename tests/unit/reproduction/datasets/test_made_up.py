"""Made-up rows: the paper's distributions, the same for the same seed and others for another."""

from __future__ import annotations

import numpy as np
import pytest

import cape
from reproduction.datasets import as_in_the_paper, synthetic_regression, two_gaussians


def test_regression_rows_are_as_the_paper_says():
    data = synthetic_regression(4000, 20, seed=5)
    norms = np.linalg.norm(data.X, axis=1)
    assert 1 - 1e-12 < norms.max() <= 1
    assert data.X.min() >= 0
    assert np.linalg.norm(data.weights) == pytest.approx(1)
    np.testing.assert_allclose(data.y, data.X @ data.weights, rtol=0, atol=1e-15)
    spread = data.X / data.X.max()
    assert spread.mean() == pytest.approx(0.5, abs=0.01)
    assert spread.var() == pytest.approx(1 / 12, abs=0.002)
    assert data.schema().number("y").low == -1


def test_two_classes_are_as_the_paper_says():
    data = two_gaussians(6001, 8, seed=5)
    assert int(data.y.sum()) == 3000
    for label in (0, 1):
        rows = data.X[data.y == label]
        np.testing.assert_allclose(rows.mean(axis=0), label - 0.5, atol=0.08)  # 4.4 standard errors
        np.testing.assert_allclose(rows.std(axis=0), 1, atol=0.06)
    assert 0.4 < data.y[:200].mean() < 0.6  # in random order


@pytest.mark.parametrize("make", [synthetic_regression, two_gaussians])
def test_a_seed_is_the_same_rows_and_another_is_others(make):
    one, same, other = make(30, 4, 1), make(30, 4, 1), make(30, 4, 2)
    np.testing.assert_array_equal(one.X, same.X)
    np.testing.assert_array_equal(one.y, same.y)
    assert not np.isin(one.X, other.X).any()
    with pytest.raises(cape.InvalidInput, match="seed"):
        make(30, 4, -1)


def test_the_papers_scaling_keeps_zeros_and_bounds():
    X = np.array([[0.0, -4.0], [0.0, 2.0]])
    scaled, y = as_in_the_paper(X, np.array([-10.0, 5.0]))
    np.testing.assert_allclose(scaled, [[0, -1], [0, 0.5]])
    np.testing.assert_allclose(y, [-1, 0.5])


def test_some_rows_of_a_dataset():
    data = synthetic_regression(10, 3)
    assert data.take(4).rows == 4
    np.testing.assert_array_equal(data.take(np.array([9, 0])).y, data.y[[9, 0]])
    assert sum(len(frame) for frame in data.split(3).values()) == 10
    with pytest.raises(cape.InvalidInput, match="rows"):
        data.take(11)
