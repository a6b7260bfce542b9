"""Clipped scores of the logistic likelihood at given weights, their curvature and their spread.

Claim. Results are the same integers for the same multiset of rows, in whichever parts and order; the score of
one row is at most `bound` long and its part of the curvature at most `curve`, certainly.
Reason. w·x and u = Tx are added up column by column, and p and the weight v are computed for each row by
itself. Scores and the roots of the curvature then become integers of length at most 2^20 (`clip`), whatever
rounding did. Sums of their products are exact by `cape.noise.exact_products`.
Tested in tests/blocks/test_scores.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from cape import check
from cape.arrays import Floats
from cape.blocks import typical
from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.clip import clip_rows
from cape.blocks.parts import Part, Pass
from cape.blocks.steps import ONE
from cape.data.schema import Schema
from cape.errors import InvalidInput
from cape.noise import exact_products

__all__ = ["Scores"]

_LARGEST = 1e100  # of weights
_LARGEST_TURN = 1e30  # far above any use; squares of lengths stay far below where floats end
_TYPICAL = 1024  # rows, for plans
_TINY = 1e-300  # in place of a length of 0


@dataclass(frozen=True)
class Scores(VectorBlock):
    """Over complete rows, at given weights w, with p = 1 / (1 + exp(-w·x)) and a target of -1 or 1:

    sums of the score s = v (p - (1 + y) / 2) u, with u = Tx, of its curvature v p (1 - p) uu' and of its
    spread ss'. The weight v is the largest, up to 1, for which the score of either category is at most
    `bound` long and the curvature at most `curve`. It does not depend on y, so that scores have mean 0 where
    w·x are the true log-odds, whatever is clipped.

    Arrays: count (1,), score (width,) in units of `bound`; square (width,), the diagonal of the curvature,
    and cross, what stands above it, row by row, in units of `curve`; the same for the spread, in units of
    bound².

    Attributes:
        weights: w.
        turn: the rows of T.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be.
    """

    weights: tuple[float, ...]
    turn: tuple[tuple[float, ...], ...]
    bound: float
    curve: float

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width = self.design.width(schema)
        if self.design.target is None or {len(self.weights), len(self.turn), *map(len, self.turn)} != {width}:
            raise InvalidInput(f"scores need a target, {width} weights and a turn of {width} by {width}")
        schema.category(self.design.target)
        for weight in self.weights:
            check.real("weights", weight, least=-_LARGEST, most=_LARGEST)
        for row in self.turn:
            for entry in row:
                check.real("turn", entry, least=-_LARGEST_TURN, most=_LARGEST_TURN)
        for name, value in (("bound", self.bound), ("curve", self.curve)):
            check.real(name, value, above=0.0, most=_LARGEST)
        pairs = width * (width - 1) // 2
        return (
            Array("count", (1,), 0),
            Array("score", (width,), T_BITS),
            *(
                Array(name, (size,), 2 * T_BITS)
                for what in ("curvature", "spread")
                for name, size in ((f"{what} square", width), (f"{what} cross", pairs))
            ),
        )

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose target does not depend on their features."""
        x, share = typical.rows(self.design, schema, _TYPICAL), self._share(schema)
        p, u = expit(x @ np.array(self.weights)), x @ np.array(self.turn).T
        squares, bent = np.einsum("ij,ij->i", u, u), p * (1 - p)
        v = self._weight(p, squares)
        spread = v**2 * (share * (1 - p) ** 2 + (1 - share) * p**2)
        above = np.triu_indices(u.shape[1], 1)
        found = [np.ones(1), (v * (p - share)) @ u / len(u) / self.bound]
        for each, unit in ((v * bent, self.curve), (spread, self.bound**2)):
            total = (u * each[:, None]).T @ u / len(u) / unit
            found += [np.diagonal(total).copy(), total[above]]
        return tuple(rows * each for each in found)

    def _share(self, schema: Schema) -> float:
        return 0.0 if self.design.target is None else schema.category(self.design.target).shares[1]

    def _weight(self, p: Floats, squares: Floats) -> Floats:
        """Return the weight of rows with these probabilities and squared lengths of u."""
        longest = np.maximum(p, 1 - p) * np.sqrt(squares)
        v = np.minimum(
            self.bound / np.maximum(longest, _TINY),
            self.curve / np.maximum(p * (1 - p) * squares, _TINY),
        )
        return np.asarray(np.minimum(v, 1.0))

    def summer(self, run: Pass) -> _Scores:
        return _Scores(self, run)


class _Scores:
    def __init__(self, block: Scores, run: Pass) -> None:
        width = len(block.weights)
        self._block = block
        self._count = np.zeros(1, np.int64)
        self._score = run.total(width)
        self._curvature, self._spread = run.total(width, width), run.total(width, width)

    def add(self, part: Part) -> None:
        block, rows = self._block, part.vectors(self._block.design)
        p = expit(_along(block.weights, rows.x))
        u = np.stack([_along(row, rows.x) for row in block.turn])
        squares = _along((ONE,) * len(u), u * u)
        v = block._weight(p, squares)
        scores = clip_rows((v * (p - (rows.y + ONE) / (2 * ONE)) * u).T, block.bound)
        roots = clip_rows((np.sqrt(v * (p * (1 - p))) * u).T, math.sqrt(block.curve))
        self._count += rows.count
        self._score.add(scores.sum(axis=0))
        self._spread.add(exact_products(np.ascontiguousarray(scores.T, np.float64)))
        self._curvature.add(exact_products(np.ascontiguousarray(roots.T, np.float64)))

    def result(self) -> Sums:
        above = np.triu_indices(len(self._block.weights), 1)
        found = [self._count, self._score.result()]
        for total in (self._curvature.result(), self._spread.result()):
            found += [np.diagonal(total).copy(), total[above]]
        return tuple(found)


def _along(weights: tuple[float, ...], columns: Floats) -> Floats:
    """Return weights·x of each row, x in steps: column by column, so that no row depends on its place."""
    total, product = np.zeros(columns.shape[1]), np.empty(columns.shape[1])
    for column, weight in zip(columns, weights, strict=True):
        np.multiply(column, weight / ONE, out=product)
        total += product
    return total
