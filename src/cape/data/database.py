"""Rows of a database query, fetched in batches."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl

from cape.data.readers import from_values

__all__ = ["QueryReader", "SqliteReader", "UriReader", "sqlite_path"]

_WHAT = "the database query"
_ADVICE = "check that it runs on its own on this connection"


def sqlite_path(uri: str) -> Path | None:
    """Return the file that a URI such as sqlite:///data.db names, or None if it names none."""
    start = "sqlite:///"
    return Path(unquote(uri[len(start) :])) if uri.startswith(start) and len(uri) > len(start) else None


class SqliteReader:
    """A query on SQLite, whose cells may each have a type of their own."""

    what, advice, text, notation = _WHAT, _ADVICE, False, None

    def __init__(self, query: str, connection: Path | sqlite3.Connection, *, lenient: bool = False) -> None:
        self._query, self._connection = query.strip().rstrip(";"), connection
        # SQLite stores any bytes as text, and Python's default raises where they are no UTF-8.
        self._text = methodcaller("decode", "utf-8", "replace") if lenient else None

    def names(self) -> list[str]:
        with self._run(self._query) as cursor:
            return [column[0] for column in cursor.description]

    def rows(self) -> int:
        with self._run(f"SELECT count(*) FROM ({self._query})") as cursor:
            return int(cursor.fetchone()[0])

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        with self._run(self._query) as cursor:
            names = [column[0] for column in cursor.description]
            places = [names.index(name) for name in columns]
            while cells := cursor.fetchmany(rows):
                yield pl.DataFrame(
                    [
                        from_values(name, [row[i] for row in cells])
                        for name, i in zip(columns, places, strict=True)
                    ]
                )

    @contextmanager
    def _run(self, query: str) -> Iterator[sqlite3.Cursor]:
        if isinstance(self._connection, sqlite3.Connection):
            with closing(self._connection.cursor()) as cursor, self._texts_of(self._connection):
                yield cursor.execute(query)
        else:
            uri = f"file:{quote(str(self._connection))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as connection, self._texts_of(connection):
                yield connection.execute(query)

    @contextmanager
    def _texts_of(self, connection: sqlite3.Connection) -> Iterator[None]:
        before = connection.text_factory
        connection.text_factory = self._text or before
        try:
            yield
        finally:
            connection.text_factory = before


class QueryReader:
    """A query on any connection that `polars.read_database` takes."""

    what, advice, text, notation = _WHAT, _ADVICE, False, None

    def __init__(self, query: str, connection: Any) -> None:
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
