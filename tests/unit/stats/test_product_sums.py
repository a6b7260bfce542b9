"""Covariances of noisy sums of products: numpy's without noise, and errors as they scatter."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cape.stats.product_sums import ProductSums

NOISE = (15.0, 12.0, 14.0, 10.0)


def cells(rng, rows=4000):
    t = rng.uniform(-1, 1, (rows, 3))
    t[:, 1] = (t[:, 0] + t[:, 1]) / 2
    return t


def sums(t, noise=(0.0, 0.0, 0.0, 0.0), rng=None):
    products = t.T @ t
    arrays = [
        np.array(float(len(t))),
        t.sum(axis=0),
        np.diag(products).copy(),
        products[np.triu_indices(3, 1)],
    ]
    if rng is not None:
        arrays = [each + rng.normal(0, std, each.shape) for each, std in zip(arrays, noise, strict=True)]
    return ProductSums(float(arrays[0]), *arrays[1:], *noise)


def test_without_noise_covariances_are_those_of_numpy():
    t = cells(np.random.default_rng(0), 50)
    found = sums(t)
    assert found.covariance == pytest.approx(np.cov(t.T))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        vi, vj, value = found.correlated(i, j)
        assert (vi, vj) == pytest.approx((t[:, i].var(ddof=1), t[:, j].var(ddof=1)))
        assert value == pytest.approx(np.corrcoef(t.T)[i, j])
        assert found.clear(i, j)


def test_under_any_noise_a_covariance_matrix_is_positive_semidefinite():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        found = sums(cells(rng, 120), NOISE, rng)
        assert np.linalg.eigvalsh(found.covariance).min() > -1e-9


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_the_noise_of_a_covariance_and_of_a_correlation_is_how_it_scatters(pair):
    """1500 draws: a standard deviation is known to 1.8%."""
    rng = np.random.default_rng(1)
    t, (i, j) = cells(rng), pair
    plain, found = (
        replace(
            sums(t),
            **dict(zip(("count_noise", "first_noise", "square_noise", "cross_noise"), NOISE, strict=True)),
        ),
        [],
    )
    for _ in range(1500):
        each = sums(t, NOISE, rng)
        found.append((each.covariance[i, j], each.correlated(i, j)[2]))
    vi, vj, value = plain.correlated(i, j)
    of_correlation = plain.noise(i, j, 1 / math.sqrt(vi * vj), (-value / (2 * vi), -value / (2 * vj)))
    said = plain.noise(i, j, 1.0, (0.0, 0.0)), of_correlation
    assert np.std(found, axis=0) == pytest.approx(said, rel=0.07)


def test_a_variance_that_noise_could_have_made_is_not_clear():
    t = cells(np.random.default_rng(2), 100) * [0.01, 1.0, 1.0]
    found = sums(t, NOISE)
    assert not found.clear(0, 1)
    assert sums(t).clear(0, 1)


def test_the_variance_of_an_influence_gives_the_kurtosis():
    t = cells(np.random.default_rng(3))
    found = sums(t)
    assert found.fitted(0).kurtosis == 3.0
    square = float(found.covariance[0, 0]) ** 2
    assert replace(found, spreads={(0, 0): 0.8 * square}).fitted(0).kurtosis == pytest.approx(1.8, rel=1e-6)
    assert found.fitted(0).variance == pytest.approx(found.covariance[0, 0])


def test_a_box_is_where_a_column_can_lie_about_its_mean():
    low, high = sums(np.full((4, 3), 0.25)).box(1)
    assert (low, high) == (-1.25, 0.75)
