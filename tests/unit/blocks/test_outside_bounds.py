"""Cells below, within and above the bounds are counted as they were read, wherever rows are."""

from __future__ import annotations

import datetime
import sqlite3

import duckdb
import numpy as np
import polars as pl
import pytest

from cape.blocks import OutsideBounds, Table
from cape.core.errors import InvalidInput
from cape.data import Csv, Database, Number, Person, Schema

NAN, INF = float("nan"), float("inf")
SCHEMA = Schema(age=(18, 90), dose=Number(0.0, 1.5))
AGES = [17.999, 18.0, 50.0, 90.0, 90.001, None, NAN, INF, -INF, 600.0]
ROWS = pl.DataFrame(
    {"age": AGES, "dose": [-0.0, -5e-324, 1.5, 2.0, None, 1.0, 1.0, 1.0, 1.0, 1.0]}, strict=False
)
ASKED = OutsideBounds(("age", "dose"))
FOUND = [[2, 3, 3], [1, 7, 1]]


def counts(table, block=ASKED):
    ((found,),) = table.sums([block])
    return found.tolist()


def test_every_cell_is_below_within_or_above_or_missing():
    assert counts(Table("a", ROWS, SCHEMA)) == FOUND
    assert counts(Table("a", ROWS.head(0), SCHEMA)) == [[0, 0, 0]] * 2


@pytest.mark.parametrize("parts", [1, 3])
def test_a_large_table_is_counted_part_by_part(parts):
    many = pl.concat([ROWS] * 1000 * parts)
    assert np.array_equal(counts(Table("a", many, SCHEMA)), 1000 * parts * np.array(FOUND))


def test_a_file_and_databases_count_the_same(tmp_path):
    finite = ROWS.with_columns(pl.when(pl.col("age").is_finite()).then("age"))
    wanted = counts(Table("a", finite, SCHEMA))
    finite.write_csv(tmp_path / "rows.csv")
    assert counts(Table("a", Csv(tmp_path / "rows.csv"), SCHEMA)) == wanted == [[1, 3, 2], [1, 7, 1]]
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute("create table rows (age real, dose real)")
        connection.executemany("insert into rows values (?, ?)", finite.rows())
    database = Database("select * from rows", f"sqlite:///{tmp_path / 'rows.db'}")
    assert counts(Table("a", database, SCHEMA)) == wanted
    with duckdb.connect() as here:
        here.register("found", ROWS.to_arrow())
        assert counts(Table("a", here.sql("select * from found"), SCHEMA)) == FOUND


def test_only_rows_that_count_are_counted():
    some = SCHEMA.only("dose > 1")  # 1.5, and 2 as 1.5
    assert counts(Table("a", ROWS, some)) == [[0, 2, 0], [0, 1, 1]]
    person = SCHEMA.of_persons(Person("id", rows=2))
    rows = ROWS.with_columns(id=pl.Series([1] * 9 + [2]))
    below, within, above = counts(Table("a", rows, person), OutsideBounds(("dose",)))[0]
    assert below + within + above <= 3


def test_derived_columns_and_days_have_bounds_of_their_own():
    schema = Schema(
        {
            "age": (18, 90),
            "double": {"sql": "2 * age", "bounds": [40, 150]},
            "seen": (datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)),
        }
    )
    rows = pl.DataFrame(
        {
            "age": [10.0, 18.0, 40.0, 90.0],  # 36, 36, 80, 180
            "seen": [datetime.date(2019, 12, 31), datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)],
        }
    )
    asked = OutsideBounds(("double", "seen", "age"))
    assert counts(Table("a", rows, schema), asked) == [[2, 1, 1], [1, 1, 1], [1, 3, 0]]
    with duckdb.connect() as here:
        here.register("found", rows.to_arrow())
        assert counts(Table("a", here.sql("select * from found"), schema), asked)[::2] == [
            [2, 1, 1],
            [1, 3, 0],
        ]


def test_a_cell_that_does_not_fit_lies_within_where_none_may_be_missing():
    schema = Schema(age=Number(18, 90, missing=False))
    rows = pl.DataFrame({"age": [None, 17.0, 20.0]})
    assert counts(Table("a", rows, schema, unreadable="missing"), OutsideBounds(("age",))) == [[1, 2, 0]]
    with duckdb.connect() as here:
        here.register("found", rows.to_arrow())
        table = Table("a", here.sql("select * from found"), schema, unreadable="missing")
        assert counts(table, OutsideBounds(("age",))) == [[1, 2, 0]]


def test_categories_have_no_bounds():
    with pytest.raises(InvalidInput, match="must have bounds to count what lies outside; it has categories"):
        OutsideBounds(("sex",)).arrays(Schema(sex=["f", "m"]))
