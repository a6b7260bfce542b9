"""A query's rows, fetched once and kept in memory.

Which rows of a person count is decided in one pass and used in others, by the places of rows; a database may
give rows in another order each time that it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import polars as pl

from cape.data.databases.reader import SqlReader

__all__ = ["WholeReader"]

_AT_ONCE = 1 << 17  # rows that are fetched at a time


class WholeReader:
    """The rows of a query, in the order in which they were first fetched.

    Args:
        reader: reads them.
        columns: those that may be asked for; what the query does not give is left out.
    """

    text, notation = False, None

    def __init__(self, reader: SqlReader, columns: Sequence[str]) -> None:
        self._reader, self._columns = reader, columns
        self.what, self.advice = reader.what, reader.advice

    def names(self) -> list[str]:
        return self._reader.names()

    def rows(self) -> int:
        return sum(batch.height for batch in self._batches)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        return (part for batch in self._batches for part in batch.select(columns).iter_slices(rows))

    @cached_property
    def _batches(self) -> list[pl.DataFrame]:
        names = self.names()
        wanted = [name for name in dict.fromkeys(self._columns) if name in names] or names[:1]
        return list(self._reader.batches(wanted, _AT_ONCE))
