"""Whether a site answers says nothing about a row: dirty or clean, there or not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cape.secagg import Send
from cape.site import Refusal, wire
from tests.slices import examples
from tests.unit.site.test_endpoint import Table
from tests.world import THREE, World, document

COLUMNS = ("age", "weight", "sex", "ill", "hiv")
CLEAN = [b"54.5", b"70.0", b"female", b"no", b"no"]
MEAN = {"kind": "mean", "columns": ["age", "weight"], "share": 0.02}
ANALYSES: dict[str, dict[str, Any]] = {
    "mean": MEAN,
    "histogram": {"kind": "histogram", "column": "sex", "share": 0.02},
    "logistic regression": {
        "kind": "logistic-regression",
        "target": "ill",
        "features": ["age", "weight", "sex"],
        "share": 0.02,
    },
}
DIRT: dict[str, list[bytes]] = {
    "text in a number": [b"old", *CLEAN[1:]],
    "a decimal comma": [b"54,5", *CLEAN[1:]],
    "infinity": [b"inf", b"-inf", *CLEAN[2:]],
    "nothing where nothing is missing": [CLEAN[0], b"", *CLEAN[2:]],
    "text where nothing is missing": [CLEAN[0], b"heavy", *CLEAN[2:]],
    "an unknown category": [*CLEAN[:2], b"F", b"perhaps", b"no"],
    "bytes that are no text": [b"\xff", b"\xfe", b"f\xe9male", b"\xc3", b"no"],
    "an open quote": [CLEAN[0], CLEAN[1], b'"female', b"no", b"no"],
    "a stray quote": [b'"54"5', *CLEAN[1:]],
    "zero bytes": [b"\0", b"\0", b"\0", b"\0", b"\0"],
    "a line too short": [b"54"],
    "a line too long": [*CLEAN, b"1", b"2"],
    "an empty line": [b""],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return made_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Of a site that tells nobody how many rows it holds."""
    return made_world(tmp_path_factory.mktemp("private"), hidden=True)


def made_world(folder: Path, *, hidden: bool = False) -> World:
    made = World(folder)
    if hidden:
        made.hide_sizes("a")
    made.rows = (made.site.path / "rows.csv").read_bytes().split(b"\n")[1:-1]  # type: ignore[attr-defined]
    made.policy = (made.site.path / "site.toml").read_text()  # type: ignore[attr-defined]
    return made


def cells(rows: list[list[bytes]], kinds: tuple[str, ...] = ()) -> dict[str, list[str | None]]:
    texts = [[cell.decode(errors="replace") or None for cell in row] for row in rows]
    return {name: [(row + [None] * 5)[i] for row in texts] for i, name in enumerate(COLUMNS)}


def as_csv(folder: Path, rows: list[list[bytes]]) -> Any:
    lines = [",".join(COLUMNS).encode(), *[b",".join(row) for row in rows], b""]
    (folder / "rows.csv").write_bytes(b"\n".join(lines))
    return "rows.csv"


def as_described_csv(folder: Path, rows: list[list[bytes]]) -> Any:
    (folder / "rows.txt").write_bytes(b"\n".join(b";".join(row) for row in rows))
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    return {"path": "rows.txt", "separator": ";", "columns": f"[{columns}]", "has_header": "false"}


def as_parquet(folder: Path, rows: list[list[bytes]]) -> Any:
    pl.DataFrame(cells(rows), schema=dict.fromkeys(COLUMNS, pl.String)).write_parquet(folder / "rows.parquet")
    return "rows.parquet"


def as_sqlite(folder: Path, rows: list[list[bytes]]) -> Any:
    (folder / "rows.db").unlink(missing_ok=True)
    connection = sqlite3.connect(folder / "rows.db")
    connection.execute("CREATE TABLE t (age REAL, weight REAL, sex TEXT, ill TEXT, hiv TEXT)")
    cast = "CAST(nullif(?, '') AS TEXT)"  # of bytes: any bytes become text
    for row in rows:
        full = (row + [b""] * 5)[:5]
        connection.execute(f"INSERT INTO t VALUES ({', '.join([cast] * 5)})", full)
    connection.commit()
    connection.close()
    return {"query": "SELECT * FROM t", "connection": "sqlite:///rows.db"}


SOURCES: dict[str, Callable[[Path, list[list[bytes]]], Any]] = {
    "csv": as_csv,
    "csv without a header": as_described_csv,
    "parquet": as_parquet,
    "sqlite": as_sqlite,
}


def hold(world: World, kind: str, rows: list[list[bytes]]) -> None:
    """Give site a these rows, in a source of this kind."""
    place = SOURCES[kind](world.site.path, rows)
    if isinstance(place, dict):
        said = [
            f"{key} = {value}" if value[0] in "[tf" and key != "path" else f'{key} = "{value}"'
            for key, value in place.items()
        ]
        place = f"{{{', '.join(said)}}}"
    else:
        place = f'"{place}"'
    text = world.policy  # type: ignore[attr-defined]
    assert 'data = "rows.csv"' in text
    (world.site.path / "site.toml").write_text(text.replace('data = "rows.csv"', f"data = {place}"))


def told(world: World, analysis: dict[str, Any], **changes: Any) -> list[Any]:
    """All that site a says about an analysis, without what noise and masks hide."""
    study = document(analyses=[analysis], **changes)
    table = Table(world, world.request(study))
    trial = table.say("a", wire.Review(0, (world.request(study, trial=True).pack(),)))
    assert isinstance(trial, wire.Reviewed)
    assert trial.refusals == (None,), trial
    openings = table.open()
    found: list[Any] = [trial.rows]
    events: tuple[Any, ...] = ()
    for name in THREE:
        carried = table.carry(name, openings[name])
        assert isinstance(carried, wire.Carried), carried
        found.append(len(carried.data))
        events += table.aggregator.handle(carried.data)
    assert not any(isinstance(event, Send) and event.to not in THREE for event in events)
    return found


def some(world: World, rows: int = 150) -> list[list[bytes]]:
    return [line.split(b",") for line in world.rows[:rows]]  # type: ignore[attr-defined]


@pytest.mark.one_in(4, seconds=0.3)
@pytest.mark.parametrize(
    "kind",
    [
        "csv",
        "parquet",
        *(
            pytest.param(kind, marks=pytest.mark.slow(0.25))
            for kind in SOURCES
            if kind not in ("csv", "parquet")
        ),
    ],
)
@pytest.mark.parametrize("dirt", DIRT)
def test_a_dirty_row_and_a_clean_one_are_answered_alike(world: World, kind: str, dirt: str) -> None:
    said = []
    for row in (CLEAN, DIRT[dirt]):
        rows = some(world)
        rows[75] = row
        hold(world, kind, rows)
        said.append(told(world, MEAN | {"share": 0.002}))
    assert said[0] == said[1]


@pytest.mark.parametrize("analysis", ANALYSES)
def test_every_kind_of_sum_is_answered(world: World, analysis: str) -> None:
    said = []
    for dirty in ([], list(DIRT.values())):
        rows = some(world)
        rows[: len(dirty)] = dirty
        hold(world, "csv", rows)
        said.append(told(world, ANALYSES[analysis]))
    assert said[0] == said[1]


NETWORK = {
    "kind": "neural-network",
    "target": "ill",
    "features": ["age"],
    "hidden": [2],
    "epochs": 2,
    "rows": 450,
}
MEANS = {"kind": "k-means", "columns": ["age", "weight"], "clusters": 2, "steps": 2}


@pytest.mark.slow_cases(
    "k-means-sqlite", "k-means-parquet", "k-means-csv", "k-means-csv without a header", seconds=0.65
)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("analysis", [*ANALYSES.values(), NETWORK, MEANS], ids=lambda each: str(each["kind"]))
def test_where_sizes_are_private_any_number_of_rows_is_answered(
    private: World, kind: str, analysis: dict[str, Any], recwarn: pytest.WarningsRecorder
) -> None:
    world = private
    study = document(analyses=[analysis | {"share": 0.02}], neighbours="add-remove")
    sizes = set()
    for rows in (0, 1, 150):
        hold(world, kind, some(world, 150))
        grant = world.granted(world.request(study))
        assert grant.rows is None
        hold(world, kind, some(world, rows))
        vector = world.site.answer(grant)
        assert not isinstance(vector, Refusal)
        sizes.add((vector.shape, vector.dtype))
    assert len(sizes) == 1
    assert not recwarn.list


GARBAGE = st.binary(max_size=12).map(lambda cell: cell.replace(b"\n", b""))


@pytest.mark.slow(2)
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(list(SOURCES)), row=st.lists(GARBAGE, min_size=1, max_size=7))
def test_no_garbage_turns_an_answer_into_a_refusal(world: World, kind: str, row: list[bytes]) -> None:
    rows = some(world)
    rows[3] = row
    hold(world, kind, rows)
    assert told(world, MEAN | {"share": 0.002})[0] == 150


def test_the_steward_is_told_how_many_cells_and_nobody_else(tmp_path: Path) -> None:
    world = made_world(tmp_path)  # where nothing has been counted yet: numbers are told when they change
    rows = some(world)
    rows[5:7] = DIRT["text in a number"], DIRT["a line too long"]
    hold(world, "csv", rows)
    told(world, MEAN | {"share": 0.002})
    # each message comes to a new member with the same folder: the counts are said once
    log = (world.site.path / "site.log").read_text()
    assert log.count("unreadable cells that count as missing: age 2, weight 1") == 1
    assert "old" not in log
    table = world.site.table()
    table.check()
    assert table.counted_as_missing == {"age": 2, "weight": 1, "sex": 1, "ill": 1, "hiv": 1}
