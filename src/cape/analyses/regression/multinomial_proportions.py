"""How many rows are in each category, and what follows: how a model fits, and what nobody says.

All of it is post-processing: of the counts of the first stage, and of the estimates. A category is empty, as
far as is seen, if its count is not clear of noise and the estimates expect hardly anybody in it either.
Tested in tests/unit/analyses/regression/test_multinomial.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import expit, softmax

from cape.analyses.regression.diagnostics import deviance_of, share_of
from cape.blocks.choices import Model
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate
from cape.stats.score_steps import ScoreStep

__all__ = ["fit_of", "probabilities", "unseen", "unseen_labels"]

_CLEAR = 3.5  # times its noise: a count that is larger is surely not none
_FEW = 2.0  # the same for what estimates expect
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


def unseen(counts: Floats, noise: float, likely: Floats, last: ScoreStep) -> list[int]:
    """Return the categories in which nobody is seen to be.

    `likely` is how many rows the estimates expect in each: the last step, in which no row counts more than
    its bound, cannot tell fewer of them from none than its noise makes.
    """
    few = counts < max(_CLEAR * noise, _NOBODY)
    if noise:
        few &= likely < _FEW * last.score_noise / last.point.bound
    return [int(c) for c in np.flatnonzero(few)]


def probabilities(model: Model, weights: Floats, x: Floats) -> Floats:
    """Return the probability of each category, one row each, from weights of (1, x) by log-odds."""
    if model == "multinomial":
        odds = np.column_stack([np.zeros(len(x)), weights[:, 0] + x @ weights[:, 1:].T])
        return np.asarray(softmax(odds, axis=1))
    upto = expit(weights[:, 0] - (x @ weights[0, 1:])[:, None])
    full = np.concatenate([np.zeros((len(x), 1)), upto, np.ones((len(x), 1))], axis=1)
    return np.asarray(np.diff(full, axis=1))


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
