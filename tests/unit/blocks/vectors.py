"""Rows and designs that the tests of vectors share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st

from cape.blocks import Block, Design, Table, batches
from cape.data import Category, Schema
from tests.unit.blocks import reference

SCHEMA = Schema(
    x=(0.1, 0.7),
    z=(-250, 1000),
    g=["red", "green", "blue"],
    i=Category((0, 1)),
    y=(0, 3),
    b=["no", "yes"],
)
DESIGNS = [
    Design(("x", "z")),
    Design(("x",), "b"),
    Design(("z", "g", "x"), "y"),
    Design(("g", "i"), "b", intercept=1.0),
    Design(("x", "z", "g"), "y", norm=0.75),
    Design(("x", "z"), "b", norm=1.25, intercept=0.3),
    Design(("i", "x"), "y", norm=50.0, intercept=2.5),
]
KINDS = {"x": pl.Float64, "z": pl.Float64, "g": pl.String, "i": pl.Int64, "y": pl.Float64, "b": pl.String}

cells = {
    "x": st.floats(0, 0.8) | st.sampled_from([0.1, 0.7, 0.4, float("inf"), 5e-324]),
    "z": st.floats(allow_nan=False) | st.integers(-300, 1100).map(float),
    "g": st.sampled_from(["red", "green", "blue"]),
    "i": st.sampled_from([0, 1]),
    "y": st.floats(-1, 4) | st.sampled_from([0.0, 1.5, 3.0, float("-inf")]),
    "b": st.sampled_from(["no", "yes"]),
}
holes = {name: st.none() | kind for name, kind in cells.items()}
holes["x"] |= st.just(float("nan"))
complete_rows = st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=12)
any_rows = st.lists(st.fixed_dictionaries(cells) | st.fixed_dictionaries(holes), min_size=1, max_size=12)


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=KINDS)


def large(rows: int, seed: int = 1) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    table = pl.DataFrame(
        {
            "x": generator.uniform(0, 0.8, rows),
            "z": generator.normal(300, 400, rows),
            "g": generator.choice(["red", "green", "blue"], rows),
            "i": generator.integers(0, 2, rows),
            "y": generator.uniform(-0.1, 3.1, rows),
            "b": generator.choice(["no", "yes"], rows),
        }
    )
    return table.with_columns(
        pl.when(pl.Series(generator.uniform(size=rows) > 0.03)).then(pl.col(name)).alias(name)
        for name in KINDS
    )


def assert_that_order_and_parts_do_not_matter(
    blocks: Sequence[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = large(20_000)
    wanted = Table("a", rows, SCHEMA).sums(blocks)
    assert any(array.any() for sums in wanted for array in sums)
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=2)
    assert reference.same(Table("a", shuffled, SCHEMA).sums(blocks), wanted)
    monkeypatch.setattr(batches, "PART_ROWS", 311)
    assert reference.same(Table("a", rows, SCHEMA).sums(blocks), wanted)
    few, wanted = rows[:200], Table("a", rows[:200], SCHEMA).sums(blocks)
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    assert reference.same(Table("a", few, SCHEMA).sums(blocks), wanted)
