"""Whole clipped scores of hazards that follow Weibull's law, or an exponential one, with what goes with them.

With u the part of the span of times after which a row leaves, L its logarithm, and v = (1, x, L), a row
expects H = exp(w·v) events until then: w has a level, the log-hazards b of the features and the shape k. The
log-likelihood of one that is at risk from u0 on and has d events is d (log k + w·v - L) - (H - H0), which is
concave in w. Its slope is d (v + e_k / k) - H v + H0 v0, e_k along the shape. Where no row enters late its
curvature is H vv' + d e_k e_k' / k². Otherwise that may be negative for a row, and what it is on average,
where the model's events add up, stands for it: the sum over time of what is expected times gg', g = (1, x,
L + 1/k), which is (H - H0) mm' with m the mean of g and, along the shape, the variance of L.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; the score of
one row is at most `bound` long, and its part of the curvature at most `curve` (as the root of its sum of
squares), certainly; each row is counted once among the lengths.
Reason. Predictors and products of x with the turn are added up column by column, and all else is computed for
each row by itself. u is at least `least`, which is not 0: so that L is a number. Scores and the roots of the
curvature become integers that are short enough whatever rounding did (`clip`). Sums of products are exact by
`cape.noise.exact_products`.
Tested in tests/unit/blocks/test_law_scores.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cape.blocks import typical
from cape.blocks.block import Array, Block
from cape.blocks.clip import clip_products, clip_rows
from cape.blocks.design import Design
from cape.blocks.parts import Part, Pass
from cape.blocks.scores import (
    ROUNDED,
    ScoreSums,
    along,
    box_of,
    check_clips,
    check_entries,
    furthest_corner,
    score_arrays,
)
from cape.blocks.steps import ONE
from cape.blocks.times import Times
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

__all__ = ["LEAST", "LEAST_SHAPE", "MOST_SHAPE", "Followed", "LawScores"]

LEAST = 2.0**-40  # of the span of times: the least that a row is followed for
LEAST_SHAPE, MOST_SHAPE = 0.02, 50.0
_LARGEST, _LARGEST_TURN = 1e100, 1e30
_FURTHEST = 30.0  # of the logarithm of what a row expects
_TINY = 1e-200  # of what a row expects: what it says is nothing
_TYPICAL = 512  # rows, for plans
_STEPS = np.sqrt(np.array([23.0, 29.0, 37.0]))  # multiples are evenly spread mod 1
_OCTAVES = 2.0  # of times, of which the longest score is looked for together
_ENTRIES = 1 << 22  # of arrays that are made at once


@dataclass(frozen=True)
class Followed:
    """Rows with the logarithms of when each leaves and enters, in parts of the span, -inf for its beginning,
    and 1 where it leaves by the event. A row that is never at risk leaves when it enters, without one."""

    left: Floats
    entered: Floats
    event: Floats

    def chosen(self, rows: slice) -> Followed:
        """Return some of the rows."""
        return Followed(self.left[rows], self.entered[rows], self.event[rows])


@dataclass(frozen=True)
class LawScores(Block):
    """Over complete rows: sums of the score, the slope of the row's log-likelihood in all weights, turned by
    T; of its curvature and of its spread, as `Scores` has them.

    Arrays are those of `Scores`, without deviances.

    Attributes:
        design: of the features, without an intercept.
        times: when rows leave and enter, and by what; its edges are not looked at.
        weights: the level, the log-hazard for each entry of x and, if it is `shaped`, the shape.
        turn: the rows of T, each as long as there are weights.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be, as the root of its sum of squares.
        shaped: whether the shape is a weight; otherwise it is 1.
        lengths: the edges between which lengths of scores are counted; the last bin is open.
        least, most: the parts of the span to which times are cut.
        persons: how many rows of a person count at most, as in `Scores`.
    """

    design: Design
    times: Times
    weights: tuple[float, ...]
    turn: tuple[tuple[float, ...], ...]
    bound: float
    curve: float
    shaped: bool = True
    lengths: tuple[float, ...] = ()
    least: float = LEAST
    most: float = 1.0
    persons: int = 1

    @property
    def by_person(self) -> bool:
        """Whether it adds up by person."""
        return self.persons > 1

    @property
    def deviance(self) -> float:
        """Deviances are not asked for."""
        return 0.0

    @property
    def size(self) -> int:
        """How many weights there are."""
        return len(self.weights)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, *self.times.reads)

    @property
    def shape(self) -> float:
        """The shape."""
        return self.weights[-1] if self.shaped else 1.0

    @property
    def slopes(self) -> tuple[float, ...]:
        """The log-hazards of the features."""
        return self.weights[self._slopes]

    @property
    def _slopes(self) -> slice:
        """The places of the features among the weights."""
        return slice(1, self.size - self.shaped)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        if self.design.target is not None or self.design.intercept:
            raise InvalidInput("the features of a law of times have neither a target nor an intercept")
        size = self.design.width(schema) + 1 + self.shaped
        if {self.size, len(self.turn), *map(len, self.turn)} != {size}:
            raise InvalidInput(f"scores need {size} weights and a turn of {size} by {size}")
        for name in (self.times.time, *self.times.reads[2:]):
            schema.number(name)
        schema.category(self.times.event)
        check_entries("weights", self.weights, _LARGEST)
        check_entries("turn", [entry for row in self.turn for entry in row], _LARGEST_TURN)
        check_clips(self.bound, self.curve, 0.0, self.lengths)
        check.real("shape", self.shape, least=LEAST_SHAPE, most=MOST_SHAPE)
        check.real("least", self.least, least=LEAST, most=self.most)
        check.real("most", self.most, least=self.least, most=1.0)
        return score_arrays(size, self.lengths, 0.0)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose follow-up does not depend on their features."""
        x = np.trunc(typical.rows(self.design, schema, _TYPICAL).T * ONE)
        ranks = ((0.5 + np.arange(_TYPICAL)[:, None] * _STEPS) % 1.0).T
        event = (ranks[1] < schema.category(self.times.event).shares[1]).astype(np.float64)
        time, entry = (
            None if name is None else self._typical(schema, name, at)
            for name, at in ((self.times.time, ranks[0]), (self.times.entry, ranks[2]))
        )
        assert time is not None  # there is a time
        summer = _LawScores(replace(self, persons=1), Pass("", schema))
        summer.take(np.ascontiguousarray(x), self.followed(schema, time, entry, event))
        arrays = self.arrays(schema)
        found = [
            rows / _TYPICAL * np.asarray(each, np.float64) * 2.0**-array.bits
            for each, array in zip(summer.result(), arrays, strict=True)
        ]
        found[4:6] = [each / self.persons**2 for each in found[4:6]]  # the spread
        return tuple(found)

    def _typical(self, schema: Schema, name: str, ranks: Floats) -> Floats:
        column = schema.number(name)
        return np.asarray(column.middle + column.half * typical.Shape(column).at(ranks))

    def followed(self, schema: Schema, time: Floats, entry: Floats | None, event: Floats) -> Followed:
        """Return rows with these cells; of the entries there may be none."""
        column = schema.number(self.times.time)
        span = column.high - column.low
        left = np.log(np.clip((time - column.low) / span, self.least, self.most))
        if entry is None:
            return Followed(left, np.full(len(left), -math.inf), event)
        begun = np.clip((entry - column.low) / span, 0.0, 1.0)
        entered = np.where(begun < self.least, -math.inf, np.log(np.maximum(begun, self.least)))
        never = (entry >= time) | (entered >= left)
        left = np.where(never, np.maximum(entered, math.log(self.least)), left)
        return Followed(left, np.where(never, left, entered), np.where(never, 0.0, event))

    def at(self, x: Floats, rows: Followed, unit: float = ONE) -> tuple[Floats, Floats]:
        """Return scores (rows, size), and roots (rows, several, size), vectors whose products add up to the
        curvature of each row; none of them is clipped yet. x is (entries, rows), in units of `unit`."""
        k, turn = self.shape, np.array(self.turn)
        log = self.weights[0] + along(self.slopes, x, unit)
        u = np.empty((self.size, log.size))
        for i, row in enumerate(self.turn):
            u[i] = row[0] + along(row[self._slopes], x, unit)
        u = np.ascontiguousarray(u.T)
        left, late = rows.left, self.times.entry is not None
        until = _exp(log + k * left)
        before = _exp(log + k * rows.entered) if late else np.zeros(len(left))
        expected = np.maximum(until - before, 0.0)
        scores = (rows.event - expected)[:, None] * u
        if not self.shaped:
            return scores, (np.sqrt(expected)[:, None] * u)[:, None, :]
        along_shape = turn[:, -1]
        first = np.where(before > 0, rows.entered, 0.0)
        passed = until * left - before * first  # what g adds up to along the shape, g as above
        scores += (rows.event * (left + 1 / k) - passed)[:, None] * along_shape
        if late:
            mean = np.where(expected > _TINY, passed / np.maximum(expected, _TINY), left)
            mean = np.clip(mean, np.where(before > 0, first + 1 / k, left), left + 1 / k)
            second = until * left * left - before * first * first + expected / k**2
            within = np.maximum(second - expected * mean * mean, 0.0)
        else:
            mean, within = left, rows.event / k**2
        roots = np.empty((len(left), 2, self.size))
        roots[:, 0] = np.sqrt(expected)[:, None] * (u + mean[:, None] * along_shape)
        roots[:, 1] = np.sqrt(within)[:, None] * along_shape
        return scores, roots

    def longest(self, schema: Schema) -> float:
        """Return how long the score of a row can be at most, before it is shortened, whatever the row holds.

        It is d (v + e_k / k) - (H - H0) m, with v, or m, in a box: L goes from the least time to the most.
        It is looked for a few octaves of times at once, over which H is at most as large as at their end.
        """
        middle, half = box_of(self.design, schema)
        turn, k = np.array(self.turn), self.shape
        slopes = np.array(self.slopes)
        reach = min(float(np.abs(slopes) @ half), float(np.linalg.norm(slopes)))
        highest = self.weights[0] + float(slopes @ middle) + reach
        constant, sides = turn[:, 0] + turn[:, self._slopes] @ middle, turn[:, self._slopes] * half
        if not self.shaped:
            whole = math.exp(min(highest + math.log(self.most), _FURTHEST))
            return ROUNDED * max(1.0, whole) * furthest_corner(constant, sides)
        along_shape = turn[:, -1]
        ends = np.arange(math.log(self.most), math.log(self.least), -_OCTAVES * math.log(2))
        ends = np.append(ends, math.log(self.least))
        far = np.array([furthest_corner(constant + end * along_shape, sides) for end in ends])
        far = np.maximum(far, np.append(far[1:], far[-1]))  # from each end to the next: norms are convex
        most = np.exp(np.minimum(highest + k * ends, _FURTHEST))
        beside = float(np.linalg.norm(along_shape)) / k
        if self.times.entry is None:
            return ROUNDED * (float((np.maximum(most, 1.0) * far).max()) + beside)
        return ROUNDED * (float(far.max() + 2 * (most * far).max()) + beside)

    def summer(self, run: Pass) -> _LawScores:
        return _LawScores(self, run)


def _exp(log: Floats) -> Floats:
    return np.asarray(np.exp(np.minimum(log, _FURTHEST)))


class _LawScores(ScoreSums):
    def __init__(self, block: LawScores, run: Pass) -> None:
        super().__init__(block.size, block.lengths, 0.0, run, block.persons)
        self._block, self._schema = block, run.schema

    def add(self, part: Part) -> None:
        block, times = self._block, self._block.times
        rows = part.vectors(block.design)
        time, codes = part.numbers(times.time), times.events(part)
        entry = None if times.entry is None else part.numbers(times.entry)
        there = ~np.isnan(time) & (codes >= 0)
        if entry is not None:
            there &= ~np.isnan(entry)
        x = rows.x
        if rows.complete is not None:
            x, there = x[:, there[rows.complete]], there & rows.complete
        elif not there.all():
            x = x[:, there]
        entry = None if entry is None else entry[there]
        event = (codes[there] == 1).astype(np.float64)
        self.take(x, block.followed(part.schema, time[there], entry, event), part.persons_of(there))

    def take(self, x: Floats, rows: Followed, persons: Integers | None = None) -> None:
        """Add rows: vectors in steps, one column a row, when they leave and enter, and whose they are."""
        block = self._block
        for some in self._several(x.shape[1]):
            scores, roots = block.at(np.ascontiguousarray(x[:, some]), rows.chosen(some))
            lengths = np.sqrt(along((1.0,) * block.size, np.ascontiguousarray((scores**2).T), 1.0))
            steps = clip_rows(scores, block.bound, nearest=True)
            shorter = clip_products(roots, block.curve).reshape(-1, block.size)
            self.put(steps, shorter, lengths, np.zeros(0), None if persons is None else persons[some])

    def _several(self, rows: int) -> Iterator[slice]:
        """Yield rows in parts whose arrays stay small."""
        most = max(_ENTRIES // (4 * self._block.size), 1)
        for start in range(0, rows, most):
            yield slice(start, min(start + most, rows))
