"""Sources of a site's rows: descriptions of those that need more than a path, and how each is opened.

A path or glob of CSV or Parquet is scanned by polars and streamed, never loaded whole; a database query is
streamed too where its driver can. DataFrames and Arrow tables are read in slices. What is lazy and not
polars (DuckDB, Dask, Spark, Ibis) stays a narwhals frame, for `cape.blocks.lazy`.

Opened so that any cell can be read (`lenient`), a text file is read line by line (`cape.data.lines`),
SQLite's texts need not be UTF-8, and a lazy table is fetched: an engine may stop at a cell it cannot convert.
"""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from cape import check
from cape.data.database import QueryReader, SqliteReader, UriReader, sqlite_path
from cape.data.faults import guarded
from cape.data.lines import LineReader
from cape.data.readers import FetchedReader, FrameReader, LazyReader, Reader, text_scan
from cape.errors import DataError, InvalidInput

__all__ = ["Csv", "Database", "open_source"]

_ADVICE = "check that the path is right and that other programs can open the file"
_TEXT, _PARQUET = {".csv": ",", ".tsv": "\t"}, {".parquet", ".pq"}
_SOURCES = (
    "a pandas or polars DataFrame, an Arrow table, a lazy table that narwhals knows (polars, DuckDB, Dask, "
    "Spark, Ibis), a path to CSV or Parquet, Csv(...) or Database(...)"
)


@dataclass(frozen=True)
class Csv:
    """A text file (or glob of them) whose layout has to be described.

    Args:
        path: a path or a glob.
        null_values: what stands for a missing cell, besides an empty one, as in ["?", "NA"].
        separator: one character.
        columns: the names of the columns, for a file without a header line.

    Space around a cell is not part of it.
    """

    path: str | Path
    null_values: tuple[str, ...] = ()
    separator: str = ","
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, Path)):
            raise InvalidInput(f"path must be text or a Path, not {type(self.path).__name__}")
        object.__setattr__(self, "null_values", _texts("null_values", self.null_values))
        if not isinstance(self.separator, str) or len(self.separator) != 1:
            raise InvalidInput(f"separator must be one character, not {check.show(self.separator)}")
        if self.columns is not None:
            columns = _texts("columns", self.columns)
            if not columns or len(set(columns)) != len(columns):
                raise InvalidInput("columns must be different names, at least one")
            object.__setattr__(self, "columns", columns)


@dataclass(frozen=True)
class Database:
    """The rows that a query returns.

    `connection` is an open connection (sqlite3, DuckDB, ADBC, SQLAlchemy, psycopg: what
    `polars.read_database` takes) or a URI. `sqlite:///file.db` is opened read-only with the standard
    library; other URIs go to `polars.read_database_uri`, which needs its driver and loads the result
    whole. The connection is never shown: a URI may hold a password.
    """

    query: str
    connection: Any = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise InvalidInput("query must be a text such as 'SELECT age, sex FROM patients'")
        if self.connection is None:
            raise InvalidInput("connection must be an open connection or a URI such as sqlite:///file.db")


def open_source(site: str, source: Any, *, lenient: bool = False) -> Reader | nw.LazyFrame[Any]:
    """Return a reader of batches for a source, or a narwhals frame if it computes elsewhere."""
    if isinstance(source, Database):
        return _open_database(site, source, lenient)
    if isinstance(source, Csv):
        return _open_text(site, source, lenient)
    if isinstance(source, (str, Path)):
        return _open_path(site, source, lenient)
    opened = _open_frame(site, source)
    return FetchedReader(opened) if lenient and isinstance(opened, nw.LazyFrame) else opened


def _open_database(site: str, source: Database, lenient: bool) -> Reader:
    connection = source.connection
    if isinstance(connection, str):
        if connection.startswith("sqlite:"):
            path = sqlite_path(connection)
            if path is None or not path.is_file():
                raise DataError(
                    site,
                    "no SQLite file at the URI; give sqlite:///relative.db or sqlite:////absolute.db",
                )
            return SqliteReader(source.query, path, lenient=lenient)
        return UriReader(source.query, connection)
    if type(connection).__module__.split(".")[0] == "sqlite3":
        return SqliteReader(source.query, connection, lenient=lenient)
    return QueryReader(source.query, connection)


def _open_path(site: str, source: str | Path, lenient: bool) -> Reader:
    suffix = Path(str(source)).suffix.lower()
    if suffix in _TEXT:
        return _open_text(site, Csv(source, separator=_TEXT[suffix]), lenient)
    if "://" in str(source) and suffix not in _PARQUET:
        raise DataError(site, "a database is given as Database(query, connection)")
    path, pattern = _find(site, source)
    if suffix not in _PARQUET:
        raise DataError(
            site,
            f"{path!r} must end in .csv, .tsv, .parquet or .pq; describe other text files with "
            f"Csv(path, ...), and a folder as 'folder/*.parquet'",
        )
    what = f"{path!r}"
    scan = partial(pl.scan_parquet, path, glob=pattern)
    guarded(site, what, _ADVICE, scan)
    return LazyReader(scan, what, _ADVICE)


def _open_text(site: str, source: Csv, lenient: bool) -> Reader:
    path, pattern = _find(site, source.path)
    what = f"{path!r}"
    advice = f"{_ADVICE}, and that it is UTF-8 text with the same number of cells in every line"
    if lenient:
        if "://" in path:
            raise DataError(site, "a text file must be on this machine here; copy it, or give Parquet")
        return LineReader(
            site,
            path,
            pattern,
            advice,
            separator=source.separator,
            columns=source.columns,
            null_values=source.null_values,
        )
    scan = partial(text_scan, path, pattern, source.separator, source.columns, source.null_values)
    guarded(site, what, advice, scan)
    return LazyReader(scan, what, advice, text=True)


def _open_frame(site: str, source: Any) -> Reader | nw.LazyFrame[Any]:
    if isinstance(source, pl.LazyFrame):
        return LazyReader(lambda: source, "the LazyFrame", "check that its collect() works")
    try:
        frame = nw.from_native(source)
    except Exception:  # a frame of a kind that narwhals does not know, or with names that it refuses
        frame = None
    if isinstance(frame, nw.DataFrame):
        return FrameReader(frame)
    if isinstance(frame, nw.LazyFrame):
        return frame
    columns = list(getattr(source, "columns", ()))
    for name in columns:
        if columns.count(name) > 1:
            raise DataError(site, f"the table has more than one column {check.show(name)}; rename one")
    raise DataError(site, f"a source must be {_SOURCES}, not {type(source).__name__}")


def _find(site: str, source: str | Path) -> tuple[str, bool]:
    """Return the path as text and whether it is a pattern, once there is something to read."""
    try:
        path = str(Path(source).expanduser()) if "://" not in str(source) else str(source)
        if "://" in path or Path(path).is_file():
            return path, False
        if any(sign in path for sign in "*?[") and glob.glob(path, recursive=True):
            return path, True
        if Path(path).is_dir():
            raise DataError(site, f"{path!r} is a folder; give its files, as in {path + '/*.parquet'!r}")
    except (OSError, ValueError, RuntimeError, re.error) as error:  # too long, a zero byte, an unknown ~user
        kind = type(error).__name__
    else:
        raise DataError(
            site, f"no file {check.show(path, 300)} (seen from {str(Path.cwd())!r}); correct the path"
        )
    raise DataError(site, f"{check.show(str(source))} cannot be a path ({kind}); correct it")


def _texts(name: str, values: Any) -> tuple[str, ...]:
    try:
        texts = (values,) if isinstance(values, str) else tuple(values)
    except TypeError:
        texts = (None,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"{name} must be a list of texts")
    return texts
