"""Clipped scores of models of several categories: multinomial logits, and proportional odds.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; the score of
one row is at most `bound` long and its part of the curvature at most `curve`, up to the rounding that
`cape.analyses.regression.multinomial` counts.
Reason. w·x and u = Tx - m are added up column by column, and probabilities are computed for each row by
itself. The score s_c of every category c has a known length: |g_c| |u| for multinomial logits, where it is
the Kronecker product of g_c and u, and sqrt(|g_c|² + (sum of g_c)² |u|²) for proportional odds, where it is
(g_c, -(sum of g_c) u). The weight v of a row is the largest up to 1 for which the longest of them is short
enough, and the curvature, the sum of P_c s_c s_c', small enough: it does not depend on the row's own
category, so that scores have mean 0 where the model is true. Scores, and sqrt(v P_c) s_c, become integers of
length at most 2^20 (`clip`), and sums of their products are exact by `cape.noise.exact_products`.
Tested in tests/unit/analyses/regression/test_glm.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from cape.blocks import typical
from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.clip import clip_rows
from cape.blocks.families import TINY
from cape.blocks.parts import Part, Pass
from cape.blocks.scores import along, check_entries
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["Choices", "Model"]

Model = Literal["multinomial", "ordinal"]
_SMALLEST, _LARGEST, _LARGEST_TURN = 1e-200, 1e100, 1e30
_TYPICAL = 256  # rows, for plans
_FURTHEST = 30.0  # of predictors
_LEAST = 1e-12  # of a probability


@dataclass(frozen=True)
class Choices(VectorBlock):
    """Over complete rows with the category c, one of `levels`, and u = Tx - m: sums of the score of c, of
    the curvature and of the score's spread, as `Scores` has them.

    Weights of a multinomial model are those of x for the log-odds of each category but the first against the
    first, one category after the other. Those of an ordinal one are the rising thresholds t, and then the
    slopes w: the log-odds of a category at or below the j-th are t_j - w·x.

    Attributes:
        weights: all of them.
        turn: the rows of T.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be, as the root of its sum of squares.
        model: "multinomial" or "ordinal".
        levels: how many categories there are.
        deviance: the largest deviance of a row that counts.
        weighted: whether the column beside the target weights rows.
        middle: m of an ordinal model, whose thresholds stand for a constant; empty for 0.
    """

    weights: tuple[float, ...]
    turn: tuple[tuple[float, ...], ...]
    bound: float
    curve: float
    model: Model
    levels: int
    deviance: float
    weighted: bool = False
    middle: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """How many weights there are."""
        width, free = len(self.turn), self.levels - 1
        return free * width if self.model == "multinomial" else free + width

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width, size = self.design.width(schema), self.size
        if self.design.target is None or {len(self.turn), *map(len, self.turn)} != {width}:
            raise InvalidInput(f"scores need a target and a turn of {width} by {width}")
        if len(schema.category(self.design.target).values) != self.levels or len(self.weights) != size:
            raise InvalidInput(f"scores of {self.levels} categories need as many of them and {size} weights")
        check_entries("weights", self.weights, _LARGEST)
        check_entries("turn", [entry for row in self.turn for entry in row], _LARGEST_TURN)
        if self.middle and (self.model != "ordinal" or len(self.middle) != width):
            raise InvalidInput(f"a middle of u needs an ordinal model and {width} entries")
        check_entries("middle", self.middle, _LARGEST_TURN)
        for name, value in (("bound", self.bound), ("curve", self.curve), ("deviance", self.deviance)):
            check.real(name, value, least=_SMALLEST, most=_LARGEST)
        if self.model == "ordinal" and not all(
            a < b for a, b in zip(self.weights, self.weights[1 : self.levels - 1], strict=False)
        ):
            raise InvalidInput("thresholds must rise")
        pairs = size * (size - 1) // 2
        return (
            Array("count", (1,), 0),
            Array("score", (size,), T_BITS),
            *(
                Array(name, (many,), 2 * T_BITS)
                for what in ("curvature", "spread")
                for name, many in ((f"{what} square", size), (f"{what} cross", pairs))
            ),
            Array("deviance", (1,), T_BITS),
        )

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose target does not depend on their features."""
        x = typical.rows(self.design, schema, _TYPICAL)
        share = None
        if self.weighted:
            column = schema.number(self.design.beside[-1])
            share = np.full(len(x), typical.Shape(column).expected.mean / column.high)
        u, (chance, g) = np.ascontiguousarray((x @ np.array(self.turn).T).T), self.likely(x.T)
        u = self.centred(u)
        v = self.weight(chance, g, u, share)
        above = np.triu_indices(self.size, 1)
        sums = [np.zeros(array.shape) for array in self.arrays(schema)]
        sums[0] += 1.0
        curvature, spread = np.zeros((self.size, self.size)), np.zeros((self.size, self.size))
        shares = schema.category(str(self.design.target)).shares
        for c, part in enumerate(shares):
            s = v * self.score(g[c], u)
            sums[1] += part * s.mean(axis=1) / self.bound
            spread += part * s @ s.T / len(x) / self.bound**2
            z = np.sqrt(v * chance[c]) * self.score(g[c], u)
            curvature += z @ z.T / len(x) / self.curve
            told = np.minimum(-2 * np.log(np.maximum(chance[c], _LEAST)) / self.deviance, 1.0)
            sums[6] += part * float((told if share is None else share * told).mean())
        for place, total in ((2, curvature), (4, spread)):
            sums[place], sums[place + 1] = np.diagonal(total).copy(), total[above]
        return tuple(rows * each for each in sums)

    def likely(self, x: Floats, unit: float = 1.0) -> tuple[Floats, Floats]:
        """Return the probability of each category, and the score of each about the predictors.

        Shapes are (levels, rows) and (levels, levels - 1, rows); x has one row an entry, in units of `unit`.
        """
        free, rows = self.levels - 1, x.shape[1]
        g = np.zeros((self.levels, free, rows))
        if self.model == "multinomial":
            width = len(x)
            odds = np.zeros((self.levels, rows))
            for k in range(free):
                odds[k + 1] = along(self.weights[k * width : (k + 1) * width], x, unit)
            odds = np.exp(np.clip(odds, -_FURTHEST, _FURTHEST))
            total = odds[0].copy()
            for each in odds[1:]:
                total += each
            chance = odds / total
            g[:] = chance[1:]
            for k in range(free):
                g[k + 1, k] -= 1
            return chance, g
        slope = along(self.weights[free:], x, unit)
        upto = np.zeros((self.levels + 1, rows))
        upto[-1] = 1.0
        for j in range(free):
            upto[j + 1] = expit(np.clip(self.weights[j] - slope, -_FURTHEST, _FURTHEST))
        chance = np.maximum(upto[1:] - upto[:-1], _LEAST)
        bent = upto * (1 - upto)
        for c in range(self.levels):
            if c < free:
                g[c, c] = -bent[c + 1] / chance[c]
            if c:
                g[c, c - 1] = bent[c] / chance[c]
        return chance, g

    def centred(self, u: Floats) -> Floats:
        """Return Tx less m."""
        return u - np.array(self.middle)[:, None] if self.middle else u

    def score(self, g: Floats, u: Floats) -> Floats:
        """Return the score of rows, (size, rows), whose score about the predictors is g."""
        if self.model == "multinomial":
            return np.asarray((g[:, None] * u[None]).reshape(self.size, -1))
        return np.concatenate([g, -_added(g) * u])

    def weight(self, chance: Floats, g: Floats, u: Floats, share: Floats | None) -> Floats:
        """Return v of each row, with its own weight if it has one."""
        squares = _added(u * u)
        if self.model == "multinomial":
            longest = np.max([_added(each * each) for each in g], axis=0) * squares
        else:
            longest = np.max([_added(each * each) + _added(each) ** 2 * squares for each in g], axis=0)
        inner = np.zeros((self.levels - 1, self.levels - 1, u.shape[1]))
        for part, each in zip(chance, g, strict=True):
            inner += part * each[:, None] * each[None]
        if self.model == "multinomial":
            bent = _added(_added(inner * inner)) * squares**2
        else:
            rows = _added(inner)
            bent = (
                _added(_added(inner * inner))
                + 2 * _added(rows * rows) * squares
                + _added(rows) ** 2 * squares**2
            )
        lengths, most = np.sqrt(longest), np.sqrt(bent)
        if share is not None:
            lengths, most = share * lengths, share * most
        v = np.minimum(self.bound / np.maximum(lengths, TINY), self.curve / np.maximum(most, TINY))
        v = np.minimum(v, 1.0)
        return np.asarray(v if share is None else share * v)

    def summer(self, run: Pass) -> _Choices:
        return _Choices(self, run)


class _Choices:
    def __init__(self, block: Choices, run: Pass) -> None:
        self._block, self._schema = block, run.schema
        self._count = np.zeros(1, np.int64)
        self._score, self._deviance = run.total(block.size), run.total(1)
        self._curvature, self._spread = (run.total(block.size, block.size) for _ in range(2))

    def add(self, part: Part) -> None:
        block, rows = self._block, part.vectors(self._block.design)
        u = block.centred(np.stack([along(row, rows.x) for row in block.turn]))
        share = None
        if block.weighted:
            column = self._schema.number(block.design.beside[-1])
            cells = column.middle + column.half / ONE * rows.beside[-1]
            share = np.clip(cells / column.high, 0.0, 1.0)
        chance, g = block.likely(rows.x, ONE)
        v = block.weight(chance, g, u, share)
        places = rows.y.astype(np.int64)
        own = np.take_along_axis(g, places[None, None], axis=0)[0]
        scores = clip_rows((v * block.score(own, u)).T, block.bound, nearest=True)
        self._count += rows.count
        self._score.add(scores.sum(axis=0))
        self._spread.add(exact_products(np.ascontiguousarray(scores.T, np.float64)))
        for each, of in zip(chance, g, strict=True):
            roots = clip_rows(
                (np.sqrt(v * each) * block.score(of, u)).T, math.sqrt(block.curve), nearest=True
            )
            self._curvature.add(exact_products(np.ascontiguousarray(roots.T, np.float64)))
        told = -2 * np.log(np.maximum(np.take_along_axis(chance, places[None], axis=0)[0], _LEAST))
        told = np.clip(told / block.deviance, 0.0, 1.0)
        told = told if share is None else share * told
        self._deviance.add(np.rint(told * ONE).astype(np.int64).sum(keepdims=True))

    def result(self) -> Sums:
        above = np.triu_indices(self._block.size, 1)
        found = [self._count, self._score.result()]
        for total in (self._curvature.result(), self._spread.result()):
            found += [np.diagonal(total).copy(), total[above]]
        return (*found, self._deviance.result())


def _added(parts: Floats) -> Floats:
    """Return the sum over the first axis, one entry after the other, so that no row depends on its place."""
    total = parts[0].copy()
    for each in parts[1:]:
        total += each
    return np.asarray(total)
