"""A table that stays where it is: its sums are computed by the engine that holds it (`cape.blocks.lazy`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw

from cape.blocks.block import Block, Sums
from cape.blocks.lazy import Lazy
from cape.data.schema import Number, Schema
from cape.noise import SecureStream

__all__ = ["Pushdown"]


class Pushdown:
    """Computes blocks inside the engine that holds the table."""

    def __init__(self, site: str, schema: Schema, frame: nw.LazyFrame[Any]) -> None:
        self._site, self._schema, self._frame = site, schema, frame

    def rows(self) -> int:
        return self._lazy([]).rows()

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[Sums]:
        """Return the sums of every block: a query that checks the cells, then what each block asks."""
        lazy = self._lazy([name for block in blocks for name in block.reads])
        if any(block.rate < 1 for block in blocks):
            raise lazy.refusal("sums over a sample of rows")
        return [block.pushed(lazy) for block in blocks]

    def clamped(self) -> dict[str, int]:
        return self._lazy([name for name, each in self._schema.items() if isinstance(each, Number)]).outside()

    def check(self) -> None:
        self._lazy(list(self._schema)).check()

    def _lazy(self, wanted: Sequence[str]) -> Lazy:
        return Lazy(self._site, self._schema, self._frame, wanted)
