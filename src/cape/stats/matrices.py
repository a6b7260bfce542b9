"""Symmetric matrices that were released with noise: assembled, and made positive semidefinite.

The noise of a released matrix is independent above the diagonal, with standard deviation `noise`, and
sqrt(2) times that on it: then it looks the same in every basis, and its largest eigenvalue is about 2 sqrt(d)
times `noise`. Tested in tests/unit/stats/test_matrices.py.
"""

from __future__ import annotations

import math

import numpy as np

from cape.core.arrays import Floats

__all__ = [
    "CLEAR",
    "nearest_positive",
    "shrunk",
    "shrunk_blocks",
    "spectral",
    "symmetric",
    "symmetric_root",
    "without_repulsion",
]


# How many times its noise a number must be, and an eigenvalue the eigenvalues of noise, to be divided by.
# Measured on logistic regressions: with half of it the worst predictions lose 27% of log 2
# more, with twice of it intervals are up to 3.5 times as wide.
CLEAR = 3.0


def symmetric(diagonal: Floats, above: Floats) -> Floats:
    """Return the symmetric matrix with this diagonal and these entries above it, row by row."""
    width = len(diagonal)
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width, 1)] = above
    return np.asarray(matrix + matrix.T + np.diag(diagonal))


def nearest_positive(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix: negative eigenvalues set to 0."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def spectral(width: int, noise: float) -> float:
    """Return the largest eigenvalue to expect of the noise."""
    return 2 * math.sqrt(width) * noise


def shrunk(matrix: Floats, noise: float) -> tuple[Floats, float]:
    """Return the matrix shrunk toward a multiple of the identity as far as its noise warrants, and positive.

    (1 - r) M + r m I, with m the mean of the diagonal, is nearest to M without its noise for
    r = E||noise without its trace||² / E||M - m I||² (Ledoit and Wolf 2004, with the noise known). The second
    number is 1 - r: the part of the noise that is left.
    """
    width = len(matrix)
    middle = max(float(np.trace(matrix)) / width, 0.0)
    apart = matrix - middle * np.eye(width)
    of_noise = noise**2 * (width * (width + 1) - 2)
    total = float((apart**2).sum())
    keep = max(0.0, 1 - of_noise / total) if total > 0 else 0.0
    return nearest_positive(middle * np.eye(width) + keep * apart), keep


def shrunk_blocks(matrix: Floats, noise: float, blocks: int) -> tuple[Floats, float]:
    """Return the matrix shrunk as far as its noise warrants, and the noise that is left in an entry.

    It is shrunk toward the mean of so many blocks on the diagonal, of which there may be one; and that mean
    toward a multiple of the identity. Of noise with a sum of squares v over k numbers that is shrunk by 1 - r
    about v (1 - r) is left (noise, and what shrinking takes), and at least v sqrt(2 / k), by which such a sum
    varies itself.
    """
    size, width = len(matrix), len(matrix) // blocks
    parts = [slice(k * width, (k + 1) * width) for k in range(blocks)]
    mean = np.mean([matrix[part, part] for part in parts], axis=0)
    likely, kept = shrunk(mean, noise / math.sqrt(blocks))
    squares = width * (width + 1) - 2
    left = 2 + squares * max(kept, math.sqrt(4 / max(squares, 4)))
    found = np.kron(np.eye(blocks), likely)
    if blocks > 1:
        apart, squares = matrix - np.kron(np.eye(blocks), mean), size * (size + 1) - squares - 2
        kept = max(0.0, 1 - noise**2 * squares / max(float((apart**2).sum()), 1e-300))
        found = nearest_positive(found + kept * apart)
        left += squares * max(kept, math.sqrt(4 / squares))
    return np.asarray(found, np.float64), noise * math.sqrt(left / (size * (size + 1)))


def symmetric_root(matrix: Floats, power: float = 0.5, least: float = 1e-9) -> Floats:
    """Return a power of a symmetric matrix; no eigenvalue counts as less than this part of the largest."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    values = np.maximum(values, max(least * float(values[-1]), 1e-300))
    return np.asarray((vectors * values**power) @ vectors.T)


def without_repulsion(values: Floats, noise: float) -> Floats:
    """Return eigenvalues without the repulsion that noise adds.

    Noise moves the eigenvalue l_i of a matrix up by noise² sum_j 1 / (l_i - l_j), to second order; an
    isolated one by d noise² / l. Two eigenvalues that are closer than the noise cannot be told apart: the
    repulsion between them is bounded.
    """
    gaps = values[:, None] - values[None, :]
    bounded = gaps / (gaps**2 + 2 * noise**2) if noise > 0 else np.zeros_like(gaps)
    return np.asarray(values - noise**2 * bounded.sum(axis=1))
