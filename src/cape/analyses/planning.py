"""What an analysis would give, before any row is read: its own post-processing, on rows as people are.

Numbers are taken to be spread around the middle of their bounds with an SD of a sixth of their width, as a
normal population cut at three SDs: bounds that people choose leave room on both sides, and rows spread
evenly over them would promise too much of everything that is divided by a variance. Features of a regression
are independent of each other, and explain half of the target's variance, each the same share of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cape.blocks import Axis, Block, Counts, Gram, Moments
from cape.blocks.block import Tensors, Term, entries
from cape.blocks.design import Design
from cape.data import Category, Schema
from cape.engine.query import Analysis, Answer, Estimate, Finding, Neighbours
from cape.errors import TooNoisyWarning

__all__ = ["Planned", "unknown", "warn_of"]

Floats = NDArray[np.float64]

_SD = 1 / 3  # of t, before the cut at -1 and 1
_EXPLAINED = 0.5  # of a target's variance
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
            found = self.finish(answer)
        estimates = found.estimates if isinstance(found, Finding) else found
        return {estimate.label: estimate.privacy for estimate in estimates}


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
    if isinstance(block, Tensors):
        return _tensors(block, schema, rows)
    return tuple(np.zeros(array.shape) for array in arrays)


def _fractions(axis: Axis, schema: Schema) -> Floats:
    if axis.edges is None:
        bins = axis.bins(schema)
        return np.full(bins, 1 / bins)
    column = schema.number(axis.column)
    t = (np.clip(axis.edges[1:-1], column.low, column.high) - column.middle) / column.half
    below = (ndtr(t / _SD) - ndtr(-1 / _SD)) / _WITHIN
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def _tensors(block: Tensors, schema: Schema, rows: int) -> tuple[Floats, ...]:
    """Return the sums of products of a design's vectors, as if those were normal."""
    mean, spread = _vectors(block.design, schema)
    second = spread + np.outer(mean, mean)
    two_valued = block.design.target is not None and isinstance(schema[block.design.target], Category)
    square = 1.0 if two_valued else _SQUARE
    deviations = np.sqrt(np.diag(spread))
    with_y = deviations * math.sqrt(square * _EXPLAINED / max(1, int(np.count_nonzero(deviations))))
    sums: list[Floats] = [np.array([float(rows)])]
    for term in block.terms:
        even, odd = _in_y(term, square, two_valued)
        for multiplicity in term.multiplicities(len(mean)):
            found_at = entries(term.degree, multiplicity, len(mean))
            places = np.array(found_at, dtype=np.int64).reshape(len(found_at), term.degree)
            found = even * _product(mean, second, places)
            if term.degree == 1:
                found = found + odd * with_y[places[:, 0]]
            sums.append(rows * found)
    return tuple(sums)


def _vectors(design: Design, schema: Schema) -> tuple[Floats, Floats]:
    """Return the mean and the covariance of x."""
    length = design.length(schema)
    means: list[float] = [design.intercept * length] if design.intercept else []
    parts = [np.zeros((1, 1))] if design.intercept else []
    for name in design.features:
        column = schema[name]
        many = len(column.values) - 1 if isinstance(column, Category) else 1
        share = 1 / (many + 1) if isinstance(column, Category) else 0.0
        means += [share] * many
        parts.append(share * np.eye(many) - share**2 if share else np.full((1, 1), _SQUARE))
    unit = length * math.hypot(1.0, design.intercept)
    spread = np.zeros((len(means), len(means)))
    at = 0
    for part in parts:
        spread[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return np.array(means) / unit, spread / unit**2


def _in_y(term: Term, square: float, two_valued: bool) -> tuple[float, float]:
    """Return the mean of c(y), and that of c(y) y / y²: how its odd part goes with x."""
    even = odd = 0.0
    for power, factor in enumerate(term.target):
        half = power // 2
        moment = 1.0 if two_valued else math.prod(range(1, 2 * half, 2)) * square**half
        if power % 2:
            odd += factor * moment * (1 if two_valued else power)
        else:
            even += factor * moment
    return even, odd


def _product(mean: Floats, second: Floats, places: NDArray[np.int64]) -> Floats:
    """Return the mean of products of up to four entries of a normal vector."""
    degree = places.shape[1]
    at = [mean[places[:, i]] for i in range(degree)]
    pair = {(i, j): second[places[:, i], places[:, j]] for i in range(degree) for j in range(i)}
    if degree == 0:
        return np.ones(1)
    if degree == 1:
        return np.asarray(at[0])
    if degree == 2:
        return np.asarray(pair[1, 0])
    alone = reduce(np.multiply, at)
    if degree == 3:
        return np.asarray(pair[1, 0] * at[2] + pair[2, 0] * at[1] + pair[2, 1] * at[0] - 2 * alone)
    pairs = pair[1, 0] * pair[3, 2] + pair[2, 0] * pair[3, 1] + pair[3, 0] * pair[2, 1]
    return np.asarray(pairs - 2 * alone)
