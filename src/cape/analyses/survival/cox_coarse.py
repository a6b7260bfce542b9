"""What bins of the first question leave unknown of features: where in its bins each column lies.

Rows are taken to be evenly spread in each bin. A column that hardly varies lies in one bin, or in a few, and
anywhere in them: its mean may be off by as much as its SD is taken to be, and its variance by all of it.
That is the covariance of the mean of rows of which each bin has one place of its own, evenly drawn; and as
much is lacking in the variance of rows in such places, by the law of total variance. Where a column spreads
over many bins it is next to nothing, and 0 is returned. Where all rows that are seen are in one bin, none may
be elsewhere, and all of the variance may lack; where noise hid which bins have rows, they are all taken to be
one. All of it is post-processing.
Tested in tests/unit/analyses/survival/test_cox_coarse.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cape.analyses.regression.marginals import Marginals
from cape.blocks import Design
from cape.core.arrays import Floats
from cape.data import Schema
from cape.stats.capping import Marginal
from cape.stats.matrices import nearest_positive

__all__ = ["coarse"]

_DRAWS = 24
_LITTLE = 0.02  # of the variance of a column: less is as good as nothing
_GOLDEN, _ROOT = 0.6180339887498949, 0.41421356237309515


def coarse(marginals: Marginals, design: Design, schema: Schema) -> Floats:
    """Return the covariance of x, and of its mean, that is left by what is not known of places in bins."""
    numbers = {name: _bins(one) for name, one in marginals.numbers.items()}
    known = [marginals.numbers[name] for name in numbers]
    if not any(
        taken.only is not None or _unknown(one) > _LITTLE * taken.sd**2
        for one, taken in zip(numbers.values(), known, strict=True)
    ):
        width = design.width(schema)
        return np.zeros((width, width))
    alone = {name: _in_places(one, 0.5) for name, one in numbers.items() if one.only is not None}
    means = []
    for draw in range(_DRAWS):
        placed = {
            name: _in_places(one, _GOLDEN * (draw + 0.5) + _ROOT * i * len(one.weights))
            for i, (name, one) in enumerate(numbers.items())
        }
        means.append(replace(marginals, numbers={**placed, **alone}).rows(design, schema).mean(axis=0))
    found = _covariance(np.stack(means))
    if not alone:
        return found
    without = replace(marginals, numbers={**marginals.numbers, **alone})
    rest = _covariance(marginals.rows(design, schema)) - _covariance(without.rows(design, schema))
    return found + nearest_positive(rest)


def _covariance(x: Floats) -> Floats:
    away = x - x.mean(axis=0)
    return np.asarray(away.T @ away / len(x))


def _bins(one: Marginal) -> Marginal:
    """Return a column in the bins that are known: in one, where it was taken to be spread over its bounds."""
    if one.only is not None:
        return replace(one, edges=np.array(one.only), weights=np.array([1.0]))
    widths = np.diff(one.edges)
    if np.allclose(one.weights * widths.sum(), widths * one.weights.sum()):
        return replace(one, edges=one.edges[[0, -1]], weights=np.array([1.0]))
    return one


def _unknown(one: Marginal) -> float:
    """Return the variance of the mean of a column of which each bin has one place, evenly drawn."""
    parts = one.weights / max(float(one.weights.sum()), 1e-300)
    return float(parts**2 @ np.diff(one.edges) ** 2) / 12


def _in_places(one: Marginal, start: float) -> Marginal:
    """Return a column that lies in one place of each bin."""
    part = (start + _ROOT * np.arange(len(one.weights))) % 1.0
    places = one.edges[:-1] + part * np.diff(one.edges)
    weights = np.stack([one.weights, np.zeros(len(one.weights))], axis=1).reshape(-1)[:-1]
    return replace(one, edges=np.repeat(places, 2), weights=weights)
