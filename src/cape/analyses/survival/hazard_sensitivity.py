"""How far one row moves what a parametric regression of hazards asks for.

*First question* (`exposure_query`). Claim. With weights on squares n for exits and for rows that stay, d for
events, o for their number, t for time at risk, x for sums of x over events, and q for xx' (off-diagonals
counted twice), q <= x / 2, one row changes the sums, each divided by its scale, squared, under replace-one by
at most

    n E + t s + 2 d + 2 o (s - 1) + 4 x,

E = 2 if all rows are at risk from the start and 8 if they may enter later, s = 1 without strata and 2 with,
and under add-remove by c + n E' + t + d + o + x + q, E' = 1 or 2, c the weight of the count.
Reason. A row leaves in one cell or stays, and enters in one at most: its vector is of length 1, or sqrt(2)
with entry, and two such differ by at most sqrt(2), or 2 sqrt(2). Time is in [0, 1] and in one stratum.

- *Both rows have an event.* Events are in one cell each: 2 d. Their number changes only between strata. With
  r and r' the lengths of x and x', and k the cosine between x and -x', sums of x change by at most x (r² +
  r'² + 2 r r' |k|) and xx' by q (r⁴ + r'⁴ - 2 r² r'² k²). The sum is convex in r and in r', since 2 x - 4 q
  >= 0, so each is 0 or 1; for both 1 it is x (2 + 2 |k|) + 2 q (1 - k²), which rises in |k|, to 4 x.
- *One has an event*: d + o + x + q in place of 2 d + 2 o (s - 1) + 4 x, which is no less where o <= d +
  2.5 x.
- *A row is added, left out, or replaced by an incomplete one*: its own vector, as above; under replace-one c
  is the largest that leaves this below the first.

Truncation moves time by less than a step of 2^-20 an entry.

*Later questions* (`martingale_query`). Claim. A row adds (s, Z, ss', a) with s and a at most 1 long, Z
without negative eigenvalues and of trace at most 1, in the block's units, and with a trend another vector of
length at most 1. With weights 1, b, m <= 1/2, w and h, one row changes the sums by at most sqrt(4 + 2 b + 4 w
+ 4 h) under replace-one, and by sqrt(1 + b + m + w + h + c) under add-remove: the spread ss' is free.
Reason. With r and r' the lengths of s and s', k the cosine between s and -s',

    |s - s'|² + m |ss' - s's''|² = r² + r'² + 2 r r' k + m (r⁴ + r'⁴ - 2 r² r'² k²)

is convex in r and r', since 2 - 4 m >= 0; it is at most 1 + m if one is 0, and 2 + 2 k + 2 m (1 - k²) <= 4 if
both are 1, because that rises in k. |Z - Z'|² is at most 2, since Z is no longer than its trace and the inner
product of two such matrices is not negative; |a - a'| is at most 2, and so for the trend. An incomplete row
leaves the vector of the other, 1 + b + m + w + h + c, and c is what makes that the same.

Rounded s and trends are no longer than 1, the trace of a rounded Z is at most 1, and products are those of
rounded ones. The released s differs from the one in products by half a step of 2^-20 an entry, a difference
of two by sqrt(d) steps for d entries. Rounding may make a longer by sqrt(k) + 3 steps for k cells.
Tested in tests/unit/analyses/survival/test_hazard_sensitivity.py.
"""

from __future__ import annotations

import math

from cape.blocks import Exposure, Martingale
from cape.blocks.block import T_BITS
from cape.data import Schema
from cape.engine.query import Neighbours, Query

__all__ = ["exposure_query", "martingale_query"]

_FLOAT = 1 + 1e-12
# Weights on squares; `python -m benchmarks.survival_cox choices` halves and doubles each.
EXITS, EVENTS, TOTAL, TIME = 0.12, 0.12, 1.0, 1.0
SUM, SQUARE = 1.0, 0.5
CURVE, SPREAD, BASELINE, TESTED = 0.5, 0.3, 0.25, 0.25
_COUNT = 1 / 8  # of all else, where the number of rows is private


def exposure_query(block: Exposure, schema: Schema, neighbours: Neighbours) -> Query:
    """Return the first question: proof at the head of the module."""
    entering, strata = block.follow_up.times.entry is not None, 2 if block.follow_up.many(schema) > 1 else 1
    alone = EXITS * (2 if entering else 1) + TIME + EVENTS + TOTAL + SUM + SQUARE
    both = EXITS * (8 if entering else 2) + TIME * strata + 2 * EVENTS + 2 * TOTAL * (strata - 1) + 4 * SUM
    replace = neighbours == "replace-one"
    count = both - alone if replace else alone * _COUNT
    weights = (count, EXITS, EVENTS, EXITS, TOTAL, TIME, SUM, SQUARE, 2 * SQUARE)
    steps = 2 * math.sqrt(2 * TIME)
    sensitivity = math.sqrt(both if replace else alone + count) + math.ldexp(steps, -T_BITS)
    return Query((block,), (tuple(1 / math.sqrt(each) for each in weights),), sensitivity * _FLOAT)


def martingale_query(block: Martingale, neighbours: Neighbours) -> Query:
    """Return a later question: proof at the head of the module."""
    tested = TESTED if block.trend else 0.0
    alone = 1 + CURVE + SPREAD + BASELINE + tested
    both = 4 + 2 * CURVE + 4 * BASELINE + 4 * tested
    replace = neighbours == "replace-one"
    count = both - alone if replace else alone * _COUNT
    weights = [count, 1.0, CURVE, 2 * CURVE, SPREAD, 2 * SPREAD, BASELINE, *([tested] if tested else [])]
    steps = math.sqrt(block.many) + 2 * (math.sqrt(len(block.hazards)) + 3) * math.sqrt(BASELINE)
    sensitivity = math.sqrt(both if replace else alone + count) + math.ldexp(steps, -T_BITS)
    return Query((block,), (tuple(1 / math.sqrt(each) for each in weights),), sensitivity * _FLOAT)
