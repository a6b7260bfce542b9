"""Time: what one row adds to a pass over all of them, where its cells or its id are not like the others'."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
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


def _lines() -> list[bytes]:
    rng = np.random.default_rng(0)
    ages, bmis = rng.uniform(18, 90, ROWS), rng.uniform(15, 40, ROWS)
    cells = zip(ages.tolist(), bmis.tolist(), rng.integers(0, 2, ROWS).tolist(), strict=True)
    return [
        f"{age:.1f},{bmi:.2f},{'FM'[sex]},20{i % 25:02d}-{1 + i % 12:02d}-{1 + i % 28:02d}".encode()
        for i, (age, bmi, sex) in enumerate(cells)
    ]


def _written(lines: list[bytes], path: Path) -> Path:
    path.write_bytes(b"\n".join([b"age,bmi,sex,at", *lines, b""]))
    return path


def _worst(tables: Mapping[str, Any], work: Callable[[Any], Any]) -> Result:
    """Return the largest ratio of a table's time to that of "even", and all of them."""
    seconds = _interleaved(tables, work)
    ratios = {name: each / seconds["even"] for name, each in seconds.items() if name != "even"}
    detail = {"milliseconds": round(1000 * seconds["even"], 1)} | {
        name: round(ratio, 3) for name, ratio in ratios.items()
    }
    return Result(max(ratios.values()), BAR, "lower", detail=detail)


def _interleaved(tables: Mapping[str, Any], work: Callable[[Any], Any]) -> dict[str, float]:
    """Return the median time of each table's turns: all have one in every round, in another order each."""
    order = np.random.default_rng(1)
    names, taken = list(tables), {name: list[float]() for name in tables}
    for _ in range(REPEAT):
        for place in order.permutation(len(names)):
            start = time.process_time()  # of this process alone, on a machine that is shared
            work(tables[names[place]])
            taken[names[place]].append(time.process_time() - start)
    return {name: median(each) for name, each in taken.items()}
