"""Clipped martingale scores of a hazard that is proportional to a known one, their curvature and spread.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order. The score of
a row is at most `bound` long; its part of the curvature is a matrix without negative eigenvalues and of trace
at most `curve`; certainly. That of the baseline is at most `reach` and, for k cells, sqrt(k) + 3 steps of
2^-20 of it.
Reason. x is combined column by column, and all else is computed for each row by itself. Scores and the roots
of the curvature become integers of length at most 2^20 (`clip_rows`), whatever rounding did; the variance of
the tilt within a row is added to one square of its curvature, no more than is left of the trace. The score
itself is added up in steps of 2^-30, each entry within half a step of 2^-20 of the integer that products are
of.
`CellSums` has the reason for the baseline.
Tested in tests/unit/blocks/test_martingale.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.cells import CellSums, Rates, away_along, finer
from cape.blocks.clip import clip_rows
from cape.blocks.design import Design
from cape.blocks.exposure import typical_rows
from cape.blocks.follow_up import FollowUp, Stretches
from cape.blocks.parts import Part, Pass
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["STEEP", "Martingale"]

STEEP = math.sqrt(0.5)
"""The largest that a tilt is."""

# Limits within which no number of a row is infinite, and so none is NaN, whatever the row holds: its largest
# are a hazard of e^100 1e60 2^33, squared, and that times the largest u, 1e61.
_LARGEST = 1e60
_LARGEST_TURN = 1e30
_STEEPEST = 100.0  # of a log-hazard: where it ends
_SMALLEST = 1e-60
_TINY = 1e-300
_NEARLY = 1 - 1e-9
_WHOLE = 1 << 2 * T_BITS
_FINER = 10  # bits of a score beyond those of its products


@dataclass(frozen=True)
class Martingale(Block):
    """Over complete rows, with a log-hazard of weights·(x - centre) beside a baseline hazard by cell.

    A row expects r q_j / 2^20 `unit` events in each cell j that it passes, r = exp(weights·(x - centre)), and
    as much of that as it passes of the cells in which it enters and leaves. With M_j its events in cell j
    less what it expects, and u_j = (1, T(x - centre) - offset_j), its score is -v sum_j M_j u_j: the
    martingale residual. With a `tilt` h_j it has another entry, second: that of hazards which all rise by
    e^h_j, so that the slope of the baseline in time is found with the weights as its level is.

    Two things keep a score within `bound` B, and depend on x only, so that scores have mean 0 where the
    hazard is true, whatever is clipped. With U the length of (1, 1, T(x - centre)), or (1, T(x - centre))
    without a tilt, and twice the largest offset, a row is followed no longer than until it expects
    max(1, B / U) events; and v is min(1, B / U), or less where `curve` asks for it. (Let a be
    |(1, T(x - centre))|², and h² <= 1/2. Beside offsets, the score of a row that has the event and expected e
    has a square of at most (1 - e)² a + (1 + e)² / 2. That is convex in e, at most a + 1 at 0 and at 1, and
    from 1 on at most e² (a + 1), since e² / 2 >= a (1 - 2 e) + (1 + 2 e) / 2 there.)

    Arrays, n = 1 + width, or one more with a tilt: count (1,), score (n,) in units of `bound`; square (n,)
    and cross of the curvature, what a row expects times the square of (1, h, T(x - centre) - offset), offsets
    averaged over what it expects, in units of `curve`; the same for the spread, score times score', in units
    of bound². baseline (cells,): sums of v M_j in units of `reach`. If there is a `trend` g by cell, trend
    (width,): -v sum_j g_j M_j (T(x - centre) - offset_j - h_j drift), in units of bound.

    Attributes:
        weights: log-hazard for each entry of x.
        centre: what is subtracted from x.
        turn: the rows of T.
        hazards: the whole numbers q_j, from 1 to 2^20.
        unit: the hazard of a cell that 2^20 stands for.
        offsets: for each cell, in units of T.
        bound, curve, reach: see above.
        tilt: h for each cell, at most `STEEP` or -`STEEP`; empty if it is not asked for.
        trend: g for each cell, from -1 to 1; empty if it is not asked for.
        drift: for the trend, how offsets go with h, in units of T; empty if they do not.
    """

    design: Design
    follow_up: FollowUp
    weights: tuple[float, ...]
    centre: tuple[float, ...]
    turn: tuple[tuple[float, ...], ...]
    hazards: tuple[int, ...]
    unit: float
    offsets: tuple[tuple[float, ...], ...]
    bound: float
    curve: float
    reach: float
    tilt: tuple[float, ...] = ()
    trend: tuple[float, ...] = ()
    drift: tuple[float, ...] = ()

    @property
    def many(self) -> int:
        """How many entries a score has."""
        return 1 + bool(self.tilt) + len(self.weights)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, *self.follow_up.reads)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.follow_up.check(schema, self.design)
        width, cells = self.design.width(schema), self.follow_up.cells(schema)
        self._check(width, cells)
        many = self.many
        return (
            Array("count", (1,), 0),
            Array("score", (many,), T_BITS + _FINER),
            *(
                Array(name, (size,), 2 * T_BITS)
                for what in ("curvature", "spread")
                for name, size in ((f"{what} square", many), (f"{what} cross", many * (many - 1) // 2))
            ),
            Array("baseline", (cells,), 2 * T_BITS),
            *((Array("trend", (width,), T_BITS),) if self.trend else ()),
        )

    def _check(self, width: int, cells: int) -> None:
        sizes = {len(self.weights), len(self.centre), len(self.turn), *map(len, self.turn)}
        offsets = {*map(len, self.offsets)}
        if sizes != {width} or offsets != {width} or {len(self.hazards), len(self.offsets)} != {cells}:
            raise InvalidInput(f"martingale scores need {width} weights, and hazards of {cells} cells")
        for name, given in (("tilt", self.tilt), ("trend", self.trend)):
            if given and len(given) != cells:
                raise InvalidInput(f"martingale scores need a {name} of {cells} cells, or none")
        if self.drift and (len(self.drift) != width or not self.tilt):
            raise InvalidInput(f"martingale scores need a drift of {width} numbers along a tilt, or none")
        for hazard in self.hazards:
            check.integer("hazards", hazard, least=1, most=1 << T_BITS)
        for value in self.weights:
            check.real("weights", value, least=-_LARGEST, most=_LARGEST)
        for row in (*self.turn, *self.offsets, self.centre, self.drift):
            for entry in row:
                check.real("turn", entry, least=-_LARGEST_TURN, most=_LARGEST_TURN)
        for value in self.tilt:
            check.real("tilt", value, least=-STEEP, most=STEEP)
        for value in self.trend:
            check.real("trend", value, least=-1.0, most=1.0)
        for name, value in (("bound", self.bound), ("curve", self.curve)):
            check.real(name, value, least=_SMALLEST, most=_LARGEST)
        check.real("reach", self.reach, least=1.0, most=_LARGEST)
        check.real("unit", self.unit, least=_SMALLEST, most=_LARGEST)

    def summer(self, run: Pass) -> _Martingale:
        return _Martingale(self, run)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose follow-up does not depend on their features."""
        x, stretches = typical_rows(self.design, self.follow_up, schema)
        summer = _Martingale(self, Pass("", schema))
        summer.take(x, stretches)
        arrays = self.arrays(schema)
        return tuple(
            rows / x.shape[1] * np.asarray(each, np.float64) * 2.0**-array.bits
            for each, array in zip(summer.result(), arrays, strict=True)
        )


class _Axis(Rates):
    """The baseline along the axis of cells."""

    def __init__(self, block: Martingale) -> None:
        late = block.follow_up.times.entry is not None or len(block.follow_up.strata) > 0
        super().__init__(block.hazards, block.unit, late)
        self.offsets = np.ascontiguousarray(np.array(block.offsets).T)
        self.tilt = np.array(block.tilt)
        self.trend = np.array(block.trend)
        self.drift = np.array(block.drift or [0.0] * len(block.weights))[:, None]


class _Martingale:
    def __init__(self, block: Martingale, run: Pass) -> None:
        width, many = len(block.weights), block.many
        self._block, self._axis = block, _Axis(block)
        self._first = many - width  # where the weights begin
        self._furthest = 2 * float(np.sqrt((self._axis.offsets**2).sum(axis=0)).max())
        self._count = np.zeros(1, np.int64)
        self._score = run.total(many)
        self._curvature, self._spread = run.total(many, many), run.total(many, many)
        self._cells = CellSums(self._axis, block.reach, block.follow_up.times.bins, run)
        self._trend = run.total(width)

    def add(self, part: Part) -> None:
        block = self._block
        self.take(*block.follow_up.of(part, block.design))

    def take(self, x: Floats, rows: Stretches) -> None:
        """Add rows: vectors in steps, one column a row, and where they are on the axis."""
        block, axis = self._block, self._axis
        log = away_along(block.weights, x, block.centre).clip(-_STEEPEST, _STEEPEST)
        r = expit(log) / expit(-log)  # its exponential, by a function of one number at a time
        u = np.stack([away_along(row, x, block.centre) for row in block.turn])
        square = np.full(len(r), 2.0 if block.tilt else 1.0)
        for entry in u:
            square += entry * entry
        length = np.sqrt(square) + self._furthest
        most = np.maximum(1.0, block.bound / length)
        v = np.minimum(block.bound / length, block.curve / (most * length * length)).clip(None, 1.0)
        cell, part, event = self._followed(rows, most / r)
        begun = axis.expected[rows.start] + rows.start_part * axis.rate[rows.start]
        last = axis.expected[cell] + part * axis.rate[cell]
        amount = np.maximum(last - begun, 0.0)  # expected with r = 1
        per = np.where(amount > 0, 1 / np.maximum(amount, _TINY), 0.0)
        weights, expected = v * event, np.minimum(v * r * amount, v * most)
        first = self._first
        scores, roots = np.empty((block.many, len(r))), np.empty((block.many, len(r)))
        scores[0] = expected - weights
        roots[0] = np.sqrt(expected)
        within = np.zeros(len(r))
        if block.tilt:
            mean, second = axis.passing(np.stack([axis.tilt, axis.tilt**2]), rows, cell, part) * per
            mean = mean.clip(-STEEP, STEEP)
            scores[1] = expected * mean - weights * axis.tilt.take(cell)
            roots[1] = roots[0] * mean
            within = expected * (second - mean * mean)
        means = axis.passing(axis.offsets, rows, cell, part)
        means *= per
        np.subtract(u, means, out=means)
        np.multiply(means, roots[0], out=roots[first:])
        np.multiply(means, expected, out=means)
        u -= axis.offsets.take(cell, axis=1)
        np.multiply(u, weights, out=scores[first:])
        np.subtract(means, scores[first:], out=scores[first:])
        score = _rounded(scores, block.bound)
        root = _rounded(roots, math.sqrt(block.curve))
        self._count += len(r)
        self._score.add(finer(scores, score, block.bound, _FINER).sum(axis=0))
        self._spread.add(exact_products(np.ascontiguousarray(score.T, np.float64)))
        curvature = exact_products(np.ascontiguousarray(root.T, np.float64))
        if block.tilt:
            curvature[1, 1] += _beside(root, within / block.curve)
        self._curvature.add(curvature)
        self._cells.add(rows, cell, part, weights, v * r)
        if block.trend:
            self._take_trend(u, rows, cell, part, weights, v * r)

    def _followed(self, rows: Stretches, longest: Floats) -> tuple[Integers, Floats, Floats]:
        """Return where rows leave if followed until so much is expected, and their events till then."""
        axis = self._axis
        first = axis.expected[rows.start] + rows.start_part * axis.rate[rows.start]
        last = axis.expected[rows.exit] + rows.exit_part * axis.rate[rows.exit]
        limit = first + longest
        cut = last > limit
        if not cut.any():
            return rows.exit, rows.exit_part, rows.event
        at = np.where(cut, limit, last)
        cell = np.searchsorted(axis.expected, at, side="right") - 1
        cell = np.where(cut, np.clip(cell, rows.start, rows.exit), rows.exit)
        part = np.where(cut, ((at - axis.expected[cell]) / axis.rate[cell]).clip(0.0, 1.0), rows.exit_part)
        return cell, part, np.where(cut, 0.0, rows.event)

    def _take_trend(
        self, u: Floats, rows: Stretches, cell: Integers, part: Floats, weights: Floats, rates: Floats
    ) -> None:
        axis = self._axis
        g, away = axis.trend, axis.offsets
        whole = u + away.take(cell, axis=1)  # `u` is less the offset of the last cell
        if self._block.drift:
            away = away + axis.drift * axis.tilt
        passed = axis.passing(g[None, :], rows, cell, part)
        moved = axis.passing(g * away, rows, cell, part)
        found = rates * (whole * passed - moved) - weights * g[cell] * (whole - away.take(cell, axis=1))
        self._trend.add(_rounded(found, self._block.bound).sum(axis=0))

    def result(self) -> Sums:
        above = np.triu_indices(self._block.many, 1)
        found: list[Integers] = [self._count, self._score.result()]
        for total in (self._curvature.result(), self._spread.result()):
            found += [np.diagonal(total).copy(), total[above]]
        found.append(self._cells.result())
        if self._block.trend:
            found.append(self._trend.result())
        return tuple(found)


def _rounded(columns: Floats, bound: float) -> Integers:
    """Return columns as rows of whole steps, the nearest, and none longer than the bound."""
    return clip_rows((columns + np.copysign(bound / (2 * ONE), columns)).T, bound)


def _beside(roots: Integers, shares: Floats) -> int:
    """Return the sum of shares of 1 in steps of 2^-40, none more than its root, squared, leaves of 1."""
    left = _WHOLE - np.einsum("ij,ij->i", roots, roots)
    return int(np.minimum(np.trunc(shares.clip(0.0, 1.0) * _WHOLE).astype(np.int64), left).sum())
