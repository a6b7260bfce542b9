"""Errors name site, column, row and what was expected; never a cell; and less to the coordinator."""

from __future__ import annotations

import datetime
import pickle
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from cape.blocks import Axis, Counts, Custom, Moments, Table
from cape.core.errors import CapeError, DataError, InvalidInput
from cape.data import Category, Csv, Database, Number, Schema

SCHEMA = Schema(
    x=(0, 100), g=["a", "b"], i=Category((0, 1)), b=Category((False, True)), n=Number(0, 1, missing=False)
)
GOOD: dict[str, list[Any]] = {
    "x": [1.0, 2.0, None],
    "g": ["a", "b", None],
    "i": [0, 1, 1],
    "b": [True, False, None],
    "n": [0.0, 1.0, 0.5],
}
SECRET = "".join(["s3", "cr3t"])  # not a literal: a traceback shows lines of this file

COLUMN = "site 'alpha' could not answer: column {!r} does not match the schema"
TABLE = "site 'alpha' could not answer: its table could not be used"


def fails(act: Callable[[], Any]) -> DataError:
    with pytest.raises(DataError) as caught:
        act()
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + error.public
    assert SECRET not in shown
    assert error.__context__ is None
    assert str(error).startswith("site 'alpha': ")
    return error


def check(source: Any) -> DataError:
    return fails(lambda: Table("alpha", source, SCHEMA).check())


def pandas(table: dict[str, list[Any]]) -> pd.DataFrame:
    return pd.DataFrame(table)


def sqlite(table: dict[str, list[Any]]) -> Database:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({', '.join(table)})")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", zip(*table.values(), strict=True))
    return Database("SELECT * FROM t", connection)


IN_ROWS = {"polars": lambda t: pl.DataFrame(t, strict=False), "pandas": pandas, "sqlite": sqlite}
LAZY = {
    "duckdb": lambda t: duckdb.connect().from_arrow(pl.DataFrame(t, strict=False).to_arrow()),
    "dask": lambda t: dd.from_pandas(pd.DataFrame(t), npartitions=1),
}
WRONG: dict[str, tuple[dict[str, list[Any]], str, int, str]] = {
    "unknown text": ({"g": ["a", SECRET, "b"]}, "g", 1, "expected one of 'a', 'b'"),
    "unknown number": ({"i": [0, 1, 74923]}, "i", 2, "expected one of 0, 1"),
    "between numbers": ({"i": [0.0, 0.5, 1.0]}, "i", 1, "expected one of 0, 1"),
    "infinite": ({"i": [0.0, 1.0, float("inf")]}, "i", 2, "expected one of 0, 1"),
    "text for truth": ({"b": ["true", "FALSE", SECRET]}, "b", 2, "expected one of False, True"),
    "numbers for text": ({"g": [1, 2, 1]}, "g", 0, "expected one of 'a', 'b', found"),
    "text for numbers": ({"x": [SECRET, "1", "2"]}, "x", 0, "expected a number"),
    "missing": ({"n": [0.0, 0.5, None]}, "n", 2, "the cell is missing"),
}


@pytest.mark.parametrize("kind", IN_ROWS)
@pytest.mark.parametrize("case", WRONG)
def test_a_cell_that_does_not_fit_is_named_by_its_place(kind: str, case: str) -> None:
    change, column, row, expected = WRONG[case]
    error = check(IN_ROWS[kind]({**GOOD, **change}))
    assert f"column {column!r}, row {row} (the first is 0)" in str(error)
    assert expected in str(error)
    assert "74923" not in str(error)
    assert error.public == COLUMN.format(column)


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("case", WRONG)
def test_a_lazy_table_names_the_column(kind: str, case: str) -> None:
    change, column, _, expected = WRONG[case]
    error = check(LAZY[kind]({**GOOD, **change}))
    assert f"column {column!r}" in str(error)
    assert expected in str(error)
    assert error.public == COLUMN.format(column)


@pytest.mark.parametrize("kind", [*IN_ROWS, *LAZY])
def test_the_good_table_is_good(kind: str) -> None:
    site = Table("alpha", {**IN_ROWS, **LAZY}[kind](GOOD), SCHEMA)
    site.check()
    assert site.rows() == 3


@pytest.mark.parametrize("kind", ["pandas", "sqlite"])
def test_text_among_numbers_is_found_at_its_row(kind: str) -> None:
    error = check(IN_ROWS[kind]({**GOOD, "x": [1, 2.5, SECRET]}))
    assert "column 'x', row 2" in str(error)
    assert "found text; if a sign such as '?' stands for a missing cell" in str(error)


def test_objects_are_looked_at_one_by_one() -> None:
    mixed = {**GOOD, "x": [np.float32(1), 10**400, pd.NA], "g": ["a", pd.NA, "b"], "i": [True, "1.0", 0.0]}
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in mixed.items()})
    Table("alpha", frame, SCHEMA).check()
    frame.loc[1, "i"] = datetime.date(2020, 1, 1)
    assert "found a value of type date" in str(check(frame))
    frame.loc[1, "i"] = SECRET
    assert "expected one of 0, 1; correct" in str(check(frame))


def test_dates_are_no_numbers() -> None:
    error = check(pl.DataFrame({**GOOD, "x": [None, datetime.date(2020, 1, 1), None]}))
    assert "row 1" in str(error)
    assert "found the type Date" in str(error)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "kind", [pl.List(pl.Enum([SECRET])), pl.Struct({SECRET: pl.Int8}), pl.Array(pl.Enum([SECRET]), 1)]
)
def test_what_stands_in_a_types_brackets_is_not_shown(kind: pl.DataType, lazy: bool) -> None:
    frame = pl.DataFrame(GOOD).with_columns(pl.Series("x", [None, None, None], dtype=kind))
    if isinstance(kind, pl.Struct):
        frame = frame.with_columns(pl.struct(pl.lit(1).alias(SECRET)).alias("x"))
    else:
        frame = frame.with_columns(pl.lit([SECRET], dtype=pl.List(pl.Enum([SECRET]))).cast(kind).alias("x"))
    error = check(frame.lazy() if lazy else frame)
    assert SECRET not in str(error)
    assert type(kind).__name__ in str(error)


def test_rows_are_counted_over_batches_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = pl.concat([pl.DataFrame(GOOD)] * 10_000)
    good.write_parquet(tmp_path / "a.parquet")
    pl.concat([good, good.head(1).with_columns(g=pl.lit(SECRET)), good]).write_parquet(tmp_path / "b.parquet")
    error = check(tmp_path / "*.parquet")
    assert "column 'g', row 60000" in str(error)


def test_signs_in_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"x,g,i,b,n\n1,a,0,true,0\n{SECRET},b,1,false,1\n")
    error = check(path)
    assert "column 'x', row 1" in str(error)
    assert "null_values = ['?']" in str(error)
    Table("alpha", Csv(path, null_values=[SECRET]), SCHEMA).check()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    broken = {
        "ragged.csv": f"x,g,i,b,n\n1,a,0,0,0\n{SECRET},b,0,0,0,7,8\n".encode(),
        "latin.csv": b"x,g,i,b,n\n1,a,0,true,0\n\xff\xfe,a,1,true,1\n",
        "empty.csv": b"",
        "text.parquet": b"PAR1 " + SECRET.encode(),
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        error = check(tmp_path / name)
        assert name in str(error)
        assert "could not be read" in str(error)
        assert error.public == TABLE


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for path, problem in {
        tmp_path / "none.csv": "no file",
        tmp_path / "none*.parquet": "no file",
        tmp_path: "is a folder",
        "postgres://user@host/db": "Database(query, connection)",
    }.items():
        error = fails(lambda path=path: Table("alpha", path, SCHEMA))
        assert problem in str(error)
        assert error.public == TABLE
    (tmp_path / "t.data").write_text("1,2\n")
    assert "describe other text files" in str(fails(lambda: Table("alpha", tmp_path / "t.data", SCHEMA)))
    assert "not object" in str(fails(lambda: Table("alpha", object(), SCHEMA)))


@pytest.mark.parametrize("kind", [*IN_ROWS, *LAZY])
def test_an_empty_table(kind: str, tmp_path: Path) -> None:
    table = pl.DataFrame(GOOD).head(0)
    if kind == "sqlite":
        source = sqlite({name: [] for name in GOOD})
    else:
        source = {
            "polars": table,
            "pandas": table.to_pandas(),
            "duckdb": duckdb.connect().from_arrow(table.to_arrow()),
            "dask": dd.from_pandas(pd.DataFrame(GOOD), npartitions=1).query("x > 5"),
        }[kind]
    assert "has no rows" in str(check(source))
    assert fails(Table("alpha", source, SCHEMA).require_rows).public == TABLE
    # where sizes are private an empty table is like any other
    assert Table("alpha", source, SCHEMA).rows() == 0
    ((count, first, _), (cells,)) = Table("alpha", source, SCHEMA).sums(
        [Moments(("x",)), Counts((Axis("g"),))]
    )
    assert [part.sum() for part in (count, first, cells)] == [0, 0, 0]
    table.write_csv(tmp_path / "header.csv")
    assert "has no rows" in str(check(tmp_path / "header.csv"))


@pytest.mark.parametrize("kind", [*IN_ROWS, *LAZY])
def test_a_column_that_is_not_there(kind: str) -> None:
    make = {**IN_ROWS, **LAZY}[kind]
    schema = Schema(weight=(0, 200))
    near = make({"wieght": [80.0], **{k: GOOD[k][:1] for k in "gibn"}})
    error = fails(lambda: Table("alpha", near, schema).check())
    assert "no column 'weight' in the table; did you mean 'wieght'?" in str(error)
    assert error.public == COLUMN.format("weight")
    far = make({"q": [80.0], **{k: GOOD[k][:1] for k in "gibn"}})
    assert "choose from q, g, i, b, n" in str(fails(lambda: Table("alpha", far, schema).check()))


def test_a_file_without_a_header_shows_nobodys_cells(tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text(f"{SECRET},female,12\n")
    error = check(tmp_path / "bare.csv")
    assert SECRET not in str(error)
    assert "female" not in str(error)
    assert "if it has no header, name its columns" in str(error)
    (tmp_path / "semicolons.csv").write_text(f"age;sex\n{SECRET};female\n")
    assert "separator = ';'" in str(check(tmp_path / "semicolons.csv"))


def test_a_line_with_too_many_cells(tmp_path: Path) -> None:
    (tmp_path / "shifted.csv").write_text("x,g,i,b,n,unused\n1,a,1,true,1,q\n2,5,a,1,true,1,q\n")
    error = fails(
        lambda: Table("alpha", tmp_path / "shifted.csv", Schema(x=(0, 100))).sums([Moments(("x",))])
    )
    assert "same number of cells in every line" in str(error)


def test_a_cursor_is_closed_where_its_rows_are_refused() -> None:
    rows = {"x": [1.0], "g": [SECRET], "i": [0], "b": [1], "n": [1]}
    source = sqlite(rows)
    source.connection.commit()
    error = check(source)
    assert error.__traceback__ is not None  # keeps all frames alive
    assert not source.connection.in_transaction


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("x,g,x\n1,a,2\n")
    assert "more than one column 'x'" in str(check(tmp_path / "twice.csv"))
    frame = pd.DataFrame([[1.0, 2.0]], columns=["x", "x"])
    assert "more than one column 'x'" in str(fails(lambda: Table("alpha", frame, SCHEMA).check()))
    connection = sqlite3.connect(":memory:")
    source = Database("SELECT 1 AS x, 2 AS x", connection)
    assert "more than one column 'x'" in str(fails(lambda: Table("alpha", source, SCHEMA).check()))


def test_databases_that_do_not_answer(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:")
    error = check(Database(f"SELECT {SECRET} FROM nowhere", connection))
    assert "the database query could not be read (OperationalError)" in str(error)
    assert error.public == TABLE
    error = fails(lambda: Table("alpha", Database("SELECT 1", f"sqlite:///{tmp_path}/none.db"), SCHEMA))
    assert "no SQLite file" in str(error)
    assert "driver" in str(check(Database("SELECT 1", f"unheard://user:{SECRET}@host/db")))
    assert SECRET not in repr(Database("SELECT 1", f"unheard://user:{SECRET}@host/db"))


def test_functions_that_fail_are_told_by_type_and_line() -> None:
    def broken(batch: dict[str, np.ndarray]) -> np.ndarray:
        raise ValueError(SECRET)

    cases: dict[str, Callable[[dict[str, np.ndarray]], Any]] = {
        "raised ValueError": broken,
        "each row by itself": lambda batch: batch["n"] - batch["n"].mean() + len(batch["n"]),
        "one row of 1": lambda batch: np.zeros((2, 2)),
        "raised": lambda batch: [SECRET] * 3,
    }
    table = Table("alpha", pl.DataFrame(GOOD), SCHEMA)
    for problem, function in cases.items():
        error = fails(lambda function=function: table.sums([Custom(function, ("x", "n"), 1, 1.0)]))
        assert problem in str(error)
        assert error.public == TABLE


def test_errors_survive_a_pipe() -> None:
    error = pickle.loads(pickle.dumps(DataError("a", "b", "c")))
    assert (str(error), error.public) == (
        "site 'a': b",
        "site 'a' could not answer: column 'c' does not match the schema",
    )
    assert isinstance(error, CapeError)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Csv(3),
        lambda: Csv("a.csv", separator=";;"),
        lambda: Csv("a.csv", null_values=[1]),
        lambda: Csv("a.csv", columns=["a", "a"]),
        lambda: Database("", "sqlite:///a.db"),
        lambda: Database("SELECT 1", None),
        lambda: Table("", pl.DataFrame(GOOD), SCHEMA),
        lambda: Table("a", pl.DataFrame(GOOD), {"x": (0, 1)}),
        lambda: Category((True, 1)),
        lambda: Category((1, "1")),
        lambda: Category((1.5,)),
    ],
)
def test_arguments_that_cannot_be_right(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput):
        make()
