"""Where to cap a column, and what it is like, from one histogram that was released with noise.

The axis has equal bins, of which the first and the last are halved toward the bounds: columns that crowd at
a bound, as counts and amounts do, are seen as finely as others. Bins of noise alone are left out: what counts
lies between the first and the last bin that stands out of noise by `ALONE` standard deviations, and beyond as
far as several bins together stand out by `TOGETHER`, and as far as it takes for nearly all rows to be in
between; bins count that have more rows than noise has. Numbers are taken to be evenly spread in each bin.

Where noise in all bins together is a good part of the rows, a bin that stands out is more likely one of the
many that could: the column is then taken to be spread over its bounds.

Without caps, where rows that the bins seen are likely to lack may be thousands of standard deviations away,
they are taken to be spread over all distances alike: the column is not taken for one that hardly varies.

A cap is an edge of the bins, beyond the quantile of `SHARE` (or of as many rows as noise could hide, up to
`MOST_SHARE`) and `REACH` standard deviations from the mean: rows that noise hides are likely to be further
out than those that are seen, and a cap at a quantile of these alone cut up to an eighth of the rows. There is
none where the bound is within `NEAR` standard deviations of the mean anyway, and none where only one bin is
seen, which does not say how far a column reaches: rows that noise could hide are then taken to be spread over
all distances alike. The share of rows that a cap cuts is what the histogram
counts there, which noise does not bias. Nothing that is proved depends on what comes out: caps are public
once they are released, and estimates are those of the capped columns.
Tested in tests/unit/stats/test_capping.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.core.arrays import Floats

__all__ = ["Marginal", "axis_edges", "marginal"]

EQUAL, HALVED = 32, 8  # bins, and how often the first and the last are halved
SHARE, MOST_SHARE = 0.01, 0.02  # of the rows that are seen: what caps leave on each side, at most
REACH = 4.0  # standard deviations of the column: no cap is nearer to its mean
HELD = 0.94  # of the rows: what bins that are seen are to hold, less noise
HIDDEN = 1.5  # times the noise of a bin: rows that it could hide
ALONE, TOGETHER = 3.3, 4.0  # standard deviations of noise: a bin, and several
LACKING = 1.0  # standard deviations of noise: rows that the bins seen are likely to lack
DROWNED = 0.55  # of the rows: noise in all bins together from which on none of them stands out of it
FURTHEST = 2.0**12  # standard deviations: rows further out than that no histogram of lengths would show
NEAR = 4.0  # standard deviations of the column
_RANKS = 512


@dataclass(frozen=True)
class Marginal:
    """A column as it was released: its mean and SD between caps, and quantiles.

    Attributes:
        low, high: where it is cut: a cap, or the bound.
        capped: which of the two is a cap.
        above, below: the shares of rows that the caps cut.
        doubt: the noise in these shares, the larger one.
        only: the ends of the bin that all rows are in, as far as is seen; None if they are in several.
    """

    mean: float
    sd: float
    low: float
    high: float
    capped: tuple[bool, bool]
    below: float
    above: float
    doubt: float
    edges: Floats
    weights: Floats
    only: tuple[float, float] | None = None

    def quantiles(self, ranks: Floats) -> Floats:
        """Return the numbers at these ranks, from 0 to 1, cut at the caps."""
        under = np.concatenate([[0.0], np.cumsum(self.weights)])
        found = np.interp(ranks * under[-1], under, self.edges)
        return np.asarray(np.clip(found, self.low, self.high))


def axis_edges(low: float, high: float) -> Floats:
    """Return the edges of the axis between these bounds."""
    equal = np.linspace(low, high, EQUAL + 1)
    width = (high - low) / EQUAL
    parts = width * 2.0 ** -np.arange(1, HALVED + 1)
    return np.unique(np.concatenate([equal, low + parts, high - parts]))


def marginal(
    edges: Floats,
    counts: Floats,
    noise: float,
    *,
    cap: bool | tuple[float, float] = True,
    rows: float | None = None,
) -> Marginal:
    """Return what these noisy counts of rows between edges say of a column.

    `cap` says whether to choose caps, or where they are; `rows` how many rows there are, if that is known.
    """
    drowned = rows is not None and noise * math.sqrt(len(counts)) > DROWNED * rows
    seen = None if drowned else _seen(counts, noise)
    first, last = (0, len(counts) - 1) if seen is None else seen
    if rows is not None and seen is not None:
        most = float(counts.sum()) + noise * math.sqrt(len(counts))  # some rows may miss the cell
        first, last = _enough(counts, noise, first, last, min(rows, most))
    inside = (np.arange(len(counts)) >= first) & (np.arange(len(counts)) <= last)
    weights = np.where(inside & (counts > noise), counts, 0.0)
    if seen is None or not weights.any():
        weights = np.where(inside, np.diff(edges), 0.0)
        cap = cap if isinstance(cap, tuple) else False
    total = max(float(weights.sum()), 1.0)
    widths = np.diff(edges)
    share = min(max(SHARE, HIDDEN * noise / total), MOST_SHARE)
    low, high = _quantile(edges, weights, share), _quantile(edges, weights, 1 - share)
    mean, sd = _moments(edges, weights, low, high)
    sd = max(sd, 1e-9 * float(edges[-1] - edges[0]))
    places = np.flatnonzero(weights)
    only = (float(edges[places[0]]), float(edges[places[0] + 1])) if len(places) == 1 else None
    auto = cap is True and only is None
    low, high = _outward(edges, min(low, mean - REACH * sd), max(high, mean + REACH * sd))
    capped = (
        bool(auto and mean - edges[0] > NEAR * sd and low > edges[0]),
        bool(auto and edges[-1] - mean > NEAR * sd and high < edges[-1]),
    )
    if isinstance(cap, tuple):
        low, high = max(cap[0], float(edges[0])), min(cap[1], float(edges[-1]))
        capped = (low > edges[0], high < edges[-1])
    low, high = float(low if capped[0] else edges[0]), float(high if capped[1] else edges[-1])
    mean, sd = _moments(edges, weights, low, high)
    if only is not None and not isinstance(cap, tuple):
        weights = weights + noise * math.sqrt(len(counts)) * _beyond(edges, first, last)
        mean, sd = _moments(edges, weights, low, high)
    elif rows is not None and seen is not None and cap is False and edges[-1] - edges[0] > FURTHEST * sd:
        lacking = min(rows, most) - float(counts[first : last + 1].sum())
        if lacking > LACKING * noise * math.sqrt(last + 1 - first):
            weights = weights + lacking * _beyond(edges, first, last)
            mean, sd = _moments(edges, weights, low, high)
    everyone = float(counts.sum()) if rows is None else rows
    below, doubt_below = _share(edges, counts, noise, low, everyone) if capped[0] else (0.0, 0.0)
    above, doubt_above = (
        _share(-edges[::-1], counts[::-1], noise, -high, everyone) if capped[1] else (0.0, 0.0)
    )
    return Marginal(
        mean,
        max(sd, 1e-9 * float(edges[-1] - edges[0]), 0.1 * float(widths[weights > 0].min())),
        low,
        high,
        capped,
        below,
        above,
        max(doubt_below, doubt_above),
        edges,
        weights,
        only,
    )


def _seen(counts: Floats, noise: float) -> tuple[int, int] | None:
    """Return the first and the last bin that stand out of noise, alone or together; None if none do."""
    edge = max(noise, 1e-9)
    alone = np.flatnonzero(counts > ALONE * edge)
    if not alone.size:
        reach = _together(counts, edge)
        return (len(counts) - _together(counts[::-1], edge), reach - 1) if reach else None
    first, last = int(alone[0]), int(alone[-1])
    first = first - _together(counts[:first][::-1], edge)
    return first, last + _together(counts[last + 1 :], edge)


def _together(counts: Floats, noise: float) -> int:
    """Return how many of these bins, the nearest first, hold rows that stand out of noise together."""
    sums, reach = np.concatenate([[0.0], np.cumsum(counts)]), 0
    window = 2
    while window <= len(counts):
        clear = np.flatnonzero(sums[window:] - sums[:-window] > TOGETHER * noise * math.sqrt(window))
        if clear.size:
            reach = max(reach, int(clear[-1]) + window)
        window *= 2
    return reach


def _enough(counts: Floats, noise: float, first: int, last: int, rows: float) -> tuple[int, int]:
    """Return a wider range of bins, as far as it takes to hold as many rows as caps leave, less noise."""
    while (first, last) != (0, len(counts) - 1):
        inside = float(counts[first : last + 1].sum()) + noise * math.sqrt(last + 1 - first)
        if inside >= HELD * rows:
            break
        below = counts[max(first - 2, 0) : first].mean() if first else -math.inf
        above = counts[last + 1 : last + 3].mean() if last + 1 < len(counts) else -math.inf
        first, last = (first - 1, last) if below >= above else (first, last + 1)
    return first, last


def _beyond(edges: Floats, first: int, last: int) -> Floats:
    """Return where rows outside of these bins may be: the same number in each octave of how far they are."""
    start, end = edges[first], edges[last + 1]
    away = np.maximum(np.maximum(start - edges, edges - end), 0.0) + (end - start)
    octaves = np.abs(np.diff(np.log2(away)))
    return np.asarray(octaves / max(float(octaves.sum()), 1e-300))


def _outward(edges: Floats, low: float, high: float) -> tuple[float, float]:
    """Return the edges next to these numbers that have no less between them."""
    first = max(int(np.searchsorted(edges, low, side="right")) - 1, 0)
    last = min(int(np.searchsorted(edges, high, side="left")), len(edges) - 1)
    return float(edges[first]), float(edges[last])


def _share(edges: Floats, counts: Floats, noise: float, end: float, rows: float) -> tuple[float, float]:
    """Return which share of the rows lies below an end, from 0 to 1, and the noise in it.

    It is the sum of the bins there, or all rows less those of the other bins where these are fewer.
    """
    part = np.clip((end - edges[:-1]) / np.diff(edges), 0.0, 1.0)  # of each bin that lies below
    beyond = float((part**2).sum()) <= float(((1 - part) ** 2).sum())
    found = float(part @ counts) if beyond else rows - float((1 - part) @ counts)
    doubt = noise * math.sqrt(float(((part if beyond else 1 - part) ** 2).sum()))
    return min(max(found / max(rows, 1.0), 0.0), 1.0), doubt / max(rows, 1.0)


def _quantile(edges: Floats, weights: Floats, rank: float) -> float:
    under = np.concatenate([[0.0], np.cumsum(weights)])
    return float(np.interp(rank * under[-1], under, edges))


def _moments(edges: Floats, weights: Floats, low: float, high: float) -> tuple[float, float]:
    """Return mean and SD of numbers evenly spread in bins, cut at both ends."""
    ranks = (np.arange(_RANKS) + 0.5) / _RANKS
    under = np.concatenate([[0.0], np.cumsum(weights)])
    x = np.clip(np.interp(ranks * under[-1], under, edges), low, high)
    return float(x.mean()), float(x.std())
