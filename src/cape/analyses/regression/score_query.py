"""How far one row moves clipped scores with what goes with them.

Claim. A row adds (s, zz', ss', e, d) with |s| <= 1, |z| <= 1 and z parallel to s, e one of several unit
vectors (its bin of lengths) and 0 <= d <= 1, in the block's units. With weights 1, b, m <= 1/2, l and v on
their squares (off-diagonals counted twice), t = b + m, and c on the count, one row changes the sums, each
divided by its scale, by at most sqrt(B + 2 l + v) under replace-one, where

    B = max(4 + b, 2 + 2 t + 1 / (2 t) if t >= 1/2),

if c <= B - (1 + b + m) + l, and by sqrt(1 + b + m + l + v + c) under add-remove: the spread ss' is free.
Reason. Let r and a be the lengths of s and of zz', and k the cosine between s and -s'. The change of the
first three, squared, is

    f = r² + r'² + 2 r r' k + b (a² + a'² - 2 a a' k²) + m (r⁴ + r'⁴ - 2 r² r'² k²).

It is convex in a and in a', and in r and r' because 2 - 4 m >= 0, so each of the four is 0 or 1.

- *r = 0* (or r' = 0): f <= 1 + m + 2 b, which is at most 4 + b for b <= 2.
- *r = r' = 1, and a or a' is 0*: f <= 2 + 2 k + b + 2 m (1 - k²), which rises up to k = 1: 4 + b.
- *All are 1*: f = 2 + 2 k + 2 t (1 - k²). For t >= 1/2 its top is at k = 1 / (2 t): 2 + 2 t + 1 / (2 t). For
  smaller t it rises up to k = 1: 4.

Two rows are in one bin each: 2 l more. Deviances differ by at most 1: v more. A row that is added, left out,
or replaced by an incomplete one changes the sums, squared, by 1 + b + m + l + v + c at most.

Rounding moves each entry of s and z by at most three steps of 2^-20 and makes neither longer. Sums of
products are those of truncated vectors, which are parallel no more: a difference of two rows moves by at
most 6 sqrt(d) (1 + 2 sqrt(b) + 2 sqrt(m)) steps by that, and 8 in place of 6 are added.

*Persons.* Where n > 1 rows of a person count, the spread is that between persons (`blocks.person_sums`): a
person adds SS' to it, and n (S, C, E, D) to the others: S, C, E and D are means over n places, of which a
part q is filled. With the spread divided by a scale that is n times smaller, a person changes the sums by at
most n sqrt(4 + 2 b + 2 l + v) under replace-one, if c <= 3 + b - m + l, and by n sqrt(1 + b + m + l + v + c)
under add-remove.
Reason. |S| <= q, |C| <= q because a mean of zz' is no longer than the longest, |E| <= q. Of C and C', without
negative eigenvalues, and of E and E', without negative entries, the inner product is not negative:
|C - C'|² <= q² + q'², and so for E. In the lengths r <= q and r' <= q' of S and S'

    |S - S'|² + m |SS' - S'S''|² = r² + r'² + 2 r r' k + m (r⁴ + r'⁴ - 2 r² r'² k²)

is convex, since 2 - 4 m >= 0, so each is 0 or q; at r = q and r' = q' the sum with b, l and c (q - q')² is
convex in q and in q', so that each is 0 or 1: 1 + b + m + l + c, or at most 4 + 2 b + 2 l. Deviances differ
by at most 1. Rounding moves t by half a step an entry, which the steps above cover.
Tested in tests/unit/analyses/regression/test_score_query.py and test_clustered.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cape.blocks import Scores
from cape.blocks.block import T_BITS
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.query import Neighbours, Query

__all__ = ["MOST_WEIGHTS", "Parts", "check_few", "score_query"]

MOST_WEIGHTS = 2000  # matrices of them are made, and solved, for every stage of a request
_DEVIANCE = 0.02
_FLOAT = 1 + 1e-12
_COUNT = 1 / 8  # of all else, where the number of rows is private


def check_few(weights: int, most: int = MOST_WEIGHTS) -> None:
    """Raise `InvalidInput` for more weights than a site can turn and solve for before it is paid."""
    if weights > most:
        raise InvalidInput(
            f"the model has {weights:,} coefficients; at most {most:,} are possible: use fewer "
            "features, or categories with fewer values"
        )


@dataclass(frozen=True)
class Parts:
    """A stage's share of the budget, and the weights of what goes with the scores."""

    share: float
    curvature: float
    spread: float
    lengths: float

    @property
    def alone(self) -> float:
        """The squared length of what one row adds, without the count and the deviance."""
        return 1 + self.curvature + self.spread + self.lengths

    @property
    def both(self) -> float:
        """The squared difference of what two rows add."""
        together = self.curvature + self.spread
        parallel = 2 + 2 * together + 1 / (2 * together) if together >= 0.5 else 4.0
        return max(4 + self.curvature, parallel) + 2 * self.lengths

    @property
    def between(self) -> float:
        """The squared difference of what two persons of several rows add, over that of their number."""
        return 4 + 2 * self.curvature + 2 * self.lengths

    def moved(self, neighbours: Neighbours, persons: int = 1) -> float:
        """Return by how much one row, or one of the rows of a person, changes all of it, but for rounding."""
        both = self.both if persons == 1 else self.between
        return math.sqrt(both if neighbours == "replace-one" else self.alone * (1 + _COUNT))


def score_query(block: Scores, parts: Parts, schema: Schema, neighbours: Neighbours) -> Query:
    """Return the question for scores: proof at the head of the module."""
    replace = neighbours == "replace-one"
    alone = parts.alone if block.lengths else parts.alone - parts.lengths
    both = parts.both if block.persons == 1 else parts.between
    both = both if block.lengths else both - 2 * parts.lengths
    count = both - alone if replace else alone * _COUNT
    weights = [
        count, 1.0, parts.curvature, 2 * parts.curvature,
        block.persons**2 * parts.spread, 2 * block.persons**2 * parts.spread,
        *([parts.lengths] if block.lengths else []),
        *([_DEVIANCE] if block.deviance else []),
    ]  # fmt: skip
    deviance = _DEVIANCE if block.deviance else 0.0
    if replace:
        width = block.design.width(schema)
        entries = math.sqrt(width) * (1 + 2 * math.sqrt(parts.curvature) + 2 * math.sqrt(parts.spread))
        sensitivity = math.sqrt(both + deviance) + math.ldexp(entries, 3 - T_BITS)
    else:
        sensitivity = math.sqrt(alone + count + deviance)
    return Query((block,), (tuple(1 / math.sqrt(each) for each in weights),), sensitivity * _FLOAT)
