"""The same table, wherever it is held, gives the same integers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from cape.analyses import TableOne
from cape.blocks import (
    Axis,
    Counts,
    Custom,
    Design,
    Form,
    Gram,
    Grouped,
    Moments,
    OutsideBounds,
    Residuals,
    Squares,
    Table,
)
from cape.blocks.sql import MOST_EDGES
from cape.data import Category, Csv, Database, Number, Schema
from cape.data.databases import SqlReader
from cape.data.databases.dialects import DIALECTS
from tests.unit.blocks import reference

SCHEMA = Schema(
    age=(18, 90),
    chol=(100.5, 600.1),
    sex=["female", "male"],
    stage=Category((0, 1, 2, 3)),
    smoker=Category((False, True)),
    visits=(0, 40),
)
CUT = (("chol", Number(180.5, 333.25)),)
BLOCKS = [
    Moments(("age", "chol", "visits")),
    Moments(("chol", "age"), by="sex"),
    Moments(("chol",), squares=False, by="smoker"),
    Gram(("age", "sex", "stage", "chol", "smoker")),
    Gram(("visits",)),
    Gram(("age", "sex", "chol"), CUT),
    Squares(
        Design(("age", "sex", "chol"), cube=True, cut=CUT),
        (0.3, 0.1, -0.7),
        (Form(((0, 2, 1.7),), 0.9), Form(((0, 0, 1.0), (0, 1, -0.3), (1, 2, 2.5)), 3.3)),
    ),
    Counts((Axis("sex"), Axis("stage"), Axis("smoker"))),
    Counts((Axis("age", tuple(np.linspace(18, 90, 1001).tolist())), Axis("sex"))),
    Counts((Axis("chol", (0.0, 150.0, 200.25, 333.3, 400.0, 599.0)),)),
    Counts((Axis("visits", tuple(float(i) for i in range(0, 41, 2))),)),
    Counts(()),
    Residuals((Axis("sex"), Axis("stage"), Axis("visits", (0.0, 20.0, 40.0))), ((), (0,), (0, 1, 2))),
    Residuals((Axis("smoker"), Axis("sex"), Axis("stage")), ((0,), (0, 1), (2,), (1, 2))),
    Moments(()),
    OutsideBounds(("age", "chol", "visits")),
    Gram(()),
    Grouped("stage", (Moments(("chol", "age")),) * 4),
    Grouped("sex", (Gram(("age", "chol"), CUT),) * 2),
    Grouped("smoker", (Counts((Axis("age", (18.0, 40.0, 90.0)), Axis("sex"))),) * 2),
    Grouped("sex", (Counts(()),) * 2),
    Grouped(
        "stage",
        (
            Squares(Design(("age", "chol"), cube=True), (0.2, -0.1), (Form(((0, 1, 1.0),), 1.4),)),
            None,
            Squares(
                Design(("age", "chol"), cube=True), (-0.5, 0.0), (Form(((0, 0, 1.0), (0, 1, 2.0)), 2.0),)
            ),
            None,
        ),
    ),
]
ROWS = 3000


def table() -> pl.DataFrame:
    generator = np.random.default_rng(7)
    chol = generator.normal(300, 200, ROWS)
    chol[:6] = [100.5, 600.1, 1e308, -1e308, np.inf, -np.inf]
    whole = pl.DataFrame(
        {
            "age": generator.integers(10, 100, ROWS).astype(float) + generator.choice([0, 0.1, 0.36], ROWS),
            "chol": chol,
            "sex": generator.choice(["female", "male"], ROWS),
            "stage": generator.integers(0, 4, ROWS),
            "smoker": generator.integers(0, 2, ROWS).astype(bool),
            "visits": generator.integers(0, 45, ROWS),
            "notes": ["not in the schema"] * ROWS,
        }
    )
    return whole.with_columns(
        pl.when(pl.Series(generator.uniform(size=ROWS) > 0.1)).then(pl.col(name)).alias(name)
        for name in ("age", "chol", "sex", "stage", "smoker")
    )


TABLE = table()
WANTED = [reference.sums(TABLE.to_dicts(), block, SCHEMA) for block in BLOCKS]
OUTSIDE = Table("a", TABLE, SCHEMA).clamped()


def sqlite_file(folder: Path) -> Path:
    path = folder / "study.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE patients (age, chol, sex, stage, smoker, visits, notes)")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?, ?)", TABLE.rows())
    connection.close()
    return path


def csv_file(folder: Path, **options: Any) -> Path:
    TABLE.write_csv(folder / "t.csv", **options)
    return folder / "t.csv"


def parts(folder: Path, kind: str) -> str:
    for i, part in enumerate(TABLE.iter_slices(700)):
        getattr(part, f"write_{kind}")(folder / f"part-{i}.{kind}")
    return str(folder / f"part-*.{kind}")


def parquet_file(folder: Path) -> Path:
    TABLE.write_parquet(folder / "t.parquet", row_group_size=500)
    return folder / "t.parquet"


def duck(frame: pl.DataFrame = TABLE) -> duckdb.DuckDBPyRelation:
    return duckdb.connect().from_arrow(frame.to_arrow())


def duck_connection(folder: Path) -> Database:
    connection = duckdb.connect()
    connection.register("view", TABLE.to_arrow())
    connection.execute("CREATE TABLE patients AS SELECT * FROM view")
    return Database("SELECT * FROM patients", connection)


def odd_pandas() -> pd.DataFrame:
    """Objects, nullable integers, categories and floats where there were integers."""
    frame = TABLE.to_pandas()
    frame["sex"] = frame["sex"].astype("category")
    frame["visits"] = frame["visits"].astype("Int64")
    frame["smoker"] = frame["smoker"].astype("object")
    frame["chol"] = frame["chol"].astype("object").where(frame["chol"].notna(), None)
    return frame


SOURCES: dict[str, Callable[[Path], Any]] = {
    "polars": lambda folder: TABLE,
    "polars with NaN": lambda folder: TABLE.with_columns(pl.col("chol").fill_null(np.nan)),
    "polars, categorical": lambda folder: TABLE.with_columns(
        pl.col("sex").cast(pl.Categorical), pl.col("stage").cast(pl.Float32), pl.col("smoker").cast(pl.UInt8)
    ),
    "polars, enum and text": lambda folder: TABLE.with_columns(
        pl.col("sex").cast(pl.Enum(["male", "female"])), pl.col("stage", "smoker").cast(pl.String)
    ),
    "polars LazyFrame": lambda folder: TABLE.lazy(),
    "pandas": lambda folder: TABLE.to_pandas(),
    "pandas, odd types": lambda folder: odd_pandas(),
    "arrow": lambda folder: TABLE.to_arrow(),
    "csv": csv_file,
    "csv, described": lambda folder: Csv(csv_file(folder, separator=";", null_value=" NA "), ["NA"], ";"),
    "csv, no header": lambda folder: Csv(csv_file(folder, include_header=False), columns=TABLE.columns),
    "csv glob": lambda folder: parts(folder, "csv"),
    "parquet": parquet_file,
    "parquet glob": lambda folder: parts(folder, "parquet"),
    "sqlite": lambda folder: Database("SELECT * FROM patients;", sqlite3.connect(sqlite_file(folder))),
    "sqlite uri": lambda folder: Database("SELECT * FROM patients", f"sqlite:///{sqlite_file(folder)}"),
    "duckdb connection": duck_connection,
    "duckdb": lambda folder: duck(),
    "duckdb with NaN": lambda folder: duck(TABLE.with_columns(pl.col("chol").fill_null(np.nan))),
    "duckdb, other types": lambda folder: duck(
        TABLE.with_columns(
            pl.col("stage").cast(pl.Float64),
            pl.col("smoker").cast(pl.String),
            pl.col("visits").cast(pl.UInt8),
        )
    ),
    "dask": lambda folder: dd.from_pandas(TABLE.to_pandas(), npartitions=3),
    "dask, odd types": lambda folder: dd.from_pandas(
        odd_pandas().astype({"chol": float, "smoker": "boolean"}), npartitions=2
    ),
}


@pytest.mark.one_in(4, seconds=0.7)
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_integers(name: str, tmp_path: Path) -> None:
    site = Table("a", SOURCES[name](tmp_path), SCHEMA)
    found = site.sums(BLOCKS)
    assert reference.same(found, WANTED)
    assert all(array.dtype == np.int64 for arrays in found for array in arrays)
    assert site.rows() == ROWS
    assert site.clamped() == OUTSIDE
    site.check()


@pytest.mark.one_in(4, seconds=0.6)
@pytest.mark.parametrize("name", SOURCES)
def test_what_counts_cells_as_missing_gives_the_same_integers(name: str, tmp_path: Path) -> None:
    site = Table("a", SOURCES[name](tmp_path), SCHEMA, unreadable="missing")
    assert reference.same(site.sums(BLOCKS), WANTED)
    assert site.rows() == ROWS
    assert site.clamped() == OUTSIDE
    site.check()
    assert not any(site.counted_as_missing.values())


def test_numbers_in_text_files_are_read_as_python_reads_them(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(0, 1, 2000) * 10.0 ** np.random.default_rng(2).integers(
        -5, 5, 2000
    )
    texts = [repr(float(v)) for v in values] + ["1e3", ".5", "-2.", "+7", "1E-2", "inf", "1e999", "nan", ""]
    (tmp_path / "n.csv").write_text("x,y\n" + "".join(f" {text} ,1\n" for text in texts))
    rows = [{"x": float(text) if text else None} for text in texts]
    schema, block = Schema(x=(-3, 3)), Moments(("x",))
    (found,) = Table("a", tmp_path / "n.csv", schema).sums([block])
    assert reference.same([found], [reference.sums(rows, block, schema)])


def test_raw_files_of_the_heart_disease_archive_can_be_described(tmp_path: Path) -> None:
    (tmp_path / "processed.va.data").write_text("63,1,4,?,260,0\n44,1.0,?,130,209,3\n60,0,4,132,?,2\n")
    source = Csv(
        tmp_path / "*.data", null_values=["?"], columns=["age", "sex", "cp", "trestbps", "chol", "num"]
    )
    schema = Schema(chol=(100, 600), sex=Category((0, 1)), cp=Category((1, 2, 3, 4)))
    site = Table("va", source, schema)
    counts, moments = site.sums([Counts((Axis("sex"), Axis("cp"))), Moments(("chol",))])
    assert counts[0].tolist() == [[0, 0, 0, 1], [0, 0, 0, 1]]
    assert moments[0].tolist() == [2]


@pytest.mark.slow(1.1)
def test_many_uneven_edges_are_counted_at_the_site(asked: list[str]) -> None:
    edges = tuple((np.linspace(0, 1, MOST_EDGES + 2) ** 2 * 80 + 10).tolist())
    block = Counts((Axis("age", edges),))
    assert reference.same(Table("a", duck(), SCHEMA).sums([block]), Table("a", TABLE, SCHEMA).sums([block]))
    assert not asked
    fewer = Counts((Axis("age", edges[:MOST_EDGES]),))
    assert reference.same(Table("a", duck(), SCHEMA).sums([fewer]), Table("a", TABLE, SCHEMA).sums([fewer]))
    assert len(asked) == 1


@pytest.mark.one_in(4, seconds=0.8)
@pytest.mark.parametrize("name", ["duckdb", "sqlite uri"])
@pytest.mark.parametrize(
    "called", ["AGE", "odd:age", "cape_rows", "x0", "o0", "p0", "v0", "a\0b", 'a"b', "a" * 99]
)
def test_whatever_a_derived_column_is_called_no_other_column_stands_for_it(
    name: str, called: str, tmp_path: Path
) -> None:
    """Databases that took AGE for age made an error of a cell that has no place among AGE's categories."""
    columns = dict(SCHEMA.stated)
    schema = Schema({**columns, called: {"sql": "chol >= 300"}, called + "2": {"sql": "age + visits"}})
    blocks = [Counts((Axis(called),)), Moments(("age", called + "2"), by=called), Gram((called, "age"))]
    source = SOURCES[name](tmp_path)
    for each in (schema, schema.only(f"\"{called.replace(chr(34), 2 * chr(34))}\" = 'yes' and age > 30")):
        wanted = Table("a", TABLE, each).sums(blocks)
        assert reference.same(Table("a", source, each).sums(blocks), wanted)


@pytest.mark.parametrize("name", ["duckdb", "sqlite uri"])
@pytest.mark.parametrize(("derived", "read"), [(30, 1), (30, 2), (200, 200)])
def test_columns_that_are_derived_from_one_another_do_not_grow_too_long(
    name: str, derived: int, read: int, tmp_path: Path, asked: list[str]
) -> None:
    """Six such columns took SQLite minutes, which writes each out wherever the next one mentions it."""
    columns: dict[str, Any] = dict(SCHEMA.stated)
    for i in range(derived):
        before = "age" if i == 0 or read > 2 else f"d{i - 1}"
        columns[f"d{i}"] = {"sql": f"{before} + {before} * 0.001", "low": 0, "high": 100}
    schema = Schema(columns)
    blocks = [Moments(tuple(f"d{i}" for i in range(derived - read, derived)))]
    wanted = Table("a", TABLE, schema).sums(blocks)
    assert reference.same(Table("a", SOURCES[name](tmp_path), schema).sums(blocks), wanted)
    assert not asked


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that ask a database for sums, and how many rows came back for each."""
    said: list[str] = []
    ask = SqlReader.ask

    def spy(self: SqlReader, statements: Any) -> Any:
        found = ask(self, statements)
        for statement, rows in zip(statements, found, strict=True):
            said.append(f"{len(rows)} rows: {self.written(statement)[0]}")
        return found

    monkeypatch.setattr(SqlReader, "ask", spy)
    return said


def test_a_function_is_computed_at_the_site(asked: list[str]) -> None:
    block = Custom(lambda batch: np.nan_to_num(batch["age"]), ("age",), 1, 100.0)
    assert reference.same(Table("a", duck(), SCHEMA).sums([block]), Table("a", TABLE, SCHEMA).sums([block]))
    assert not asked


@pytest.mark.one_in(2, seconds=2.5)
@pytest.mark.parametrize("name", ["duckdb", "sqlite uri"])
def test_only_sums_come_back_from_a_database(name: str, tmp_path: Path, asked: list[str]) -> None:
    for block, sums in zip(BLOCKS, Table("a", SOURCES[name](tmp_path), SCHEMA).sums(BLOCKS), strict=True):
        assert len(block.arrays(SCHEMA)) == len(sums)
    found = [int(text.split(" rows")[0]) for text in asked]
    assert max(found) <= 2 * max(array.size for block in BLOCKS for array in block.arrays(SCHEMA))
    assert all("notes" not in text.replace("SELECT * FROM patients", "") for text in asked)


def test_a_table_one_is_one_statement_a_column(asked: list[str]) -> None:
    columns = ("age", "chol", "visits", "sex", "stage")
    query = TableOne(*columns, by="smoker").query(SCHEMA, "replace-one")
    wanted = Table("a", TABLE, SCHEMA).sums(query.blocks)
    assert reference.same(Table("a", duck(), SCHEMA).sums(query.blocks), wanted)
    assert len(asked) == len(columns)
    read = [[name for name in columns if f'"{name}"' in text] for text in asked]
    assert sorted(read) == sorted([name] for name in columns)


def test_a_sum_beyond_64_bits_is_exact() -> None:
    schema = Schema(x=(-1, 1))
    many = duckdb.sql(f"SELECT 1.0 AS x FROM range({2**23 + 1})")  # each adds 2^40
    for block in (Moments(("x",)), Gram(("x",))):
        (found,) = Table("a", many, schema).sums([block])
        assert found[2].tolist() == [2**63 + 2**40]


@pytest.mark.slow(1.1)
def test_a_lazy_frame_streams_within_a_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cape.blocks import batches

    monkeypatch.setattr(batches, "PART_ROWS", 100)
    monkeypatch.setattr(batches, "_BATCH_CELLS", 1)
    for name in ("parquet", "csv glob", "sqlite uri", "pandas"):
        assert reference.same(Table("a", SOURCES[name](tmp_path), SCHEMA).sums(BLOCKS), WANTED)


@pytest.mark.parametrize(
    ("kind", "wanted"), [("date", "ISFINITE"), ("moment", "ISFINITE"), ("other", "AS TEXT")]
)
def test_a_driver_has_a_value_for_every_cell_of_postgresql(kind: Any, wanted: str) -> None:
    """psycopg raises at the date 'infinity', so that whether a site answers told of one row."""
    dialect = DIALECTS["postgres"]
    assert wanted in dialect.fetched(dialect.name_of("x"), kind).sql(dialect="postgres")
