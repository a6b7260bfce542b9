"""Sums of products of all pairs of columns, over complete rows.

Why they are exact stands in `cape.noise.exact_gram`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.parts import Part
from cape.blocks.steps import ONE
from cape.blocks.typical import Entries
from cape.core.arrays import Floats, narrowed
from cape.data.schema import Category, Number, Schema
from cape.noise import exact_gram

if TYPE_CHECKING:
    from cape.blocks.sql import Ask, SqlColumns, Totals

__all__ = ["Gram"]

_MOST_PUSHED = 64  # columns; their products are as many as a few statements have


@dataclass(frozen=True)
class Gram(Block):
    """Over the rows where no named column is missing: their count, the sums of t, and of t t'.

    Arrays: count (1,), first (columns,), square (columns,) the diagonal of t t', and cross
    (columns * (columns - 1) / 2,), what stands above it, row by row. Category columns enter as one
    column per value but the first (0 or 1), in the order of the schema: see `width`. `cut` has narrower
    bounds for some numeric columns: their cells are cut there, and t lies in [-1, 1] between them.
    """

    columns: tuple[str, ...]
    cut: tuple[tuple[str, Number], ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return self.columns

    def width(self, schema: Schema) -> int:
        """Return the number of columns once categories are spread out."""
        columns = [schema[name] for name in self.columns]
        return sum(len(each.values) - 1 if isinstance(each, Category) else 1 for each in columns)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        width = self.width(schema)
        return (
            Array("count", (1,), 0),
            Array("first", (width,), T_BITS),
            Array("square", (width,), 2 * T_BITS),
            Array("cross", (width * (width - 1) // 2,), 2 * T_BITS),
        )

    def added(self, part: Part) -> Sums:
        matrix = np.empty((part.rows, self.width(part.schema)))
        complete = np.ones(part.rows, bool)
        place, cut = 0, dict(self.cut)
        for name in self.columns:
            column = part.schema[name]
            if isinstance(column, Category):
                codes = part.codes(name)
                complete &= codes >= 0
                for code in range(1, len(column.values)):
                    matrix[:, place] = codes == code
                    place += 1
            else:
                np.multiply(part.steps(name, cut.get(name)), 1 / ONE, out=matrix[:, place])
                complete &= ~np.isnan(matrix[:, place])
                place += 1
        gram = exact_gram(matrix if complete.all() else matrix[complete], bits=T_BITS)
        above = np.triu_indices(len(gram.x), 1)
        return np.array([gram.rows]), gram.x, np.diagonal(gram.xx), gram.xx[above]

    def pushed(self, columns: SqlColumns) -> Ask | None:
        from cape.blocks.sql import Ask

        if self.width(columns.schema) > _MOST_PUSHED:
            return None
        cut = dict(self.cut)
        values = [value for name in self.columns for value in columns.spread(name, cut.get(name))]
        everyone = range(len(values))
        above = [(i, j) for i in everyone for j in everyone[i + 1 :]]
        squares = [(i, i) for i in everyone]

        def finish(found: Mapping[int, Totals]) -> Sums:
            products = narrowed(found[0].products)
            square, cross = products[: len(squares)], products[len(squares) :]
            return np.array([found[0].rows]), np.array(found[0].sums, np.int64), square, cross

        return Ask(finish, values, products=squares + above, complete=self.columns)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        cut = dict(self.cut)
        found = Entries([cut.get(name) or schema[name] for name in self.columns])
        above = np.column_stack(np.triu_indices(len(found.mean), 1))
        means = np.ones(1), found.mean, found.powers[:, 2], found.products(above)
        return tuple(rows * mean for mean in means)
