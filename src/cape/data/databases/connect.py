"""Connections: which database a URI names, or an open connection belongs to, and what reads it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from cape.core import check
from cape.core.errors import DataError, InvalidInput, MissingExtra
from cape.data.databases.embedded import DuckDbReader, RelationReader, SqliteReader
from cape.data.databases.one_select import require_select
from cape.data.databases.reader import SqlReader
from cape.data.databases.servers import MariaDbReader, PostgresReader, SparkReader

__all__ = ["check_timeout", "open_connection", "open_frame"]

_POSTGRES, _MARIADB = ("postgresql", "postgres"), ("mariadb", "mysql")


def open_connection(
    site: str, query: str, connection: Any, timeout: float | None, *, lenient: bool
) -> SqlReader | None:
    """Return a reader for a resolved URI or an open connection; None if it computes no sums."""
    if isinstance(connection, str):
        return _open_uri(site, query, connection, timeout, lenient)
    module = type(connection).__module__.split(".")[0]
    name = type(connection).__name__
    if module == "sqlite3":
        return SqliteReader(query, connection, timeout, lenient=lenient)
    if module in ("duckdb", "_duckdb"):
        return DuckDbReader(query, connection, timeout)
    if module == "psycopg" and name == "Connection":
        return PostgresReader(query, connection, timeout)
    if module == "pymysql":
        return MariaDbReader(query, connection, timeout)
    if module == "pyspark" and hasattr(connection, "sql"):
        require_select(query, "spark")  # Spark runs commands at once
        return SparkReader(connection.sql(query))
    return None


def open_frame(source: Any) -> SqlReader | None:
    """Return a reader for a relation of DuckDB or a DataFrame of Spark; None for anything else."""
    module, name = type(source).__module__.split(".")[0], type(source).__name__
    if module in ("duckdb", "_duckdb") and name == "DuckDBPyRelation":
        return RelationReader(source)
    if module == "pyspark" and name == "DataFrame" and hasattr(source, "sparkSession"):
        return SparkReader(source)
    return None


def _open_uri(site: str, query: str, uri: str, timeout: float | None, lenient: bool) -> SqlReader | None:
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    if scheme in ("sqlite", "duckdb"):
        path, settings = _file(site, scheme, uri)
        if scheme == "sqlite":
            return SqliteReader(query, path, timeout, lenient=lenient)
        _require("duckdb", "duckdb", "a file of DuckDB")
        return DuckDbReader(query, path, timeout, settings)
    if scheme in _POSTGRES:
        _require("psycopg", "postgres", "PostgreSQL")
        return PostgresReader(query, uri.replace("+psycopg", "", 1), timeout)
    if scheme in _MARIADB:
        _require("pymysql", "mariadb", "MariaDB")
        return MariaDbReader(query, _mariadb(site, uri), timeout)
    return None


def _require(module: str, extra: str, what: str) -> None:
    try:
        __import__(module)
    except ImportError:
        raise MissingExtra(extra, what) from None


def _file(site: str, scheme: str, uri: str) -> tuple[Path, dict[str, str]]:
    start = f"{scheme}:///"
    if not uri.startswith(start) or not uri[len(start) :]:
        raise DataError(site, f"give {start}relative.db or {start}/absolute.db")
    name, _, options = uri[len(start) :].partition("?") if scheme == "duckdb" else (uri[len(start) :], "", "")
    settings = dict(parse_qsl(options))
    if set(settings) - {"memory_limit", "threads", "temp_directory"}:
        raise DataError(site, "options of a DuckDB URI must be memory_limit, threads or temp_directory")
    path = Path(unquote(name))
    if not path.is_file():
        what = "SQLite" if scheme == "sqlite" else "DuckDB"
        raise DataError(site, f"no {what} file at the URI; give {start}relative.db or {start}/absolute.db")
    return path, settings


def _mariadb(site: str, uri: str) -> Any:
    """Return what connects to MariaDB: its driver does not read URIs."""
    import pymysql

    try:
        parts = urlsplit(uri)
        port, options = parts.port or 3306, dict(parse_qsl(parts.query))
    except ValueError:
        raise DataError(site, "the URI must be like mariadb://user@host:3306/database") from None
    unknown = set(options) - {"unix_socket", "ssl_ca", "password"}
    if unknown:
        raise DataError(site, "options of a MariaDB URI must be unix_socket, ssl_ca or password")
    return partial(
        pymysql.connect,
        host=unquote(parts.hostname or "localhost"),
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or options.get("password", "")),
        database=unquote(parts.path.lstrip("/")) or None,
        unix_socket=options.get("unix_socket"),
        ssl_ca=options.get("ssl_ca"),
        charset="utf8mb4",
        connect_timeout=20,
    )


def check_timeout(value: Any) -> float | None:
    """Return how many seconds a statement may take; None is no limit."""
    if value is None:
        return None
    seconds = check.real("timeout", value, above=0.0)
    if seconds > 10**6:
        raise InvalidInput("timeout must be at most a million seconds, or None for no limit")
    return seconds
