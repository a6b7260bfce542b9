"""A query is one SELECT: whoever names the rows of a site must not run other commands as the site's user."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cape.core.errors import InvalidInput
from cape.data import Database
from cape.data.database import QueryReader
from cape.data.databases.embedded import DuckDbReader, SqliteReader
from cape.data.databases.servers import MariaDbReader, PostgresReader
from cape.data.faults import Unanswered
from cape.data.sources import open_source

duckdb = pytest.importorskip("duckdb")

MORE = [
    "SELECT 1 AS age; COPY (SELECT 1) TO 'x.csv'",
    "SELECT 1 AS age;\n-- nothing\nDROP TABLE visits",
    "COPY visits TO 'x.csv'",
    "ATTACH 'other.db'",
    "PRAGMA version",
    "SET enable_external_access = true",
    "DELETE FROM visits",
    "INSERT INTO visits VALUES (3)",
    "CALL pragma_version()",
    "SELECT 1 AS age) AS q, (SELECT 2 AS age",
]
ONE = [
    "SELECT age FROM visits",
    "SELECT age FROM visits;  ",
    "  (SELECT age FROM visits) -- all of them",
    "WITH them AS (SELECT age FROM visits) SELECT * FROM them",
    "SELECT ';' AS age FROM visits /* ; */",
    "TABLE visits",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as opened:
        opened.execute("CREATE TABLE visits AS SELECT 40 AS age UNION ALL SELECT 50")
    return tmp_path / "rows.duckdb"


@pytest.mark.parametrize("query", MORE)
@pytest.mark.parametrize("reader", [DuckDbReader, SqliteReader, PostgresReader, MariaDbReader])
def test_anything_but_one_select_is_refused(reader, query: str, file: Path):
    with pytest.raises(InvalidInput, match="must be one SELECT"):
        reader(query, file, None)


@pytest.mark.parametrize("query", ONE)
def test_one_select_is_answered(query: str, file: Path):
    found = DuckDbReader(query, file, None)
    assert found.names() == ["age"]
    assert found.rows() == 2
    for reader in (SqliteReader, PostgresReader, MariaDbReader):
        reader(query, file, None)


URIS = ("redshift://u@h/db", "mssql://u@h/db", "oracle://u@h/db", "sqlite3:///x.db", "trino+x://h/db")
WRITES = [
    "DROP TABLE patients; SELECT 1",
    "SELECT 1 DROP TABLE patients",
    "SELECT age INTO kept FROM visits",
    "WITH d AS (DELETE FROM visits RETURNING *) SELECT * FROM d",
    "SELECT age FROM visits EXEC xp_cmdshell 'id'",
    "SELECT ((1",
]


@pytest.mark.parametrize("query", [*MORE, *WRITES])
@pytest.mark.parametrize("uri", URIS)
def test_databases_whose_rows_are_fetched_get_one_select_too(
    uri: str, query: str, monkeypatch: pytest.MonkeyPatch
):
    def run(*_: object) -> None:
        raise AssertionError("it reached the driver")

    monkeypatch.setattr("polars.read_database_uri", run)
    with pytest.raises(InvalidInput, match="must be one SELECT"):
        open_source("a", Database(query, uri))


@pytest.mark.parametrize("query", ONE[:-1])
def test_one_select_reaches_the_driver_of_any_database(query: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("polars.read_database_uri", lambda *_: pl.DataFrame({"age": [40, 50]}))
    for uri in URIS:
        assert open_source("a", Database(query, uri)).names() == ["age"]


class _Connection:
    """Any connection that polars would read from, and a session of Spark."""

    def sql(self, query: str) -> None:
        raise AssertionError("it reached the driver")


class _Spark(_Connection):
    __module__ = "pyspark.sql"


@pytest.mark.parametrize("kind", [_Connection, _Spark])
def test_open_connections_get_one_select_too(kind: type[_Connection]):
    for query in MORE:
        with pytest.raises(InvalidInput, match="must be one SELECT"):
            open_source("a", Database(query, kind()))


@pytest.mark.parametrize("start", ["/*!", "/*!50000", "/*M!", "/*m!100100"])
def test_comments_that_mariadb_runs_are_refused(start: str, file: Path):
    for reader in (lambda query: MariaDbReader(query, file, None), lambda query: QueryReader(query, None)):
        with pytest.raises(InvalidInput, match="which MariaDB runs"):
            reader(f"SELECT 1 AS age {start} INTO OUTFILE 'x' */")
        reader("SELECT 1 AS age /* a comment! */")


def test_a_file_of_duckdb_sees_no_other_file(file: Path):
    key = file.parent / "identity.key"
    key.write_text("secret")
    for query in (
        f"SELECT content AS age FROM read_text('{key}')",
        f"SELECT * FROM '{file.parent}/rows.csv'",
        f"SELECT count(*) AS age FROM glob('{file.parent}/*')",
    ):
        with pytest.raises(Unanswered) as caught:
            DuckDbReader(query, file, None).names()
        assert "secret" not in str(caught.value)
        assert "may read no other file" in str(caught.value)
