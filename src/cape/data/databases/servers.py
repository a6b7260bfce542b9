"""PostgreSQL, MariaDB and MySQL: databases that are reached over a connection; and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import islice
from typing import Any

import polars as pl

from cape.data.databases.dialects import DIALECTS, Kind, Sql, Statement
from cape.data.databases.reader import Row, Session, SqlReader, framed, reasons

__all__ = ["MariaDbReader", "PostgresReader", "SparkReader"]

Connect = Callable[[], AbstractContextManager[Any]]

_POSTGRES = {
    "QueryCanceled": "timeout",
    "UndefinedTable": "table",
    "UndefinedFunction": "table",
    "InvalidSchemaName": "table",
    "UndefinedColumn": "column",
    "AmbiguousColumn": "column",
    "SyntaxError": "syntax",
    "InsufficientPrivilege": "denied",
    "InvalidPassword": "denied",
    "InvalidTextRepresentation": "cell",
    "NumericValueOutOfRange": "cell",
    "DivisionByZero": "cell",
    "OperationalError": "away",
    "ConnectionTimeout": "away",
}
_POSTGRES_KINDS: dict[int, Kind] = {
    700: "float",
    701: "float",
    20: "integer",
    21: "integer",
    23: "integer",
    1700: "decimal",
    16: "boolean",
    25: "text",
    1042: "text",
    1043: "text",
    1082: "date",
    1114: "moment",
    1184: "moment",
}
_MARIADB = {
    1969: "timeout",
    3024: "timeout",
    1317: "timeout",
    1146: "table",
    1049: "table",
    1305: "table",
    1054: "column",
    1060: "column",
    1064: "syntax",
    1044: "denied",
    1045: "denied",
    1142: "denied",
    1143: "denied",
    2002: "away",
    2003: "away",
    2006: "away",
    2013: "away",
    1690: "cell",
}
_MARIADB_KINDS: dict[int, Kind] = {
    **dict.fromkeys((4, 5), "float"),
    **dict.fromkeys((1, 2, 3, 8, 9, 13, 16), "integer"),
    **dict.fromkeys((0, 246), "decimal"),
    **dict.fromkeys((10, 14), "date"),
    **dict.fromkeys((15, 247, 248, 249, 250, 251, 252, 253, 254), "text"),
}


class _Cursors(Session):
    """A session of a driver that follows Python's database API.

    `how` goes with every statement: psycopg's `prepare`, by which the server itself refuses a text with
    several statements, whatever other parsers take it for.
    """

    def __init__(self, cursor: Callable[[], Any], streaming: Callable[[], Any], **how: Any) -> None:
        self._cursor, self._streaming, self._how = cursor, streaming, how

    def all(self, statement: Statement) -> list[Row]:
        with closing(self._cursor()) as cursor:
            cursor.execute(statement[0], **self._how)
            return [tuple(row) for row in cursor.fetchall()]

    def frames(self, statement: Statement, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        with closing(self._streaming()) as cursor:
            cursor.execute(statement[0])
            while cells := cursor.fetchmany(rows):
                yield framed(columns, cells)

    def columns(self, text: str) -> list[Any]:
        """Return what the driver says of the columns of a statement."""
        with closing(self._cursor()) as cursor:
            cursor.execute(text, **self._how)
            found = list(cursor.description or ())
            cursor.fetchall()
            return found


class _ServerReader(SqlReader):
    """A query on a server: by a URI, or by a connection that is open already."""

    def __init__(self, query: str, connection: Any, timeout: float | None) -> None:
        super().__init__(query)
        self._connection, self._timeout = connection, timeout


class PostgresReader(_ServerReader):
    """A query on PostgreSQL, in a transaction that is read-only and sees one snapshot."""

    dialect = DIALECTS["postgres"]

    @contextmanager
    def session(self) -> Iterator[Session]:
        import psycopg
        from psycopg.rows import tuple_row

        try:
            with self._opened() as connection:
                idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                with connection.transaction(force_rollback=True):
                    plain = connection.cursor(row_factory=tuple_row)
                    if idle:
                        plain.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    plain.execute("SET LOCAL standard_conforming_strings = on")  # a backslash is one
                    if self._timeout is not None:
                        plain.execute(f"SET LOCAL statement_timeout = {max(1, round(self._timeout * 1000))}")
                    yield _Cursors(
                        lambda: connection.cursor(row_factory=tuple_row),
                        lambda: connection.cursor(self._rows, row_factory=tuple_row),
                        prepare=True,
                    )
        except psycopg.Error as error:
            failed = reasons(error, _POSTGRES)
        else:
            return
        raise failed

    def _opened(self) -> AbstractContextManager[Any]:
        if not isinstance(self._connection, str):
            return nullcontext(self._connection)
        import psycopg

        return closing(psycopg.connect(self._connection, connect_timeout=20))

    def described(self, session: Session) -> list[tuple[str, Kind]]:
        assert isinstance(session, _Cursors)
        found = session.columns(f"SELECT * FROM ({self._query}\n) AS {self._rows} LIMIT 0")
        others = ", ".join(str(int(c.type_code)) for c in found if c.type_code not in _POSTGRES_KINDS)
        texts: set[int] = set()
        if others:  # enumerations, and texts of extensions such as citext
            asked = f"SELECT oid::int8 FROM pg_type WHERE typcategory IN ('S', 'E') AND oid IN ({others})"
            texts = {row[0] for row in session.all((asked, {}))}
        return [
            (c.name, _POSTGRES_KINDS.get(c.type_code, "text" if c.type_code in texts else "other"))
            for c in found
        ]


class MariaDbReader(_ServerReader):
    """A query on MariaDB or MySQL, in a transaction that is read-only and sees one snapshot."""

    dialect = DIALECTS["mysql"]

    @contextmanager
    def session(self) -> Iterator[Session]:
        import pymysql
        from pymysql.cursors import Cursor, SSCursor

        try:
            with self._opened() as connection, closing(connection.cursor(Cursor)) as cursor:
                before = self._limit(connection, cursor)
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                try:
                    yield _Cursors(lambda: connection.cursor(Cursor), lambda: connection.cursor(SSCursor))
                finally:
                    if connection.open:
                        cursor.execute("ROLLBACK")
                        for statement in before:
                            cursor.execute(statement)
        except pymysql.Error as error:
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            failed = reasons(error, {type(error).__name__: _MARIADB.get(code, "")})
        else:
            return
        raise failed

    def _limit(self, connection: Any, cursor: Any) -> list[str]:
        """Limit the time of statements, and return what sets the limit back."""
        if self._timeout is None:
            return []
        maria = "mariadb" in connection.get_server_info().lower()
        name = "max_statement_time" if maria else "max_execution_time"
        limit = f"{self._timeout:.3f}" if maria else str(max(1, round(self._timeout * 1000)))
        cursor.execute(f"SELECT @@SESSION.{name}")
        before = f"SET SESSION {name} = {cursor.fetchone()[0]}"
        cursor.execute(f"SET SESSION {name} = {limit}")
        return [before]

    def _opened(self) -> AbstractContextManager[Any]:
        return closing(self._connection()) if callable(self._connection) else nullcontext(self._connection)

    def described(self, session: Session) -> list[tuple[str, Kind]]:
        assert isinstance(session, _Cursors)
        found = session.columns(f"SELECT * FROM ({self._query}\n) AS {self._rows} LIMIT 0")
        return [(column[0], _MARIADB_KINDS.get(column[1], "other")) for column in found]


class _Spark(Session):
    def __init__(self, frame: Any, name: str) -> None:
        self._frame, self._name = frame, name

    def all(self, statement: Statement) -> list[Row]:
        return [tuple(row) for row in self._run(statement).collect()]

    def frames(self, statement: Statement, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        found = self._run(statement).toLocalIterator()
        while cells := list(islice(found, rows)):
            yield framed(columns, cells)

    def _run(self, statement: Statement) -> Any:
        return self._frame.sparkSession.sql(statement[0], **{self._name: self._frame})


class SparkReader(SqlReader):
    """A DataFrame of Spark, asked in Spark's SQL."""

    what = "the DataFrame of Spark"
    advice = "check that it can be computed on its own"
    dialect = DIALECTS["spark"]

    def __init__(self, frame: Any) -> None:
        super().__init__("")
        self._frame = frame

    @contextmanager
    def session(self) -> Iterator[Session]:
        yield _Spark(self._frame, self._rows)

    def described(self, session: Session) -> list[tuple[str, Kind]]:
        return [(name, _spark_kind(kind)) for name, kind in self._frame.dtypes]

    def written(self, statement: Sql) -> Statement:
        text, values = self.dialect.write(statement)
        return text.replace("{", "{{").replace("}", "}}").replace(
            f"`{self._rows}`", f"{{{self._rows}}}"
        ), values


def _spark_kind(name: str) -> Kind:
    if name in ("tinyint", "smallint", "int", "bigint"):
        return "integer"
    if name.startswith("decimal("):
        return "decimal"
    kinds: dict[str, Kind] = {
        "double": "float",
        "float": "float",
        "boolean": "boolean",
        "string": "text",
        "date": "date",
    }
    if name.startswith(("char(", "varchar(", "string collate")):
        return "text"
    return kinds.get(name, "other")
