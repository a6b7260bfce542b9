"""DuckDB and SQLite: databases in a file, or in this process."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from cape.core.errors import InvalidInput
from cape.data.databases.dialects import DIALECTS, Kind, Sql, Statement
from cape.data.databases.reader import Row, Session, SqlReader, framed, interrupted, reasons

__all__ = ["DuckDbReader", "RelationReader", "SqliteReader", "duckdb_kind"]

_DUCKDB = {
    "CatalogException": "table",
    "BinderException": "column",
    "ParserException": "syntax",
    "InterruptException": "timeout",
    "IOException": "away",
    "PermissionException": "files",
    "ConversionException": "cell",
    "OutOfRangeException": "cell",
}
_SQLITE = {
    "SQLITE_INTERRUPT": "timeout",
    "SQLITE_CANTOPEN": "away",
    "SQLITE_NOTADB": "away",
    "SQLITE_AUTH": "denied",
    "SQLITE_PERM": "denied",
}
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
_DIGITS = 15  # up to so many, a decimal is the quotient of two doubles, and rounded once


def duckdb_kind(name: str) -> Kind:
    """Return what the cells of a column of this type are."""
    name = name.upper()
    if name in _INTEGERS:
        return "integer"
    if name in ("DOUBLE", "FLOAT", "REAL"):
        return "float"
    if found := re.fullmatch(r"DECIMAL\((\d+),\s*\d+\)", name):
        return "decimal" if int(found[1]) <= _DIGITS else "wide"
    if name in ("HUGEINT", "UHUGEINT", "BIGNUM", "VARINT"):
        return "wide"
    if name == "VARCHAR" or (name.startswith("ENUM(") and name.endswith(")")):
        return "text"
    kinds: dict[str, Kind] = {"BOOLEAN": "boolean", "DATE": "date"}
    return kinds.get(name, "other")


class _DuckDb(Session):
    def __init__(self, connection: Any, timeout: float | None) -> None:
        self._connection, self._timeout = connection, timeout

    def all(self, statement: Statement) -> list[Row]:
        with interrupted(self._connection.interrupt, self._timeout):
            found: list[Row] = self._connection.execute(statement[0]).fetchall()
            return found

    def frames(self, statement: Statement, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        stop = self._connection.interrupt
        with interrupted(stop, self._timeout):
            batches = _arrow(self._connection.sql(statement[0]), rows)
        while True:
            with interrupted(stop, self._timeout):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _arrow(relation: Any, rows: int) -> Iterator[pl.DataFrame]:
    fetch = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch  # before version 2
    for batch in fetch(rows):
        yield pl.DataFrame(batch)


class DuckDbReader(SqlReader):
    """A query on an open connection of DuckDB, or on a file, which is opened read-only.

    A file is opened without access to any other: DuckDB would read and write files in a SELECT, as the user
    who holds the site's key.
    """

    dialect = DIALECTS["duckdb"]

    def __init__(
        self,
        query: str,
        connection: Any,
        timeout: float | None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(query)
        self._connection, self._timeout, self._settings = connection, timeout, dict(settings or {})

    @contextmanager
    def session(self) -> Iterator[Session]:
        import duckdb

        try:
            if not isinstance(self._connection, Path):
                with _transaction(self._connection):
                    yield _DuckDb(self._connection, self._timeout)
                return
            path = str(self._connection)
            with closing(duckdb.connect(path, read_only=True, config=self._settings)) as opened:
                opened.execute("SET enable_progress_bar = false")  # it is written to the output
                opened.execute("SET enable_external_access = false")
                opened.execute("SET lock_configuration = true")
                if len(opened.extract_statements(self._query)) > 1:
                    raise InvalidInput("query must be one SELECT; DuckDB finds several statements")
                with _transaction(opened):
                    yield _DuckDb(opened, self._timeout)
        except duckdb.Error as error:
            failed = reasons(error, _DUCKDB)
        else:
            return
        raise failed

    def described(self, session: Session) -> list[tuple[str, Kind]]:
        return [(row[0], duckdb_kind(row[1])) for row in session.all(_describe(self._query))]


def _describe(query: str) -> Statement:
    return f"DESCRIBE SELECT * FROM ({query}\n)", {}


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    """Answer from one snapshot, and change nothing; a transaction that is open already stays as it is."""
    numbers = [connection.execute("SELECT txid_current()").fetchone() for _ in range(2)]
    if numbers[0] == numbers[1]:  # otherwise each statement is a transaction
        yield
        return
    connection.execute("BEGIN TRANSACTION READ ONLY")
    try:
        yield
    except GeneratorExit:  # nobody reads on, and whoever opened the connection may have closed it
        with suppress(Exception):
            connection.execute("ROLLBACK")
        raise
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("ROLLBACK")


class _Relation(Session):
    def __init__(self, relation: Any, name: str) -> None:
        self._relation, self._name = relation, name

    def all(self, statement: Statement) -> list[Row]:
        found: list[Row] = self._relation.query(self._name, statement[0]).fetchall()
        return found

    def frames(self, statement: Statement, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        yield from _arrow(self._relation.query(self._name, statement[0]), rows)


class RelationReader(SqlReader):
    """A relation of DuckDB, asked on the connection that it belongs to."""

    what = "the relation"
    advice = "check that it can be computed on its own"
    dialect = DIALECTS["duckdb"]

    def __init__(self, relation: Any) -> None:
        super().__init__("")
        self._relation = relation

    @contextmanager
    def session(self) -> Iterator[Session]:
        import duckdb

        try:
            yield _Relation(self._relation, self._rows)
        except duckdb.Error as error:
            failed = reasons(error, _DUCKDB)
        else:
            return
        raise failed

    def described(self, session: Session) -> list[tuple[str, Kind]]:
        types = [duckdb_kind(str(kind)) for kind in self._relation.types]
        return list(zip(self._relation.columns, types, strict=True))

    def written(self, statement: Sql) -> Statement:
        return self.dialect.write(statement)


class _Sqlite(Session):
    def __init__(self, connection: sqlite3.Connection, timeout: float | None) -> None:
        self._connection, self._timeout = connection, timeout

    def all(self, statement: Statement) -> list[Row]:
        with self.run(statement) as cursor, self.limited():
            return cursor.fetchall()

    def frames(self, statement: Statement, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        with self.run(statement) as cursor:
            while True:
                with self.limited():
                    cells = cursor.fetchmany(rows)
                if not cells:
                    return
                yield framed(columns, cells)

    @contextmanager
    def run(self, statement: Statement) -> Iterator[sqlite3.Cursor]:
        with closing(self._connection.cursor()) as cursor:
            cursor.row_factory = None
            with self.limited():
                cursor.execute(*statement)
            yield cursor

    def limited(self) -> AbstractContextManager[None]:
        return interrupted(self._connection.interrupt, self._timeout)


class SqliteReader(SqlReader):
    """A query on SQLite, whose cells may each have a type of their own; a file is opened read-only."""

    dialect = DIALECTS["sqlite"]

    def __init__(
        self,
        query: str,
        connection: Path | sqlite3.Connection,
        timeout: float | None = None,
        *,
        lenient: bool = False,
    ) -> None:
        super().__init__(query)
        self._connection, self._timeout = connection, timeout
        # SQLite stores any bytes as text, and Python's default raises where they are no UTF-8.
        self._text = methodcaller("decode", "utf-8", "replace") if lenient else None

    @contextmanager
    def session(self) -> Iterator[Session]:
        try:
            if isinstance(self._connection, sqlite3.Connection):
                with self._snapshot(self._connection):
                    yield _Sqlite(self._connection, self._timeout)
                return
            uri = f"file:{quote(str(self._connection))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as opened, self._snapshot(opened):
                yield _Sqlite(opened, self._timeout)
        except sqlite3.Error as error:
            known = _SQLITE.get(getattr(error, "sqlite_errorname", ""), "")
            failed = reasons(error, {type(error).__name__: known})
        else:
            return
        raise failed

    @contextmanager
    def _snapshot(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Answer from one state, and change nothing; a transaction that is open already stays as it is."""
        before = connection.text_factory
        connection.text_factory = self._text or before
        (locked,) = connection.execute("PRAGMA query_only").fetchone()
        connection.execute("PRAGMA query_only = 1")
        began = not connection.in_transaction
        if began:
            connection.execute("BEGIN")
        try:
            yield
        finally:
            if began:
                connection.rollback()
            connection.execute(f"PRAGMA query_only = {int(locked)}")
            connection.text_factory = before

    def described(self, session: Session) -> list[tuple[str, Kind]]:
        assert isinstance(session, _Sqlite)
        with session.run((self._query, {})) as cursor:
            return [(column[0], "cells") for column in cursor.description or ()]
