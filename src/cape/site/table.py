"""One site's rows and what can be asked of them: exact sums, whatever holds the rows.

`Table` opens a source (see `cape.site.sources`) and computes blocks over it, in batches on this machine
(`cape.site.batches`) or inside the engine that holds it (`cape.site.pushdown`). Both give the same integers:
why, stands at the head of `steps`, `sums` and `pushdown`.

A table is taken to stay as it is while a study runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from cape.errors import InvalidInput
from cape.site import faults
from cape.site.batches import Batches
from cape.site.blocks import Block, Counts, Custom, Gram, Moments
from cape.site.pushdown import Pushdown
from cape.site.schema import Schema
from cape.site.sources import open_source

__all__ = ["Table"]


class Table:
    """A site's name, its rows, and the schema that they are read by.

    >>> import polars
    >>> table = Table("cleveland", polars.DataFrame({"age": [54.0, 90.0, None]}), Schema(age=(18, 90)))
    >>> table.sums([Moments(("age",))])
    [(array([2]), array([1048576]), array([1099511627776]))]

    Args:
        name: how errors call the site.
        source: a pandas or polars DataFrame; an Arrow table; a polars LazyFrame; a lazy table of another
            engine that narwhals knows (DuckDB, Dask, Spark, Ibis), which computes its sums itself; a path
            or glob of CSV or Parquet; `Csv` or `Database`.
        schema: the study's columns. The table may have others; they are not read.

    Raises:
        DataError: when the source cannot be read or does not fit the schema. Its text is for people at
            the site, `public` for everyone else.
    """

    def __init__(self, name: str, source: Any, schema: Schema) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"a site's name must be text, not {name!r}")
        if not isinstance(schema, Schema):
            raise InvalidInput(f"schema must be a Schema, not {type(schema).__name__}")
        self._name, self._schema = name, schema
        opened = open_source(name, source)
        self._engine: Batches | Pushdown = (
            Pushdown(name, schema, opened)
            if isinstance(opened, nw.LazyFrame)
            else Batches(name, schema, opened)
        )

    @property
    def name(self) -> str:
        """How errors call the site."""
        return self._name

    @property
    def schema(self) -> Schema:
        """The columns that the rows are read by."""
        return self._schema

    def rows(self) -> int:
        """Return the number of rows. Whether others may know it depends on the study's neighbours."""
        return self._engine.rows()

    def sums(self, blocks: Sequence[Block]) -> list[tuple[NDArray[np.int64], ...]]:
        """Return the exact sums of every block, in the shapes of `block.arrays(schema)`.

        Rows in another order, in other batches or held by another engine give the same integers. These
        are the site's secrets: nothing but their noisy, masked form may leave.
        """
        blocks = list(blocks)
        for block in blocks:
            if not isinstance(block, (Moments, Gram, Counts, Custom)):
                raise InvalidInput(f"a block must be Moments, Gram, Counts or Custom, not {block!r}")
            block.arrays(self._schema)
        whole = [replace(block, cell=None) if isinstance(block, Counts) else block for block in blocks]
        found = self._engine.sums(whole)
        return [
            (block.pick(sums[0]),) if isinstance(block, Counts) else sums
            for block, sums in zip(blocks, found, strict=True)
        ]

    def clamped(self) -> dict[str, int]:
        """Return how many cells of each numeric column lie outside its bounds.

        For the site's own eyes: it is computed from the rows without noise, and never sent.
        """
        return self._engine.clamped()

    def check(self) -> None:
        """Read every cell that the schema names, and raise `DataError` at the first that does not fit.

        A table without rows is refused too; in a study whose sizes are private it is added up as it is.
        """
        self._engine.check()
        self.require_rows()

    def require_rows(self) -> None:
        """Raise `DataError` if the table is empty: where sizes are public, that is more likely a mistake."""
        if self.rows() == 0:
            raise faults.empty(self._name)

    def __repr__(self) -> str:
        return f"Table({self._name!r}, {self._schema!r})"
