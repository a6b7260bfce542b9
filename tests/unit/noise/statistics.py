"""Goodness of fit with a stated error rate, for tests that must accept the law and reject a near miss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

# Streams in tests are keyed, so a test gives the same answer on every run. The rate says how likely a
# right sampler would have been to fail when the key was chosen.
ERROR_RATE = 1e-6


def binned_p_value(
    samples: NDArray[np.int64], cdf: Callable[[NDArray[np.float64]], NDArray[np.float64]], edges: NDArray
) -> float:
    """Return the p-value of Pearson's chi-square; `cdf(e)` is the probability of a sample below e."""
    inner = np.asarray(edges)
    expected = np.diff(np.concatenate([[0.0], cdf(inner), [1.0]])) * samples.size
    observed = np.bincount(np.searchsorted(inner, samples, side="right"), minlength=inner.size + 1)
    assert expected.min() > 20
    return float(stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), inner.size))
