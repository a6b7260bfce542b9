"""A design that is asked for again is read once more and then kept; what it adds up to stays the same."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pytest

from cape.blocks import Design, Moments, Nearest, Scores, Table, Tensors, Term, table
from cape.blocks.batches import Batches
from cape.data import Person, Schema, readers
from tests.unit.blocks import reference
from tests.unit.blocks.vectors import SCHEMA, large

DESIGN, OTHER = Design(("x", "g"), "b", intercept=1.0), Design(("x", "z"))
ROWS = large(20_000)
BLOCK = Scores(DESIGN, (0.5, -1.0, 2.0, 0.1), tuple(map(tuple, np.eye(4).tolist())), 0.3, 0.1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    batches = readers.FrameReader.batches

    def spy(self: Any, columns: Any, rows: int) -> Any:
        seen.append(tuple(columns))
        return batches(self, columns, rows)

    monkeypatch.setattr(readers.FrameReader, "batches", spy)
    return seen


def test_rows_are_read_twice_at_most(reads: list[Any]) -> None:
    site = Table("a", ROWS, SCHEMA)
    wanted = site.sums([BLOCK])
    assert len(reads) == 1
    for _ in range(3):
        assert reference.same(site.sums([BLOCK]), wanted)
        assert len(reads) == 2
    for block in (Tensors(DESIGN, (Term(2), Term(3, (0, 0.5)))), Nearest(DESIGN, ((0.0,) * 4, (0.5,) * 4))):
        assert reference.same(site.sums([block]), Table("b", ROWS, SCHEMA).sums([block]))
    assert len(reads) == 4  # two by b


def test_a_single_pass_keeps_nothing(reads: list[Any]) -> None:
    site = Table("a", ROWS, SCHEMA)
    site.sums([BLOCK])
    site.sums([Tensors(OTHER, (Term(1),))])
    site.sums([BLOCK])
    assert site._kept is None
    assert len(reads) == 3


def test_other_blocks_are_added_up_beside_it(reads: list[Any]) -> None:
    site = Table("a", ROWS, SCHEMA)
    blocks = [Moments(("y",)), BLOCK, Tensors(OTHER, (Term(1),)), Tensors(DESIGN, (Term(1),))]
    wanted = site.sums(blocks)
    site.vectors(DESIGN)
    del reads[:]
    assert reference.same(site.sums(blocks), wanted)
    assert reads == [("y", "x", "z")]
    assert site.sums([]) == []


def test_the_design_that_is_asked_again_takes_the_place(reads: list[Any]) -> None:
    site = Table("a", ROWS, SCHEMA)
    x, y = site.vectors(DESIGN)
    again, targets = site.vectors(DESIGN)
    assert len(reads) == 1
    assert np.shares_memory(x, again)
    assert y is not None
    assert targets is not None
    assert np.shares_memory(y, targets)
    assert site.vectors(OTHER)[1] is None
    assert len(reads) == 2
    site.vectors(DESIGN)
    assert len(reads) == 3


def test_what_is_too_large_is_streamed_every_time(monkeypatch: pytest.MonkeyPatch, reads: list[Any]) -> None:
    monkeypatch.setattr(table, "_KEPT_CELLS", 1000)
    site = Table("a", ROWS, SCHEMA)
    wanted = site.sums([BLOCK])
    for passes in (2, 3, 4):
        assert reference.same(site.sums([BLOCK]), wanted)
        assert len(reads) == passes


def test_whether_vectors_fit_does_not_depend_on_how_many_rows_of_persons_count() -> None:
    """The refusal shows: a condition and a long enough vector would tell whether one person meets it."""
    people = pl.DataFrame({"id": [f"{i // 2}" for i in range(20)], "age": [30.0 + i for i in range(20)]})
    schema, design = Schema(age=(18, 90)).of_persons(Person("id", rows=3)), Design(("age",))
    for where in ("age > 18", "age > 40", "age > 80"):
        engine = Batches("a", schema.only(where), readers.FrameReader(nw.from_native(people)), key=b"k")
        assert engine.keep(design, 29) is None  # 10 persons with at most 3 rows each
        assert engine.keep(design, 30) is not None
