"""Sources of a site's rows: descriptions of those that need more than a path, and how each is opened.

A path or glob of CSV, Parquet or Arrow is scanned by polars and streamed, never loaded whole. Files of SPSS,
Stata and SAS are streamed too; a spreadsheet is loaded. A database query is computed where it is
(`cape.data.databases`), or streamed. DataFrames and Arrow tables are read in slices, and lazy tables that
narwhals knows are fetched.

Opened so that any cell can be read (`lenient`), a text file is read line by line (`cape.data.lines`), and
SQLite's texts need not be UTF-8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from cape.core import check
from cape.core.errors import DataError, InvalidInput
from cape.data.database import QueryReader, UriReader
from cape.data.databases import check_timeout, open_connection, open_frame
from cape.data.decoded import DecodedReader
from cape.data.encodings import all_utf8
from cape.data.faults import guarded
from cape.data.files import ARROW, PARQUET, SHEETS, STATISTICS, TEXT, Csv, Excel, File, file_at
from cape.data.identity import Identity, found, of_files, of_query
from cape.data.lines import LineReader
from cape.data.notation import Notation
from cape.data.omop import Omop
from cape.data.readers import (
    FetchedReader,
    FrameReader,
    LazyReader,
    Reader,
    RenamedReader,
    ipc_scan,
    text_scan,
)
from cape.data.schema import Schema
from cape.data.secrets import nameable, resolved

__all__ = ["Database", "identity_of", "open_source"]

_ADVICE = "check that the path is right and that other programs can open the file"
_SOURCES = (
    "a pandas or polars DataFrame, an Arrow table, a lazy table that narwhals knows (polars, DuckDB, Dask, "
    "Spark, Ibis), a path to a file, Csv(...), Excel(...), File(...), Database(...) or Omop(...)"
)


@dataclass(frozen=True)
class Database:
    """The rows that a query returns; DuckDB, SQLite, PostgreSQL and MariaDB compute sums over them.

    Args:
        query: one SELECT.
        connection: an open connection (duckdb, sqlite3, psycopg, pymysql, a Spark session), a URI
            (duckdb:///file.db, sqlite:///file.db, postgresql://user@host/database,
            mariadb://user@host/database), or where a URI stands: "env:NAME", a variable of the environment,
            or "file:PATH", a file that nobody else may read. It is never shown: a URI may hold a password.
            From what else `polars.read_database` takes, the rows are fetched.
        timeout: after how many seconds a statement is given up; None is never.
    """

    query: str
    connection: Any = field(repr=False)
    timeout: float | None = 600.0

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise InvalidInput("query must be a text such as 'SELECT age, sex FROM patients'")
        if self.connection is None:
            raise InvalidInput("connection must be an open connection or a URI such as sqlite:///file.db")
        object.__setattr__(self, "timeout", check_timeout(self.timeout))

    @property
    def identity(self) -> Identity:
        """What is asked, and of which database."""
        return of_query(self.query, self.connection)


def open_source(site: str, source: Any, schema: Schema | None = None, *, lenient: bool = False) -> Reader:
    """Return a reader of batches for a source: an `SqlReader` if sums are computed where it is.

    The schema says which columns will be read, for a source that offers more than a table has: `Omop`.
    """
    if isinstance(source, Omop):
        return _open_omop(site, source, schema, lenient)
    if isinstance(source, Database):
        return _open_database(site, source, lenient)
    if isinstance(source, (str, Path)):
        source = file_at(source)
    if isinstance(source, File):
        reader = _open_file(site, source, lenient)
        return RenamedReader(reader, source.rename, site) if source.rename else reader
    return open_frame(source) or _open_frame(site, source)


def identity_of(source: Any) -> Identity:
    """Return which rows a source names; empty for tables in memory."""
    if isinstance(source, (str, Path)):
        return of_files(source)
    return source.identity if isinstance(source, (File, Database, Omop)) else frozenset()


def _open_database(site: str, source: Database, lenient: bool) -> Reader:
    connection = source.connection
    if isinstance(connection, str):
        connection = resolved(site, connection)
    opened = open_connection(site, source.query, connection, source.timeout, lenient=lenient)
    if opened is not None:
        return opened
    reader = UriReader if isinstance(connection, str) else QueryReader
    return reader(source.query, connection)


def _open_omop(site: str, source: Omop, schema: Schema | None, lenient: bool) -> Reader:
    connection = source.connection
    if isinstance(connection, str):
        connection = resolved(site, connection)
    empty = open_connection(site, "SELECT 1", connection, source.timeout, lenient=lenient)
    if empty is None:
        raise DataError(site, "an OMOP database must be PostgreSQL, MariaDB, DuckDB, SQLite or Spark")
    names = [] if schema is None else schema.sources(schema)
    if schema is not None and schema.person is not None:
        names.append(schema.person.id)
    try:
        query = source.query(names, empty.dialect.name)
    except InvalidInput as error:
        raise DataError(site, str(error)) from None
    what, limit = "the OMOP database", source.timeout
    opened = guarded(
        site, what, source.advice, lambda: open_connection(site, query, connection, limit, lenient=lenient)
    )
    assert opened is not None
    opened.what, opened.advice = what, source.advice
    return opened


def _open_file(site: str, source: File, lenient: bool) -> Reader:
    suffix = Path(str(source.path)).suffix.lower()
    if isinstance(source, Csv):
        return _open_text(site, source, lenient)
    if "://" in str(source.path) and suffix not in PARQUET:
        raise DataError(site, "a database is given as Database(query, connection)")
    paths, what = _find(site, source.path)
    notation = Notation(source.words)
    if isinstance(source, Excel):
        from cape.data.sheets import SheetReader

        return SheetReader(site, _one(site, paths, what), source.sheet, notation, lenient=lenient)
    if suffix in STATISTICS:
        from cape.data.statfiles import StatisticsReader

        return StatisticsReader(_one(site, paths, what), notation)
    if suffix in ARROW:
        return LazyReader(partial(ipc_scan, paths), what, _ADVICE, notation)
    if suffix not in PARQUET:
        raise DataError(
            site,
            f"{what} must end in {', '.join((*TEXT, *PARQUET, *ARROW, *SHEETS, *STATISTICS))}; describe "
            "other text files with Csv(path, ...), and a folder as 'folder/*.parquet'",
        )
    scan = partial(pl.scan_parquet, paths, glob="://" in paths[0])
    guarded(site, what, _ADVICE, scan)
    return LazyReader(scan, what, _ADVICE, notation)


def _open_text(site: str, source: Csv, lenient: bool) -> Reader:
    paths, what = _find(site, source.path)
    notation = Notation(source.words, source.decimal, source.thousands)
    separator, columns, encoding = source.separator or ",", source.columns, source.encoding
    named = encoding or "UTF-8"
    advice = (
        f"{_ADVICE}, that it is {named} text with the same number of cells in every line, or say its "
        "encoding, as in encoding = 'windows-1252'"
    )
    away = "://" in paths[0]
    if away and (lenient or encoding not in (None, "utf-8")):
        raise DataError(site, "a text file must be on this machine here; copy it, or give Parquet")
    starts = partial(all_utf8, paths, encoding, header=columns is None)
    if not lenient and (away or guarded(site, what, advice, starts)):
        scan = partial(text_scan, paths, separator, columns)
        guarded(site, what, advice, scan)
        return LazyReader(scan, what, advice, notation, text=True)
    kind = LineReader if lenient else DecodedReader
    return kind(site, paths, what, advice, notation, separator=separator, columns=columns, encoding=encoding)


def _open_frame(site: str, source: Any) -> Reader:
    if isinstance(source, pl.LazyFrame):
        return LazyReader(lambda: source, "the LazyFrame", "check that its collect() works")
    try:
        frame = nw.from_native(source)
    except Exception:  # a frame of a kind that narwhals does not know, or with names that it refuses
        frame = None
    if isinstance(frame, nw.DataFrame):
        return FrameReader(frame)
    if isinstance(frame, nw.LazyFrame):
        return FetchedReader(frame)
    columns = list(getattr(source, "columns", ()))
    for name in columns:
        if columns.count(name) > 1:
            raise DataError(site, f"the table has more than one column {check.show(name)}; rename one")
    raise DataError(site, f"a source must be {_SOURCES}, not {type(source).__name__}")


def _find(site: str, source: str | Path) -> tuple[list[str], str]:
    """Return the files of a path or a pattern, at least one, and the path as errors show it."""
    try:
        path = str(Path(source).expanduser()) if "://" not in str(source) else str(source)
        files = [path] if "://" in path else found(path)
        if files:
            return files, f"{nameable(path)!r}"
        if Path(path).is_dir():
            raise DataError(site, f"{path!r} is a folder; give its files, as in {path + '/*.parquet'!r}")
    except (OSError, ValueError, RuntimeError, re.error) as error:  # too long, a zero byte, an unknown ~user
        kind = type(error).__name__
    else:
        raise DataError(
            site, f"no file {check.show(path, 300)} (seen from {str(Path.cwd())!r}); correct the path"
        )
    raise DataError(site, f"{check.show(nameable(str(source)))} cannot be a path ({kind}); correct it")


def _one(site: str, paths: list[str], what: str) -> str:
    if len(paths) > 1:
        raise DataError(site, f"{what} names several files; of this kind a site has one")
    return paths[0]
