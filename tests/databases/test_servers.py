"""Real servers: the same integers as in memory, nothing written, and a steward who learns what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import polars as pl
import psycopg
import pytest

from benchmarks.random_tables import Case, mariadb_connection
from cape.blocks import Axis, Counts, Custom, Design, Gram, Moments, Table
from cape.core.errors import DataError, InvalidInput
from cape.data import Category, Database, Number, Schema
from tests.unit.data.databases.test_same import check, check_derived, check_hostile

SECRET = "".join(["s3", "cr3t"])
PUBLIC = "site 'alpha' could not answer: its table could not be used"
SERVERS = ["postgres", "mariadb"]
# Several statements to PostgreSQL, and one to a parser that ends E-strings early or takes U+00A0 for a space.
TWO_READINGS = (
    "SELECT E'a'\n'\\' , ' AS b) AS q; COMMIT; DELETE FROM kept; SELECT * FROM (SELECT 1 AS b --'",
    "SELECT 1 AS\u00a0$x$) AS q; COMMIT; DELETE FROM kept; SELECT * FROM (SELECT 2 AS \u00a0$x$",
)


@pytest.fixture
def uri(request: pytest.FixtureRequest, kind: str) -> str:
    return str(request.getfixturevalue(kind))


def run(uri: str, *statements: str) -> None:
    if uri.startswith("postgresql"):
        with psycopg.connect(uri, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)
    else:
        with closing(mariadb_connection(uri)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@contextmanager
def opened(uri: str) -> Iterator[Any]:
    with closing(
        psycopg.connect(uri) if uri.startswith("postgresql") else mariadb_connection(uri)
    ) as connection:
        yield connection


def sums(source: Any, schema: Schema, *blocks: Any, unreadable: Any = "error") -> list[list[list[int]]]:
    table = Table("alpha", source, schema, unreadable=unreadable)
    return [[part.tolist() for part in parts] for parts in table.sums(blocks)]


def fails(act: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as caught:
        act()
    assert SECRET not in f"{caught.value} {caught.value!r}"
    assert caught.value.__context__ is None
    assert caught.value.public == PUBLIC
    return str(caught.value)


@pytest.mark.parametrize("kind", SERVERS)
def test_random_questions_have_the_same_answers(kind: str, uri: str) -> None:
    check(kind, uri, range(200, 215), 4)


@pytest.mark.parametrize("kind", SERVERS)
def test_derived_columns_and_conditions(kind: str, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_derived(kind, uri, monkeypatch)


@pytest.mark.parametrize("kind", SERVERS)
def test_names_and_texts_of_a_study_are_no_sql(kind: str, uri: str) -> None:
    check_hostile(kind, uri)
    if kind == "postgres":  # where a backslash escapes a quote
        run(uri, "ALTER ROLE cape SET standard_conforming_strings = off")
        check_hostile(kind, uri)
        run(uri, "ALTER ROLE cape RESET standard_conforming_strings")


def test_spark_gives_the_same_answers(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check("spark", spark, range(300, 303), 1)
    frame = pl.DataFrame({"x": [1.5, None, 90.0], "g": ["a", "b", "a"]})
    schema = Schema({"x": (0, 100), "g": ["a", "b"], "y": {"sql": "x * 2"}}).only("g = 'a'")
    case = Case(schema, [Moments(("y",), by="g"), Gram(("x", "g"))], "error")
    held = spark.createDataFrame(frame.rows(), "x double, g string")
    assert case.answers(held) == case.answers(frame)
    design = Design(("x",))  # read at the site
    assert (
        Table("a", held, schema).vectors(design)[0].tolist()
        == Table("a", frame, schema).vectors(design)[0].tolist()
    )


@pytest.mark.parametrize("kind", SERVERS)
def test_texts_are_compared_byte_by_byte(kind: str, uri: str) -> None:
    run(
        uri,
        "DROP TABLE IF EXISTS words",
        "CREATE TABLE words (v VARCHAR(20), c CHAR(6))",
        "INSERT INTO words VALUES ('a', 'a'), ('A', 'A'), ('á', 'á'), ('a ', 'a '), (NULL, NULL)",
    )
    schema = Schema(v=["a", "á", "a "], c=["a", "A", "á"])
    source = Database("SELECT * FROM words", uri)
    blocks = [Counts((Axis("v"),)), Counts((Axis("c"),))]
    wanted = [[[1, 1, 1]], [[2, 1, 1]]]  # blanks only fill up a CHAR
    assert sums(source, schema, *blocks, unreadable="missing") == wanted
    function = Custom(lambda batch: batch["v"] * 0.0, ("v",), 1, 1.0)  # makes it a pass over the rows
    assert sums(source, schema, *blocks, function, unreadable="missing")[:2] == wanted


@pytest.mark.parametrize("kind", SERVERS)
def test_types_of_columns(kind: str, uri: str) -> None:
    extra = {
        "postgres": 'n numeric, s smallint, r real, b boolean, e text COLLATE "und-x-icu", d date',
        "mariadb": "n DECIMAL(65, 30), s TINYINT UNSIGNED, r FLOAT, b BIT(1), e ENUM('x', 'Y'), d DATE",
    }[kind]
    run(
        uri,
        "DROP TABLE IF EXISTS typed",
        f"CREATE TABLE typed ({extra})",
        "INSERT INTO typed VALUES (0.1, 7, 0.1, "
        + ("true" if kind == "postgres" else "1")
        + ", 'x', '2020-02-29')",
        "INSERT INTO typed VALUES (123456789012345678901234567890.123456789, 1, 2.5, "
        + ("false" if kind == "postgres" else "0")
        + ", 'Y', '1969-12-31')",
        "INSERT INTO typed VALUES (NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    if kind == "postgres":
        run(uri, "INSERT INTO typed (n) VALUES ('NaN'), ('1e400'), ('-1e400'), ('1e-400')")
    schema = Schema(
        {
            "n": (-1e300, 1e300),
            "s": (0, 10),
            "r": (0, 1),
            "b": Category((False, True)),
            "e": ["Y", "x"],
            "d": Number("1960-01-01", "2030-01-01"),
            "day": {"sql": "days_between('2020-02-28', d)"},
        }
    )
    blocks = [Moments(("n", "s", "r", "day")), Counts((Axis("b"), Axis("e"))), Moments(("n",), by="b")]
    source = Database("SELECT * FROM typed", uri)
    pushed = sums(source, schema, *blocks)
    function = Custom(lambda batch: batch["s"] * 0.0, ("s",), 1, 1.0)
    assert sums(source, schema, *blocks, function)[:3] == pushed
    assert pushed[0][0] == [2 if kind == "mariadb" else 5, 2, 2, 2]
    assert pushed[1][0] == [[1, 0], [0, 1]]
    frame = pl.DataFrame({"r": pl.Series([0.1, 2.5, None], dtype=pl.Float32)})
    assert sums(source, Schema(r=(0, 1)), Moments(("r",))) == sums(frame, Schema(r=(0, 1)), Moments(("r",)))


@pytest.mark.parametrize("kind", SERVERS)
def test_what_is_wrong_is_told_to_the_steward(kind: str, uri: str) -> None:
    run(
        uri,
        "DROP TABLE IF EXISTS small",
        "CREATE TABLE small (x DOUBLE PRECISION)",
        "INSERT INTO small VALUES (1)",
    )
    schema = Schema(x=(0, 10))

    def said(query: str, connection: Any = uri, timeout: float = 60) -> str:
        return fails(lambda: sums(Database(query, connection, timeout), schema, Moments(("x",))))

    assert "no such table" in said(f"SELECT * FROM {SECRET}")
    assert "no such column" in said(f"SELECT {SECRET} FROM small")
    assert "does not understand the query" in said(f"SELECT x FROM small WHERE ({SECRET}")
    with pytest.raises(DataError, match="no column 'x' in the table"):
        sums(Database("SELECT x AS y FROM small", uri), schema, Moments(("x",)))
    slow = "SELECT 1 AS x FROM pg_sleep(60)" if kind == "postgres" else "SELECT SLEEP(60) AS x"
    start = time.monotonic()
    assert "did not answer in time" in said(slow, timeout=0.5)
    assert time.monotonic() - start < 20
    away = {
        "postgres": f"postgresql://cape:{SECRET}@127.0.0.1:1/none",
        "mariadb": f"mariadb://cape:{SECRET}@127.0.0.1:1/none",
    }[kind]
    assert "no connection" in said("SELECT 1 AS x", away)


@pytest.mark.parametrize("kind", SERVERS)
def test_wrong_users_are_told_so(kind: str, mariadb: str, postgres: str) -> None:
    if kind == "mariadb":
        run(mariadb, "CREATE USER IF NOT EXISTS 'nobody'@'localhost' IDENTIFIED BY 'right'")
        wrong = mariadb.replace("root@", f"nobody:{SECRET}@")
    else:
        run(
            postgres,
            "DROP TABLE IF EXISTS closed",
            "CREATE TABLE closed (x float8)",
            "DROP ROLE IF EXISTS nobody",
        )
        run(postgres, "CREATE ROLE nobody LOGIN")
        wrong = postgres.replace("cape@", "nobody@")
    said = fails(lambda: sums(Database("SELECT * FROM closed", wrong), Schema(x=(0, 1)), Moments(("x",))))
    assert "access is denied" in said


@pytest.mark.parametrize("kind", SERVERS)
def test_nothing_is_written_and_a_connection_stays_as_it_was(kind: str, uri: str) -> None:
    run(
        uri,
        "DROP TABLE IF EXISTS kept",
        "CREATE TABLE kept (x DOUBLE PRECISION)",
        "INSERT INTO kept VALUES (1)",
    )
    schema, block = Schema(x=(0, 10)), Moments(("x",))
    if kind == "postgres":
        run(
            uri,
            "CREATE OR REPLACE FUNCTION spoil() RETURNS float8 LANGUAGE sql "
            "AS 'DELETE FROM kept RETURNING 1::float8'",
        )
        assert "could not be read" in fails(lambda: sums(Database("SELECT spoil() AS x", uri), schema, block))
    with pytest.raises(InvalidInput, match="must be one SELECT"):
        sums(Database("DELETE FROM kept", uri), schema, block)
    for query in TWO_READINGS:
        with pytest.raises((DataError, InvalidInput)):
            sums(Database(query, uri), Schema(b=(0, 10)), Moments(("b",)))
    with opened(uri) as connection, connection.cursor() as cursor:
        before = {}
        for name in ("sql_mode", "max_statement_time") if kind == "mariadb" else ("statement_timeout",):
            cursor.execute(f"SELECT @@{name}" if kind == "mariadb" else f"SHOW {name}")
            before[name] = cursor.fetchone()
        connection.commit()
        source = Database("SELECT x FROM kept", connection)
        assert sums(source, schema, block)[0][0] == [1]
        assert Table("alpha", source, schema).vectors(Design(("x",)))[0].shape == (1, 1)
        for name, value in before.items():
            cursor.execute(f"SELECT @@{name}" if kind == "mariadb" else f"SHOW {name}")
            assert cursor.fetchone() == value
        cursor.execute("INSERT INTO kept VALUES (2)")
        connection.commit()
        assert sums(source, schema, block)[0][0] == [2]


@pytest.mark.parametrize("kind", SERVERS)
def test_dirty_cells_count_as_missing(kind: str, uri: str) -> None:
    run(
        uri,
        "DROP TABLE IF EXISTS dirty",
        "CREATE TABLE dirty (x VARCHAR(9), g VARCHAR(9), i INT)",
        "INSERT INTO dirty VALUES ('1.5', 'a', 0), ('?', 'b', 1), (NULL, 'z', 9)",
    )
    schema = Schema(x=(0, 10), g=["a", "b"], i=Category((0, 1), missing=False))
    table = Table("alpha", Database("SELECT * FROM dirty", uri), schema, unreadable="missing")
    ((count, *_), (g,), (i,)) = table.sums([Moments(("x",)), Counts((Axis("g"),)), Counts((Axis("i"),))])
    assert (count.tolist(), g.tolist(), i.tolist()) == ([1], [1, 1], [2, 1])
    table.check()
    assert table.counted_as_missing == {"x": 1, "g": 1, "i": 1}
    ((g,), (i,)) = table.sums([Counts((Axis("g"),)), Counts((Axis("i"),))])  # these are counted there
    assert (g.tolist(), i.tolist()) == ([1, 1], [2, 1])
    strict = Table("alpha", Database("SELECT * FROM dirty", uri), schema)
    with pytest.raises(DataError, match="column 'g': expected one of 'a', 'b'"):
        strict.sums([Counts((Axis("g"),))])
