"""What an analysis would give, before any row is read: its own post-processing, on rows as people are.

Numbers are taken to be spread around the middle of their bounds with an SD of a sixth of their width, as a
normal population cut at three SDs: bounds that people choose leave room on both sides, and rows spread
evenly over them would promise too much of everything that is divided by a variance.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cape.errors import TooNoisyWarning
from cape.release.query import Analysis, Answer, Estimate, Neighbours
from cape.site import Axis, Block, Counts, Gram, Moments, Schema

__all__ = ["Planned", "unknown", "warn_of"]

Floats = NDArray[np.float64]

_SD = 1 / 3  # of t, before the cut at -1 and 1
_WITHIN = float(ndtr(1 / _SD) - ndtr(-1 / _SD))
# the mean of t² after it
_SQUARE = _SD**2 * (1 - 2 / _SD * math.exp(-0.5 / _SD**2) / math.sqrt(2 * math.pi) / _WITHIN)


class Planned(Analysis):
    """An analysis that is planned by finishing the sums of rows as people might be."""

    def expected(
        self,
        schema: Schema,
        noise: Sequence[Sequence[float]],
        rows: int,
        neighbours: Neighbours = "replace-one",
    ) -> dict[str, float]:
        """Return the privacy error of each label; categories are taken to be equally common."""
        blocks = self.query(schema, neighbours).blocks
        answer = Answer(
            tuple(_typical(block, schema, rows) for block in blocks),
            tuple(tuple(each) for each in noise),
            rows if neighbours == "replace-one" else None,
            schema,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            return {estimate.label: estimate.privacy for estimate in self.finish(answer)}


def unknown(label: str, low: float, high: float) -> Estimate:
    """Return an estimate that says nothing but the bounds."""
    half = high / 2 - low / 2
    return Estimate(label, low + half, 0.0, half, (low, high), _Whole(low, high))


class _Whole:
    """An interval that is the same at every level."""

    def __init__(self, low: float, high: float) -> None:
        self._ends = low, high

    def __call__(self, level: float) -> tuple[float, float]:
        return self._ends


def warn_of(estimates: Sequence[Estimate]) -> None:
    """Warn, once, of the estimates that say nothing."""
    empty = [estimate.label for estimate in estimates if isinstance(estimate.at, _Whole)]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        warnings.warn(
            f"there is too much noise to say anything about {empty[0]!r}{more}: the interval is all that is "
            "possible; use a larger share, more epsilon, more rows or fewer columns",
            TooNoisyWarning,
            stacklevel=3,
        )


def _typical(block: Block, schema: Schema, rows: int) -> tuple[Floats, ...]:
    """Return the sums of a block if columns are independent and as above, with no cell missing."""
    arrays = block.arrays(schema)
    if isinstance(block, Counts):
        parts = [_fractions(axis, schema) for axis in block.axes]
        counts = rows * reduce(np.multiply.outer, parts, np.array(1.0))
        return (block.pick(counts),)
    if isinstance(block, (Moments, Gram)):
        groups = 1 if isinstance(block, Gram) or block.by is None else arrays[0].shape[0]
        means = {"count": 1.0, "second": _SQUARE, "square": _SQUARE}
        return tuple(np.full(array.shape, rows / groups * means.get(array.name, 0.0)) for array in arrays)
    return tuple(np.zeros(array.shape) for array in arrays)


def _fractions(axis: Axis, schema: Schema) -> Floats:
    if axis.edges is None:
        bins = axis.bins(schema)
        return np.full(bins, 1 / bins)
    column = schema.number(axis.column)
    t = (np.clip(axis.edges[1:-1], column.low, column.high) - column.middle) / column.half
    below = (ndtr(t / _SD) - ndtr(-1 / _SD)) / _WITHIN
    return np.diff(np.concatenate([[0.0], below, [1.0]]))
