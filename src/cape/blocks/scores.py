"""Clipped scores of a generalised linear model at given weights, their curvature, spread and lengths.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; the score of
one row is at most `bound` long and its part of the curvature at most `curve`, certainly; each row is counted
once among the lengths.
Reason. w·x and u = Tx are added up column by column, and what the target says is computed for each row by
itself (`families`). Scores and the roots of the curvature then become integers of length at most 2^20
(`clip`), whatever rounding did. Sums of their products are exact by `cape.noise.exact_products`. A row's
deviance is cut at `deviance` and rounded; one that is not a number counts as that much. Targets, offsets and
what rows are clipped at are held to sizes at which nothing overflows.
Tested in tests/unit/blocks/test_scores.py and test_families.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cape.blocks import typical
from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.clip import clip_rows
from cape.blocks.design import Design
from cape.blocks.families import Family, Logit
from cape.blocks.parts import Part, Pass
from cape.blocks.person_sums import PersonProducts
from cape.blocks.steps import ONE
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Number, Schema
from cape.noise import exact_products

__all__ = [
    "ROUNDED",
    "ScoreSums",
    "Scores",
    "along",
    "box_of",
    "check_bounds",
    "check_clips",
    "check_entries",
    "counted",
    "furthest_corner",
    "score_arrays",
]

_LARGEST = 1e100  # of weights, and of bounds of targets and offsets
_SMALLEST = 1e-200  # of what rows are clipped at: divided by the longest of them, it is not 0
_LARGEST_TURN = 1e30  # far above any use; squares of lengths stay far below where floats end
_MOST_LENGTHS = 256
ROUNDED = 1.001  # more than rounding adds
_MOST_SIDES = 12  # of which all corners are looked at
LOGIT = Logit()
_TYPICAL = 1024  # rows, for plans
_TARGETS = 16  # for each of them, where the target is a number


@dataclass(frozen=True)
class Scores(VectorBlock):
    """Over complete rows, with the linear predictor e = w·x plus an offset, and u = Tx:

    sums of the score s = g u, of its curvature h uu' and of its spread ss', where g and h are those of the
    family. A score that is longer than `bound` is shortened to it, and the curvature of a row to `curve`. A
    row with a weight of its own, a share of the largest, counts that much.

    Arrays: count (1,), score (width,) in units of `bound`; square (width,), the diagonal of the curvature,
    and cross, what stands above it, row by row, in units of `curve`; the same for the spread, in units of
    bound²; lengths (edges + 1,), how many scores are as long, before they are shortened, as each bin says,
    if there are edges; deviance (1,), in units of `deviance`, if that is not 0.

    Attributes:
        weights: w.
        turn: the rows of T.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be.
        family: what the target is like.
        lengths: the edges between which lengths of scores are counted; the last bin is open.
        deviance: the largest deviance of a row that counts; 0 if they are not asked for.
        offset: whether the first column beside the target is added to w·x.
        weighted: whether the last column beside the target weights rows.
        cap: narrower bounds for a target that is a number, at which its cells are cut.
        persons: how many rows of a person count at most. Where these are several, the spread is tt', added up
            over persons, in units of (persons bound)²: t is what the scores of a person add up to.
    """

    weights: tuple[float, ...]
    turn: tuple[tuple[float, ...], ...]
    bound: float
    curve: float
    family: Family = LOGIT
    lengths: tuple[float, ...] = ()
    deviance: float = 0.0
    offset: bool = False
    weighted: bool = False
    cap: tuple[float, float] | None = None
    persons: int = 1

    @property
    def by_person(self) -> bool:
        """Whether it adds up by person."""
        return self.persons > 1

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width = self.design.width(schema)
        if self.design.target is None or {len(self.weights), len(self.turn), *map(len, self.turn)} != {width}:
            raise InvalidInput(f"scores need a target, {width} weights and a turn of {width} by {width}")
        if self.family.binary:
            schema.category(self.design.target)
        else:
            check_bounds(schema, self.design.target)
        if self.cap is not None:
            for end in self.cap:
                check.real("cap", end, least=-_LARGEST, most=_LARGEST)
        if len(self.design.beside) != self.offset + self.weighted:
            raise InvalidInput("beside the target there must be the offset and the weights, and nothing else")
        for name in self.design.beside:
            check_bounds(schema, name)
        check_entries("weights", self.weights, _LARGEST)
        check_entries("turn", [entry for row in self.turn for entry in row], _LARGEST_TURN)
        check_clips(self.bound, self.curve, self.deviance, self.lengths)
        return score_arrays(width, self.lengths, self.deviance)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose target follows their features, with usual offsets and weights."""
        x = typical.rows(self.design, schema, _TYPICAL)
        u, shift, share = x @ np.array(self.turn).T, 0.0, 1.0
        if self.offset:
            shift = typical.Shape(schema.number(self.design.beside[0])).expected.mean
        if self.weighted:
            column = schema.number(self.design.beside[-1])
            share = typical.Shape(column).expected.mean / column.high
        eta = x @ np.array(self.weights) + shift
        above = np.triu_indices(u.shape[1], 1)
        sums = [np.zeros(array.shape) for array in self.arrays(schema)]
        y, shares = np.array(self._targets(schema)).T
        chance = typical.targets(self.design, schema, len(x), shares) / len(x)
        many = np.broadcast_to(eta[:, None], chance.shape).ravel()
        target = self.capped(np.broadcast_to(y, chance.shape).ravel())
        g, h = (share * each.reshape(chance.shape) for each in self.family.at(many, target))
        length = np.linalg.norm(u, axis=1)[:, None]
        lengths = np.abs(g) * length
        g = g * np.minimum(1.0, self.bound / np.maximum(lengths, _SMALLEST))
        h = h * np.minimum(1.0, self.curve / np.maximum(h * length**2, _SMALLEST))
        sums[0] += chance.sum()
        sums[1] += (chance * g).sum(axis=1) @ u / self.bound
        for place, each, unit in ((2, h, self.curve), (4, g * g, (self.persons * self.bound) ** 2)):
            total = (u * (chance * each).sum(axis=1)[:, None]).T @ u / unit
            sums[place] += np.diagonal(total)
            sums[place + 1] += total[above]
        if self.lengths:
            bins = binned(self.lengths, lengths.ravel())
            sums[6] += np.bincount(bins, chance.ravel(), minlength=len(self.lengths) + 1)
        if self.deviance:
            found = np.fmin(self.family.deviance(many, target) / self.deviance, 1.0)
            sums[-1] += float(share * (chance.ravel() @ found))
        return tuple(rows * each for each in sums)

    def _targets(self, schema: Schema) -> list[tuple[float, float]]:
        """Return likely targets, each with its probability."""
        if self.design.target is None:
            return []
        column = schema[self.design.target]
        if not isinstance(column, Number):
            return [(float(i), share) for i, share in enumerate(column.shares)]
        t = typical.Shape(column).at((np.arange(_TARGETS) + 0.5) / _TARGETS)
        return [(float(column.middle + column.half * each), 1 / _TARGETS) for each in t]

    def capped(self, y: Floats) -> Floats:
        """Return targets cut at the caps, if there are any."""
        return y if self.cap is None else np.clip(y, *self.cap)

    def at(
        self, eta: Floats, y: Floats, u: Floats, share: Floats | None
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return what makes u the score, and uu' the curvature, lengths of scores, and deviances of rows with
        these weights; none of them is clipped yet but the last."""
        length = np.sqrt(along((ONE,) * len(u), u * u))
        g, h = self.family.at(eta, y)
        deviance = np.zeros(len(eta))
        if self.deviance:
            deviance = np.fmin(self.family.deviance(eta, y) / self.deviance, 1.0)
        if share is not None:
            g, h, deviance = share * g, share * h, share * deviance
        return g, h, np.abs(g) * length, deviance

    def longest(self, schema: Schema) -> float:
        """Return how long the score of a row can be at most, before it is shortened, whatever the row holds.

        The slope of a concave log-likelihood falls with the predictor, and of all these families it rises
        with the target: it is largest at ends of both. Vectors are longest in a corner of what bounds them.
        """
        middle, half = box_of(self.design, schema)
        weights, turn = np.array(self.weights), np.array(self.turn)
        shifts = (0.0, 0.0)
        if self.offset:
            column = schema.number(self.design.beside[0])
            shifts = column.low, column.high
        reach = float(np.abs(weights) @ half)
        etas = [float(weights @ middle) - reach + shifts[0], float(weights @ middle) + reach + shifts[1]]
        ends = np.array([0.0, 1.0])
        if not self.family.binary:
            target = schema.number(str(self.design.target))
            ends = self.capped(np.array([target.low, target.high]))
        slopes, _ = self.family.at(np.repeat(etas, 2), np.tile(ends, 2))
        return ROUNDED * float(np.abs(slopes).max()) * furthest_corner(turn @ middle, turn * half)

    def summer(self, run: Pass) -> _Scores:
        return _Scores(self, run)


class ScoreSums:
    """Sums of clipped scores of so many entries with what goes with them, part by part."""

    def __init__(
        self, width: int, edges: tuple[float, ...], deviance: float, run: Pass, persons: int = 1
    ) -> None:
        self._edges, self._with_deviance = edges, deviance > 0
        self._count, self._lengths = np.zeros(1, np.int64), np.zeros(len(edges) + 1, np.int64)
        self._score, self._deviance = run.total(width), run.total(1)
        self._curvature, self._spread = run.total(width, width), run.total(width, width)
        self._products = PersonProducts(width, persons, run) if persons > 1 else None

    def put(
        self,
        scores: Integers,
        roots: Integers,
        lengths: Floats,
        deviance: Floats,
        persons: Integers | None = None,
    ) -> None:
        """Add rows: their scores, the roots of their curvature, one or several a row, the others, and whose
        they are."""
        self._count += len(scores)
        self._score.add(scores.sum(axis=0))
        if self._products is None:
            self._spread.add(exact_products(np.ascontiguousarray(scores.T, np.float64)))
        else:
            self._products.add(scores, persons)
        self._curvature.add(exact_products(np.ascontiguousarray(roots.T, np.float64)))
        if self._edges:
            self._lengths += counted(self._edges, lengths)
        if self._with_deviance:
            self._deviance.add(np.rint(np.maximum(deviance, 0.0) * ONE).astype(np.int64).sum(keepdims=True))

    def result(self) -> Sums:
        """Return the sums as `score_arrays` has them."""
        above = np.triu_indices(self._score.size, 1)
        found = [self._count, self._score.result()]
        spread = self._spread if self._products is None else self._products
        for total in (self._curvature.result(), spread.result()):
            found += [np.diagonal(total).copy(), total[above]]
        if self._edges:
            found.append(self._lengths)
        if self._with_deviance:
            found.append(self._deviance.result())
        return tuple(found)


class _Scores(ScoreSums):
    def __init__(self, block: Scores, run: Pass) -> None:
        super().__init__(len(block.weights), block.lengths, block.deviance, run, block.persons)
        self._block, self._schema = block, run.schema

    def add(self, part: Part) -> None:
        block, rows = self._block, part.vectors(self._block.design)
        eta, share = along(block.weights, rows.x), None
        if block.offset:
            eta += self._number(block.design.beside[0], rows.beside[0])
        if block.weighted:
            name = block.design.beside[-1]
            share = np.clip(self._number(name, rows.beside[-1]) / self._schema.number(name).high, 0.0, 1.0)
        u = np.stack([along(row, rows.x) for row in block.turn])
        if block.family.binary:
            y = (rows.y + ONE) / (2 * ONE)
        else:
            y = block.capped(self._number(str(block.design.target), rows.y))
        g, h, lengths, deviance = block.at(eta, y, u, share)
        scores = clip_rows((g * u).T, block.bound, nearest=True)
        roots = clip_rows((np.sqrt(h) * u).T, math.sqrt(block.curve), nearest=True)
        self.put(scores, roots, lengths, deviance, part.persons_of(rows.complete))

    def _number(self, name: str, steps: Floats) -> Floats:
        """Return a column in its own unit."""
        column = self._schema.number(name)
        return column.middle + column.half / ONE * steps


def box_of(design: Design, schema: Schema) -> tuple[Floats, Floats]:
    """Return the middle of what bounds the vectors of rows, and half of its width, entry by entry."""
    low, high = Units(replace(design, intercept=0.0, beside=()), schema).box
    if design.intercept:
        low, high = (np.append(design.intercept, end) for end in (low, high))
        low, high = (each / math.hypot(1.0, design.intercept) for each in (low, high))
    return (low + high) / 2, (high - low) / 2


def furthest_corner(middle: Floats, sides: Floats) -> float:
    """Return the length of the longest of `middle` with each column of `sides` added or taken off, or, of
    many columns, a number that is no smaller."""
    sides = sides[:, np.abs(sides).max(axis=0) > 0]
    if sides.shape[1] > _MOST_SIDES:
        return float(np.linalg.norm(middle) + np.linalg.norm(sides, axis=0).sum())
    return float(np.linalg.norm(middle + _corners(sides.shape[1]) @ sides.T, axis=1).max())


@lru_cache
def _corners(sides: int) -> Floats:
    return np.array(list(itertools.product((-1.0, 1.0), repeat=sides)))


def score_arrays(width: int, edges: tuple[float, ...], deviance: float) -> tuple[Array, ...]:
    """Return the arrays of clipped scores of so many entries, and of what goes with them."""
    pairs = width * (width - 1) // 2
    return (
        Array("count", (1,), 0),
        Array("score", (width,), T_BITS),
        *(
            Array(name, (size,), 2 * T_BITS)
            for what in ("curvature", "spread")
            for name, size in ((f"{what} square", width), (f"{what} cross", pairs))
        ),
        *([Array("lengths", (len(edges) + 1,), 0)] if edges else []),
        *([Array("deviance", (1,), T_BITS)] if deviance else []),
    )


def check_clips(bound: float, curve: float, deviance: float, edges: tuple[float, ...]) -> None:
    """Raise `InvalidInput` unless rows can be clipped, and lengths be counted, like this."""
    for name, value in (("bound", bound), ("curve", curve)):
        check.real(name, value, least=_SMALLEST, most=_LARGEST)
    check.real("deviance", deviance, least=0.0, most=_LARGEST)
    if len(edges) > _MOST_LENGTHS or list(edges) != sorted(set(edges)):
        raise InvalidInput(f"lengths of scores need at most {_MOST_LENGTHS} edges that rise")
    check_entries("lengths", edges, _LARGEST)


def binned(edges: tuple[float, ...], lengths: Floats) -> Integers:
    """Return the bin of each length between these edges."""
    return np.searchsorted(np.array(edges), lengths, side="right")


def counted(edges: tuple[float, ...], lengths: Floats) -> Integers:
    """Return how many lengths fall into each bin between these edges."""
    return np.bincount(binned(edges, lengths), minlength=len(edges) + 1).astype(np.int64)


def check_bounds(schema: Schema, name: str) -> None:
    """Raise `InvalidInput` unless a column is a number whose bounds leave room for squares and ratios."""
    column = schema.number(name)
    if max(abs(column.low), abs(column.high)) > _LARGEST:
        raise InvalidInput(
            f"column {name!r} must have bounds between -{_LARGEST:g} and {_LARGEST:g}; use a larger unit"
        )


def check_entries(name: str, entries: Sequence[float], largest: float) -> None:
    """Raise `InvalidInput` unless all entries are numbers of at most this size."""
    if set(map(type, entries)) != {float} or not (np.abs(np.array(entries)) <= largest).all():
        for entry in entries:
            check.real(name, entry, least=-largest, most=largest)


def along(weights: tuple[float, ...], columns: Floats, unit: float = ONE) -> Floats:
    """Return weights·x of each row, x in steps of 1 / unit: column by column, so that no row depends on its
    place."""
    total, product = np.zeros(columns.shape[1]), np.empty(columns.shape[1])
    for column, weight in zip(columns, weights, strict=True):
        np.multiply(column, weight / unit, out=product)
        total += product
    return total
