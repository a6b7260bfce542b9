"""A test that knows nothing of the design: it learns from half of the runs how to tell the two tables apart.

Features are all integers of the view: each honest message without the known masks, the total, and what
colluding sites contributed. Each is taken relative to the first training run, in the ring: a uniform word
stays uniform, and one whose mask was reused lies near 0. Distant words are set to 0, with a second feature
that says so. A linear discriminant and its threshold are fitted on one half; the other half gives the
errors, so the bound is as valid as that of a test fixed in advance.
Tested in tests/unit/audit/test_learned.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cape.audit.bounds import Errors, best_threshold, errors_of
from cape.audit.view import Stage
from cape.engine.calibration import RESOLUTION

__all__ = ["features", "learn", "stack"]

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]

_NEAR = 128.0  # in standard deviations of a site's noise
_RIDGE = 1e-6
_MOST = 300  # features


def features(stages: Sequence[Stage], target: str) -> Int64:
    """Return the integers of a view, one after the other.

    For a single query, only the entries in which the two tables differ, which the adversary knows: they are
    the same in every run, and noise elsewhere is independent.
    """
    parts: list[Int64] = []
    for stage in stages:
        keep = stage.other != stage.exact[target] if len(stages) == 1 else slice(None)
        parts += [stage.seen[name][keep] for name in stage.seen]
        parts += [stage.held[name][keep] for name in sorted(stage.held)]
        parts += [stage.drawn[name][keep] for name in sorted(stage.drawn)]
        parts += [part[keep] for part in (stage.total, stage.told) if part is not None]
    return np.concatenate(parts)


def stack(views: Sequence[Int64]) -> Int64:
    """Return views as rows; a shorter one, of a run with fewer queries, is padded with zeros."""
    width = max((len(view) for view in views), default=0)
    return np.array([np.pad(view, (0, width - len(view))) for view in views], np.int64)


def learn(views: Int64, present: Bits, error: float) -> tuple[Errors, Floats, Bits]:
    """Learn from every second run and test on the others: return the errors, and the scores of the tested.

    Runs must alternate so that each half has both tables.
    """
    half = np.arange(len(present)) % 2 == 0
    design = _design(views, views[np.flatnonzero(half)[0]])
    train, test = design[half], design[~half]
    chosen = _telling(train, present[half])
    train, test = train[:, chosen], test[:, chosen]
    weights = _discriminant(train, present[half])
    threshold = best_threshold(train @ weights, present[half], error)
    scores = test @ weights
    return errors_of(scores > threshold, present[~half]), scores, present[~half]


def _design(views: Int64, reference: Int64) -> Floats:
    with np.errstate(over="ignore"):
        away = views - reference  # wraps in 64 bits
    if np.abs(views).max() < 1 << 31:  # the ring, for all that is seen, has 32
        away = away.astype(np.int32).astype(np.int64)
    scaled = away / float(RESOLUTION)
    near = np.abs(scaled) < _NEAR
    return np.hstack([np.where(near, scaled, 0.0), near.astype(np.float64)])


def _telling(train: Floats, present: Bits) -> NDArray[np.intp]:
    """Return which features to learn from: all, or those whose means differ most in the training half."""
    if train.shape[1] <= _MOST:
        return np.arange(train.shape[1])
    apart = np.abs(train[present].mean(axis=0) - train[~present].mean(axis=0))
    return np.argsort(-apart / (train.std(axis=0) + 1e-12), kind="stable")[:_MOST]


def _discriminant(design: Floats, present: Bits) -> Floats:
    one, two = design[~present], design[present]
    centred = np.vstack([one - one.mean(axis=0), two - two.mean(axis=0)])
    spread = centred.T @ centred / len(centred)
    ridge = _RIDGE * (np.trace(spread) / len(spread) + 1e-12)
    found = np.linalg.solve(spread + ridge * np.eye(len(spread)), two.mean(axis=0) - one.mean(axis=0))
    return np.asarray(found, np.float64)
