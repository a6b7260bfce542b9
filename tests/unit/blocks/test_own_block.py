"""A block that is defined here, in one class, works wherever a block does; nothing else knows of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np
import polars as pl
import pytest

from cape import Budget, Consortium
from cape.blocks import Design, Moments, Table, Tensors, Term, batches
from cape.blocks.block import T_BITS, Array, Block, Sums, VectorBlock
from cape.blocks.parts import Part
from cape.blocks.sql import Ask, SqlColumns
from cape.core.errors import InvalidInput
from cape.data import Schema, readers
from cape.data.databases import SqlReader
from cape.engine.query import Analysis, Answer, Neighbours, Query
from cape.noise import SecureStream
from cape.site.decide.codes import Denied
from cape.site.decide.review import columns_of
from cape.stats.estimates import Estimate

SCHEMA = Schema(x=(-1, 1), z={"low": 0.0, "high": 10.0, "missing": True})
ROWS = 20_000


@dataclass(frozen=True)
class Distances(Block):
    """Per column, over the rows where it is not missing: the sum of |t|."""

    columns: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.columns

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        for name in self.columns:
            schema.number(name)
        return (Array("sums", (len(self.columns),), T_BITS),)

    def added(self, part: Part) -> Sums:
        return (np.array([np.nansum(np.abs(part.steps(name))) for name in self.columns]).astype(np.int64),)

    def pushed(self, columns: SqlColumns) -> Ask:
        values = [abs(columns.steps(name)) for name in self.columns]
        return Ask(lambda found: (np.array(found[0].sums),), values)

    def typical(self, schema: Schema, rows: int) -> tuple[np.ndarray, ...]:
        return (np.full(len(self.columns), rows / 4),)


@dataclass(frozen=True)
class InMemory(Block):
    """The same of one column, by somebody who did not say how an engine computes it."""

    column: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        return Distances(self.reads).arrays(schema)

    def added(self, part: Part) -> Sums:
        return Distances(self.reads).added(part)


@dataclass(frozen=True)
class Largest(VectorBlock):
    """Over the vectors of complete rows: the sum of the largest entry of each."""

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        return (Array("largest", (1,), T_BITS),)

    def added(self, part: Part) -> Sums:
        x = part.vectors(self.design).x
        return (np.array([x.max(axis=0).sum()]).astype(np.int64),)


@dataclass(frozen=True)
class Foreign(InMemory):
    """One that runs a function which came with it."""

    brings_code: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class MeanDistance(Analysis):
    """How far a column lies from the middle of its bounds, on average."""

    kind: ClassVar[str] = "mean distance"
    column: str

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        return Query((Distances((self.column,)),), ((1.0,),), 1.0)

    def finish(self, answer: Answer) -> list[Estimate]:
        ((sums,),), ((noise,),) = answer.sums, answer.noise
        half, rows = answer.schema.number(self.column).half, answer.rows
        assert rows is not None
        value = half * float(sums[0]) / rows
        return [Estimate(self.column, value, 0.0, half * noise / rows, (0.0, half))]

    def describe(self) -> str:
        return f"mean distance of {self.column}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "column": self.column}


def rows(count: int = ROWS) -> pl.DataFrame:
    draw = np.random.default_rng(5)
    z = [None if draw.random() < 0.1 else value for value in draw.uniform(-2, 12, count)]
    return pl.DataFrame({"x": draw.uniform(-1.2, 1.2, count), "z": z})


def truth(table: pl.DataFrame, columns: Sequence[str]) -> list[int]:
    """The sums by their meaning, one cell after the other, in Python's integers."""
    found = []
    for name in columns:
        column = SCHEMA.number(name)
        scaled = [
            (min(max(cell, column.low), column.high) - column.middle) / column.half
            for cell in table[name]
            if cell is not None
        ]
        found.append(sum(math.trunc(abs(t) * 2**T_BITS) for t in scaled))
    return found


def duck(table: pl.DataFrame) -> Any:
    connection = duckdb.connect()
    connection.register("held", table.to_arrow())
    return connection.sql("select * from held")


BLOCK = Distances(("x", "z"))


def test_it_is_added_up_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows()
    for size in (8192, 997):
        monkeypatch.setattr(batches, "PART_ROWS", size)
        ((found,), (count, *_)) = Table("a", table, SCHEMA).sums([BLOCK, Moments(("x",))])
        assert found.tolist() == truth(table, BLOCK.columns)
        assert count.tolist() == [ROWS]


def test_it_is_streamed_from_a_file(tmp_path: Path) -> None:
    table, path = rows(), tmp_path / "rows.csv"
    table.write_csv(path)
    ((found,),) = Table("a", path, SCHEMA).sums([BLOCK])
    assert found.tolist() == truth(table, BLOCK.columns)


def test_an_engine_computes_it_if_it_says_how() -> None:
    table = rows(2000)
    ((found,), (count, *_)) = Table("a", duck(table), SCHEMA).sums([BLOCK, Moments(("x",))])
    assert found.tolist() == truth(table, BLOCK.columns)
    assert count.tolist() == [2000]


@dataclass(frozen=True)
class OfSome(Distances):
    """One that says it takes a sample: an engine draws none."""

    rate: float = 0.5


@pytest.mark.parametrize("block", [InMemory("x"), Largest(Design(("x", "z"))), OfSome(("x",))])
def test_what_does_not_say_how_is_computed_at_the_site(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    table, key = rows(50), bytes(32)
    wanted = Table("a", table, SCHEMA).sums([block], SecureStream(key))
    monkeypatch.setattr(SqlReader, "ask", None)
    found = Table("a", duck(table), SCHEMA).sums([block], SecureStream(key))
    assert [part.tolist() for part in found[0]] == [part.tolist() for part in wanted[0]]


def test_vectors_that_are_asked_for_again_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = readers.FrameReader.batches, []

    def spy(self: Any, columns: Any, size: int) -> Any:
        reads.append(columns)
        return read(self, columns, size)

    monkeypatch.setattr(readers.FrameReader, "batches", spy)
    site, design = Table("a", rows(), SCHEMA), Design(("x", "z"))
    found = [int(site.sums([Largest(design), Tensors(design, (Term(1),))])[0][0][0]) for _ in range(4)]
    assert len(reads) == 2
    x, _ = site.vectors(design)
    assert found == [int(x.max(axis=1).sum())] * 4


def test_it_is_planned_and_released() -> None:
    table = rows()
    tables = {"a": table[:8000], "b": table[8000:14000], "c": table[14000:]}
    key = SecureStream(b"k" * 32)
    consortium = Consortium(tables, SCHEMA, Budget(epsilon=1.0, delta=1e-5), colluding=1, stream=key)
    plan = consortium.plan(MeanDistance("x"), share=0.5)
    noise = plan.noise["x"]["cape"]
    assert plan.size == 1 + 3, "and cells below, within and above the bounds"
    assert 0 < noise < 0.001
    (estimate,) = consortium.release(MeanDistance("x"), share=0.5).estimates
    assert abs(estimate.value - truth(table, ["x"])[0] / 2**T_BITS / ROWS) < 5 * noise
    assert estimate.privacy == pytest.approx(noise, rel=0.01)


def test_a_plan_asks_the_block_for_typical_sums() -> None:
    planned: dict[int, float] = {}

    class Relative(MeanDistance):
        def finish(self, answer: Answer) -> list[Estimate]:
            planned[answer.rows or 0] = float(answer.sums[0][0][0])
            return super().finish(answer)

    Relative("x").expected(SCHEMA, [[1.0]], 400)
    assert planned == {400: 100.0}


def test_a_site_knows_what_it_reads_and_runs_no_code_for_others() -> None:
    assert columns_of([BLOCK, Largest(Design(("z",), "x"))]) == ["x", "z"]
    with pytest.raises(Denied, match="does not compute sums of this kind for others"):
        columns_of([Foreign("x")])


def test_a_block_that_says_too_little_is_refused() -> None:
    class Silent(Block):
        @property
        def reads(self) -> tuple[str, ...]:
            return ("x",)

        def arrays(self, schema: Schema) -> tuple[Array, ...]:
            return (Array("sums", (1,), 0),)

    with pytest.raises(NotImplementedError, match="Silent must say what a part adds"):
        Table("a", rows(5), SCHEMA).sums([Silent()])
    with pytest.raises(TypeError, match="abstract"):
        type("Empty", (Block,), {})()
    with pytest.raises(InvalidInput, match="a block must be"):
        Table("a", rows(5), SCHEMA).sums(["x"])  # type: ignore[list-item]
