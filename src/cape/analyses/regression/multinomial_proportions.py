"""How many rows are in each category, and what follows: how a model fits, and what nobody says.

All of it is post-processing: of the counts of the first stage, and of the estimates with their noise. A
category is empty, as far as is seen, if its count is not clear of noise and neither are the log-odds that
depend on it alone, or the distance of its two thresholds.
Tested in tests/unit/analyses/regression/test_multinomial.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cape.analyses.regression.diagnostics import deviance_of, share_of
from cape.analyses.regression.joint import Joint
from cape.blocks.choices import Model
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate
from cape.stats.score_steps import ScoreStep

__all__ = ["fit_of", "unseen", "unseen_labels"]

_FEW = 2.0  # times its noise: below that a number of rows may be none
_NOBODY = 0.5  # rows


def fit_of(last: ScoreStep, counts: tuple[Floats, float] | None) -> tuple[Estimate, Estimate]:
    """Return the deviance, and McFadden's pseudo-R², from the counts of the categories and their noise."""
    deviance, found = deviance_of(last), None
    if counts is not None:
        found = share_of(deviance, *_constant(*counts, last.count))
    return deviance, found or Estimate("pseudo-R²", math.nan, 0.0, math.inf, (0.0, 1.0))


def _constant(counts: Floats, noise: float, rows: float) -> tuple[float, float]:
    """Return the deviance of a model without features, of so many rows, and its noise."""
    total = max(float(counts.sum()), 1.0)
    shares = np.maximum(counts / total, max(noise / total, 1e-9))
    shares = shares / shares.sum()
    logs = np.log(shares)
    beside = logs - float(shares @ logs)
    return -2 * rows * float(shares @ logs), 2 * rows / total * noise * float(np.linalg.norm(beside))


def unseen(counts: Floats, noise: float, joint: Joint, model: Model) -> list[int]:
    """Return the categories in which nobody is seen to be."""
    few = np.flatnonzero(counts < max(_FEW * noise, _NOBODY))
    if not few.size or not noise:
        return [int(c) for c in few]
    free = len(counts) - 1
    hidden = _log_noise(joint, free, model) > 1 / _FEW
    return [int(c) for c in few if hidden[c]]


def _log_noise(joint: Joint, free: int, model: Model) -> Floats:
    """Return the noise in the logarithm of the share of each category, at features where it is smallest."""
    privacy, values = np.array(joint.privacy), np.array(joint.values)
    if model == "multinomial":
        width = len(values) // free
        each = [
            _least(privacy[part, part]) for part in (slice(k * width, (k + 1) * width) for k in range(free))
        ]
        return np.array([min(each), *each])
    slopes = list(range(free, len(values)))
    ends = [_least(privacy[np.ix_(at, at)]) for at in ([0, *slopes], [free - 1, *slopes])]
    apart = np.diff(values[:free])
    noise = [privacy[j, j] + privacy[j + 1, j + 1] - 2 * privacy[j, j + 1] for j in range(free - 1)]
    between = np.sqrt(np.maximum(noise, 0.0)) / np.maximum(apart, 1e-300)
    return np.array([ends[0], *between, ends[1]])


def _least(covariance: Floats) -> float:
    """Return the least error of the first number plus any combination of the others."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    scaled = covariance / np.outer(scale, scale)
    rest = scaled[1:, 1:] + 1e-9 * np.eye(len(scaled) - 1)
    left = 1 - float(scaled[0, 1:] @ np.linalg.solve(rest, scaled[1:, 0]))
    return float(scale[0]) * math.sqrt(max(left, 0.0))


def unseen_labels(
    labels: Sequence[str], empty: Sequence[int], categories: Sequence[object], model: Model
) -> list[str]:
    """Return the coefficients of which nothing is known if nobody is in some categories.

    Log-odds against an empty category, or of it, are infinite; so is the threshold at an empty end.
    """
    if model == "multinomial":
        names = [f" [{categories[c]}]" for c in empty]
        return [label for label in labels if 0 in empty or any(label.endswith(each) for each in names)]
    ends = ((0, labels[0]), (len(categories) - 1, labels[len(categories) - 2]))
    return [label for c, label in ends if c in empty]
