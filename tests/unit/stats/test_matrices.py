"""Noisy symmetric matrices: assembled, made positive, shrunk, and freed of what noise does to eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.stats.matrices import nearest_positive, shrunk, spectral, symmetric, without_repulsion

SEEDS = st.integers(0, 10_000)


def noisy(rng, width, noise):
    return symmetric(rng.normal(0, noise * np.sqrt(2), width), rng.normal(0, noise, width * (width - 1) // 2))


@given(SEEDS, st.integers(1, 6))
def test_a_matrix_is_put_together_from_its_parts(seed, width):
    wanted = noisy(np.random.default_rng(seed), width, 1.0)
    assert (wanted == wanted.T).all()
    assert (symmetric(np.diag(wanted), wanted[np.triu_indices(width, 1)]) == wanted).all()


@given(SEEDS, st.integers(1, 6))
def test_the_nearest_positive_matrix_is_nearer_than_others(seed, width):
    rng = np.random.default_rng(seed)
    matrix = noisy(rng, width, 1.0)
    found = nearest_positive(matrix)
    assert np.linalg.eigvalsh(found).min() > -1e-9
    assert nearest_positive(found) == pytest.approx(found, abs=1e-9)
    other = rng.normal(size=(width, width))
    other = other @ other.T
    assert np.linalg.norm(found - matrix) <= np.linalg.norm(other - matrix) + 1e-9


@given(SEEDS, st.integers(2, 6))
def test_shrinking_keeps_the_trace_and_what_has_no_noise(seed, width):
    root = np.random.default_rng(seed).normal(size=(width, width))
    matrix = root @ root.T
    found, kept = shrunk(matrix, 0.0)
    assert found == pytest.approx(matrix, abs=1e-8)
    assert kept == 1.0
    found, kept = shrunk(matrix, 0.3)
    assert 0 <= kept <= 1
    assert np.trace(found) == pytest.approx(np.trace(matrix))


def test_shrinking_brings_matrices_nearer_to_the_truth():
    rng, true = np.random.default_rng(0), np.diag([1.0, 0.8, 0.5, 0.4, 0.3])
    before, after = [], []
    for _ in range(300):
        matrix = true + noisy(rng, 5, 0.2)
        before.append(np.linalg.norm(matrix - true))
        after.append(np.linalg.norm(shrunk(matrix, 0.2)[0] - true))
    assert np.mean(after) < 0.75 * np.mean(before)


def test_noise_alone_has_eigenvalues_as_large_as_expected():
    rng = np.random.default_rng(1)
    top = [np.linalg.eigvalsh(noisy(rng, 80, 0.5))[-1] for _ in range(30)]
    assert np.mean(top) == pytest.approx(spectral(80, 0.5), rel=0.05)


def test_what_noise_adds_to_eigenvalues_is_taken_off():
    """4000 draws: the mean of an eigenvalue is known to 0.0016 where noise moves the largest by 0.009."""
    rng, true, noise = np.random.default_rng(2), np.array([1.0, 0.3, 0.0]), 0.07
    raw, found = [], []
    for _ in range(4000):
        values = np.linalg.eigvalsh(np.diag(true) + noisy(rng, 3, noise))[::-1]
        raw.append(values)
        found.append(without_repulsion(values, noise))
    assert abs(np.mean(raw, axis=0)[0] - 1) > 0.008
    assert np.mean(found, axis=0) == pytest.approx(true, abs=0.006)
    assert without_repulsion(true, 0.0).tolist() == true.tolist()
