"""A cohort of an OMOP database as a site's rows: the columns are what the tables say, in every database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import cape
from cape.blocks import Axis, Counts, Moments, Table
from cape.core.errors import DataError, InvalidInput, PrivacyLeakWarning
from cape.data import Omop, Person, Schema
from cape.data.databases import SqlReader
from cape.data.sources import open_source
from cape.data.survey import survey
from tests.omop import COLUMNS, DAY_0, NAMES, Rows, expected, fill, rows, written

SCHEMA = Schema(
    {
        "age": (0, 100),
        "sex": ["female", "male"],
        "condition_201826": {"categories": [0, 1]},
        "measurement_201826": (0, 100),
        "index_date": (date(2020, 1, 1), date(2020, 12, 31)),
        "observation_days": (0, 60),
    }
)
BLOCKS = [Moments(("age", "measurement_201826"), by="sex"), Counts((Axis("condition_201826"), Axis("sex")))]


def described(names: Any) -> Schema:
    return Schema({name: ["female", "male"] if name == "sex" else (0, 1) for name in names})


def cells(source: Omop, names: Any = NAMES) -> list[tuple[Any, ...]]:
    """What is read of these columns, with dates as dates."""
    wanted = [name for name in names if name != "person"]
    reader = open_source("clinic", source, described(wanted))
    found = [row for batch in reader.batches(list(names), 17) for row in batch.rows()]
    days = {i for i, name in enumerate(names) if name == "index_date"}
    return [tuple(_date(cell) if i in days else cell for i, cell in enumerate(row)) for row in found]


def _date(cell: Any) -> date:
    return date.fromisoformat(str(cell))  # SQLite has texts


def seconds(value: Any) -> str:
    """Dates as OHDSI's tools store them in SQLite."""
    if not isinstance(value, date):
        return written(value)
    at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return str(at.replace(tzinfo=UTC).timestamp())


def connected(kind: str, tables: Rows) -> Any:
    connection: Any = duckdb.connect() if kind == "duckdb" else sqlite3.connect(":memory:")
    fill(connection.execute, tables, cell=seconds if kind == "seconds" else None)
    return connection


@pytest.fixture(params=["duckdb", "sqlite", "seconds"])
def clinic(request: pytest.FixtureRequest) -> Any:
    return connected(request.param, rows())


@pytest.mark.one_in(2, seconds=0.4)
@pytest.mark.parametrize("window", [(-365, 0), (-30, 30)])
def test_columns_are_what_the_tables_say(clinic: Any, window: tuple[int, int]) -> None:
    found = cells(Omop(clinic, 7, window))
    assert found == expected(rows(), window=window)
    assert len({row[0] for row in found}) < len(found), "a person has two entries"


def test_edges_that_people_would_ask_about() -> None:
    births = [(8532, 1950, 3, 1), (8507, 1950, 3, 2), (0, 1950, None, None), (8507, 2020, 3, 2)]
    tables = {name: [] for name in COLUMNS} | {"concept_ancestor": rows()["concept_ancestor"]}
    tables["person"] = [(person, *born) for person, born in enumerate(births, 1)]
    tables["cohort"] = [(7, person, DAY_0) for person in (1, 2, 3, 4)]
    tables["condition_occurrence"] = [
        (1, 40482801, DAY_0),  # a descendant, on the last day of the window
        (2, 201826, date(2019, 3, 1)),  # 366 days before, in a leap year
        (3, 201826, date(2019, 3, 2)),
        (4, 201826, date(2020, 3, 2)),
    ]
    eight, noon = datetime(2020, 2, 1, 8), datetime(2020, 2, 1, 12)
    tables["measurement"] = [
        (1, 1, 2000000001, date(2020, 2, 1), noon, 5.0),  # later than the next on that day
        (2, 1, 2000000001, date(2020, 2, 1), eight, 6.0),
        (3, 2, 2000000001, date(2020, 2, 1), None, 7.0),
        (4, 2, 2000000001, date(2020, 2, 1), None, 8.0),  # recorded later
        (5, 3, 2000000001, date(2020, 2, 1), None, 9.0),
        (6, 3, 2000000001, date(2020, 2, 2), None, None),  # no number
    ]
    names = ("age", "sex", "condition_201826", "measurement_2000000001")
    for kind in ("duckdb", "sqlite"):
        assert cells(Omop(connected(kind, tables), 7), names) == [
            (70, "female", 1, 5.0),
            (69, "male", 0, 8.0),  # the day before a birthday
            (70, None, 1, 9.0),  # by the years alone
            (None, "male", 0, None),  # the day before birth
        ]


@pytest.mark.slow(1)
def test_no_cell_is_an_error() -> None:
    connection = connected("duckdb", rows())
    for table, column in (("cohort", "cohort_start_date"), ("condition_occurrence", "condition_start_date")):
        connection.execute(f"ALTER TABLE {table} ALTER {column} TYPE VARCHAR")
        connection.execute(f"UPDATE {table} SET {column} = '31/02/20' WHERE rowid = 0")
    connection.execute("UPDATE observation_period SET observation_period_end_date = 'infinity'")
    connection.execute(f"UPDATE person SET year_of_birth = {-(2**31)} WHERE person_id = 2")
    connection.execute(f"UPDATE person SET month_of_birth = {2**31 - 1} WHERE person_id = 3")
    found = cells(Omop(connection, 7), ("person", "age", "observation_days", "condition_201826"))
    assert len(found) == 82
    assert {row[1] for row in found if row[0] in (1, 2)} == {None}
    assert {row[1] for row in found if row[0] == 3} != {None}
    assert {row[2] for row in found} == {None}


def summed(table: Table) -> list[list[Any]]:
    return [[array.tolist() for array in arrays] for arrays in table.sums(BLOCKS)]


def in_memory(entries: Any, schema: Schema = SCHEMA) -> Table:
    return Table("clinic", pl.DataFrame(list(entries), schema=list(SCHEMA), orient="row"), schema)


def check_sums(source: Omop) -> None:
    """Compare sums with those of the rows in memory."""
    tables = [Table("clinic", source, SCHEMA), Table("clinic", source, SCHEMA, unreadable="missing")]
    for schema in (SCHEMA, SCHEMA.only("condition_201826 = 1 and age >= 30")):
        wanted = summed(in_memory(expected(rows(), tuple(SCHEMA)), schema))
        assert [summed(table.of(schema)) for table in tables] == [wanted, wanted]


def check_persons(source: Omop) -> None:
    """Compare sums over the latest entry of each person with those of the same rows in memory."""
    assert Table("clinic", source, SCHEMA.of_persons(Person("person", rows=2))).rows() == 61
    latest = SCHEMA.of_persons(Person("person", row={"take": "latest", "by": "index_date"}))
    last = dict(expected(rows(), ("person", "index_date")))
    kept = {
        row[0]: row[2:]
        for row in expected(rows(), ("person", "index_date", *SCHEMA))
        if last[row[0]] == row[1]
    }
    assert summed(Table("clinic", source, latest)) == summed(in_memory(kept.values()))


@pytest.mark.slow(1)
def test_sums_are_computed_in_the_database(clinic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlReader, "batches", None)
    check_sums(Omop(clinic, 7))


@pytest.mark.slow(0.6)
def test_entries_of_a_person_are_the_persons(clinic: Any) -> None:
    check_persons(Omop(clinic, 7))


def test_only_what_the_schema_names_is_asked() -> None:
    asked = Omop("x", 7).query(["age"], "postgres")
    assert "person_id" in asked
    assert not [word for word in ("death", "measurement", "ancestor") if word in asked]
    small = sqlite3.connect(":memory:")
    small.execute("CREATE TABLE cohort (cohort_definition_id, subject_id, cohort_start_date)")
    small.execute("INSERT INTO cohort VALUES (7, 12, '2020-03-01')")  # no other table is needed
    assert cells(Omop(small, 7), ("person", "index_date")) == [(12, DAY_0)]


def test_schemas_of_the_database() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA cdm; CREATE SCHEMA results")
    fill(connection.execute, rows(), schema="cdm.", results="results.")
    source, names = Omop(connection, 7, schema="cdm", results="memory.results"), ("age", "condition_201826")
    assert cells(source, names) == expected(rows(), names)
    for wrong in (Omop(connection, 7, schema="cdm"), Omop(connection, 7, schema="omop", results="results")):
        with pytest.raises(DataError, match=r"no such table, schema .* check schema, which .* and results"):
            Table("clinic", wrong, SCHEMA).rows()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"cohort": "7"}, "cohort must be an integer"),
        ({"cohort": True}, "cohort must be an integer"),
        ({"cohort": -1}, "cohort must be an integer"),
        ({"window": (0, -365)}, r"window must rise, as in \[-365, 0\], not \[0, -365\]"),
        ({"window": (0,)}, "window must be two days"),
        ({"window": (-1.5, 0)}, "a day of the window must be an integer"),
        ({"window": (-(10**9), 0)}, "a day of the window must be an integer"),
        ({"window": 365}, "window must be two days"),
        ({"schema": 'cdm"; DROP TABLE person; --'}, "schema must be the name"),
        ({"results": ""}, "results must be the name"),
        ({"timeout": 0}, "timeout must be"),
        ({"connection": None}, "connection must be"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Omop(**({"connection": "x", "cohort": 7} | given))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("bmi", "there are person, index_date, age, .*condition_ID, .*as in condition_201826"),
        ("condition_diabetes", "must end in the number of an OMOP concept, as in condition_201826"),
        ("condition_1 OR 1=1", "must end in the number"),
        ("drug_0", "must end in the number"),
        ("visit_2147483648", "must end in the number"),
        ("measurement_99999999999", "must end in the number"),
        ("Condition_201826", "there are person"),
        ('age"', "there are person"),
    ],
)
def test_columns_that_are_not_offered_are_refused(name: str, problem: str) -> None:
    source, schema = Omop(sqlite3.connect(":memory:"), 7), Schema({"age": (0, 100), name: (0, 1)})
    with pytest.raises(DataError, match=problem):
        Table("clinic", source, schema)
    assert name in survey("clinic", source, schema).problems[0]
    with pytest.raises(DataError, match="there are person"):
        Table("clinic", source, SCHEMA.of_persons(Person("patient_id")))


def test_a_database_that_is_not_known_is_refused() -> None:
    with pytest.raises(DataError, match="must be PostgreSQL, MariaDB, DuckDB, SQLite or Spark"):
        Table("clinic", Omop("oracle://clinic/omop", 7), SCHEMA)


STUDY = """
[study]
name = "Diabetes"
[sites]
one = {SITE}
two = {omop = "duckdb:///two.db", cohort = 7}
three = {omop = "sqlite:///three.db", cohort = 7}
four = {omop = "sqlite:///four.db", cohort = 7}
[person]
id = "person"
rows = 3
[schema]
age = [0, 100]
condition_201826 = {categories = [0, 1]}
[privacy]
epsilon = 8.0
delta = 1e-5
[[analysis]]
kind = "mean"
columns = ["age"]
where = "condition_201826 = 1"
"""
SITE = '{omop = "env:ONE", cohort = 7, window = [-30, 30], schema = "main", timeout = 60}'


def study(folder: Path, site: str = SITE) -> cape.Study:
    path = folder / "study.toml"
    path.write_text(STUDY.replace("{SITE}", site))
    return cape.Study.load(path)


@pytest.mark.slow(1)
def test_a_study_file_names_cohorts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ages = []
    for name, window in {"one": (-30, 30), "two": (-365, 0), "three": (-365, 0), "four": (-365, 0)}.items():
        tables, path = rows(seed=ord(name[0]) + len(name), persons=20), str(tmp_path / f"{name}.db")
        with closing(duckdb.connect(path) if name in ("one", "two") else sqlite3.connect(path)) as connection:
            fill(connection.execute, tables)
            connection.commit()
        found = expected(tables, ("age", "condition_201826"), window)
        ages += [age for age, flag in found if flag and age is not None]
    monkeypatch.setenv("ONE", f"duckdb:///{tmp_path}/one.db")
    loaded = study(tmp_path)
    assert loaded.sites["one"].source() == Omop("env:ONE", 7, (-30, 30), "main", timeout=60.0)
    (entry,) = loaded.analyses
    with pytest.warns(PrivacyLeakWarning, match="no noise"):
        release = loaded.consortium(scheme="none").release(entry.analysis, entry.share)
    assert release.value == pytest.approx(sum(ages) / len(ages), abs=0.01)


@pytest.mark.parametrize(
    ("site", "problem"),
    [
        ('{omop = "env:ONE"}', "the key 'cohort' is missing"),
        ('{omop = "env:ONE", cohort = "seven"}', "cohort must be an integer"),
        ('{omop = "env:ONE", cohort = 7, cohorts = 8}', "unknown key 'cohorts'"),
        ('{omop = "env:ONE", cohort = 7, window = [0, -1]}', "window must rise"),
        ('{omop = "env:ONE", cohort = 7, window = "year"}', "window must be two days"),
        ('{omop = "", cohort = 7}', "omop must be a text such as 'env:CLINIC_DB'"),
        ("{omop = 3, cohort = 7}", "omop must be a text"),
        ('{omop = "postgresql://u:SECRET@h/d", cohort = 7}', "omop must not hold a password"),
        ('{omop = "duckdb:///two.db", cohort = 7, window = [0, 1]}', "one and two ask the same query"),
    ],
)
def test_a_wrong_key_of_a_study_file_is_refused(site: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        study(tmp_path, site)
    assert "SECRET" not in str(caught.value)
    assert "[sites]" in str(caught.value)


def test_a_connection_is_not_shown() -> None:
    assert "SECRET" not in repr(Omop("postgresql://u:SECRET@h/d", 7))


def test_a_study_of_cohorts_says_how_many_entries_of_a_person_count(tmp_path: Path) -> None:
    text = STUDY.replace("{SITE}", SITE).replace('[person]\nid = "person"\nrows = 3\n', "")
    assert "[person]" not in text
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(InvalidInput, match="a person may have several entries in a cohort"):
        cape.Study.load(tmp_path / "study.toml")
