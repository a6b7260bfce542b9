"""Sums by group: a block for each category of a column, over the rows of that category alone.

Claim. A row counts in the sums of one group at most, and there it adds what it adds to that group's block.
The sums are the integers that the block gives for the table of the group's rows.
Reason. A cell has one code, or none where it is missing. The rows with a code are handed to the code's block
as a part of their own; sums over parts do not depend on how rows are parted (`parts`). A database divides the
rows by the column, and each division answers as a table does.
Tested in tests/unit/blocks/test_grouped.py, tests/unit/blocks/test_backends.py and
tests/unit/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cape.blocks.block import Array, Block, Sums
from cape.blocks.parts import Part, Pass, Summer
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

if TYPE_CHECKING:
    from cape.blocks.sql import Ask, SqlColumns, Totals, Value

__all__ = ["Grouped"]


@dataclass(frozen=True)
class Grouped(Block):
    """One block for each category of `by`, None where nothing is asked of a group.

    Arrays: those of the first group's block, then those of the second's, and so on. A row whose `by` is
    missing contributes nothing.
    """

    by: str
    blocks: tuple[Block | None, ...]

    def __post_init__(self) -> None:
        for block in self.blocks:
            if block is not None and (block.brings_code or block.at_once or block.rate < 1):
                raise InvalidInput(f"{type(block).__name__} cannot be added up by group")

    @property
    def reads(self) -> tuple[str, ...]:
        own = (name for block in self.blocks if block is not None for name in block.reads)
        return tuple(dict.fromkeys((*own, self.by)))

    @property
    def ways(self) -> int:
        inner = max((block.ways for block in self.blocks if block is not None), default=0)
        return inner + 1 if inner else 0

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        many = len(schema.category(self.by).values)
        if len(self.blocks) != many:
            raise InvalidInput(f"column {self.by!r} has {many} categories: give as many blocks")
        return tuple(array for block in self.blocks if block is not None for array in block.arrays(schema))

    def summer(self, run: Pass) -> Summer:
        return _ByCode(self, run)

    def pushed(self, columns: SqlColumns) -> Ask | None:
        from cape.blocks.sql import Ask

        asked: dict[Block, Ask] = {}
        for block in self.blocks:
            if block is not None and block not in asked:
                ask = block.pushed(columns)
                if not isinstance(ask, Ask):
                    return None
                asked[block] = ask
        asks = list(asked.values())
        if not asks or any(one.by != asks[0].by or one.complete != asks[0].complete for one in asks):
            return None
        starts: dict[Block, tuple[int, int]] = {}
        values: list[Value] = []
        products: list[tuple[int, int]] = []
        for block, ask in asked.items():
            starts[block] = len(values), len(products)
            products += [(i + len(values), j + len(values)) for i, j in ask.products]
            values += ask.values
        inner = asks[0].by
        cells = math.prod(
            len(columns.schema.category(name).values) if bins is None else bins.count for name, bins in inner
        )

        def finish(found: Mapping[int, Totals]) -> Sums:
            sums: list[Sums] = []
            for group, block in enumerate(self.blocks):
                if block is None:
                    continue
                ask, (value, product) = asked[block], starts[block]
                many, pairs = len(ask.values), len(ask.products)
                own = {} if inner else {0: _nothing(many, pairs)}
                for cell, totals in found.items():
                    if cell // cells == group:
                        own[cell % cells] = totals._replace(
                            counts=totals.counts[value : value + many],
                            sums=totals.sums[value : value + many],
                            products=totals.products[product : product + pairs],
                        )
                sums.append(ask.finish(own))
            return tuple(array for each in sums for array in each)

        return Ask(finish, values, products, asks[0].complete, [(self.by, None), *inner])

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        shares = schema.category(self.by).shares
        return tuple(
            array
            for block, share in zip(self.blocks, shares, strict=True)
            if block is not None
            for array in block.typical(schema, max(round(rows * share), 1))
        )


def _nothing(values: int, products: int) -> Totals:
    from cape.blocks.sql import Totals

    return Totals(0, [0] * values, [0] * values, [0] * products)


class _ByCode:
    """Hands the rows of each code to the summer of its block."""

    def __init__(self, block: Grouped, run: Pass) -> None:
        self._by = block.by
        self._summers = [None if each is None else each.summer(run) for each in block.blocks]
        self._reads = block.reads

    def add(self, part: Part) -> None:
        codes = part.codes(self._by)
        for code, summer in enumerate(self._summers):
            here = codes == code
            if summer is not None and np.any(here):
                summer.add(part.only(here, self._reads))

    def result(self) -> Sums:
        return tuple(array for each in self._summers if each is not None for array in each.result())
