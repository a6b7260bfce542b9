"""Whole martingale scores of a hazard that is proportional to a known one, with what goes with them.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order. The score of
a row is at most `bound` long, its part of the curvature a matrix without negative eigenvalues and of trace at
most `curve`, what its event adds to the means at most `far` long, and what it adds to levels at most `reach`;
certainly. What it adds to cells is at most `reach` and, for k cells, sqrt(k) + 3 steps of 2^-20 of it. Each
row is counted once among the lengths.
Reason. x is combined column by column, and all else is computed for each row by itself. Scores, the roots of
the curvature and what events add become integers of length at most 2^20 (`clip_rows`), whatever rounding did.
The score itself is added up in steps of 2^-30, each entry within half a step of 2^-20 of the integer that
products are of. `CellSums` has the reason for cells.
Tested in tests/unit/blocks/test_hazard_scores.py.
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
from cape.blocks.follow_up import FollowUp, Stretches, typical_rows
from cape.blocks.parts import Part, Pass
from cape.blocks.person_sums import PersonProducts
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["HazardScores"]

# Limits within which no number of a row is infinite, and so none is NaN, whatever the row holds: its largest
# are a hazard of e^100 1e60 2^33, squared, and that times the largest u, 1e61.
_LARGEST = 1e60
_LARGEST_TURN = 1e30
_STEEPEST = 100.0  # of a log-hazard: where it ends
_SMALLEST = 1e-60
_LONGEST = 1e140  # of an entry of a score: its square is finite
_MOST_LENGTHS = 256
_TINY = 1e-300
FINER = 10  # bits of a score beyond those of its products


@dataclass(frozen=True)
class HazardScores(Block):
    """Over complete rows, with a log-hazard of weights·(x - centre) beside a baseline hazard by cell.

    A row expects r q_j / 2^20 `unit` events in each cell j that it passes, r = exp(weights·(x - centre)), and
    as much of that as it passes of the cells in which it enters and leaves. With M_j its events in cell j
    less what it expects, and u_j = T(x - centre) - offset_j, its score is sum_j M_j u_j: that of the partial
    likelihood, where offsets are the means of those at risk. A score that is longer than `bound` is shortened
    to it.

    Arrays, n = width: count (1,); score (n,) in units of `bound`; square (n,) and cross of the curvature,
    what a row expects times the square of T(x - centre) less the mean offset, in units of `curve`, shortened
    to it; the same for the spread, score times score', in units of bound². level (strata,) and cells
    (cells,): sums of M_j, in units of `reach`, to which a row is shortened. If there are `groups`, means
    (groups * n,): the sum of T(x - centre) over events by group of cells, in units of `far`, shortened to
    it. If there is a `trend` g by cell, trend (n,): sum_j g_j M_j u_j, in units of bound, shortened to it. If
    there are `lengths`, lengths (edges + 1,): how many scores are as long, before they are shortened.

    Attributes:
        weights: log-hazard for each entry of x.
        centre: what is subtracted from x.
        turn: the rows of T.
        hazards: the whole numbers q_j, from 1 to 2^20.
        unit: the hazard of a cell that 2^20 stands for.
        offsets: for each cell, in units of T.
        bound, curve, reach, far: see above.
        groups: for each cell the number of its group; empty if means are not asked for.
        trend: g for each cell, from -1 to 1; empty if it is not asked for.
        lengths: the edges between which lengths of scores are counted; the last bin is open.
        persons: how many rows of a person count at most. Where these are several, the spread is tt', added up
            over persons, in units of (persons bound)²: t is what the scores of a person add up to.
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
    far: float = 1.0
    groups: tuple[int, ...] = ()
    trend: tuple[float, ...] = ()
    lengths: tuple[float, ...] = ()
    persons: int = 1

    @property
    def by_person(self) -> bool:
        """Whether it adds up by person."""
        return self.persons > 1

    @property
    def many(self) -> int:
        """How many groups of cells there are."""
        return max(self.groups) + 1 if self.groups else 0

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, *self.follow_up.reads)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.follow_up.check(schema, self.design)
        width, cells = self.design.width(schema), self.follow_up.cells(schema)
        self._check(width, cells)
        return (
            Array("count", (1,), 0),
            Array("score", (width,), T_BITS + FINER),
            *(
                Array(name, (size,), 2 * T_BITS)
                for what in ("curvature", "spread")
                for name, size in ((f"{what} square", width), (f"{what} cross", width * (width - 1) // 2))
            ),
            Array("level", (self.follow_up.many(schema),), T_BITS),
            Array("cells", (cells,), 2 * T_BITS + FINER),
            *((Array("means", (self.many * width,), T_BITS),) if self.groups else ()),
            *((Array("trend", (width,), T_BITS),) if self.trend else ()),
            *((Array("lengths", (len(self.lengths) + 1,), 0),) if self.lengths else ()),
        )

    def _check(self, width: int, cells: int) -> None:
        sizes = {len(self.weights), len(self.centre), len(self.turn), *map(len, self.turn)}
        offsets = {*map(len, self.offsets)}
        if sizes != {width} or offsets != {width} or {len(self.hazards), len(self.offsets)} != {cells}:
            raise InvalidInput(f"scores of hazards need {width} weights, and hazards of {cells} cells")
        for name, given in (("groups", self.groups), ("trend", self.trend)):
            if given and len(given) != cells:
                raise InvalidInput(f"scores of hazards need {name} of {cells} cells, or none")
        for hazard in self.hazards:
            check.integer("hazards", hazard, least=1, most=1 << T_BITS)
        for group in self.groups:
            check.integer("groups", group, least=0, most=cells - 1)
        for value in self.weights:
            check.real("weights", value, least=-_LARGEST, most=_LARGEST)
        for row in (*self.turn, *self.offsets, self.centre):
            for entry in row:
                check.real("turn", entry, least=-_LARGEST_TURN, most=_LARGEST_TURN)
        for value in self.trend:
            check.real("trend", value, least=-1.0, most=1.0)
        for name, value in (("bound", self.bound), ("curve", self.curve), ("far", self.far)):
            check.real(name, value, least=_SMALLEST, most=_LARGEST)
        check.real("reach", self.reach, least=1.0, most=_LARGEST)
        check.real("unit", self.unit, least=_SMALLEST, most=_LARGEST)
        if len(self.lengths) > _MOST_LENGTHS or list(self.lengths) != sorted(set(self.lengths)):
            raise InvalidInput(f"lengths of scores need at most {_MOST_LENGTHS} edges that rise")
        for edge in self.lengths:
            check.real("lengths", edge, least=0.0, most=_LARGEST)

    def summer(self, run: Pass) -> _HazardScores:
        return _HazardScores(self, run)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose follow-up does not depend on their features."""
        x, stretches = typical_rows(self.design, self.follow_up, schema)
        summer = _HazardScores(self, Pass("", schema))
        summer.take(x, stretches, np.arange(x.shape[1]))
        arrays = self.arrays(schema)
        return tuple(
            rows / x.shape[1] * np.asarray(each, np.float64) * 2.0**-array.bits
            for each, array in zip(summer.result(), arrays, strict=True)
        )


class _HazardScores:
    def __init__(self, block: HazardScores, run: Pass) -> None:
        width = len(block.weights)
        late = block.follow_up.times.entry is not None or len(block.follow_up.strata) > 0
        self._block = block
        self._rates = Rates(block.hazards, block.unit, late)
        self._offsets = np.ascontiguousarray(np.array(block.offsets).T)
        self._bins, self._strata = block.follow_up.times.bins, block.follow_up.many(run.schema)
        self._groups = np.array(block.groups, np.int64)
        self._count = np.zeros(1, np.int64)
        self._lengths = np.zeros(len(block.lengths) + 1, np.int64)
        self._score, self._trend = run.total(width), run.total(width)
        self._curvature, self._spread = run.total(width, width), run.total(width, width)
        self._products = PersonProducts(width, block.persons, run) if block.persons > 1 else None
        self._level, self._means = run.total(self._strata), run.total(block.many, width)
        self._cells = CellSums(self._rates, block.reach, self._bins, run, FINER)

    def add(self, part: Part) -> None:
        block = self._block
        there = block.follow_up.complete(part, block.design) if block.by_person else None
        self.take(*block.follow_up.of(part, block.design), part.persons_of(there))

    def take(self, x: Floats, rows: Stretches, persons: Integers | None = None) -> None:
        """Add rows: vectors in steps, one column a row, where they are on the axis, and whose they are."""
        block, rates = self._block, self._rates
        log = away_along(block.weights, x, block.centre).clip(-_STEEPEST, _STEEPEST)
        r = expit(log) / expit(-log)  # its exponential, by a function of one number at a time
        u = np.stack([away_along(row, x, block.centre) for row in block.turn])
        amount = rates.between(rows, rows.exit, rows.exit_part)  # expected with r = 1
        expected = r * amount
        passed = rates.passing(self._offsets, rows, rows.exit, rows.exit_part)
        low, high = self._offsets.min(axis=1)[:, None], self._offsets.max(axis=1)[:, None]
        means = np.where(amount > 0, passed / np.maximum(amount, _TINY), 0.0).clip(low, high)
        roots = np.sqrt(expected) * (u - means)
        at = u - self._offsets.take(rows.exit, axis=1)
        scores = (rows.event * at - r * (amount * u - passed)).clip(-_LONGEST, _LONGEST)
        score = clip_rows(scores.T, block.bound, nearest=True)
        root = clip_rows(roots.T, math.sqrt(block.curve), nearest=True)
        self._count += len(r)
        self._score.add(finer(_shortened(scores, block.bound), score, block.bound, FINER).sum(axis=0))
        if self._products is None:
            self._spread.add(exact_products(np.ascontiguousarray(score.T, np.float64)))
        else:
            self._products.add(score, persons)
        self._curvature.add(exact_products(np.ascontiguousarray(root.T, np.float64)))
        level = np.rint(((rows.event - expected) / block.reach).clip(-1.0, 1.0) * ONE)
        self._level.add(np.bincount(rows.exit // self._bins, level, self._strata).astype(np.int64))
        self._cells.add(rows, rows.exit, rows.exit_part, rows.event, r)
        if block.groups:
            had = np.flatnonzero(rows.event > 0)
            steps = clip_rows(u[:, had].T, block.far, nearest=True)
            group = self._groups[rows.exit[had]]
            found = [np.bincount(group, column, block.many) for column in steps.T]
            self._means.add(np.stack(found, axis=1).astype(np.int64))
        if block.trend:
            g = np.array(block.trend)
            gone = rates.passing(g[None, :], rows, rows.exit, rows.exit_part)
            moved = rates.passing(g * self._offsets, rows, rows.exit, rows.exit_part)
            trends = rows.event * g[rows.exit] * at - r * (gone * u - moved)
            trends = trends.clip(-_LONGEST, _LONGEST)
            self._trend.add(clip_rows(trends.T, block.bound, nearest=True).sum(axis=0))
        if block.lengths:
            squares = np.zeros(len(r))
            for entry in scores:
                squares += entry * entry
            places = np.searchsorted(np.array(block.lengths), np.sqrt(squares), side="right")
            self._lengths += np.bincount(places, minlength=len(self._lengths))

    def result(self) -> Sums:
        above = np.triu_indices(len(self._block.weights), 1)
        found = [self._count, self._score.result()]
        spread = self._spread if self._products is None else self._products
        for total in (self._curvature.result(), spread.result()):
            found += [np.diagonal(total).copy(), total[above]]
        found += [self._level.result(), self._cells.result()]
        if self._block.groups:
            found.append(self._means.result().reshape(-1))
        if self._block.trend:
            found.append(self._trend.result())
        if self._block.lengths:
            found.append(self._lengths)
        return tuple(found)


def _shortened(columns: Floats, bound: float) -> Floats:
    """Return columns that are no longer than the bound, by floating point."""
    squares = np.zeros(columns.shape[1])
    for entry in columns:
        squares += entry * entry
    return columns * (bound / np.maximum(np.sqrt(squares), bound))
