"""Rows that nobody is in, with a known relation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rows:
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    weights: NDArray[np.float64]


@pytest.fixture(scope="session")
def rows() -> Rows:
    rng = np.random.default_rng(7)
    weights = np.array([0.4, -0.3, 0.1])
    X = rng.uniform(-1, 1, (2000, 3)) * [1.0, 0.8, 0.5] + [0.0, 0.2, -0.1]
    X = np.clip(X, -1, 1)
    y = np.clip(0.15 + X @ weights + 0.05 * rng.normal(size=2000), -1, 1)
    return Rows(X, y, weights)


@pytest.fixture(scope="session")
def blobs() -> Rows:
    rng = np.random.default_rng(11)
    centres = np.array([[-0.7, -0.7], [0.7, -0.5], [0.0, 0.8]])
    which = rng.integers(0, 3, 900)
    return Rows(np.clip(centres[which] + 0.12 * rng.normal(size=(900, 2)), -1, 1), which, centres)
