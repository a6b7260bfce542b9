"""Typical rows, for plans: what a block's sums would be, before any row is read.

Numbers are taken to be spread around the middle of their bounds with an SD of a sixth of their width, as a
normal population cut at three SDs: bounds that people choose leave room on both sides, and rows spread
evenly over them would make every plan that divides by a variance too optimistic. Categories are equally
common. Features of a regression are independent of each other, and explain half of the target's variance,
each the same share of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from cape.arrays import Floats
from cape.blocks.design import Design
from cape.data.schema import Category, Schema

__all__ = ["EXPLAINED", "SQUARE", "below", "vectors"]


_SD = 1 / 3  # of t, before the cut at -1 and 1
_WITHIN = float(ndtr(1 / _SD) - ndtr(-1 / _SD))

EXPLAINED = 0.5
"""The part of a target's variance that features explain."""

SQUARE = _SD**2 * (1 - 2 / _SD * math.exp(-0.5 / _SD**2) / math.sqrt(2 * math.pi) / _WITHIN)
"""The mean of t²."""


def below(t: ArrayLike) -> Floats:
    """Return the part of the rows whose scaled value is below t."""
    return np.asarray((ndtr(np.asarray(t) / _SD) - ndtr(-1 / _SD)) / _WITHIN)


def vectors(design: Design, schema: Schema) -> tuple[Floats, Floats]:
    """Return the mean and the covariance of a design's vectors."""
    length = design.length(schema)
    means: list[float] = [design.intercept * length] if design.intercept else []
    parts = [np.zeros((1, 1))] if design.intercept else []
    for name in design.features:
        column = schema[name]
        many = len(column.values) - 1 if isinstance(column, Category) else 1
        share = 1 / (many + 1) if isinstance(column, Category) else 0.0
        means += [share] * many
        parts.append(share * np.eye(many) - share**2 if share else np.full((1, 1), SQUARE))
    unit = length * math.hypot(1.0, design.intercept)
    spread = np.zeros((len(means), len(means)))
    at = 0
    for part in parts:
        spread[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return np.array(means) / unit, spread / unit**2
