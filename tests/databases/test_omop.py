"""A cohort in a real PostgreSQL and MariaDB: its columns are what the tables say."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pytest

from benchmarks.random_tables import mariadb_connection
from cape.blocks import Table
from cape.core.errors import DataError
from cape.data import Omop
from tests.omop import expected, fill, rows
from tests.unit.data.test_omop import SCHEMA, cells, check_persons, check_sums

WINDOWS = [(-365, 0), (-30, 30)]
SERVERS = ["postgres", "mariadb"]
OWN = {"schema": "omop_cdm", "results": "omop_results"}  # MariaDB calls a schema a database


@pytest.fixture(scope="module", params=SERVERS)
def clinic(request: pytest.FixtureRequest) -> str:
    """The URI of a server that has the tables in two schemas."""
    uri = str(request.getfixturevalue(request.param))
    opened: Any = psycopg.connect(uri) if request.param == "postgres" else mariadb_connection(uri)
    with closing(opened) as connection, connection.cursor() as cursor:
        for schema in OWN.values():
            cursor.execute(f"CREATE SCHEMA {schema}")
        fill(cursor.execute, rows(), schema="omop_cdm.", results="omop_results.")
        connection.commit()
    return uri


@pytest.mark.parametrize("window", WINDOWS)
def test_columns_are_what_the_tables_say(clinic: str, window: tuple[int, int]) -> None:
    assert cells(Omop(clinic, 7, window, **OWN)) == expected(rows(), window=window)


def test_sums_are_those_of_the_rows_in_memory(clinic: str) -> None:
    check_sums(Omop(clinic, 7, **OWN))


def test_entries_of_a_person_are_the_persons(clinic: str) -> None:
    check_persons(Omop(clinic, 7, **OWN))


def test_a_schema_or_a_table_that_is_not_there(clinic: str) -> None:
    for wrong in ({"schema": "omop_none"}, OWN | {"results": "omop_cdm"}):
        with pytest.raises(DataError, match=r"no such table, schema .* check schema, which .* and results"):
            Table("clinic", Omop(clinic, 7, **wrong), SCHEMA).rows()


def test_no_cell_is_an_error(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE SCHEMA odd")
        fill(connection.execute, rows(), schema="odd.", results="odd.")
        connection.execute("UPDATE odd.observation_period SET observation_period_end_date = 'infinity'")
        connection.execute("UPDATE odd.cohort SET cohort_start_date = '-infinity' WHERE subject_id = 1")
        connection.execute(f"UPDATE odd.person SET year_of_birth = {-(2**31)} WHERE person_id = 2")
        connection.execute(f"UPDATE odd.person SET month_of_birth = {2**31 - 1} WHERE person_id = 3")
    found = cells(Omop(postgres, 7, schema="odd"), ("person", "age", "observation_days"))
    assert {row[1] for row in found if row[0] in (1, 2)} == {None}
    assert {row[1] for row in found if row[0] == 3} != {None}
    assert {row[2] for row in found} == {None}
