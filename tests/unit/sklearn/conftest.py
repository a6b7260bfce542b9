"""Rows that nobody is in, with a known relation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cape.sklearn.base
from cape import Consortium
from cape.noise import SecureStream


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


@pytest.fixture
def fresh_noise() -> None:
    """What a test asks for whose subject is noise that differs from run to run."""


@pytest.fixture(autouse=True)
def repeated_noise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Key the noise of estimators without a `random_state`, and split their rows in one way.

    Fresh noise fails a test now and then; with a `random_state` an estimator takes another path, and warns.
    """
    fits = count()

    def keyed(*args: Any, stream: SecureStream | None = None, **options: Any) -> Consortium:
        key = hashlib.sha256(f"{request.node.nodeid} {next(fits)}".encode()).digest()
        return Consortium(*args, stream=stream or SecureStream(key), **options)

    if "fresh_noise" not in request.fixturenames:
        monkeypatch.setattr(cape.sklearn.base, "Consortium", keyed)
    before = np.random.get_state()
    np.random.seed(0)
    yield
    np.random.set_state(before)
