"""Sums computed in databases, against SQL that a person writes for the same sums, and against each other.

`CAPE_BENCH_ROWS` has fewer rows than the bar asks for, for a quick look; the line says how many there were.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import servers
from benchmarks.harness import Result, Skip, bench, paired_seconds
from benchmarks.random_tables import DATABASES, cases, differs, frames
from cape.analyses import TableOne
from cape.blocks import Table
from cape.data import Category, Database, Schema

NUMBERS = tuple(f"x{i}" for i in range(7))
GROUPS = ("sex", "stage", "smoker")
SCHEMA = Schema(
    dict.fromkeys(NUMBERS, (0, 100))
    | {
        "sex": ["female", "male"],
        "stage": Category((0, 1, 2, 3)),
        "smoker": Category((False, True)),
        "disease": ["no", "yes"],
    }
)
BLOCKS = TableOne(*NUMBERS, *GROUPS, by="disease").query(SCHEMA, "replace-one").blocks
BINS, SIZE = 64, 50 / 2**20
LARGE, MEDIUM = 100_000_000, 5_000_000
BYTES_A_ROW = 70
MOST_SECONDS, MOST_MEMORY = 60.0, 500e6

# In a process of its own, so that the peak is that of the sums and of what they import.
PEAK = """
import sys
from benchmarks.data_databases import ours
from benchmarks.harness import peak_bytes
ours(sys.argv[1])
print(peak_bytes())
"""


def rows_of(bar: int) -> int:
    return int(os.environ.get("CAPE_BENCH_ROWS", bar))


def ours(uri: str) -> list[Any]:
    return Table("a", Database("SELECT * FROM t", uri), SCHEMA).sums(BLOCKS)


def columns(random: str, integer: str) -> str:
    """Return the columns of the table: readings, some outside the bounds, and groups, some missing."""
    numbers = [f"50 + 50 * ({random} + {random} + {random} - 1.5) AS {name}" for name in NUMBERS]
    groups = [
        f"CASE WHEN {random} < 0.5 THEN 'female' ELSE 'male' END AS sex",
        f"CAST(floor({random} * 4) AS {integer}) AS stage",
        f"{random} < 0.3 AS smoker",
        f"CASE WHEN {random} < 0.1 THEN NULL WHEN {random} < 0.3 THEN 'yes' ELSE 'no' END AS disease",
    ]
    return ", ".join(numbers + groups)


def by_hand(run: Callable[[str], list[tuple[Any, ...]]], integer: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the sums of the same clamped numbers, by disease, as a person asks for them in SQL."""
    clamped = {name: f"least(greatest({name}, 0), 100)" for name in NUMBERS}
    steps = ", ".join(
        f"CAST(trunc(({each} - 50) / {SIZE!r}) AS {integer}) AS {name}" for name, each in clamped.items()
    )
    sums = ", ".join(f"count({name}), sum({name}), sum({name} * {name})" for name in NUMBERS)
    found = {
        "moments": run(f"SELECT disease, {sums} FROM (SELECT disease, {steps} FROM t) AS k GROUP BY disease")
    }
    for name, each in clamped.items():
        place = f"least(floor({each} / {100 / BINS!r}), {BINS - 1})"
        found[name] = run(f"SELECT disease, {place} AS place, count(*) FROM t GROUP BY disease, place")
    for name in GROUPS:
        found[name] = run(f"SELECT disease, {name}, count(*) FROM t GROUP BY disease, {name}")
    return found


def check_same(mine: list[Any], found: dict[str, list[tuple[Any, ...]]]) -> None:
    """Raise if the sums of a person's SQL are not the same integers."""
    _, moments, *counts = mine
    for row in found["moments"]:
        if row[0] is not None:
            at = ["no", "yes"].index(row[0])
            wanted = [[int(value) for value in row[1 + i :: 3]] for i in range(3)]
            assert [part[at].tolist() for part in moments] == wanted
    finest = [part for (part,) in counts if part.shape == (2, BINS)]
    for name, cells in zip(NUMBERS, finest, strict=True):
        for disease, place, often in found[name]:
            if disease is not None:
                assert cells[["no", "yes"].index(disease), int(place)] == often


@bench("data.duckdb")
def duckdb_file() -> Result:
    """Time of a Table One of 10 columns over 100 million rows, against hand-written SQL; within 500 MB."""
    import duckdb

    rows, free = rows_of(LARGE), shutil.disk_usage(tempfile.gettempdir()).free
    rows = min(rows, int(free * 0.5) // BYTES_A_ROW)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.duckdb"
        with closing(duckdb.connect(str(path), config={"memory_limit": "2GB"})) as made:
            made.execute("SET preserve_insertion_order = false")
            made.execute(f"CREATE TABLE t AS SELECT {columns('random()', 'INTEGER')} FROM range({rows})")
        uri = f"duckdb:///{path}?memory_limit=250MB&threads=2"
        settings = {"memory_limit": "250MB", "threads": "2"}
        answers: dict[str, Any] = {}

        def hand() -> None:
            with closing(duckdb.connect(str(path), read_only=True, config=settings)) as opened:
                answers["hand"] = by_hand(lambda text: opened.execute(text).fetchall(), "BIGINT")

        def mine() -> None:
            answers["mine"] = ours(uri)

        seconds, reference = paired_seconds(mine, hand, repeat=2)
        check_same(answers["mine"], answers["hand"])
        done = subprocess.run([sys.executable, "-c", PEAK, uri], check=True, capture_output=True, text=True)
        peak, size = float(json.loads(done.stdout.splitlines()[-1])), path.stat().st_size
    detail = {
        "rows": rows,
        "seconds": round(seconds, 2),
        "most_seconds": round(MOST_SECONDS * rows / LARGE, 2),
        "by_hand_seconds": round(reference, 2),
        "peak_mb": round(peak / 1e6),
        "most_mb": round(MOST_MEMORY / 1e6),
        "file_mb": round(size / 1e6),
        "load": round(os.getloadavg()[0], 1),
    }
    within = seconds <= max(MOST_SECONDS * rows / LARGE, 1.0) and peak <= MOST_MEMORY
    return Result(seconds / reference if within else 1000.0, 1.5, "lower", detail=detail)


@bench("data.postgres")
def postgres_table() -> Result:
    """Time of a Table One of 10 columns over 5 million rows, against hand-written SQL."""
    import psycopg

    rows = rows_of(MEDIUM)
    with started(servers.postgres, "shared_buffers=512MB") as uri:
        with psycopg.connect(uri, autocommit=True) as made:
            made.execute(
                f"CREATE TABLE t AS SELECT {columns('random()', 'int')} FROM generate_series(1, {rows})"
            )
            made.execute("VACUUM ANALYZE t")
        answers: dict[str, Any] = {}

        def hand() -> None:
            with psycopg.connect(uri) as opened:
                answers["hand"] = by_hand(lambda text: opened.execute(text).fetchall(), "bigint")

        def mine() -> None:
            answers["mine"] = ours(uri)

        seconds, reference = paired_seconds(mine, hand, repeat=2)
        check_same(answers["mine"], answers["hand"])
    detail = {
        "rows": rows,
        "seconds": round(seconds, 2),
        "by_hand_seconds": round(reference, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    return Result(seconds / reference, 1.5, "lower", detail=detail)


@bench("data.same")
def same() -> Result:
    """How many of 1,000 random questions about random tables have other answers in some database."""
    tables, each = (int(part) for part in os.environ.get("CAPE_BENCH_SAME", "250x4").split("x"))
    wrong: dict[str, int] = {}
    asked: dict[str, int] = {}
    with ExitStack() as stack:
        where: dict[str, Any] = dict.fromkeys(
            ("duckdb", "sqlite"), stack.enter_context(tempfile.TemporaryDirectory())
        )
        where["postgres"] = stack.enter_context(started(servers.postgres))
        where["mariadb"] = stack.enter_context(started(servers.mariadb))
        for seed in range(tables):
            frame, given = frames(10_000 + seed), cases(20_000 + seed, each)
            wanted = [case.answers(frame) for case in given]
            for kind, place in where.items():
                with DATABASES[kind](frame, place, f"t{seed}") as source:
                    found = [
                        differs(case, answers, source) for case, answers in zip(given, wanted, strict=True)
                    ]
                wrong[kind] = wrong.get(kind, 0) + sum(one is not None for one in found)
                asked[kind] = asked.get(kind, 0) + len(found)
    return Result(float(sum(wrong.values())), 0.0, "lower", "differences", {"asked": asked, "wrong": wrong})


@contextmanager
def started(server: Callable[..., Any], *settings: str) -> Iterator[str]:
    """Start a server, or skip the measurement where its package is missing."""
    with ExitStack() as stack:
        try:
            uri = stack.enter_context(server(*settings))
        except (servers.Missing, ImportError) as reason:
            raise Skip(str(reason)) from None
        with np.errstate(all="ignore"):
            yield uri
