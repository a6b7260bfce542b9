"""Clipped scores of a linear model by site: each site at coefficients of its own.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order. One row adds
to one group only: a score at most `bound` long and a part of the curvature at most `curve`, certainly,
whatever the numbers that the block came with; it is counted once among the lengths, and adds a number from 0
to 1 to the squares of residuals.
Reason. Coefficients, turns and products with them are added up column by column, for each row by itself.
Scores and the roots of the curvature then become integers by `clip_rows`, which holds them to their length,
and makes those that are not finite 0; a square that is not a number counts as 1. Sums of products are exact
by `cape.noise.exact_products`. A cell of `by` has one code, or none.
Tested in tests/unit/blocks/test_site_scores.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks import typical
from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.clip import clip_rows
from cape.blocks.design import Design
from cape.blocks.parts import Part, Pass
from cape.blocks.scores import ROUNDED, along, box_of, check_clips, check_entries, counted, furthest_corner
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["SiteScores"]

_LARGEST = 1e30  # far above any use; squares stay far below where floats end
_SMALLEST = 1e-200
_MOST_NUMBERS = 1 << 22
_TYPICAL = 1024  # rows, for plans
_TARGETS = 16  # for each of them

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SiteScores(Block):
    """Over complete rows with a known group, with v = (1, x), y in units of t, the residual r = y - w·v and
    u = Tv, where w and T are those of the row's group:

    sums of the score s = r u, of its curvature uu' and of its spread ss'. A score that is longer than
    `bound` is shortened to it, and the curvature of a row to `curve`. The first `own` entries, and what is
    between them and any other entry, are added up by group, all else over all groups: these are the scores
    of a regression in which the first entries have coefficients of their own in each group, without the
    products that are 0 in all rows.

    Arrays, without those that are empty: count (groups, 1), own score (groups, own), score (the others,), own
    curvature square and own curvature cross (groups, ...), curvature square and curvature cross; the same
    for the spread; lengths (edges + 1,), how many scores are as long, before they are shortened, as each bin
    says, if there are edges; squares (1,), of residuals, each cut at `square` and in units of it, if that is
    not 0. Scores are in units of `bound`, the spread in its square, the curvature in `curve`.

    Attributes:
        design: how a row becomes x and y.
        by: the category column that groups rows.
        weights: w of each group.
        turns: the rows of T of each group.
        own: how many entries of u are added up by group.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be.
        lengths: the edges between which lengths of scores are counted; the last bin is open.
        square: the largest square of a residual that counts; 0 if they are not asked for.
        cap: narrower bounds for y, in units of t, at which it is cut.
    """

    design: Design
    by: str
    weights: tuple[tuple[float, ...], ...]
    turns: tuple[tuple[tuple[float, ...], ...], ...]
    own: int
    bound: float
    curve: float
    lengths: tuple[float, ...] = ()
    square: float = 0.0
    cap: tuple[float, float] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, self.by)

    @property
    def width(self) -> int:
        """How many entries u has."""
        return len(self.weights[0]) if self.weights else 0

    @property
    def own_pairs(self) -> Pairs:
        """The pairs of different entries whose products are added up by group."""
        return tuple(each for each in itertools.combinations(range(self.width), 2) if each[0] < self.own)

    @property
    def pairs(self) -> Pairs:
        """The others."""
        return tuple(itertools.combinations(range(self.own, self.width), 2))

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width, groups = 1 + self.design.width(schema), len(schema.category(self.by).values)
        if self.design.target is None or self.design.intercept:
            raise InvalidInput("scores by group need a design with a target and without an intercept")
        schema.number(self.design.target)
        if groups * width**2 > _MOST_NUMBERS:
            raise InvalidInput(f"scores by group are for few groups and features, not {groups} groups")
        lengths = {len(each) for each in self.weights}
        lengths |= {len(each) for turn in self.turns for each in (turn, *turn)}
        if lengths != {width} or {len(self.weights), len(self.turns)} != {groups}:
            raise InvalidInput(f"scores need weights and turns of {groups} groups, all of {width} entries")
        check.integer("own", self.own, least=1, most=width)
        check_entries("weights", [entry for each in self.weights for entry in each], _LARGEST)
        check_entries("turns", [entry for turn in self.turns for row in turn for entry in row], _LARGEST)
        check_clips(self.bound, self.curve, self.square, self.lengths)
        if self.cap is not None:
            for end in self.cap:
                check.real("cap", end, least=-1.0, most=1.0)
        rest, among, crossed = width - self.own, len(self.own_pairs), len(self.pairs)
        found = [
            Array("count", (groups, 1), 0),
            Array("own score", (groups, self.own), T_BITS),
            Array("score", (rest,), T_BITS),
        ]
        for what in ("curvature", "spread"):
            found += [
                Array(f"own {what} square", (groups, self.own), 2 * T_BITS),
                Array(f"own {what} cross", (groups, among), 2 * T_BITS),
                Array(f"{what} square", (rest,), 2 * T_BITS),
                Array(f"{what} cross", (crossed,), 2 * T_BITS),
            ]
        if self.lengths:
            found.append(Array("lengths", (len(self.lengths) + 1,), 0))
        if self.square:
            found.append(Array("squares", (1,), T_BITS))
        return tuple(array for array in found if array.size)

    def scored(self, group: int, v: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return scores and what makes their curvature (width, rows), lengths and squares of residuals, in
        units of `square` and cut there, of rows of a group.

        `v` and y are in units of 1; nothing else is clipped yet.
        """
        held = y if self.cap is None else np.clip(y, *self.cap)
        residual = held - along(self.weights[group], v, 1.0)
        u = np.stack([along(row, v, 1.0) for row in self.turns[group]])
        lengths = np.abs(residual) * np.sqrt(along((1.0,) * self.width, u * u, 1.0))
        squares = np.fmin(residual * residual / self.square, 1.0) if self.square else np.zeros(len(residual))
        return residual * u, u, lengths, squares

    def longest(self, schema: Schema) -> float:
        """Return how long the score of a row can be at most, before it is shortened, whatever it holds."""
        middle, half = box_of(self.design, schema)
        middle, sides = np.append(1.0, middle), np.vstack([np.zeros(len(half)), np.diag(half)])
        low, high = (-1.0, 1.0) if self.cap is None else self.cap
        found = 0.0
        for weights, turn in zip(np.array(self.weights), np.array(self.turns), strict=True):
            at, reach = float(weights @ middle), float(np.abs(weights @ sides).sum())
            furthest = max(abs(low - at), abs(high - at)) + reach
            found = max(found, furthest * furthest_corner(turn @ middle, turn @ sides))
        return ROUNDED * found

    def summer(self, run: Pass) -> _Summer:
        return _Summer(self, run)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose target does not depend on their features."""
        x = typical.rows(self.design, schema, _TYPICAL)
        ranks = (np.arange(_TARGETS) + 0.5) / _TARGETS
        y = np.repeat(typical.Shape(schema.number(str(self.design.target))).at(ranks), len(x))
        v = np.tile(np.vstack([np.ones(len(x)), x.T]), _TARGETS)
        shares = schema.category(self.by).shares
        return self.summed([(v, y, rows * share / len(y)) for share in shares])

    def summed(self, groups: Sequence[tuple[Floats, Floats, float]]) -> tuple[Floats, ...]:
        """Return the sums of rows of each group, in floats: v and y, and how often each row counts."""
        sums = _Sums(*(np.zeros(shape) for shape in self._shapes))
        for group, (v, y, each) in enumerate(groups):
            score, u, lengths, residuals = self.scored(group, v, y)
            score = score * np.minimum(1.0, self.bound / np.maximum(lengths, _SMALLEST)) / self.bound
            squares = np.maximum((u * u).sum(axis=0), _SMALLEST)
            u = u * np.sqrt(np.minimum(1.0, self.curve / squares) / self.curve)
            sums.counts[group] = each * v.shape[1]
            sums.scores[group] = each * score.sum(axis=1)
            sums.curvature[group] = each * u @ u.T
            sums.spread[group] = each * score @ score.T
            sums.lengths[:] += each * counted(self.lengths, lengths)
            sums.squares[:] += each * residuals.sum()
        return tuple(self._parted(sums))

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        groups, width = len(self.weights), self.width
        square = (groups, width, width)
        return (groups, 1), (groups, width), square, square, (len(self.lengths) + 1,), (1,)

    def _parted(self, sums: _Sums) -> list[NDArray[Any]]:
        """Return the arrays of sums that are by group, those that are not added up over groups."""
        own = self.own
        (first, second), (left, right) = _places(self.own_pairs), _places(self.pairs)
        found = [sums.counts, sums.scores[:, :own], sums.scores[:, own:].sum(axis=0)]
        for each in (sums.curvature, sums.spread):
            of_all = each.sum(axis=0)
            found += [
                each[:, range(own), range(own)],
                each[:, first, second],
                np.diagonal(of_all)[own:],
                of_all[left, right],
            ]
        if self.lengths:
            found.append(sums.lengths)
        if self.square:
            found.append(sums.squares)
        return [each.copy() for each in found if each.size]


def _places(pairs: Pairs) -> tuple[list[int], list[int]]:
    return [i for i, _ in pairs], [j for _, j in pairs]


@dataclass(frozen=True)
class _Sums:
    """Sums by group, how many scores are how long, and squares of residuals."""

    counts: NDArray[Any]
    scores: NDArray[Any]
    curvature: NDArray[Any]
    spread: NDArray[Any]
    lengths: NDArray[Any]
    squares: NDArray[Any]


class _Summer:
    def __init__(self, block: SiteScores, run: Pass) -> None:
        self._block = block
        self._totals = [run.total(*shape) for shape in block._shapes]

    def add(self, part: Part) -> None:
        block, rows = self._block, part.vectors(self._block.design)
        codes = part.codes(block.by)
        codes = codes if rows.complete is None else codes[rows.complete]
        found = [np.zeros(shape, np.int64) for shape in block._shapes]
        counts, scores, curvature, spread, lengths, squares = found
        for group in np.unique(codes[codes >= 0]):
            here = codes == group
            v = np.vstack([np.ones(int(here.sum())), rows.x[:, here] / ONE])
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as 0
                score, u, long, residuals = block.scored(group, v, rows.y[here] / ONE)
            held = clip_rows(score.T, block.bound, nearest=True)
            counts[group] = v.shape[1]
            scores[group] = held.sum(axis=0)
            spread[group] = exact_products(_columns(held))
            roots = clip_rows(u.T, math.sqrt(block.curve), nearest=True)
            curvature[group] = exact_products(_columns(roots))
            lengths += counted(block.lengths, long)
            squares += np.rint(residuals * ONE).astype(np.int64).sum(keepdims=True)
        for total, sums in zip(self._totals, found, strict=True):
            total.add(sums)

    def result(self) -> Sums:
        return tuple(self._block._parted(_Sums(*(total.result() for total in self._totals))))


def _columns(rows: Integers) -> Floats:
    return np.ascontiguousarray(rows.T, np.float64)
