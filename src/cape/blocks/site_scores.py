"""Clipped scores of a linear model by site: each site at coefficients of its own.

Claim. One row adds vectors of length at most 1 in the block's units, to one group only: its score, its place,
its level, and the roots whose products are its curvature and its spread; and 0 or 1 to how many are inside;
certainly, whatever the numbers that the block came with. Results are the same integers for the same multiset
of rows, in whichever parts and order.
Reason. Coefficients, turns and products with them are added up column by column, for each row by itself.
Every vector becomes integers by `clip_rows`, which holds it to its length, and makes one that is not finite
0. Sums of products are exact by `cape.noise.exact_products`. A cell of `by` has one code, or none.
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
from cape.blocks.scores import along, check_entries
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["SiteScores"]

_LARGEST = 1e30  # far above any use; squares stay far below where floats end
_SMALLEST = 1e-30
_TINY = 1e-300  # in place of a length of 0
_MOST_NUMBERS = 1 << 22
_TYPICAL = 1024  # rows, for plans
_TARGETS = 16  # for each of them

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SiteScores(Block):
    """Over complete rows with a known group, with v = (1, x), y in units of t, the residual r = y - w·v and
    z = Tv, where w and T are those of the row's group:

    - the score a z g, entry by entry, where g is r cut to [-`cut`, `cut`], times a weight of the row that
      keeps |a z| within `longest`, and the curvature within `square`;
    - the curvature zz', times the weight, of rows whose residual was not cut;
    - the spread, the square of the score;
    - the place: z, cut to the length sqrt(`square`);
    - the level: r cut to [-`level`, `level`];
    - inside: whether the residual was not cut, which is 0 or 1.

    Weights depend on x alone: cut residuals of any distribution that is the same in all rows have the same
    mean in all rows. The first `own` entries of z, and what is between them, are added up by group.

    Arrays, without those that are empty: count (groups, 1), own score (groups, own), score (the others,), own
    square and own cross (groups, ...) and square and cross of the curvature, spread square and spread cross,
    place (groups, width), level (1,) and inside (1,). Scores are in units of `longest` times `cut`, the
    spread in their square, the curvature in `square`, the place in its root, the level in `level`.

    Attributes:
        design: how a row becomes x and y.
        by: the category column that groups rows.
        weights: w of each group.
        turns: the rows of T of each group.
        own: how many entries of z are added up by group.
        sizes: a.
    """

    design: Design
    by: str
    weights: tuple[tuple[float, ...], ...]
    turns: tuple[tuple[tuple[float, ...], ...], ...]
    own: int
    sizes: tuple[float, ...]
    cut: float
    longest: float
    square: float
    level: float

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, self.by)

    @property
    def width(self) -> int:
        """How many entries z has."""
        return len(self.sizes)

    @property
    def own_pairs(self) -> Pairs:
        """The pairs of different entries whose curvature is added up by group."""
        return tuple(itertools.combinations(range(self.own), 2))

    @property
    def pairs(self) -> Pairs:
        """The others."""
        return tuple(each for each in itertools.combinations(range(self.width), 2) if each[1] >= self.own)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width, groups = 1 + self.design.width(schema), len(schema.category(self.by).values)
        if self.design.target is None or self.design.intercept:
            raise InvalidInput("scores by group need a design with a target and without an intercept")
        schema.number(self.design.target)
        if groups * width**2 > _MOST_NUMBERS:
            raise InvalidInput(f"scores by group are for few groups and features, not {groups} groups")
        lengths = {len(self.sizes), *map(len, self.weights)}
        lengths |= {len(each) for turn in self.turns for each in (turn, *turn)}
        if lengths != {width} or {len(self.weights), len(self.turns)} != {groups}:
            raise InvalidInput(f"scores need weights and turns of {groups} groups, all of {width} entries")
        check.integer("own", self.own, least=1, most=width)
        check_entries("weights", [entry for each in self.weights for entry in each], _LARGEST)
        check_entries("turns", [entry for turn in self.turns for row in turn for entry in row], _LARGEST)
        for name, values in (
            ("sizes", self.sizes),
            ("cut", (self.cut,)),
            ("longest", (self.longest,)),
            ("square", (self.square,)),
            ("level", (self.level,)),
        ):
            for value in values:
                check.real(name, value, least=_SMALLEST, most=_LARGEST)
        rest, crossed = width - self.own, width * (width - 1) // 2
        found = (
            Array("count", (groups, 1), 0),
            Array("own score", (groups, self.own), T_BITS),
            Array("score", (rest,), T_BITS),
            Array("own square", (groups, self.own), 2 * T_BITS),
            Array("own cross", (groups, len(self.own_pairs)), 2 * T_BITS),
            Array("square", (rest,), 2 * T_BITS),
            Array("cross", (len(self.pairs),), 2 * T_BITS),
            Array("spread square", (width,), 2 * T_BITS),
            Array("spread cross", (crossed,), 2 * T_BITS),
            Array("place", (groups, width), T_BITS),
            Array("level", (1,), T_BITS),
            Array("inside", (1,), 0),
        )
        return tuple(array for array in found if array.size)

    def scored(self, group: int, v: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return scores, roots of the curvature, places (width, rows) and residuals of rows of a group.

        `v` and y are in units of 1.
        """
        residual = y - along(self.weights[group], v, 1.0)
        z = np.stack([along(row, v, 1.0) for row in self.turns[group]])
        sized = np.array(self.sizes)[:, None] * z
        ones = (1.0,) * self.width
        lengths, squares = np.sqrt(along(ones, sized * sized, 1.0)), along(ones, z * z, 1.0)
        weight = np.minimum(
            self.longest / np.maximum(lengths, _TINY), self.square / np.maximum(squares, _TINY)
        )
        weight = np.minimum(weight, 1.0)
        score = weight * np.clip(residual, -self.cut, self.cut) * sized
        return score, np.sqrt(weight * self._inside(residual)) * z, z, residual

    def _inside(self, residual: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.abs(residual) <= self.cut)

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
        bound, root = self.longest * self.cut, math.sqrt(self.square)
        sums = _Sums(*(np.zeros(shape) for shape in self._shapes))
        for group, (v, y, each) in enumerate(groups):
            score, roots, z, residual = self.scored(group, v, y)
            lengths = np.sqrt((z * z).sum(axis=0)) / root
            sums.counts[group] = each * v.shape[1]
            sums.scores[group] = each * score.sum(axis=1) / bound
            sums.curvature[group] = each * roots @ roots.T / self.square
            sums.spread[:] += each * score @ score.T / bound**2
            sums.places[group] = each * (z / np.maximum(lengths, 1.0)).sum(axis=1) / root
            sums.level[:] += each * np.clip(residual / self.level, -1.0, 1.0).sum()
            sums.inside[:] += each * self._inside(residual).sum()
        return tuple(self._parted(sums))

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        groups, width = len(self.weights), self.width
        each = (groups, width)
        return (groups, 1), each, (groups, width, width), (width, width), each, (1,), (1,)

    def _parted(self, sums: _Sums) -> list[NDArray[Any]]:
        """Return the arrays of sums that are by group, those that are not added up over groups."""
        own, width = self.own, self.width
        of_all = sums.curvature.sum(axis=0)
        first, second = _places(self.own_pairs)
        left, right = _places(self.pairs)
        above = np.triu_indices(width, 1)
        diagonal = np.diagonal(of_all)
        found = [
            sums.counts,
            sums.scores[:, :own],
            sums.scores[:, own:].sum(axis=0),
            sums.curvature[:, range(own), range(own)],
            sums.curvature[:, first, second],
            diagonal[own:],
            of_all[left, right],
            np.diagonal(sums.spread),
            sums.spread[above],
            sums.places,
            sums.level,
            sums.inside,
        ]
        return [each.copy() for each in found if each.size]


def _places(pairs: Pairs) -> tuple[list[int], list[int]]:
    return [i for i, _ in pairs], [j for _, j in pairs]


@dataclass(frozen=True)
class _Sums:
    """Sums by group, but for the spread, the level and how many are inside."""

    counts: NDArray[Any]
    scores: NDArray[Any]
    curvature: NDArray[Any]
    spread: NDArray[Any]
    places: NDArray[Any]
    level: NDArray[Any]
    inside: NDArray[Any]


class _Summer:
    def __init__(self, block: SiteScores, run: Pass) -> None:
        self._block = block
        self._totals = [run.total(*shape) for shape in block._shapes]

    def add(self, part: Part) -> None:
        block, rows = self._block, part.vectors(self._block.design)
        codes = part.codes(block.by)
        codes = codes if rows.complete is None else codes[rows.complete]
        found = [np.zeros(shape, np.int64) for shape in block._shapes]
        counts, scores, curvature, spread, places, level, inside = found
        root = math.sqrt(block.square)
        for group in np.unique(codes[codes >= 0]):
            here = codes == group
            v = np.vstack([np.ones(int(here.sum())), rows.x[:, here] / ONE])
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as 0
                score, roots, z, residual = block.scored(group, v, rows.y[here] / ONE)
            held = clip_rows(score.T, block.longest * block.cut, nearest=True)
            counts[group] = v.shape[1]
            scores[group] = held.sum(axis=0)
            spread += exact_products(_columns(held))
            curvature[group] = exact_products(_columns(clip_rows(roots.T, root, nearest=True)))
            places[group] = clip_rows(z.T, root, nearest=True).sum(axis=0)
            level += clip_rows(residual[:, None], block.level, nearest=True).sum(axis=0)
            inside += int(block._inside(residual).sum())
        for total, sums in zip(self._totals, found, strict=True):
            total.add(sums)

    def result(self) -> Sums:
        return tuple(self._block._parted(_Sums(*(total.result() for total in self._totals))))


def _columns(rows: Integers) -> Floats:
    return np.ascontiguousarray(rows.T, np.float64)
