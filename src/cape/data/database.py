"""Rows of a query in a database that sums are not computed in: fetched in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from cape.data.databases import dialect_of, require_select

__all__ = ["QueryReader", "UriReader"]

_WHAT = "the database query"
_ADVICE = "check that it runs on its own on this connection"


class QueryReader:
    """A query on any connection that `polars.read_database` takes."""

    what, advice, text, notation = _WHAT, _ADVICE, False, None

    def __init__(self, query: str, connection: Any) -> None:
        known = getattr(getattr(connection, "dialect", None), "name", "")  # of SQLAlchemy
        require_select(query, dialect_of(str(known)))
        self._query, self._connection = query, connection

    def names(self) -> list[str]:
        for batch in self._read(1):
            return batch.columns
        return pl.read_database(self._query, self._connection).columns  # without rows there are no batches

    def rows(self) -> int:
        return sum(batch.height for batch in self._read(1 << 16))

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        for batch in self._read(rows):
            yield batch.select(columns)

    def _read(self, rows: int) -> Iterator[pl.DataFrame]:
        return iter(
            pl.read_database(
                self._query, self._connection, iter_batches=True, batch_size=rows, infer_schema_length=None
            )
        )


class UriReader:
    """A query on a URI that `polars.read_database_uri` takes; the result is loaded whole."""

    what = _WHAT
    advice = f"{_ADVICE}, and that polars' driver for it is installed (pip install connectorx)"
    text, notation = False, None

    def __init__(self, query: str, uri: str) -> None:
        require_select(query, dialect_of(uri.partition(":")[0]), strict=True)
        self._query, self._uri = query, uri

    def names(self) -> list[str]:
        return self._result.columns

    def rows(self) -> int:
        return self._result.height

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        return self._result.select(columns).iter_slices(rows)

    @cached_property
    def _result(self) -> pl.DataFrame:
        return pl.read_database_uri(self._query, self._uri)
