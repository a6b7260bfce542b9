"""Random tables with ugly values, random questions about them, and the databases that hold them."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import polars as pl

from cape.blocks import Axis, Block, Counts, Design, Form, Gram, Moments, OutsideBounds, Squares, Table
from cape.data import Category, Database, Number, Schema

__all__ = ["DATABASES", "Case", "cases", "differs", "frames", "mariadb_connection"]

_LARGEST = 1.7976931348623157e308
_BELOW = 1.7976931348623155e308  # beyond it lie the largest number and, where there is one, infinity
TEXTS = [
    "a", "A", "á", "a\u0301", "a ", " a", "", "ß", "ss", "ａ", "1", "1.0", "true", "'", "\\", '"', "a\tb",
    "%s", "{x}", "\U0001f600", ":c", "?1", "`", "--", "a\nb", "NULL", "NaN",
]  # fmt: skip
UGLY = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, _LARGEST, -_LARGEST,
    1e16, 9007199254740993.0, 0.1, 1 / 3, -1e-320, 1e-17,
]  # fmt: skip
BOUNDS = [
    (0.0, 100.0), (-1.0, 1.0), (18.0, 90.0), (100.5, 600.1), (1e-300, 2e-300), (-1e308, 1e308),
    (1e16, 1e16 + 4), (-(2.0**21), 2.0**21), (0.1, 0.7), (-1e-3, 1e-3), (-_BELOW, _BELOW), (-5e300, 1.0),
]  # fmt: skip
_LARGEST_SINGLE = 3.4028234663852886e38
WHOLE = [0, 1, 2, 3, -1, 17, 90, 2**53 + 1, 2**63 - 1, -(2**63), 10**15]
TYPES: dict[str, Any] = {
    "x": pl.Float64, "y": pl.Float64, "f": pl.Float32, "i": pl.Int64, "k": pl.Int32, "b": pl.Boolean,
    "d": pl.Decimal(12, 3), "t": pl.String, "u": pl.String, "w": pl.Float64,
}  # fmt: skip
NUMBERS, CATEGORIES = ("x", "y", "f", "i", "d", "k", "b"), ("t", "u", "k", "b", "w")


@dataclass(frozen=True)
class Case:
    """A question about a table: a schema, blocks, and what becomes of cells that do not fit."""

    schema: Schema
    blocks: list[Block]
    unreadable: Any

    def answers(self, source: Any) -> tuple[Any, ...]:
        table = Table("a", source, self.schema, unreadable=self.unreadable)
        sums = [[part.tolist() for part in parts] for parts in table.sums(self.blocks)]
        if table.rows():
            table.check()
        return sums, table.rows(), dict.fromkeys(table.schema, 0) | table.counted_as_missing


@np.errstate(over="ignore", invalid="ignore")
def frames(seed: int, most_rows: int = 60) -> pl.DataFrame:
    """Return a random table: of every type, with what is ugly in it."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(0, most_rows))

    def some(make: Callable[[], Any]) -> list[Any]:
        return [None if random.random() < 0.1 else make() for _ in range(rows)]

    def real() -> float:
        low, high = BOUNDS[int(random.integers(len(BOUNDS)))]
        way = random.random()
        if way < 0.2:
            return UGLY[int(random.integers(len(UGLY)))]
        if way < 0.5:  # an edge, or next to one
            edge = float(
                np.linspace(low / 2, high / 2, int(random.integers(3, 66)))[int(random.integers(3))] * 2
            )
            return float(np.nextafter(edge, [-np.inf, edge, np.inf][int(random.integers(3))]))
        return float(low + (high / 2 - low / 2) * random.random() * 2.2)

    def single() -> float:
        return float(np.float32(np.clip(real(), -_LARGEST_SINGLE, _LARGEST_SINGLE)))

    columns = {
        "x": some(real),
        "y": some(lambda: float(random.normal(50, 40))),
        "f": some(single),
        "i": some(lambda: WHOLE[int(random.integers(len(WHOLE)))]),
        "k": some(lambda: int(random.integers(0, 4))),
        "b": some(lambda: bool(random.random() < 0.4)),
        "d": some(lambda: Decimal(int(random.integers(-200_000, 200_000))).scaleb(-3)),
        "t": some(lambda: TEXTS[int(random.integers(len(TEXTS)))]),
        "u": some(lambda: "ab"[int(random.integers(2))]),
        "w": some(lambda: [0.0, 1.0, 2.0, 0.5, -0.0, math.nan][int(random.integers(6))]),
    }
    return pl.DataFrame({name: pl.Series(name, cells, TYPES[name]) for name, cells in columns.items()})


@np.errstate(over="ignore", invalid="ignore")
def cases(seed: int, count: int) -> list[Case]:
    """Return random questions."""
    random = np.random.default_rng(seed)
    return [_case(random) for _ in range(count)]


def _case(random: np.random.Generator) -> Case:
    lenient = bool(random.random() < 0.7)
    columns: dict[str, Any] = {}

    def missing() -> bool:
        return not lenient or bool(random.random() < 0.7)

    used = [name for name in TYPES if random.random() < 0.6] or ["x"]
    for name in used:
        as_number = name in NUMBERS and (name not in CATEGORIES or random.random() < 0.5)
        if as_number:
            columns[name] = Number(*BOUNDS[int(random.integers(len(BOUNDS)))], missing())
        elif name in ("t", "u"):
            known = TEXTS if not lenient else [text for text in TEXTS if random.random() < 0.4] or ["a"]
            values = [*known, "b"] if "b" not in known else known
            columns[name] = Category(tuple(random.permutation(np.array(values, object)).tolist()), missing())
        elif name == "b" and random.random() < 0.5:
            columns[name] = Category((False, True), missing())
        elif name == "w" and not lenient:
            continue  # it has halves
        else:
            whole = (
                (0, 1, 2, 3)
                if not lenient
                else ((0, 1), (1, 2, 0), (3,), (2**53 + 1, 1))[int(random.integers(4))]
            )
            columns[name] = Category(whole, missing())
    if not columns:
        columns["y"] = Number(0.0, 100.0)
    schema = Schema(columns)
    return Case(schema, _blocks(random, schema), "missing" if lenient else "error")


def _blocks(random: np.random.Generator, schema: Schema) -> list[Block]:
    numbers = [name for name, column in schema.items() if isinstance(column, Number)]
    groups = [name for name, column in schema.items() if isinstance(column, Category)]

    def pick(names: list[str], most: int) -> tuple[str, ...]:
        return tuple(random.permutation(names)[: int(random.integers(1, most + 1))].tolist())

    def axis(name: str) -> Axis:
        column = schema[name]
        if isinstance(column, Category):
            return Axis(name)
        low, high = column.low, column.high
        count = int(random.choice([1, 2, 3, 5, 16, 17, 32, 64]))
        if random.random() < 0.3:
            low, high = low / 2, high / 2
        edges = (
            np.linspace(low / 2, high / 2, count + 1) * 2
            if high - low > 1e308
            else np.linspace(low, high, count + 1)
        )
        if random.random() < 0.3:
            edges = np.array([low, *(low + (high / 2 - low / 2) * 2 * random.random(count) ** 2)])
        edges = np.unique(edges[np.isfinite(edges)])
        return Axis(name, edges if len(edges) > 1 else np.array([low, high]))

    found: list[Block] = []
    if numbers:
        found += [Moments(pick(numbers, 3)), OutsideBounds(tuple(numbers))]
        found += [Counts((axis(name),)) for name in pick(numbers, 2)]
    if groups:
        found.append(Counts((axis(pick(groups, 1)[0]),)))
    if numbers and groups:
        by = pick(groups, 1)[0]
        found += [Moments(pick(numbers, 2), by=by), Counts((Axis(by), axis(pick(numbers, 1)[0])))]
    used = pick([*numbers, *groups], 3)
    if len(used) and random.random() < 0.5:
        cut = tuple(
            (name, Number(c.low / 2 + c.middle / 2, c.middle / 2 + c.high / 2))
            for name in used
            if isinstance(c := schema[name], Number)
            and random.random() < 0.3
            and c.half > 1e-200 * abs(c.middle)
            and c.half > abs(c.middle) * 1e-10
        )
        found.append(Gram(used, cut))
        features = tuple(n for n in used if isinstance(c := schema[n], Number) or len(c.values) > 1)
        if features:
            design = Design(features, cube=True)
            width = design.width(schema)
            centre = tuple(random.uniform(-1, 1, width).tolist())
            terms = tuple(
                (i, int(random.integers(width)), float(random.normal())) for i in range(min(width, 3))
            )
            found.append(Squares(design, centre, (Form(terms, float(random.uniform(0.5, 4))),)))
    found.append(Counts(()))
    return found


def differs(case: Case, wanted: pl.DataFrame | tuple[Any, ...], source: Any) -> str | None:
    """Return what is not the same as the answers about a table, or as these answers; None if all are."""
    wanted = case.answers(wanted) if isinstance(wanted, pl.DataFrame) else wanted
    found = case.answers(source)
    if wanted == found:
        return None
    for block, a, b in zip(case.blocks, wanted[0], found[0], strict=True):
        if a != b:
            return f"{block} of {case.schema}, {case.unreadable}: {b}, not {a}"
    return f"rows and unreadable of {case.schema}, {case.unreadable}: {found[1:]}, not {wanted[1:]}"


# --- the same table in every database -----------------------------------------------------------------


def _cells(frame: pl.DataFrame, *, infinite: bool) -> list[tuple[Any, ...]]:
    """Return the rows as Python values; the largest number is infinity where a database has none."""

    def cell(value: Any) -> Any:
        if isinstance(value, float) and not infinite:
            if math.isnan(value):
                return None
            if math.isinf(value):
                return math.copysign(_LARGEST, value)
        return value

    return [tuple(map(cell, row)) for row in frame.rows()]


@contextmanager
def duckdb_file(frame: pl.DataFrame, uri: str, name: str) -> Iterator[Database]:
    import duckdb

    path = Path(uri) / f"{name}.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        connection.register("given", frame.to_arrow())
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
    yield Database("SELECT * FROM t;", f"duckdb:///{path}")


@contextmanager
def sqlite_file(frame: pl.DataFrame, uri: str, name: str) -> Iterator[Database]:
    path = Path(uri) / f"{name}.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE t (x REAL, y, f REAL, i INTEGER, k NUMERIC, b BOOLEAN, d, t TEXT COLLATE NOCASE, "
            "u, w)"
        )
        rows = [[float(c) if isinstance(c, Decimal) else c for c in row] for row in frame.rows()]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    yield Database("SELECT * FROM t -- all", f"sqlite:///{path}")


@contextmanager
def postgres_table(frame: pl.DataFrame, uri: str, name: str) -> Iterator[Database]:
    import psycopg

    with psycopg.connect(uri) as connection:
        connection.execute(
            f"CREATE TABLE {name} (x float8, y float8, f float4, i int8, k int4, b bool, d numeric(12, 3), "
            "t text, u char(3), w float8)"
        )
        connection.cursor().executemany(
            f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            _cells(frame, infinite=True),
        )
    try:
        yield Database(f"SELECT * FROM {name}", uri)
    finally:
        with psycopg.connect(uri) as connection:
            connection.execute(f"DROP TABLE {name}")


def mariadb_connection(uri: str) -> Any:
    """Return a connection to the server of `benchmarks.servers`."""
    import pymysql

    socket = parse_qs(urlsplit(uri).query)["unix_socket"][0]
    return pymysql.connect(
        unix_socket=socket, user="root", database="cape", charset="utf8mb4", autocommit=True
    )


@contextmanager
def mariadb_table(frame: pl.DataFrame, uri: str, name: str) -> Iterator[Database]:
    with closing(mariadb_connection(uri)) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {name} (x DOUBLE, y DOUBLE, f FLOAT, i BIGINT, k INT, b BOOLEAN, "
            "d DECIMAL(12, 3), t VARCHAR(20), u CHAR(3), w DOUBLE) CHARACTER SET utf8mb4"
        )
        for row in _cells(frame, infinite=False):
            cursor.execute(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", _reals(row))
        try:
            yield Database(f"SELECT * FROM {name}", uri)
        finally:
            cursor.execute(f"DROP TABLE {name}")


def _reals(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(repr(cell) if isinstance(cell, float) else cell for cell in row)


@contextmanager
def spark_frame(frame: pl.DataFrame, session: Any, name: str) -> Iterator[Any]:
    kinds = "x double, y double, f float, i bigint, k int, b boolean, d decimal(12, 3), t string, u string"
    kinds += ", w double"
    held = session.createDataFrame(_cells(frame, infinite=True), kinds).coalesce(1).cache()
    yield held
    held.unpersist()


DATABASES: dict[str, Callable[[pl.DataFrame, Any, str], Any]] = {
    "duckdb": duckdb_file,
    "sqlite": sqlite_file,
    "postgres": postgres_table,
    "mariadb": mariadb_table,
    "spark": spark_frame,
}
