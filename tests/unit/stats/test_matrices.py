"""Noisy symmetric matrices: assembled, made positive, shrunk, and freed of what noise does to eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.stats.matrices import (
    nearest_positive,
    shrunk,
    shrunk_blocks,
    spectral,
    symmetric,
    symmetric_root,
    without_repulsion,
)

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


def test_blocks_are_shrunk_toward_each_other_and_what_is_left_of_noise_is_known():
    """Three blocks that are alike but for noise: the error is a third of it, and said not to be less."""
    rng, block, noise = np.random.default_rng(3), np.diag([0.4, 0.8, 1.0, 1.8]), 0.5
    true, errors, said, alone = np.kron(np.eye(3), block), [], [], []
    for _ in range(300):
        matrix = true + noisy(rng, 12, noise)
        found, left = shrunk_blocks(matrix, noise, 3)
        errors.append(((found - true) ** 2).sum())
        said.append(left**2 * 12 * 13)
        alone.append(((shrunk(matrix, noise)[0] - true) ** 2).sum())
        assert np.linalg.eigvalsh(found)[0] > -1e-12
    assert np.mean(errors) < min(0.3 * noise**2 * 12 * 13, np.mean(alone))
    assert np.mean(errors) < np.mean(said) < 3 * np.mean(errors)


def test_blocks_that_differ_by_more_than_noise_stay_as_they_are():
    true, noise = np.diag([1.0, 2.0, 30.0, 40.0]), 0.01
    found, left = shrunk_blocks(true + noisy(np.random.default_rng(4), 4, noise), noise, 2)
    assert found == pytest.approx(true, abs=5 * noise)
    assert left == pytest.approx(noise, rel=1e-3)


def test_one_block_is_shrunk_toward_a_multiple_of_the_identity():
    matrix = np.eye(5) + noisy(np.random.default_rng(5), 5, 0.3)
    assert shrunk_blocks(matrix, 0.3, 1)[0] == pytest.approx(shrunk(matrix, 0.3)[0])


def test_powers_of_a_symmetric_matrix_are_those_of_its_eigenvalues():
    root = np.random.default_rng(6).normal(size=(4, 4))
    matrix = root @ root.T + np.eye(4)
    half = symmetric_root(matrix)
    assert half == pytest.approx(half.T)
    assert half @ half == pytest.approx(matrix)
    assert symmetric_root(matrix, -0.5) == pytest.approx(np.linalg.inv(half))
    assert np.linalg.eigvalsh(symmetric_root(np.diag([1.0, -3.0])))[0] == pytest.approx(1e-9**0.5)
