"""A cell that cannot be read counts as missing, and what is read of one row depends on that row alone."""

from __future__ import annotations

import datetime
import gzip
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cape.blocks import Axis, Counts, Design, Gram, Moments, Nearest, Table
from cape.core.errors import DataError, InvalidInput
from cape.data import Category, Csv, Database, Number, Schema, lines
from cape.data.sources import open_source
from tests.slices import examples

SCHEMA = Schema(
    x=(0, 100),
    g=["a", "b"],
    i=Category((0, 1)),
    n=Number(-1, 3, missing=False),
    c=Category(("u", "v"), missing=False),
)
ROWS: list[dict[str, Any]] = [
    {"x": 1.5, "g": "a", "i": 0, "n": 0.25, "c": "u"},
    {"x": 2.0, "g": "b", "i": 1, "n": 1.0, "c": "v"},
    {"x": None, "g": None, "i": None, "n": 3.0, "c": "v"},
    {"x": 99.0, "g": "a", "i": 1, "n": -1.0, "c": "v"},
]
BLOCKS = [
    Moments(("x", "n")),
    Moments(("n", "x"), by="c"),
    Moments(("x",), by="g"),
    Gram(("x", "g", "n", "c", "i")),
    Counts((Axis("g"), Axis("c"))),
    Counts((Axis("i"),)),
    Counts((Axis("n", (-1.0, 0.0, 1.0, 3.0)),)),
    Nearest(Design(("x", "n")), ((0.5, 0.5), (-0.5, 0.0))),
]

Row = dict[str, Any]
Sums = list[tuple[np.ndarray, ...]]


def opened(source: Any) -> Table:
    return Table("alpha", source, SCHEMA, unreadable="missing")


def equal(a: Sums, b: Sums) -> bool:
    return all(np.array_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))


def cleaned(rows: list[Row], column: str, row: int) -> list[Row]:
    """The same rows with what the cell counts as."""
    instead = {"n": 1.0, "c": "u"}.get(column)
    return [{**each, column: instead} if i == row else each for i, each in enumerate(rows)]


def wanted(rows: list[Row]) -> Sums:
    return Table("alpha", pl.DataFrame(rows, schema_overrides={"x": pl.Float64}), SCHEMA).sums(BLOCKS)


# --- every kind of dirt, in every source ---------------------------------------------------------


def csv(rows: list[Row], folder: Path) -> Path:
    path = folder / "rows.csv"
    texts = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    path.write_text("\n".join([",".join(SCHEMA), *texts, ""]))
    return path


def described(rows: list[Row], folder: Path) -> Csv:
    path = folder / "rows.txt"
    path.write_text("\n".join(";".join("?" if v is None else str(v) for v in r.values()) for r in rows))
    return Csv(path, separator=";", null_values=["?"], columns=list(SCHEMA))


def packed(rows: list[Row], folder: Path) -> Path:
    (folder / "gzip.csv").write_bytes(gzip.compress(csv(rows, folder).read_bytes()))
    return folder / "gzip.csv"


def objects(rows: list[Row], folder: Path) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in SCHEMA})


def typed(rows: list[Row]) -> pl.DataFrame:
    """As a program writes it that makes text of a column with a text in it."""
    columns = {}
    for name in SCHEMA:
        cells = [row[name] for row in rows]
        if any(isinstance(cell, str) for cell in cells):
            cells = [None if cell is None else str(cell) for cell in cells]
        columns[name] = pl.Series(name, cells, strict=False)
    return pl.DataFrame(columns)


def parquet(rows: list[Row], folder: Path) -> Path:
    typed(rows).write_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def sqlite(rows: list[Row], folder: Path) -> Database:
    (folder / "rows.db").unlink(missing_ok=True)
    connection = sqlite3.connect(folder / "rows.db")
    connection.execute(f"CREATE TABLE t ({', '.join(SCHEMA)})")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [tuple(row.values()) for row in rows])
    connection.commit()
    connection.close()
    return Database("SELECT * FROM t", f"sqlite:///{folder}/rows.db")


def query(rows: list[Row], folder: Path) -> Database:
    return Database("SELECT * FROM t", _registered(typed(rows)))


SOURCES: dict[str, Callable[[list[Row], Path], Any]] = {
    "csv": csv,
    "csv, described": described,
    "csv, packed": packed,
    "pandas": objects,
    "polars": lambda rows, folder: typed(rows),
    "polars, lazy": lambda rows, folder: typed(rows).lazy(),
    "parquet": parquet,
    "sqlite": sqlite,
    "a connection": query,
    "duckdb": lambda rows, folder: duckdb.connect().from_arrow(typed(rows).to_arrow()),
    "dask": lambda rows, folder: dd.from_pandas(typed(rows).to_pandas(), npartitions=2),
}
DIRT: dict[str, tuple[str, Any]] = {
    "text for a number": ("x", "unknown"),
    "another decimal mark": ("x", "1:5"),
    "text where nothing is missing": ("n", "?!"),
    "nothing where nothing is missing": ("n", None),
    "no category where nothing is missing": ("c", None),
    "an unknown category": ("g", "A"),
    "an unknown category where nothing is missing": ("c", "w"),
    "an unknown number": ("i", 7),
    "infinity for a category": ("i", "inf"),
    "half a number": ("i", "0.5"),
    "a sign that is no text": ("g", "\ufffd"),
}


@pytest.mark.one_in(3, seconds=0.1)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("dirt", DIRT)
def test_a_dirty_cell_counts_as_missing(kind: str, dirt: str, tmp_path: Path) -> None:
    column, cell = DIRT[dirt]
    for row in (0, 3):
        rows = [{**each, column: cell} if i == row else each for i, each in enumerate(ROWS)]
        table = opened(SOURCES[kind](rows, tmp_path))
        assert equal(table.sums(BLOCKS), wanted(cleaned(ROWS, column, row)))
        assert table.rows() == len(ROWS)
        table.check()
        assert table.counted_as_missing == dict.fromkeys(SCHEMA, 0) | {column: 1}


@pytest.mark.parametrize("kind", SOURCES)
def test_infinity_is_moved_to_a_bound(kind: str, tmp_path: Path) -> None:
    rows = [{**row, "x": float("inf")} if i == 1 else row for i, row in enumerate(ROWS)]
    inside = [{**row, "x": 100.0} if i == 1 else row for i, row in enumerate(ROWS)]
    assert equal(opened(SOURCES[kind](rows, tmp_path)).sums(BLOCKS), wanted(inside))


@pytest.mark.parametrize("kind", SOURCES)
def test_without_rows_every_sum_is_zero(kind: str, tmp_path: Path) -> None:
    empty = pl.DataFrame(ROWS, schema_overrides={"x": pl.Float64}).head(0)
    source = {
        "parquet": lambda: (empty.write_parquet(tmp_path / "e.parquet"), tmp_path / "e.parquet")[1],
        "polars": lambda: empty,
        "polars, lazy": empty.lazy,
        "pandas": empty.to_pandas,
        "dask": lambda: dd.from_pandas(empty.to_pandas(), npartitions=1),
        "duckdb": lambda: duckdb.connect().from_arrow(empty.to_arrow()),
        "a connection": lambda: Database("SELECT * FROM t WHERE x < 0", _registered(typed(ROWS))),
    }.get(kind, lambda: SOURCES[kind]([], tmp_path))()
    table = opened(source)
    assert table.rows() == 0
    assert not any(part.any() for parts in table.sums(BLOCKS) for part in parts)
    assert table.vectors(Design(("x", "n")))[0].shape == (0, 2)


def _registered(frame: pl.DataFrame) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("v", frame.to_arrow())
    connection.execute("CREATE TABLE t AS SELECT * FROM v")
    return connection


def test_a_file_without_a_byte_is_a_table_without_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"")
    table = opened(tmp_path / "rows.csv")
    assert table.rows() == 0
    assert not any(part.any() for parts in table.sums(BLOCKS) for part in parts)
    with pytest.raises(DataError, match="has no rows"):
        table.check()


def test_only_two_words_say_what_unreadable_cells_are() -> None:
    with pytest.raises(InvalidInput, match="'error' or 'missing'"):
        Table("alpha", pl.DataFrame(ROWS), SCHEMA, unreadable="skip")  # type: ignore[arg-type]


def test_what_is_wrong_with_the_whole_table_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        opened(tmp_path / "none.csv")
    (tmp_path / "rows.csv").write_text("x,g,i,n\n1,a,0,0\n")
    with pytest.raises(DataError, match="no column 'c'"):
        opened(tmp_path / "rows.csv").sums(BLOCKS)
    (tmp_path / "other.csv").write_text("x,g,i,c,n\n1,a,0,u,0\n")
    with pytest.raises(DataError, match="different first lines"):
        opened(tmp_path / "*.csv").sums(BLOCKS)


OBJECTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=4),
    st.binary(max_size=4),
    st.decimals(),
    st.dates(),
    st.sampled_from([10**400, -(10**400), Decimal("sNaN"), Decimal("1E+1000"), Decimal("1E-1000")]),
    st.sampled_from(["\ud800", datetime.datetime.max, pd.NaT, [1], {}]),
)


@pytest.mark.slow(1.6)
@examples(80)
@given(st.lists(st.tuples(*[OBJECTS] * len(SCHEMA)), min_size=1, max_size=4), st.integers(0, 3))
def test_any_objects_are_read_row_by_row(cells: list[tuple[Any, ...]], at: int) -> None:
    dirty = [dict(zip(SCHEMA, row, strict=True)) for row in cells]
    rows = [*ROWS[:at], *dirty, *ROWS[at:]]
    found = opened(objects(rows, Path())).sums(BLOCKS)
    each = [opened(objects([row], Path())).sums(BLOCKS) for row in rows]
    assert equal(found, _added(each))


def _added(each: list[Sums]) -> Sums:
    return [
        tuple(np.sum([sums[b][p] for sums in each], axis=0) for p in range(len(each[0][b])))
        for b in range(len(BLOCKS))
    ]


# --- lines of text files ---------------------------------------------------------------------------

GOOD = [b"1.5,a,0,0.25,u", b'"2.0","b","1","1.0","v"', b",,,3.0,v", b"99,a,1,-1,v"]
BROKEN = [
    b'1,"a,0,0,u',
    b'1,a",0,0,u',
    b'"1"2,a,0,0,u',
    b"1,5,a,0,0,u",
    b"\xff\xfe1,a,0,0,u",
    b"1,a\xc3,0,0,u",
    b"1,a",
    b"",
    b'"',
    b'""""',
    b'"a""',
    b"\0",
    b"\r",
    b",,,,,,,",
    b'1,"a\r,0,0,u',
    b"# note",
]


def sums_of(data: list[bytes], path: Path, end: bytes = b"\n") -> tuple[Sums, int]:
    path.write_bytes(end.join([b"x,g,i,n,c", *data]) + (end if data else b""))
    table = opened(path)
    return table.sums(BLOCKS), table.rows()


def check_line(line: bytes, at: int, path: Path) -> None:
    """A line among good ones adds what it adds alone, and is one row."""
    rest, _ = sums_of(GOOD, path)
    alone, one = sums_of([line], path)
    together, rows = sums_of([*GOOD[:at], line, *GOOD[at:]], path)
    assert one == 1
    assert rows == len(GOOD) + 1
    assert equal(together, _added([rest, alone]))


@pytest.mark.one_in(6, seconds=0.2)
@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_line_is_one_row_and_leaves_the_others_alone(line: bytes, tmp_path: Path) -> None:
    for at in range(len(GOOD) + 1):
        check_line(line, at, tmp_path / "rows.csv")


SIGNS = st.sampled_from([b'"', b",", b"a", b"u", b"1", b".", b" ", b"\r", b"\0", b"\xff", b"\xc3", b"\xa9"])


@pytest.mark.slow(3)
@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.lists(SIGNS, max_size=14).map(b"".join), at=st.integers(0, 4))
def test_any_line_is_one_row_and_leaves_the_others_alone(line: bytes, at: int, tmp_path: Path) -> None:
    check_line(line, at, tmp_path / "rows.csv")


@pytest.mark.slow(1.6)
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(st.sampled_from(GOOD + BROKEN) | st.lists(SIGNS, max_size=9).map(b"".join), max_size=30),
    chunk=st.integers(1, 40),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_lines_do_not_depend_on_what_they_are_read_with(
    data: list[bytes], chunk: int, end: bytes, tmp_path: Path
) -> None:
    whole, rows = sums_of(data, tmp_path / "rows.csv", end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", chunk)
        parts, same = sums_of(data, tmp_path / "rows.csv", end)
    assert rows == same == len(data)
    assert equal(whole, parts)
    each = [sums_of([line], tmp_path / "rows.csv", end)[0] for line in data]
    assert not data or equal(whole, _added(each))


def test_a_line_that_is_too_long_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LONGEST", 64)
    fits, long = b"1,a,0,0," + b" " * 55 + b"u", b"1,a,0,0," + b" " * 56 + b"u"
    for chunk in (1, 10, 63, 64, 65, 1000):
        monkeypatch.setattr(lines, "_CHUNK", chunk)
        found, rows = sums_of([GOOD[0], long, fits, long * 4, GOOD[1]], tmp_path / "rows.csv")
        assert rows == 5
        missing, _ = sums_of([GOOD[0], b",,,,", fits, b",,,,", GOOD[1]], tmp_path / "rows.csv")
        assert equal(found, missing)


def cells_of(data: list[bytes], path: Path) -> list[tuple[str | None, ...]]:
    path.write_bytes(b"\n".join([b"a,b,c", *data, b""]))
    reader = open_source("alpha", str(path), lenient=True)
    return [row for batch in reader.batches(["a", "b", "c"], 1000) for row in batch.rows()]


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (b'",",a","""""', (lines.BROKEN,) * 3),
        (b'"",x "y" z,1', (None, 'x "y" z', "1")),
        (b'1,x "y, z" u', ("1", 'x "y', ' z" u')),
        (b'1,"x ""y"", z",', ("1", 'x "y", z', None)),
        (b'1,"2"x,3', (lines.BROKEN,) * 3),
        (b'""1a""', (lines.BROKEN,) * 3),
        (b'1," 2" ,3', (lines.BROKEN,) * 3),
        (b'1,2,"3",x"y",5', (lines.BROKEN,) * 3),
    ],
)
def test_what_quotes_mean_depends_on_their_line_alone(
    line: bytes, cells: tuple[str, ...], tmp_path: Path
) -> None:
    """polars took the first for two cells or refused it, by its place among 64 bytes."""
    for length in range(0, 140, 3):
        above, below = [b"7,8," + b"9" * length], [b"1,2,3"] * (length % 50)
        assert cells_of([*above, line, *below], tmp_path / "rows.csv")[1] == cells


def test_only_a_line_with_a_quote_in_the_wrong_place_is_read_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that the parser refused had the 16 MB around it read up to three times, which takes longer."""
    alone: list[bytes] = []
    read: list[bytes] = []
    by_itself, parsed = lines.LineReader._alone, lines.LineReader._parse
    monkeypatch.setattr(
        lines.LineReader, "_alone", lambda self, line: alone.append(line) or by_itself(self, line)
    )
    monkeypatch.setattr(
        lines.LineReader, "_parse", lambda self, text, width: read.append(text) or parsed(self, text, width)
    )
    good = [b"1,2,3", b'"1","2","3"', b'1,"x ""y"" z",3', b'1,x 5" 6" y,3', b'"1",2,"3"\r', b"1,2,3,4"]
    cells_of([*good, b'1,"2"x,3', *good, b'"1",2"",3', *good], tmp_path / "rows.csv")
    assert alone == [b'1,"2"x,3', b'"1",2"",3']
    assert len(read) == 1


def test_lines_that_a_parser_refuses_for_any_reason_are_still_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [b"1,2,3", b'"1",,"x, y"', b'1,"2"x,3', b"1,2,3,4", b"1", b""]
    wanted = cells_of(data, tmp_path / "rows.csv")
    reader = open_source("alpha", str(tmp_path / "rows.csv"), lenient=True)
    names = reader.names()

    def refuse(*given: Any, **more: Any) -> Any:
        raise pl.exceptions.ComputeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(lines.pl, "read_csv", refuse)
        patch.setattr(lines.LineReader, "names", lambda self: names)
        patch.setattr(lines.LineReader, "_header", lambda self, file: (names, file.readline() and 1))
        found = [row for batch in reader.batches(["a", "b", "c"], 1000) for row in batch.rows()]
    assert found == wanted


def test_many_broken_lines_are_found_among_many(tmp_path: Path) -> None:
    data = [BROKEN[i % 7] if i % 97 == 0 else GOOD[i % 4] for i in range(3000)]
    found, rows = sums_of(data, tmp_path / "rows.csv")
    assert rows == 3000
    tally = {line: sums_of([line], tmp_path / "rows.csv")[0] for line in {*data}}
    assert equal(found, _added([tally[line] for line in data]))


def test_the_first_row_of_a_file_without_a_header_does_not_decide_how_it_is_read(tmp_path):
    """The first two bytes of a packed file may stand in a cell."""
    path = tmp_path / "rows.csv"
    for first in (b"1", b"\x1f\x8b"):
        path.write_bytes(first + b",3\n2,4\n")
        source = Csv(str(path), columns=("x", "y"))
        table = Table("a", source, Schema(x=(0, 10), y=(0, 10)), unreadable="missing")
        assert table.rows() == 2


def test_the_line_of_a_row_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\n  \nx,y\n1,2\n\n3,4\n")
    (tmp_path / "b.csv").write_bytes(b"x,y\r\n5,6")
    reader = open_source("alpha", str(tmp_path / "*.csv"), lenient=True)
    assert isinstance(reader, lines.LineReader)
    assert [reader.line_of(row)[1] for row in range(reader.rows())] == [4, 5, 6, 2]
    assert [Path(reader.line_of(row)[0]).name for row in (2, 3)] == ["a.csv", "b.csv"]
    with pytest.raises(IndexError):
        reader.line_of(4)
    (tmp_path / "c.csv").write_bytes(b"1,2\n3,4\n")
    bare = open_source("alpha", Csv(tmp_path / "c.csv", columns=("x", "y")), lenient=True)
    assert isinstance(bare, lines.LineReader)
    assert bare.line_of(1)[1] == 2
