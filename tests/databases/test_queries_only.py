"""A query is one SELECT: whoever names the rows of a site must not run other commands as the site's user."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.data.databases.embedded import DuckDbReader, SqliteReader
from cape.data.databases.servers import MariaDbReader, PostgresReader
from cape.data.faults import Unanswered
from cape.errors import InvalidInput

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
