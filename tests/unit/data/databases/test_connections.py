"""Connections: their secrets stay where they are, and what a database refuses is told without them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import cape
from cape.blocks import Counts, Moments, Table
from cape.core.errors import DataError, InvalidInput
from cape.data import Database, Schema
from cape.data.secrets import has_password
from cape.study.sites import place_of, read_sites

SCHEMA = Schema(x=(0, 10))
BLOCK = Moments(("x",))
SECRET = "".join(["s3", "cr3t"])  # not a literal: a traceback shows lines of this file
PUBLIC = "site 'alpha' could not answer: its table could not be used"


def ask(source: Any) -> list[list[int]]:
    return [part.tolist() for part in Table("alpha", source, SCHEMA).sums([BLOCK])[0]]


def fails(act: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as caught:
        act()
    shown = f"{caught.value} {caught.value!r} {caught.value.public}"
    assert SECRET not in shown
    assert caught.value.__context__ is None
    assert caught.value.public == PUBLIC
    return str(caught.value)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The URI of a file of each kind, with the same rows."""
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as duck:
        duck.execute("CREATE TABLE t AS SELECT 7.5::DOUBLE AS x UNION ALL SELECT NULL")
    lite = sqlite3.connect(tmp_path / "rows.sqlite")
    lite.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (7.5), (NULL)")
    lite.close()
    return {kind: f"{kind}:///{tmp_path}/rows.{kind}" for kind in ("duckdb", "sqlite")}


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_uri_is_taken_from_the_environment_or_from_a_file_of_ones_own(
    kind: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ask(Database("SELECT * FROM t", files[kind]))
    assert wanted[0] == [1]
    monkeypatch.setenv("ALPHA_DB", files[kind])
    assert ask(Database("SELECT * FROM t", "env:ALPHA_DB")) == wanted
    secret = tmp_path / "secret"
    secret.write_text(files[kind] + "\n")
    secret.chmod(0o600)
    assert ask(Database("SELECT * FROM t", f"file:{secret}")) == wanted
    secret.chmod(0o640)
    assert "chmod 600" in fails(lambda: ask(Database("SELECT * FROM t", f"file:{secret}")))


def test_a_secret_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'ALPHA_DB' is not set" in fails(lambda: ask(Database("SELECT 1", "env:ALPHA_DB")))
    assert "could not be read (FileNotFoundError)" in fails(
        lambda: ask(Database("SELECT 1", f"file:{tmp_path}/none"))
    )
    monkeypatch.setenv("ALPHA_DB", "env:ALPHA_DB")
    assert "must be a URI" in fails(lambda: ask(Database("SELECT 1", "env:ALPHA_DB")))


def test_a_study_holds_no_password(tmp_path: Path) -> None:
    uri = f"postgresql://user:{SECRET}@host/db"
    for secret in (uri, f"mariadb://host/db?password={SECRET}", f"mysql://u:{SECRET}@h/d"):
        assert has_password(secret)
        with pytest.raises(InvalidInput, match='write "env:NAME"') as caught:
            read_sites({"a": {"query": "SELECT 1", "connection": secret}, "b": "b.csv"}, tmp_path)
        assert SECRET not in str(caught.value)
    assert not has_password("postgresql://user@host:5432/db?sslmode=require")
    assert SECRET not in repr(Database("SELECT 1", uri))
    sites = read_sites({"a": {"query": "SELECT 1", "connection": "env:A"}, "b": "b.csv"}, tmp_path)
    assert sites["a"].source() == Database("SELECT 1", "env:A")
    timed = place_of({"query": "SELECT 1", "connection": "file:secret", "timeout": 5}, tmp_path)
    assert timed.source() == Database("SELECT 1", f"file:{tmp_path}/secret", 5.0)
    assert place_of({"query": "SELECT 1", "connection": "duckdb:///a.db"}, tmp_path).where == (
        "SELECT 1",
        f"duckdb:///{tmp_path}/a.db",
    )


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_what_is_wrong_is_told_to_the_steward(kind: str, files: dict[str, str]) -> None:
    def asked(query: str) -> str:
        return fails(lambda: ask(Database(query, files[kind])))

    for query in (f"SELECT * FROM {SECRET}", f"SELECT {SECRET} FROM t", f"SELECT x FROM t WHERE {SECRET} ("):
        assert "the database query could not be read" in asked(query)
    if kind == "duckdb":
        assert "no such table" in asked(f"SELECT * FROM {SECRET}")
        assert "no such column" in asked(f"SELECT {SECRET} FROM t")
        assert "it stopped at a cell" in asked("SELECT CAST('abc' || x AS DOUBLE) AS x FROM t")
    away = files[kind].replace("rows", "none")
    assert "file at the URI" in fails(lambda: ask(Database("SELECT 1", away)))


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_query_changes_nothing(kind: str, files: dict[str, str]) -> None:
    path = files[kind].partition("///")[2]
    before = Path(path).read_bytes()
    for query in (
        "DELETE FROM t",
        "INSERT INTO t VALUES (1) RETURNING x",
        "DROP TABLE t",
        "SELECT 1; DROP TABLE t",
    ):
        with pytest.raises(InvalidInput, match="must be one SELECT"):
            ask(Database(query, files[kind]))
    assert Path(path).read_bytes() == before
    opened: Any = duckdb.connect(path) if kind == "duckdb" else sqlite3.connect(path)
    with pytest.raises(InvalidInput, match="must be one SELECT"):
        ask(Database("DELETE FROM t", opened))
    assert opened.execute("SELECT count(*) FROM t").fetchone() == (2,)
    opened.execute("INSERT INTO t VALUES (1)")  # the connection is as it was
    assert ask(Database("SELECT * FROM t", opened))[0] == [2]
    opened.close()


SLOW = {
    "duckdb": "SELECT sum(sqrt(a.range + b.range)) AS x FROM range(1000000) a, range(1000000) b",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) AS x FROM n",
}


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_statement_that_takes_too_long_is_given_up(kind: str, files: dict[str, str]) -> None:
    start = time.monotonic()
    said = fails(lambda: ask(Database(SLOW[kind], files[kind], timeout=0.3)))
    assert "did not answer in time" in said
    assert time.monotonic() - start < 20


def test_a_transaction_that_is_open_stays_open(files: dict[str, str]) -> None:
    opened = duckdb.connect(files["duckdb"].partition("///")[2])
    opened.execute("BEGIN")
    opened.execute("INSERT INTO t VALUES (2)")
    assert ask(Database("SELECT * FROM t", opened))[0] == [2]
    opened.execute("ROLLBACK")
    assert ask(Database("SELECT * FROM t", opened))[0] == [1]
    opened.close()


def test_options_of_a_uri(files: dict[str, str]) -> None:
    uri = files["duckdb"]
    assert ask(Database("SELECT * FROM t", f"{uri}?memory_limit=200MB&threads=1"))[0] == [1]
    assert "options of a DuckDB URI" in fails(lambda: ask(Database("SELECT * FROM t", f"{uri}?enable=1")))
    for timeout in (0, -1, "x", 1e9):
        with pytest.raises(InvalidInput, match="timeout"):
            Database("SELECT 1", uri, timeout)  # type: ignore[arg-type]


def test_all_sums_of_a_call_see_one_state(tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    writer = sqlite3.connect(path)
    writer.executescript("PRAGMA journal_mode = wal; CREATE TABLE t (x, y); INSERT INTO t VALUES (1, 1)")
    reader = sqlite3.connect(path)
    reader.create_function(
        "seen", 1, lambda x: (writer.execute("INSERT INTO t VALUES (2, 2)"), writer.commit(), x)[2]
    )
    table = Table("alpha", Database("SELECT seen(x) AS x, y FROM t", reader), Schema(x=(0, 10), y=(0, 10)))
    blocks = [Moments(("x",)), Moments(("y",)), Counts(())]
    (first, *_), (second, *_), (rows,) = table.sums(blocks)
    assert first.tolist() == second.tolist() == [int(rows)]
    writer.close()
    reader.close()


def test_without_its_driver_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(cape.MissingExtra, match=r"cape-dp\[postgres\]"):
        Table("alpha", Database("SELECT 1", "postgresql://host/db"), SCHEMA)
