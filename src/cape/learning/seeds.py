"""Where clusters are looked for: points spread over what the schema allows, and k-means on a small summary.

Claim. Nothing here depends on a row of a table.
Reason. `spread` knows the schema and a public number, the seed. `cluster` is given released numbers only:
what is made of them costs nothing.
Tested in tests/unit/learning/test_kmeans.py.

Randomness is public, and only has to be the same everywhere: a `SecureStream` under a key made from the seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.blocks.design import Design
from cape.core.arrays import Floats, Integers
from cape.data import Number, Schema
from cape.noise import SecureStream

__all__ = [
    "Spread",
    "cluster",
    "cluster_effort",
    "halves",
    "made_up",
    "nearest",
    "public_stream",
    "spread",
    "spread_effort",
]


_DRAWN = 64  # made-up rows for each point of a spread
_OFFSET = 0.3  # of a cell's radius, from a centre to those of its halves
_SETTLED = 8  # steps that even them out
_STEPS = 50  # the most of one run on a summary, which has few points
_AT_ONCE = 1 << 18  # distances that are held in memory


@dataclass(frozen=True)
class Spread:
    """Points spread over the design's vectors, and the variance of a made-up row about its nearest point."""

    points: Floats
    variance: Floats  # of each entry, a mean over entries, for each point


def public_stream(seed: int, label: str) -> SecureStream:
    """Return the stream that anyone can make from the seed."""
    return SecureStream(seed.to_bytes(32, "big")).fork(label)


def uniform(stream: SecureStream, size: int) -> Floats:
    """Return numbers spread evenly over [0, 1)."""
    return np.asarray((stream.words(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def spread(design: Design, schema: Schema, many: int, stream: SecureStream) -> Spread:
    """Return `many` points (fewer if categories have fewer places) that share what the schema allows evenly.

    Rows are made up, each column spread evenly over its bounds or categories, turned to vectors as sites do
    it, and divided by a few steps of k-means: in any number of dimensions cells come out compact and alike.
    """
    rows = made_up(design, schema, _DRAWN * many, stream)
    points = rows[:many].copy()
    for _ in range(_SETTLED):
        found = nearest(rows, points)
        counts = np.bincount(found, minlength=many)
        sums = np.stack([np.bincount(found, column, many) for column in rows.T], axis=1)
        points = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], points)
    _, first = np.unique(np.round(points, 12), axis=0, return_index=True)  # categories alone have few places
    points = points[np.sort(first)]
    many = len(points)
    found = nearest(rows, points)
    squares = np.bincount(found, ((rows - points[found]) ** 2).mean(axis=1), many)
    counts = np.bincount(found, minlength=many)
    return Spread(points, squares / np.maximum(counts, 1))


def halves(centres: Floats, variance: float, stream: SecureStream) -> Spread:
    """Return two points for each centre, beside it in a random direction, for cells of this variance.

    Rows nearest to a centre are cut in two by the plane between its points. If they are two clusters, the
    means of the halves lie far apart, unless the plane happens to cut both alike.
    """
    many, width = centres.shape
    direction = 2 * uniform(stream, many * width).reshape(many, width) - 1
    direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-12)
    direction *= _OFFSET * math.sqrt(variance * width)
    points = np.concatenate([centres + direction, centres - direction])
    return Spread(points, np.full(len(points), 1 / (4 * width)))  # a mean may be far from where it was sought


def nearest(rows: Floats, points: Floats) -> Integers:
    """Return which point is nearest to each row; memory does not grow with the product of the two."""
    squares = (points**2).sum(axis=1)
    found = np.empty(len(rows), np.int64)
    step = max(1, _AT_ONCE // len(points))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        found[start : start + step] = (squares - 2 * part @ points.T).argmin(axis=1)
    return found


def spread_effort(many: int, width: int) -> float:
    """Return a bound on the seconds of CPU that `spread` takes."""
    rows = _DRAWN * many
    return (_SETTLED + 1) * rows * (many * _pair(width) + width * 1.2e-8)


def cluster_effort(points: int, many: int, width: int, restarts: int) -> float:
    """Return a bound on the seconds of CPU that `cluster` takes, if no run settles before its last step."""
    step = points * many * _pair(width) + width * (6e-6 + points * 4e-9)
    return restarts * (_STEPS * step + many * (4e-5 + points * width * 4e-9))


def _pair(width: int) -> float:
    """Return the seconds that the distance of one row and one point takes."""
    return 7e-9 + 5e-11 * width


def cluster(points: Floats, weights: Floats, many: int, stream: SecureStream, restarts: int) -> Floats:
    """Return `many` centres of weighted points: k-means++ and Lloyd's steps, the best of all restarts.

    Weights are at least 0, and some above 0. Where fewer points than centres have weight, the rest of the
    centres are points without.
    """
    total = np.sum(points**2, axis=1) @ weights
    best, least = points[:many], math.inf
    for _ in range(restarts):
        centres = _lloyd(points, weights, _plus_plus(points, weights, many, stream))
        distance = ((points - centres[nearest(points, centres)]) ** 2).sum(axis=1)
        cost = float(weights @ distance)
        if cost < least - 1e-12 * total:
            best, least = centres, cost
    return best


def _plus_plus(points: Floats, weights: Floats, many: int, stream: SecureStream) -> Floats:
    draws = uniform(stream, many)
    chosen: list[int] = []
    distance = np.ones(len(points))
    for draw in draws:
        pull = weights * distance
        pull[chosen] = 0.0
        if not pull.sum() > 0:  # all that has weight is taken
            pull = np.ones(len(points))
            pull[chosen] = 0.0
            if not pull.any():
                pull[:] = 1.0
        steps = np.cumsum(pull)
        place = min(int(np.searchsorted(steps, draw * steps[-1], side="right")), len(points) - 1)
        chosen.append(place)
        new = ((points - points[place]) ** 2).sum(axis=1)
        distance = new if len(chosen) == 1 else np.minimum(distance, new)
    return points[chosen]


def _lloyd(points: Floats, weights: Floats, centres: Floats) -> Floats:
    many = len(centres)
    before = None
    for _ in range(_STEPS):
        found = nearest(points, centres)
        if before is not None and np.array_equal(found, before):
            break
        before = found
        mass = np.bincount(found, weights, many)
        sums = np.stack([np.bincount(found, weights * column, many) for column in points.T], axis=1)
        centres = np.where(mass[:, None] > 0, sums / np.where(mass > 0, mass, 1.0)[:, None], centres)
    return centres


def made_up(design: Design, schema: Schema, many: int, stream: SecureStream) -> Floats:
    """Return vectors of rows that fill the schema evenly."""
    parts: list[Floats] = []
    for name in design.sources:
        column, draws = schema[name], uniform(stream, many)
        if isinstance(column, Number):
            parts.append((2 * draws - 1)[:, None])
        else:
            values = len(column.values)
            code = np.minimum((draws * values).astype(np.int64), values - 1)
            parts.append((code[:, None] == np.arange(1, values)).astype(np.float64))
    x = np.concatenate(parts, axis=1) / design.length(schema)
    return np.asarray(x / np.fmax(np.linalg.norm(x, axis=1, keepdims=True), 1.0))
