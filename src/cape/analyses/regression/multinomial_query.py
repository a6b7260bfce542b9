"""How far one row moves clipped scores whose curvature is a sum of several products: those of several
categories, and those of laws of time.

Claim. A row adds (s, C, ss', e, d) with |s| <= 1, C positive semidefinite, the root |C| of the sum of its
squares at most 1, e one of several unit vectors (its bin of lengths) and 0 <= d <= 1, in the block's units.
With weights 1, b, m <= 1/2, l and v on their squares (off-diagonals counted twice) and c on the count, one
row changes the sums, each divided by its scale, by at most sqrt(4 + 2 b + 2 l + v) under replace-one if
c <= 3 + b - m + l, and by sqrt(1 + b + m + l + v + c) under add-remove: the spread ss' is free.
Reason. |C - C'|² <= |C|² + |C'|² <= 2, because the inner product of two positive semidefinite matrices is not
negative. With r, r' the lengths of s and s' and k the cosine between s and -s', the scores and the spread
change, squared, by

    f = r² + r'² + 2 r r' k + m (r⁴ + r'⁴ - 2 r² r'² k²).

It is convex in r and r' because 2 - 4 m >= 0, so that each is 0 or 1: f is 1 + m, or 2 + 2 k + 2 m (1 - k²),
which rises up to k = 1: 4. Two rows are in one bin each: 2 l more. Deviances differ by at most 1: v more. A
row that is added, left out, or replaced by an incomplete one changes the sums, squared, by
1 + b + m + l + v + c at most.

Rounding adds nothing but a part of 2^-44, which is counted: the bounds are those of the integers that a block
makes of s and of the roots of C, and the sums of products are those of these integers.

Where several rows of a person count, `score_query` has the proof: its bound is this one, and half a step of
2^-20 an entry by which the vectors in the spread are rounded is counted.
Tested in tests/unit/analyses/regression/test_multinomial.py and test_clustered.py.
"""

from __future__ import annotations

import math

from cape.analyses.regression.score_query import Parts
from cape.blocks import Choices, LawScores
from cape.blocks.block import T_BITS
from cape.engine.query import Neighbours, Query

__all__ = ["choice_query", "moved"]

_DEVIANCE = 0.02
_FLOAT = 1 + 1e-12
_COUNT = 1 / 8  # of all else, where the number of rows is private


def moved(parts: Parts, neighbours: Neighbours) -> float:
    """Return by how much one row changes all of it, without deviances."""
    if neighbours == "replace-one":
        return math.sqrt(4 + 2 * parts.curvature + 2 * parts.lengths)
    return math.sqrt(parts.alone * (1 + _COUNT))


def choice_query(block: Choices | LawScores, parts: Parts, neighbours: Neighbours) -> Query:
    """Return the question for scores: proof at the head of the module."""
    replace = neighbours == "replace-one"
    lengths = parts.lengths if block.lengths else 0.0
    alone = 1 + parts.curvature + parts.spread + lengths
    squared = 4 + 2 * parts.curvature + 2 * lengths
    count = squared - alone if replace else alone * _COUNT
    deviance = _DEVIANCE if block.deviance else 0.0
    weights = [
        count, 1.0, parts.curvature, 2 * parts.curvature,
        block.persons**2 * parts.spread, 2 * block.persons**2 * parts.spread,
        *([lengths] if block.lengths else []),
        *([deviance] if block.deviance else []),
    ]  # fmt: skip
    sensitivity = math.sqrt((squared if replace else alone + count) + deviance)
    if block.persons > 1:
        sensitivity += 2 * math.ldexp(math.sqrt(block.size * parts.spread), 2 - T_BITS)
    return Query((block,), (tuple(1 / math.sqrt(each) for each in weights),), sensitivity * _FLOAT)
