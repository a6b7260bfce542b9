"""Random tables with ugly values: a database gives the same integers as the same rows in memory."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from benchmarks.random_tables import DATABASES, Case, cases, differs, frames
from cape.blocks import Axis, Counts, Gram, Moments, Residuals, Table
from cape.core.errors import DataError
from cape.data import Database, Person, Schema
from cape.data.databases import SqlReader
from cape.data.databases.embedded import SqliteReader


def check(kind: str, where: Any, seeds: range, count: int) -> None:
    """Compare random questions about random tables."""
    for seed in seeds:
        frame = frames(seed)
        with DATABASES[kind](frame, where, f"t{seed}") as source:
            for case in cases(seed, count):
                assert differs(case, frame, source) is None


@pytest.mark.slow(3)
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_random_questions_have_the_same_answers(kind: str, tmp_path: Path) -> None:
    check(kind, str(tmp_path), range(100, 103), 2)


@pytest.mark.slow(60)
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_many_random_questions_have_the_same_answers(kind: str, tmp_path: Path) -> None:
    check(kind, str(tmp_path), range(30), 4)


DERIVED = Schema(
    {
        "x": (18, 90),
        "y": (0, 100),
        "k": {"categories": [0, 1, 2, 3]},
        "u": ["a", "b"],
        "old": {"sql": "x >= 65", "categories": ["no", "yes"]},
        "both": {"sql": "x * 2 + y"},
        "band": {"sql": "cut(y, 30, 60)"},
    }
).at(["a", "b"])
BLOCKS = [
    Moments(("both", "x"), by="old"),
    Counts((Axis("band"), Axis("site"))),
    Gram(("x", "old", "both", "u")),
    Counts((Axis("both", np.linspace(36, 280, 33)),)),
    Counts(()),
    Residuals((Axis("band"), Axis("old"), Axis("u")), ((), (0, 1), (0,), (1, 2), (0, 2))),
]
WHERE = [None, "u = 'a' and both > 90", "old = 'yes' or k in (1, 2)", "y is null"]


def check_derived(kind: str, where: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare derived columns and conditions, computed in the database."""
    frame = frames(7, 200)
    asked = []
    ask = SqlReader.ask
    monkeypatch.setattr(SqlReader, "ask", lambda self, given: asked.append(given) or ask(self, given))
    with DATABASES[kind](frame, where, "derived") as source:
        for condition in WHERE:
            schema = DERIVED if condition is None else DERIVED.only(condition)
            assert differs(Case(schema, BLOCKS, "missing"), frame, source) is None
            assert asked, "the rows were read"
            asked.clear()
        logarithm = Schema({"y": (0, 100), "l": {"sql": "ln(y + 1)", "low": 0, "high": 5}})
        assert differs(Case(logarithm, [Moments(("l",))], "missing"), frame, source) is None


@pytest.mark.slow_cases("sqlite", seconds=1)
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_derived_columns_and_conditions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_derived(kind, folder, monkeypatch)


def test_a_text_among_numbers_of_sqlite_is_read_at_the_site() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE t (x); INSERT INTO t VALUES (1), (' 2.5 '), (X'00'), ('no'), (NULL)"
    )
    source = Database("SELECT * FROM t", connection)
    table = Table("a", source, Schema(x=(0, 10)), unreadable="missing")
    ((count, *_),) = table.sums([Moments(("x",))])
    assert count.tolist() == [2]
    table.check()
    assert table.counted_as_missing == {"x": 2}


@pytest.mark.slow(1.2)
def test_many_products_are_asked_for_in_several_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"x{i}" for i in range(40)]
    random = np.random.default_rng(3)
    rows = random.uniform(-1, 1, (50, 40))
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({', '.join(names)})")
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * 40)})", rows.tolist())
    schema = Schema(dict.fromkeys(names, (-1, 1)))
    asked = []
    ask = SqliteReader.ask
    monkeypatch.setattr(SqliteReader, "ask", lambda self, given: asked.extend(given) or ask(self, given))
    found = Table("a", Database("SELECT * FROM t", connection), schema).sums([Gram(tuple(names))])
    assert len(asked) == 3  # two of products, and one that looks for texts among the numbers
    wanted = Table("a", pl.DataFrame(dict(zip(names, rows.T, strict=True))), schema).sums(
        [Gram(tuple(names))]
    )
    assert [part.tolist() for part in found[0]] == [part.tolist() for part in wanted[0]]


HOSTILE = [
    "a' OR '1' = '1",
    "'; DROP TABLE t; --",
    '" AS "x',
    "\\' OR 1=1 --",
    "/*",
    "cape_rows",
    "${x}",
    "{x}",
    "%(x)s",
]


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_names_and_texts_of_a_study_are_no_sql(kind: str, tmp_path: Path) -> None:
    check_hostile(kind, str(tmp_path))


def check_hostile(kind: str, where: Any) -> None:
    """Ask for categories that look like SQL; the rows and the table stay as they are."""
    frame = frames(7, 50).with_columns(t=pl.Series(HOSTILE * 9).head(frames(7, 50).height))
    schema = Schema(t=HOSTILE)
    with DATABASES[kind](frame, where, "hostile") as source:
        for _ in range(2):
            assert differs(Case(schema, [Counts((Axis("t"),))], "error"), frame, source) is None
        named = Schema({'x"; DROP TABLE hostile; --': (0, 1)})
        with pytest.raises(DataError, match="no column"):
            Table("a", source, named).sums([Moments(tuple(named))])


def test_rows_of_persons_keep_their_places_whatever_order_a_database_has() -> None:
    """Whose rows count is decided in one pass, and used in the next."""
    frame = pl.DataFrame({"id": [i % 40 for i in range(200)], "x": [float(i) for i in range(200)]})
    duck = duckdb.connect()
    duck.register("frame", frame)
    duck.execute("CREATE TABLE rows AS SELECT * FROM frame")
    schema = Schema(x=(0, 200)).of_persons(Person("id", rows=2))
    table = Table("a", Database("SELECT * FROM rows ORDER BY random()", duck), schema, key=b"secret")
    sums = [table.sums([Moments(("x",))])[0] for _ in range(3)]
    assert sums[0][0].tolist() == [80]
    assert len({tuple(part.tolist()[0] for part in each) for each in sums}) == 1
