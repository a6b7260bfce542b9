"""Clipped scores of models of several categories: multinomial logits, and proportional odds.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; the score of
one row is at most `bound` long, and its part of the curvature at most `curve` (as the root of its sum of
squares), certainly; each row is counted once among the lengths.
Reason. Predictors and products of x with the turn are added up column by column, and what a category says is
computed for each row by itself. The score, and the vectors z_1, z_2, ... whose products add up to the row's
curvature, become integers that are short enough whatever rounding did (`clip`). Sums of products are exact by
`cape.noise.exact_products`.

The curvature of a row is minus the second derivative of its log-likelihood in all weights, and nowhere
negative: both log-likelihoods are concave.
Tested in tests/unit/blocks/test_choices.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cape.blocks import typical
from cape.blocks.block import Array, VectorBlock
from cape.blocks.clip import clip_products, clip_rows
from cape.blocks.parts import Part, Pass
from cape.blocks.scores import (
    ROUNDED,
    ScoreSums,
    along,
    binned,
    box_of,
    check_clips,
    check_entries,
    furthest_corner,
    score_arrays,
)
from cape.blocks.steps import ONE
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

__all__ = ["LEAST_GAP", "Choices", "Model", "Rows"]

Model = Literal["multinomial", "ordinal"]
LEAST_GAP = 1e-6  # between two thresholds
_LARGEST, _LARGEST_TURN = 1e100, 1e30
_TYPICAL = 256  # rows, for plans
_FURTHEST = 700.0  # of predictors: exponentials of them are numbers
_ENTRIES = 1 << 22  # of arrays that are made at once


@dataclass(frozen=True)
class Rows:
    """What rows with known categories say, in units of u: none of it is clipped yet.

    Attributes:
        scores: (rows, size).
        roots: (rows, several, size): vectors whose products add up to the curvature of each row.
        deviance: minus twice the log-likelihood of each row.
    """

    scores: Floats
    roots: Floats
    deviance: Floats


@dataclass(frozen=True)
class Choices(VectorBlock):
    """Over complete rows with the category c, one of `levels`: sums of the score, the slope of the row's
    log-likelihood in all weights, turned by T; of its curvature and of its spread, as `Scores` has them.

    Weights of a multinomial model are those of x for the log-odds of each category but the first against the
    first, one category after the other. Those of an ordinal one are the rising thresholds t, and then the
    slopes w: the log-odds of a category at or below the j-th are t_j - w·x.

    Arrays are those of `Scores`.

    Attributes:
        weights: all of them.
        turn: the rows of T, each as long as there are weights.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be, as the root of its sum of squares.
        model: "multinomial" or "ordinal".
        levels: how many categories there are.
        lengths: the edges between which lengths of scores are counted; the last bin is open.
        deviance: the largest deviance of a row that counts; 0 if they are not asked for.
        weighted: whether the column beside the target weights rows.
        persons: how many rows of a person count at most, as in `Scores`.
    """

    weights: tuple[float, ...]
    turn: tuple[tuple[float, ...], ...]
    bound: float
    curve: float
    model: Model
    levels: int
    lengths: tuple[float, ...] = ()
    deviance: float = 0.0
    weighted: bool = False
    persons: int = 1

    @property
    def by_person(self) -> bool:
        """Whether it adds up by person."""
        return self.persons > 1

    @property
    def size(self) -> int:
        """How many weights there are."""
        return len(self.weights)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width, free = self.design.width(schema), self.levels - 1
        size = free * width if self.model == "multinomial" else free + width
        if self.design.target is None or {self.size, len(self.turn), *map(len, self.turn)} != {size}:
            raise InvalidInput(f"scores need a target, {size} weights and a turn of {size} by {size}")
        if len(schema.category(self.design.target).values) != self.levels:
            raise InvalidInput(f"scores of {self.levels} categories need a target with as many of them")
        if len(self.design.beside) != self.weighted:
            raise InvalidInput("beside the target there must be the weights, and nothing else")
        check_entries("weights", self.weights, _LARGEST)
        check_entries("turn", [entry for row in self.turn for entry in row], _LARGEST_TURN)
        check_clips(self.bound, self.curve, self.deviance, self.lengths)
        if self.model == "ordinal" and not (np.diff(self.weights[:free]) >= LEAST_GAP).all():
            raise InvalidInput(f"thresholds must rise by at least {LEAST_GAP:g}")
        return score_arrays(size, self.lengths, self.deviance)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose target follows their features."""
        x = np.ascontiguousarray(typical.rows(self.design, schema, _TYPICAL).T)
        share = 1.0
        if self.weighted:
            column = schema.number(self.design.beside[-1])
            share = typical.Shape(column).expected.mean / column.high
        above = np.triu_indices(self.size, 1)
        sums = [np.zeros(array.shape) for array in self.arrays(schema)]
        shares = schema.category(str(self.design.target)).shares
        chances = typical.targets(self.design, schema, _TYPICAL, shares) / _TYPICAL
        for code, chance in enumerate(chances.T):
            found = self.at(x, np.full(_TYPICAL, code), np.full(_TYPICAL, share), 1.0)
            lengths = np.linalg.norm(found.scores, axis=1)
            scores = found.scores * np.minimum(1.0, self.bound / np.maximum(lengths, 1e-300))[:, None]
            gram = found.roots @ found.roots.transpose(0, 2, 1)
            norms = np.sqrt((gram**2).sum(axis=(1, 2)))
            shorter = np.sqrt(np.minimum(1.0, self.curve / np.maximum(norms, 1e-300)))
            roots = (found.roots * shorter[:, None, None]).reshape(-1, self.size)
            sums[0] += chance.sum()
            sums[1] += chance @ scores / self.bound
            of_roots = chance.repeat(len(roots) // len(chance))
            for each, part, place, unit in (
                (roots, of_roots, 2, self.curve),
                (scores, chance, 4, (self.persons * self.bound) ** 2),
            ):
                total = (each * part[:, None]).T @ each / unit
                sums[place] += np.diagonal(total)
                sums[place + 1] += total[above]
            if self.lengths:
                sums[6] += np.bincount(binned(self.lengths, lengths), chance, minlength=len(self.lengths) + 1)
            if self.deviance:
                sums[-1] += float(chance @ self.shortened(found.deviance))
        return tuple(rows * each for each in sums)

    def shortened(self, deviance: Floats) -> Floats:
        """Return deviances in units of the largest that counts, none of them larger."""
        return np.fmin(deviance / self.deviance, 1.0)

    def at(self, x: Floats, codes: Integers, share: Floats | None, unit: float = ONE) -> Rows:
        """Return what rows of these categories and weights say; x is (entries, rows), in units of `unit`."""
        found = self._logits(x, codes, unit) if self.model == "multinomial" else self._ordered(x, codes, unit)
        if share is None:
            return found
        return Rows(
            found.scores * share[:, None],
            found.roots * np.sqrt(share)[:, None, None],
            found.deviance * share,
        )

    def _logits(self, x: Floats, codes: Integers, unit: float) -> Rows:
        """Return scores u_c - m and roots sqrt(p_k) (u_k - m): u_k is T times x in the place of category k, 0
        for the first, and m the mean of all u_k with probabilities p_k."""
        width, rows = len(x), x.shape[1]
        eta, u = np.zeros((self.levels, rows)), np.zeros((self.levels, self.size, rows))
        for k in range(1, self.levels):
            part = slice((k - 1) * width, k * width)
            eta[k] = along(self.weights[part], x, unit)
            for i, row in enumerate(self.turn):
                u[k, i] = along(row[part], x, unit)
        eta -= eta.max(axis=0)
        chance = np.exp(np.maximum(eta, -_FURTHEST))
        total = chance[0].copy()
        for each in chance[1:]:
            total += each
        chance /= total
        middle = np.zeros((self.size, rows))
        for p, each in zip(chance, u, strict=True):
            middle += p * each
        u -= middle
        at = np.arange(rows)
        scores = u[codes, :, at]
        deviance = 2 * (np.log(total) - eta[codes, at])
        u *= np.sqrt(chance)[:, None]
        return Rows(scores, np.ascontiguousarray(u.transpose(2, 0, 1)), deviance)

    def _ordered(self, x: Floats, codes: Integers, unit: float) -> Rows:
        """Return scores and roots for log(F(a) - F(b)), with F the logistic function, a = t_c - w·x and b the
        same of the threshold below.

        F(a) - F(b) is F(a) (1 - F(b)) (1 - e^-d) with d = a - b: so the slope in a is 1 / (1 - e^-d) - F(a),
        that in b is 1 - 1 / (1 - e^-d) - F(b), and the curvature is F(a) (1 - F(a)) along a, the same
        along b, and 1 / (4 sinh²(d / 2)) along d.
        """
        free, rows = self.levels - 1, x.shape[1]
        ends = np.concatenate([[-math.inf], self.weights[:free], [math.inf]])
        turn = np.array(self.turn)
        none = np.zeros((self.size, 1))
        columns = np.concatenate([none, turn[:, :free], none], axis=1).T  # T times each threshold
        u = np.empty((self.size, rows))
        for i, row in enumerate(self.turn):
            u[i] = along(row[free:], x, unit)
        u, slope = np.ascontiguousarray(u.T), along(self.weights[free:], x, unit)
        slope = np.clip(slope, -_LARGEST, _LARGEST)
        a, b, d = ends[codes + 1] - slope, ends[codes] - slope, ends[codes + 1] - ends[codes]
        high, low = columns[codes + 1], columns[codes]
        below, beyond = _logistic(a), _logistic(b)
        ratio = -1 / np.expm1(-d)
        scores = (ratio - below)[:, None] * high + (1 - ratio - beyond)[:, None] * low
        scores -= (1 - below - beyond)[:, None] * u
        bent = [np.sqrt(each * _logistic(-at)) for each, at in ((below, a), (beyond, b))]
        apart = np.exp(-d / 2) * ratio
        roots = np.stack(
            [
                bent[0][:, None] * (high - u),
                bent[1][:, None] * (low - u),
                apart[:, None] * (high - low),
            ],
            axis=1,
        )
        deviance = 2 * (np.logaddexp(0, -a) + np.logaddexp(0, b) - np.log(-np.expm1(-d)))
        return Rows(scores, roots, deviance)

    def longest(self, schema: Schema) -> float:
        """Return how long the score of a row can be at most, before it is shortened, whatever the row holds.

        Of a multinomial model a score is a mean of differences u_c - u_k. Of an ordinal one it is q (b - u) +
        r (a - b) with |q| <= 1 and 0 <= r <= 1 / (1 - e^-d), where a and b are T times the thresholds of the
        row's category; those of the first and the last category are one of these.
        """
        middle, half = box_of(self.design, schema)
        turn, free, width = np.array(self.turn), self.levels - 1, len(middle)
        if self.model == "multinomial":
            parts = [np.zeros((self.size, width)), *np.split(turn, free, axis=1)]
            pairs = (one - other for one, other in itertools.combinations(parts, 2))
            return ROUNDED * max(furthest_corner(each @ middle, each * half) for each in pairs)
        ends, slopes = turn[:, :free].T, turn[:, free:]
        far = max(furthest_corner(end - slopes @ middle, slopes * half) for end in ends)
        gaps = -np.expm1(-np.diff(self.weights[:free]))
        apart = np.linalg.norm(np.diff(ends, axis=0), axis=1) / gaps
        return ROUNDED * (far + float(apart.max(initial=0.0)))

    def summer(self, run: Pass) -> _Choices:
        return _Choices(self, run)


def _logistic(eta: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(np.clip(-eta, -_FURTHEST, _FURTHEST))))


class _Choices(ScoreSums):
    def __init__(self, block: Choices, run: Pass) -> None:
        super().__init__(block.size, block.lengths, block.deviance, run, block.persons)
        self._block, self._schema = block, run.schema

    def add(self, part: Part) -> None:
        block, rows = self._block, part.vectors(self._block.design)
        codes, share = rows.y.astype(np.int64), None
        if block.weighted:
            column = self._schema.number(block.design.beside[-1])
            cells = column.middle + column.half / ONE * rows.beside[-1]
            share = np.clip(cells / column.high, 0.0, 1.0)
        persons = part.persons_of(rows.complete)
        for some in self._several(len(codes)):
            found = block.at(
                np.ascontiguousarray(rows.x[:, some]), codes[some], None if share is None else share[some]
            )
            lengths = np.sqrt(along((1.0,) * block.size, (found.scores**2).T, 1.0))
            scores = clip_rows(found.scores, block.bound, nearest=True)
            roots = clip_products(found.roots, block.curve).reshape(-1, block.size)
            deviance = block.shortened(found.deviance) if block.deviance else found.deviance
            self.put(scores, roots, lengths, deviance, None if persons is None else persons[some])

    def _several(self, rows: int) -> Iterator[slice]:
        """Yield rows in parts whose arrays stay small."""
        most = max(_ENTRIES // (self._block.size * self._block.levels), 1)
        for start in range(0, rows, most):
            yield slice(start, min(start + most, rows))
