"""Sums of products of a row's entries by group.

Claim. The sums are the true integers of a set of rows, in whichever parts and order it comes.
Reason. Entries are whole steps within 2^20: sums of at most 8192 of them are exact in float64, and sums of
their products by `cape.noise.exact_products`. Parts are added as integers (`Total`).
Tested in tests/unit/blocks/test_products.py.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.design import Design
from cape.blocks.parts import Part, Pass
from cape.blocks.tensors import Tensors, Term
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data.schema import Schema
from cape.noise import exact_products

__all__ = ["GroupedProducts", "Products"]

_MOST_SUMS = 1 << 22
_MOST_ENTRIES = 1000
_TERMS = (Term(0, (0.0, 1.0)), Term(0, (0.0, 0.0, 1.0)), Term(1), Term(1, (0.0, 1.0)), Term(2))


@dataclass(frozen=True)
class Products:
    """The products in one array: places i <= j in (1, x, y).

    `name` is one of "count", "y", "x", "yy", "xy", "square" and "cross": of two different entries of x.
    """

    name: str
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class GroupedProducts(Block):
    """Over complete rows with a known group: sums of the products of (1, x, y).

    Arrays: those of `products`, each (groups, products).

    Attributes:
        design: how a row becomes x and y.
        by: the category column that groups rows.
    """

    design: Design
    by: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.design.columns, self.by)

    def products(self, schema: Schema) -> tuple[Products, ...]:
        """Return what each array holds."""
        width = self.design.width(schema)
        if width > _MOST_ENTRIES:
            raise InvalidInput(
                f"the features have {width:,} entries; at most {_MOST_ENTRIES:,} are possible by site: use "
                "fewer features, or categories with fewer values"
            )
        x, y = range(1, width + 1), width + 1
        found = {
            "count": ((0, 0),),
            "y": ((0, y),),
            "x": tuple((0, i) for i in x),
            "yy": ((y, y),),
            "xy": tuple((i, y) for i in x),
            "square": tuple((i, i) for i in x),
            "cross": tuple(itertools.combinations(x, 2)),
        }
        return tuple(Products(name, places) for name, places in found.items() if places)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        if self.design.target is None or self.design.intercept:
            raise InvalidInput("products by group need a design with a target and without an intercept")
        groups = len(schema.category(self.by).values)
        if groups * (self.design.width(schema) + 2) ** 2 > _MOST_SUMS:
            raise InvalidInput(f"products by group are for few groups and features, not {groups} groups")
        bits = {"count": 0, "y": T_BITS, "x": T_BITS}
        return tuple(
            Array(
                f"{each.name} by group",
                (groups, len(each.places)),
                bits.get(each.name, 2 * T_BITS),
            )
            for each in self.products(schema)
        )

    def summer(self, run: Pass) -> _Summer:
        return _Summer(self, run)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        width = self.design.width(schema)
        count, y, yy, x, xy, square, *cross = Tensors(self.design, _TERMS).typical(schema, rows)
        whole = np.zeros((width + 2, width + 2))
        whole[0, 0], whole[0, 1:-1], whole[0, -1] = count[0], x, y[0]
        whole[1:-1, 1:-1] = np.diag(square)
        inner = np.triu_indices(width, 1)
        whole[1:-1, 1:-1][inner] = cross[0] if cross else 0.0
        whole[1:-1, -1], whole[-1, -1] = xy, yy[0]
        shares = np.array(schema.category(self.by).shares)
        return tuple(_chosen(np.multiply.outer(shares, whole), each) for each in self.products(schema))


class _Summer:
    def __init__(self, block: GroupedProducts, run: Pass) -> None:
        self._block, self._schema = block, run.schema
        height = block.design.width(run.schema) + 2
        self._totals = [run.total(height, height) for _ in run.schema.category(block.by).values]

    def add(self, part: Part) -> None:
        rows = part.vectors(self._block.design)
        codes = part.codes(self._block.by)
        codes = codes if rows.complete is None else codes[rows.complete]
        for code in np.unique(codes[codes >= 0]):
            here = codes == code
            held = rows.all if here.all() else np.ascontiguousarray(rows.all[:, here])
            whole = np.zeros((len(held) + 1, len(held) + 1), np.int64)
            whole[0, 0] = held.shape[1]
            whole[0, 1:] = np.add.reduce(held, axis=1).astype(np.int64)
            whole[1:, 1:] = exact_products(held)
            self._totals[code].add(whole)

    def result(self) -> Sums:
        whole = np.stack([total.result() for total in self._totals])
        return tuple(_chosen(whole, each) for each in self._block.products(self._schema))


def _chosen(whole: NDArray[Any], products: Products) -> NDArray[Any]:
    """Return the sums of some products out of all, (groups, 1 + width + 1, 1 + width + 1)."""
    first, second = zip(*products.places, strict=True)
    return whole[:, list(first), list(second)]
