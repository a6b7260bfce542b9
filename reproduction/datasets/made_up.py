"""Rows that are made up from a seed: the same seed gives the same rows on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
from scipy.special import ndtri

from cape.core import check
from cape.noise import SecureStream
from reproduction.datasets.dataset import Dataset, Floats, Origin

__all__ = ["gaussian", "permutation", "seeded", "synthetic_regression", "two_gaussians", "uniform"]

_MADE_UP = Origin("Made-up rows", "reproduction.datasets", "none needed")
_REACH = 5.5  # five standard deviations beyond a class mean of 0.5


def synthetic_regression(rows: int, width: int, seed: int = 0) -> Dataset:
    """Return the paper's regression data: a linear target without noise.

    X is uniform on [0, 1] and scaled so that the longest row has length 1; y = X w with ||w|| = 1, w of
    uniform direction. `weights` is w.
    """
    rows = check.integer("rows", rows, least=1)
    width = check.integer("width", width, least=1)
    stream = seeded(f"synthetic regression {rows} x {width}", seed)
    X = uniform(stream, rows * width).reshape(rows, width)
    X = X / np.nextafter(np.linalg.norm(X, axis=1).max(), np.inf)
    weights = gaussian(stream, width)
    weights /= np.linalg.norm(weights)
    names = tuple(f"x{i + 1}" for i in range(width))
    bounds = dict.fromkeys(names, (0.0, 1.0)) | {"y": (-1.0, 1.0)}
    note = "Rows are divided by the largest norm, as in the paper; a row's norm is at most 1."
    return Dataset("synthetic", names, X, X @ weights, "y", bounds, _MADE_UP, note, weights)


def two_gaussians(rows: int, width: int, seed: int = 0) -> Dataset:
    """Return the paper's two classes: unit variance around -0.5 and +0.5 in every coordinate, y = 0 and 1.

    As many rows of each class (one more of class 0 if `rows` is odd), in random order.
    """
    rows = check.integer("rows", rows, least=2)
    width = check.integer("width", width, least=1)
    stream = seeded(f"two gaussians {rows} x {width}", seed)
    y = (permutation(stream, rows) % 2).astype(np.float64)
    X = gaussian(stream, rows * width).reshape(rows, width) + (y[:, None] - 0.5)
    names = tuple(f"x{i + 1}" for i in range(width))
    bounds = dict.fromkeys(names, (-_REACH, _REACH)) | {"y": (0.0, 1.0)}
    return Dataset("two-gaussians", names, X, y, "y", bounds, _MADE_UP)


def seeded(label: str, seed: int) -> SecureStream:
    """Return the stream that anyone can make from a label and a seed: for public data, never for noise."""
    seed = check.integer("seed", seed, least=0)
    # the words under which the rows of every published run were drawn: they stay
    return SecureStream(hashlib.sha256(f"cape.datasets/{label}/{seed}".encode()).digest())


def uniform(stream: SecureStream, size: int) -> Floats:
    """Return numbers spread evenly over (0, 1), never 0 and never 1."""
    return np.asarray(((stream.words(size) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def gaussian(stream: SecureStream, size: int) -> Floats:
    """Return standard Gaussian numbers, for made-up rows: floats are not good enough for privacy."""
    return np.asarray(ndtri(uniform(stream, size)))


def permutation(stream: SecureStream, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return 0 ... size - 1 in random order."""
    return np.argsort(stream.words(size), kind="stable")
