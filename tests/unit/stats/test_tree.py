"""Consistency of counts on several levels: least squares, its error, and what it is good for."""

from __future__ import annotations

import numpy as np
import pytest

from cape.core.errors import InvalidInput
from cape.stats.tree import BRANCHING, Tree, check_bins, sizes


def design(levels):
    """One row per count, one column per leaf: which leaves each count is the sum of."""
    leaves = BRANCHING**levels
    return np.concatenate(
        [
            np.kron(np.eye(BRANCHING**level), np.ones(leaves // BRANCHING**level))
            for level in range(levels + 1)
        ]
    )


def split(values, levels):
    return np.split(values, np.cumsum([BRANCHING**level for level in range(levels)]))


@pytest.mark.parametrize("noise", [[3.0, 1.0, 2.0], [0.5, 5.0, 1.0], [1.0, 1.0, 1.0], [2.0, 1.0, 0.5, 4.0]])
def test_the_two_passes_solve_the_weighted_least_squares(noise):
    levels = len(noise) - 1
    matrix = design(levels)
    weights = 1 / np.repeat(noise, [BRANCHING**level for level in range(levels + 1)])
    counts = np.random.default_rng(3).normal(10, 5, len(matrix))
    leaves, *_ = np.linalg.lstsq(matrix * weights[:, None], counts * weights, rcond=None)
    tree = Tree.fit(split(counts, levels), noise)
    np.testing.assert_allclose(np.diff(tree.prefixes), leaves, atol=1e-9)
    covariance = np.linalg.inv(matrix.T * weights**2 @ matrix)
    below = np.tril(np.ones((BRANCHING**levels, BRANCHING**levels)))
    wanted = np.diag(below @ covariance @ below.T)
    share = np.linspace(0, 1, len(leaves) + 1)
    np.testing.assert_allclose((tree.within + share**2 * tree.root)[1:], wanted, rtol=1e-9)
    assert tree.root == pytest.approx(covariance.sum())


def test_an_exact_root_is_kept_and_its_error_is_none():
    counts = np.random.default_rng(4).normal(10, 5, 1 + 4 + 16)
    tree = Tree.fit([np.array([100.0]), *split(counts, 2)[1:]], [0.0, 1.0, 1.0])
    assert tree.prefixes[-1] == pytest.approx(100.0)
    assert tree.root == 0
    assert tree.within[-1] == pytest.approx(0.0, abs=1e-12)


def test_without_noise_the_counts_come_back():
    leaves = np.arange(64.0)
    levels = [leaves.reshape(n, -1).sum(axis=1) for n in (1, 4, 16, 64)]
    tree = Tree.fit(levels, [0.0] * 4)
    np.testing.assert_allclose(np.diff(tree.prefixes), leaves)
    assert not tree.within.any()


def test_ranges_have_less_error_than_in_a_flat_histogram_of_the_same_privacy():
    """Root mean square over 400 runs of 30 ranges each: known to 1%; the ratio to flat is about 0.4."""
    rng = np.random.default_rng(5)
    truth = rng.poisson(40, 256).astype(float)
    levels = [truth.reshape(n, -1).sum(axis=1) for n in (1, 4, 16, 64, 256)]
    std = np.sqrt(4)  # four levels below an exact root share what the flat histogram has alone
    errors = []
    for _ in range(400):
        noisy = [levels[0]] + [level + rng.normal(0, std, level.size) for level in levels[1:]]
        fitted = Tree.fit(noisy, [0.0] + [std] * 4).prefixes
        unfitted = np.concatenate([[0], np.cumsum(noisy[-1])])
        flat = np.concatenate([[0], np.cumsum(truth + rng.normal(0, 1, 256))])
        exact = np.concatenate([[0], np.cumsum(truth)])
        low, high = np.sort(rng.integers(0, 257, (2, 30)), axis=0)
        errors.append(
            [((p[high] - p[low] - exact[high] + exact[low]) ** 2).mean() for p in (fitted, unfitted, flat)]
        )
    tree, leaves, flat = np.sqrt(np.mean(errors, axis=0))
    assert tree < 0.6 * flat
    assert tree < 0.3 * leaves


def prefix_error(branching, levels, ratio=1.0):
    """The error of counts below a point, the total known, at the privacy of a flat histogram."""
    leaves = branching**levels
    sums = [np.kron(np.eye(branching**i), np.ones(leaves // branching**i)) for i in range(levels + 1)]
    weights = ratio ** np.arange(levels)
    weights = np.array([1.0, *(weights / weights.sum())])  # the total, and each level below it
    covariance = np.linalg.inv(sum(w * s.T @ s for w, s in zip(weights, sums, strict=True)))
    below = np.tril(np.ones((leaves, leaves)))
    share = np.arange(1, leaves + 1) / leaves
    within = np.diag(below @ covariance @ below.T) - share**2 * covariance.sum()
    return np.sqrt(within[:-1].mean())


@pytest.mark.slow(1.4)
def test_what_the_module_says_about_branching():
    said = {
        (2, 6): 2.11,
        (2, 8): 2.69,
        (4, 3): 2.07,
        (4, 4): 2.68,
        (16, 2): 3.17,
        (64, 1): 3.29,
        (256, 1): 6.54,
    }
    for (branching, levels), error in said.items():
        assert prefix_error(branching, levels) == pytest.approx(error, abs=0.006), (branching, levels)
    best = min(prefix_error(4, 4, ratio) for ratio in np.linspace(0.6, 2, 15))
    assert best > 0.97 * prefix_error(4, 4)


@pytest.mark.parametrize("bins", [0, 1, 2, 8, 100, 4**9, 64.0, "64"])
def test_bins_must_make_whole_levels(bins):
    with pytest.raises(InvalidInput, match="bins must be"):
        check_bins(bins)


def test_laplace_noise_takes_the_levels_with_the_least_error():
    assert [sizes(bins, True) for bins in (16, 64, 256, 4096)] == [(16,), (8, 64), (16, 256), (16, 256, 4096)]
    counts = np.random.default_rng(6).normal(10, 5, 1 + 8 + 64)
    levels = np.split(counts, [1, 9])
    matrix = np.concatenate([np.kron(np.eye(n), np.ones(64 // n)) for n in (1, 8, 64)])
    weights = np.repeat([0.5, 1.0, 2.0], [1, 8, 64])
    leaves, *_ = np.linalg.lstsq(matrix * weights[:, None], counts * weights, rcond=None)
    tree = Tree.fit(levels, [2.0, 1.0, 0.5])
    np.testing.assert_allclose(np.diff(tree.prefixes), leaves, atol=1e-9)
    below = np.tril(np.ones((64, 64)))
    covariance = np.linalg.inv(matrix.T * weights**2 @ matrix)
    wanted = np.diag(below @ covariance @ below.T)
    np.testing.assert_allclose((tree.within + np.linspace(0, 1, 65) ** 2 * tree.root)[1:], wanted, rtol=1e-9)
