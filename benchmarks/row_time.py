"""Time: what one row adds to a pass over all of them, where its cells or its id are not like the others'."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from shutil import copyfile
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Result, bench

IDS = 1_000_000
ROWS = 400_000
REPEAT = 21
BAR = 1.1

ODD_IDS = {"1.5": 1.5, "2^53 + 2": 2.0**53 + 2, "2^62": 2.0**62, "1e300": 1e300, "NaN": np.nan, "inf": np.inf}
ODD_LINES = {
    "a missing cell": b",20,F,2000-01-01",
    "a word for missing": b"NA,20,F,2000-01-01",
    "a number with a blank": b" 30 ,20,F,2000-01-01",
    "no number": b"x,20,F,2000-01-01",
    "an unknown category": b"30,20,Q,2000-01-01",
    "a category with a blank": b"30,20, F,2000-01-01",
    "another form of date": b"30,20,F,31.01.2000",
    "no date": b"30,20,F,x",
    "no UTF-8": b"30,20,\xff,2000-01-01",
    "a quoted cell": b'30,20,"F",2000-01-01',
    "a quote that does not close": b'30,20,"F,2000-01-01',
    "a quote in the wrong place": b'30,20,"F"x,2000-01-01',
    "quotes within a cell": b'30,20,x "F" y,2000-01-01',
    "too many cells": b"30,20,F,2000-01-01,5,6",
    "an empty line": b"",
}


ODD_CELLS = {  # what one row is set to
    "a text among numbers": "age = 'x'",
    "bytes among numbers": "age = x'00'",
    "a number among categories": "sex = 5",
    "a whole number among fractions": "age = 30",
    "a missing cell": "age = NULL",
}
ODD_SQLITE_IDS = {"a fraction": "id = 1.5", "a text": "id = 'x'", "2^62": "id = 4611686018427387904"}


@bench("edge.id-time")
def one_odd_id() -> Result:
    """The time that ids become texts in, with one odd float among 10^6, over that without: the worst."""
    from cape.blocks.persons import as_texts

    ids = np.random.default_rng(0).integers(0, IDS, IDS).astype(np.float64)
    tables = {"even": pl.Series(ids), **{name: _with(ids, odd) for name, odd in ODD_IDS.items()}}
    return _worst(tables, as_texts)


def _with(ids: Any, odd: float) -> pl.Series:
    changed = ids.copy()
    changed[IDS // 2] = odd
    return pl.Series(changed)


@bench("edge.row-time")
def one_odd_line() -> Result:
    """The time of a pass over a text file with one odd line among 400,000, over that without: the worst."""
    from cape.blocks import Gram, Moments, Table
    from cape.data import Number, Schema

    days = Number(0, 9999, sql="days_between('2000-01-01', at)")
    schema = Schema(
        age=(18, 90), bmi=(15, 40), sex=["F", "M"], at=Number("2000-01-01", "2030-01-01"), days=days
    )
    blocks = [Moments(("age", "bmi", "days")), Gram(("age", "bmi", "sex"))]

    def work(path: Path) -> None:
        Table("a", path, schema, unreadable="missing").sums(blocks)

    lines = _lines()
    with TemporaryDirectory() as folder:
        tables = {"even": _written(lines, Path(folder, "even.csv"))}
        for number, (name, line) in enumerate(ODD_LINES.items()):
            changed = [*lines[: ROWS // 2], line, *lines[ROWS // 2 + 1 :]]
            tables[name] = _written(changed, Path(folder, f"{number}.csv"))
        return _worst(tables, work)


@bench("edge.sqlite-time")
def one_odd_cell() -> Result:
    """The same for a cell of another type than its column's others in SQLite: what is left, the worst."""
    from cape.blocks import Gram, Moments, Table
    from cape.data import Database, Number, Person, Schema

    plain = Schema(age=(18, 90), bmi=(15, 40), sex=["F", "M"])
    dated = Schema(dict(plain) | {"at": Number("2000-01-01", "2030-01-01")}).only("at > '2000-01-01'")
    persons = Schema(age=(18, 90), bmi=(15, 40)).of_persons(Person("id", rows=2))
    several = [Moments(("age", "bmi")), Gram(("age", "bmi", "sex"))]
    asked = {
        "summed there": (plain, several, ODD_CELLS),
        "fetched": (dated, several, ODD_CELLS),
        "persons": (persons, [Moments(("age", "bmi"))], ODD_SQLITE_IDS),
    }
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        even, rows = Path(folder, "even.db"), _cells()
        _filled(even, rows)
        for how, (schema, blocks, odd) in asked.items():
            tables = {"even": even}
            for number, (name, change) in enumerate(odd.items()):
                tables[name] = Path(folder, f"{number}.db")
                copyfile(even, tables[name])
                with closing(sqlite3.connect(tables[name])) as opened, opened:
                    opened.execute(f"UPDATE rows SET {change} WHERE rowid = {ROWS // 2}")

            def work(path: Path, schema: Any = schema, blocks: Any = blocks) -> None:
                source = Database("SELECT * FROM rows", f"sqlite:///{path}")
                Table("a", source, schema, unreadable="missing").sums(blocks)

            found[how] = _worst(tables, work, 5)
    worst = max(result.value for result in found.values())
    return Result(worst, 2.5, "lower", detail={how: result.detail for how, result in found.items()})


def _filled(path: Path, rows: list[tuple[Any, ...]]) -> None:
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE rows (id, age, bmi, sex, at)")
        numbered = ((i // 2, *row) for i, row in enumerate(rows))
        opened.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", numbered)


def _cells() -> list[tuple[float, float, str, str]]:
    rng = np.random.default_rng(0)
    ages, bmis = rng.uniform(18, 90, ROWS).round(1), rng.uniform(15, 40, ROWS).round(2)
    sexes = np.array(["F", "M"])[rng.integers(0, 2, ROWS)]
    dates = [f"20{i % 25:02d}-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(ROWS)]
    return list(zip(ages.tolist(), bmis.tolist(), sexes.tolist(), dates, strict=True))


def _lines() -> list[bytes]:
    return [",".join(map(str, row)).encode() for row in _cells()]


def _written(lines: list[bytes], path: Path) -> Path:
    path.write_bytes(b"\n".join([b"age,bmi,sex,at", *lines, b""]))
    return path


def _worst(tables: Mapping[str, Any], work: Callable[[Any], Any], repeat: int = REPEAT) -> Result:
    """Return the largest ratio of a table's time to that of "even", and all of them."""
    seconds = _interleaved(tables, work, repeat)
    ratios = {name: each / seconds["even"] for name, each in seconds.items() if name != "even"}
    detail = {"milliseconds": round(1000 * seconds["even"], 1)} | {
        name: round(ratio, 3) for name, ratio in ratios.items()
    }
    return Result(max(ratios.values()), BAR, "lower", detail=detail)


def _interleaved(tables: Mapping[str, Any], work: Callable[[Any], Any], repeat: int) -> dict[str, float]:
    """Return the median time of each table's turns: all have one in every round, in another order each."""
    order = np.random.default_rng(1)
    names, taken = list(tables), {name: list[float]() for name in tables}
    for _ in range(repeat):
        for place in order.permutation(len(names)):
            start = time.process_time()  # of this process alone, on a machine that is shared
            work(tables[names[place]])
            taken[names[place]].append(time.process_time() - start)
    return {name: median(each) for name, each in taken.items()}
