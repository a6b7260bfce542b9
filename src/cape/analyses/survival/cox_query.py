"""How far one row moves what a Cox regression asks for.

*First question* (`leaving_query`). Claim. With k columns of features, and weights on squares n for who leaves
when and o for totals, one row changes the sums, each divided by its scale, squared, under replace-one by at
most 2 k + 2 n E + 2 o, E = 2 if rows may enter late and else 1, and under add-remove by k + n E + o.
Reason. A row is in one bin of each column. It is in one bin at most of all rows that leave and stay, in one
of those that enter, and in one of the totals.

*Later questions* (`hazard_query`). Claim. A row adds (s, Z, ss', e, L, a, h, t) with s, L, a, h and t at most
1 long, Z without negative eigenvalues and of trace at most 1, and e one of several unit vectors (its bin of
lengths), in the block's units. With weights 1, b, m <= 1/2, l, and v for L, a, h and t together, where they
are asked for, on their squares (off-diagonals counted twice), one row changes the sums by at most
sqrt(4 + 2 b + 2 l + 4 v) under replace-one, and by sqrt(1 + b + m + l + v + c) under add-remove, c the weight
of the count: the spread ss' is free.
Reason. With r and r' the lengths of s and s', k the cosine between s and -s',

    |s - s'|² + m |ss' - s's''|² = r² + r'² + 2 r r' k + m (r⁴ + r'⁴ - 2 r² r'² k²)

is convex in r and r', since 2 - 4 m >= 0; it is at most 1 + m if one is 0, and 2 + 2 k + 2 m (1 - k²) <= 4 if
both are 1, because that rises in k. |Z - Z'|² is at most 2, since Z is no longer than its trace and the inner
product of two such matrices is not negative; |e - e'|² is at most 2, and the others differ by at most 2 each.
An incomplete row leaves the vector of the other, 1 + b + m + l + v + c, and c is what makes that the same.

Where n > 1 rows of a person count, the spread is that between persons, divided by a scale that is n times
smaller, and a person changes the sums by at most n times these numbers: `score_query` has the proof, with L,
a, h and t as means over n places. Half a step of 2^-20 an entry by which vectors in the spread are rounded is
counted.

Rounded L, h and t are no longer than 1, the trace of a rounded Z is at most 1, and products are those of
rounded ones. The released s differs from the one in products by half a step of 2^-20 an entry, a difference
of two by sqrt(d) steps for d entries. Rounding may make a longer by sqrt(k) + 3 steps for k cells.
Tested in tests/unit/analyses/survival/test_cox_query.py and tests/unit/analyses/test_clustered.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cape.analyses.regression.marginals import marginals_query
from cape.blocks import HazardScores, Leaving
from cape.blocks.block import T_BITS
from cape.data import Schema
from cape.engine.query import Neighbours, Query

__all__ = ["Parts", "hazard_query", "leaving_query"]

_FLOAT = 1 + 1e-12
LEAVING, TOTALS = 0.5, 1.0
_COUNT = 1 / 8  # of all else, where the number of rows is private


@dataclass(frozen=True)
class Parts:
    """A stage's share of the budget, and the weights on squares of what goes with the scores."""

    share: float
    curvature: float
    spread: float
    lengths: float
    level: float
    cells: float
    means: float
    trend: float

    def beside(self, block: HazardScores) -> float:
        """The weights of what differs by twice its length."""
        asked = self.level + self.cells
        return asked + (self.means if block.groups else 0.0) + (self.trend if block.trend else 0.0)

    def alone(self, block: HazardScores) -> float:
        """The squared length of what one row adds, without the count."""
        lengths = self.lengths if block.lengths else 0.0
        return 1 + self.curvature + self.spread + lengths + self.beside(block)

    def both(self, block: HazardScores) -> float:
        """The squared difference of what two rows add."""
        lengths = self.lengths if block.lengths else 0.0
        return 4 + 2 * self.curvature + 2 * lengths + 4 * self.beside(block)


def leaving_query(columns: Sequence[str], block: Leaving, schema: Schema, neighbours: Neighbours) -> Query:
    """Return the first question, how rows are spread over columns and who leaves when."""
    asked = marginals_query(columns, schema, neighbours)
    times = LEAVING * (2 if block.late else 1) + TOTALS
    if neighbours == "replace-one":
        times *= 2
    leaving, totals = 1 / math.sqrt(LEAVING), 1 / math.sqrt(TOTALS)
    scales = (leaving, leaving, leaving, totals, *([leaving] if block.late else []))
    return Query(
        (*asked.blocks, block), (*asked.scales, scales), math.sqrt(asked.sensitivity**2 + times) * _FLOAT
    )


def hazard_query(block: HazardScores, parts: Parts, neighbours: Neighbours) -> Query:
    """Return a later question: proof at the head of the module."""
    replace = neighbours == "replace-one"
    alone, both = parts.alone(block), parts.both(block)
    count = both - alone if replace else alone * _COUNT
    weights = [
        count, 1.0, parts.curvature, 2 * parts.curvature,
        block.persons**2 * parts.spread, 2 * block.persons**2 * parts.spread,
        parts.level, parts.cells,
        *([parts.means] if block.groups else []),
        *([parts.trend] if block.trend else []),
        *([parts.lengths] if block.lengths else []),
    ]  # fmt: skip
    steps = math.sqrt(len(block.weights)) * (1 if block.persons == 1 else 1 + 8 * math.sqrt(parts.spread))
    steps += 2 * (math.sqrt(len(block.hazards)) + 3) * math.sqrt(parts.cells)
    sensitivity = math.sqrt(both if replace else alone + count) + math.ldexp(steps, -T_BITS)
    return Query((block,), (tuple(1 / math.sqrt(each) for each in weights),), sensitivity * _FLOAT)
