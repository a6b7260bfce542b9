"""The count, the sum and the sum of squares of a scaled column: how far one person moves them.

Claim. With weights a, b, c (one over the squared scale) on the sums of t, of t² and on the count, and
tables of counts over the column with weights that add up to e, one row moves a column's sums, each divided
by its scale, by at most the root of `Weights.moved`; without tables, in the L1 norm, by `Weights.moved_l1`.
Reason. A row holds t in [-1, 1], or misses the cell and adds nothing. It is counted in one cell of a table.

- *Added or removed*: a t² + b t⁴ + c + e <= a + b + c + e, at |t| = 1.
- *Replaced, both present*: d = |t - t'| leaves |t + t'| <= 2 - d, because both lie in [-1, 1]. So a (t -
  t')² + b (t² - t'²)² = d² (a + b (t + t')²) is at most g(d) = d² (a + b (2 - d)²), which t = 1 and t' = 1
  - d attain. g' vanishes where 2 b (d - 1)(d - 2) + a = 0; if b >= 2 a there is a local maximum at d = (3 -
  sqrt(1 - 2 a / b)) / 2, otherwise g rises to g(2) = 4 a. The counts add 2 e at most. The second moment is
  *free*, g <= 4 a, as long as b / a is at most the least of (2 + d) / (d² (2 - d)), which is phi⁵ / 4 =
  2.7725... at d = sqrt(5) - 1, phi the golden ratio. Then t = 1 and t' = -1 attain 4 a + 2 e.
- *Replaced, one missing*: a + b + c + e again. So the private count is free too while that is at most
  4 a + 2 e. Where no cell is ever missing this cannot happen, and the count does not move.

In the L1 norm, with u, w, v one over the scales of the sums of t, of t² and of the count:

- *Added or removed, or replaced by a row that misses the cell*: u |t| + w t² + v <= u + w + v, at |t| = 1.
- *Replaced, both present*: as above d = |t - t'| leaves |t + t'| <= 2 - d, so that u d + w |t² - t'²| <= d
  (u + w (2 - d)), which t = 1 and t' = 1 - d attain. It rises up to d = 1 + u / (2 w): to 2 u at d = 2 if 2
  w <= u, so that the second moment is *free* up to half the weight of the first, and to (u + 2 w)² / (4 w)
  otherwise.

Rounding toward zero maps [-1, 1] into itself, so the bounds hold on the grid. Different columns move
independently: their squares add, and so do their moves in the L1 norm.
Tested in tests/unit/analyses/test_sensitivity.py, where a search attains the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cape.blocks import Moments
from cape.data import Schema
from cape.engine.query import Neighbours, Query

__all__ = ["Weights", "apart", "by_missing"]


@dataclass(frozen=True)
class Weights:
    """One over the squared scale of a column's sums: of t, of t², of the count, and of counts in tables."""

    first: float
    second: float
    count: float
    tables: float = 0.0

    @property
    def scales(self) -> tuple[float, float, float]:
        """The scales, in the order of the arrays of `Moments`."""
        return 1 / math.sqrt(self.count), 1 / math.sqrt(self.first), 1 / math.sqrt(self.second)

    @property
    def norm(self) -> float:
        """The most that one row holds, squared."""
        return self.first + self.second + self.count + self.tables

    def moved(self, neighbours: Neighbours, missing: bool) -> float:
        """Return the most that one row changes the sums of one column, squared: proof above."""
        if neighbours == "add-remove":
            return self.norm
        a, b = self.first, self.second
        moved = 4 * a
        if b >= 2 * a and b > 0:
            d = (3 - math.sqrt(1 - 2 * a / b)) / 2
            moved = max(moved, d * d * (a + b * (2 - d) ** 2))
        moved += 2 * self.tables
        return max(moved, self.norm) if missing else moved

    @classmethod
    def of_l1(cls, first: float, second: float, count: float) -> Weights:
        """Return weights given one over each scale, which is what the L1 norm counts."""
        return cls(first**2, second**2, count**2)

    @property
    def norm_l1(self) -> float:
        """The most that one row holds in the L1 norm, without tables."""
        return math.sqrt(self.first) + math.sqrt(self.second) + math.sqrt(self.count)

    def moved_l1(self, neighbours: Neighbours, missing: bool) -> float:
        """Return the most that one row changes the sums of one column in the L1 norm: proof above."""
        if neighbours == "add-remove":
            return self.norm_l1
        u, w = math.sqrt(self.first), math.sqrt(self.second)
        moved = 2 * u if 2 * w <= u else (u + 2 * w) ** 2 / (4 * w)
        return max(moved, self.norm_l1) if missing else moved


def by_missing(columns: tuple[str, ...], schema: Schema) -> Iterator[tuple[str, ...]]:
    """Yield the columns that may miss cells and those that never do, where there are any."""
    for missing in (True, False):
        part = tuple(name for name in columns if schema.number(name).missing == missing)
        if part:
            yield part


def apart(query: Query) -> float:
    """Return the most that two rows, both complete, differ in the moments that a query asks for.

    Columns move independently, by `Weights.moved` each. 0 if it asks for none.
    """
    total = 0.0
    for block, scales in zip(query.blocks, query.scales, strict=True):
        if isinstance(block, Moments):
            count, first, *second = scales
            weights = Weights(first**-2, second[0] ** -2 if second else 0.0, count**-2)
            total += len(block.columns) * weights.moved("replace-one", missing=False)
    return math.sqrt(total)
