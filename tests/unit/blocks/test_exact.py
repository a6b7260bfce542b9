from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Axis, Counts, Gram, Moments, Table, batches
from cape.blocks.parts import Total
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from tests.slices import examples
from tests.unit.blocks import reference

SCHEMA = Schema(
    x=(0.1, 0.7), y=(-250, 1000), g=["red", "green", "blue"], i=Category((0, 1)), one=Category(("only",))
)
BLOCKS = [
    Moments(("x", "y")),
    Moments(("y",), squares=False),
    Moments(("x", "y"), by="g"),
    Moments(("x",), squares=False, by="i"),
    Gram(("x", "y")),
    Gram(("g", "x", "i", "one")),
    Counts((Axis("g"),)),
    Counts((Axis("g"), Axis("x", (0.1, 0.3, 0.31, 0.7)), Axis("i"))),
    Counts((Axis("y", tuple(np.linspace(-250, 1000, 65).tolist())),)),
    Counts(()),
    Moments(()),
]

cells = {
    "x": st.none() | st.floats(-1, 2) | st.sampled_from([0.1, 0.7, 0.3, 0.31, float("inf"), float("nan")]),
    "y": st.none() | st.floats() | st.integers(-300, 1100).map(float),
    "g": st.sampled_from([None, "red", "green", "blue"]),
    "i": st.sampled_from([None, 0, 1]),
    "one": st.sampled_from([None, "only"]),
}
KINDS = {"x": pl.Float64, "y": pl.Float64, "g": pl.String, "i": pl.Int64, "one": pl.String}


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=KINDS)


@given(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=40))
@examples(150)
def test_sums_are_those_of_python_integers(rows: list[dict[str, Any]]) -> None:
    found = Table("a", frame(rows), SCHEMA).sums(BLOCKS)
    assert reference.same(found, [reference.sums(rows, block, SCHEMA) for block in BLOCKS])
    assert all(array.dtype == np.int64 for arrays in found for array in arrays)
    shapes = [[array.shape for array in block.arrays(SCHEMA)] for block in BLOCKS]
    assert [[array.shape for array in arrays] for arrays in found] == shapes


def large(rows: int, seed: int = 1) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    table = {
        "x": generator.uniform(0, 0.8, rows),
        "y": generator.normal(300, 400, rows),
        "g": generator.choice(["red", "green", "blue"], rows),
        "i": generator.integers(0, 2, rows),
        "one": ["only"] * rows,
    }
    holes = [pl.when(pl.Series(generator.uniform(size=rows) > 0.05)).then(pl.col(n)).alias(n) for n in "xgi"]
    return pl.DataFrame(table).with_columns(holes)


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    table = large(30_000)
    wanted = Table("a", table, SCHEMA).sums(BLOCKS)
    shuffled = table.sample(fraction=1.0, shuffle=True, seed=2)
    assert reference.same(Table("a", shuffled, SCHEMA).sums(BLOCKS), wanted)
    halves = pl.concat([table[17_001:], table[:17_001]], rechunk=False).lazy()
    assert reference.same(Table("a", halves, SCHEMA).sums(BLOCKS), wanted)
    monkeypatch.setattr(batches, "PART_ROWS", 997)
    monkeypatch.setattr(batches, "_BATCH_CELLS", 1)
    assert reference.same(Table("a", table, SCHEMA).sums(BLOCKS), wanted)
    assert reference.same([reference.sums(table.to_dicts(), BLOCKS[0], SCHEMA)], wanted[:1])


def test_the_largest_sums_are_exact() -> None:
    # 8192 rows at the bound reach 2^53, the last integer that float64 has all integers below
    rows = 3 * 8192 + 5
    schema = Schema(x=(-1, 1), y=(-1, 1))
    odd = (2**20 - 1) / 2**20
    x = np.where(np.arange(rows) % 3 == 0, 1.0, -odd)
    found = Table("a", pl.DataFrame({"x": x, "y": np.ones(rows)}), schema).sums(
        [Moments(("x", "y")), Gram(("x", "y"))]
    )
    whole = [2**20 if value == 1 else -(2**20 - 1) for value in x]
    assert found[0][1].tolist() == [sum(whole), rows * 2**20]
    assert found[0][2].tolist() == [sum(k * k for k in whole), rows * 2**40]
    assert found[1][3].tolist() == [sum(whole) * 2**20]


def test_sums_add_over_tables() -> None:
    table = large(5000)
    whole = Table("a", table, SCHEMA).sums(BLOCKS)
    parts = [Table("a", part, SCHEMA).sums(BLOCKS) for part in (table[:1234], table[1234:])]
    added = [tuple(a + b for a, b in zip(p, q, strict=True)) for p, q in zip(*parts, strict=True)]
    assert reference.same(added, whole)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_a_total_is_exact_however_large(numbers: list[int]) -> None:
    total = Total((2,))
    for number in numbers:
        total.add(np.array([number, -1]))
    total.add(np.array([0, 5]))
    found, wanted = total.result(), sum(numbers)
    assert found.tolist() == [wanted, 5 - len(numbers)]
    assert found.dtype == (np.int64 if -(2**63) <= wanted < 2**63 else object)


BEYOND = [Moments(("x",)), Moments(("x",), by="g"), Gram(("x",))]


@pytest.mark.parametrize("block", BEYOND)
def test_a_sum_beyond_64_bits_is_exact(block: Moments | Gram, monkeypatch: Any) -> None:
    schema, made = Schema(x=(0, 1), g=["a"]), Total.__init__

    def nearly_full(self: Total, shape: tuple[int, ...]) -> None:
        made(self, shape)
        self.add(np.full(shape, 2**63 - 2**41))

    monkeypatch.setattr(Total, "__init__", nearly_full)
    rows = pl.DataFrame({"x": [1.0] * 3, "g": ["a"] * 3})
    for unreadable in ("error", "missing"):
        (found,) = Table("a", rows, schema, unreadable=unreadable).sums([block])
        assert found[2].tolist() in ([2**63 + 2**40], [[2**63 + 2**40]])


# What blocks promise: no row moves an array by more than this. Rounding included, and whatever the cell.
wild = st.floats() | st.sampled_from([0.1, 0.7, -0.0, 5e-324, 1.7e308])


@given(wild, wild, st.sampled_from(["red", "green", "blue"]), st.sampled_from([0, 1]))
def test_no_row_contributes_more_than_promised(x: float, y: float, g: str, i: int) -> None:
    rows = frame([{"x": x, "y": y, "g": g, "i": i, "one": "only"}])
    for block, arrays in zip(BLOCKS, Table("a", rows, SCHEMA).sums(BLOCKS), strict=True):
        for array, sums in zip(block.arrays(SCHEMA), arrays, strict=True):
            assert np.abs(sums).max(initial=0) <= 2**array.bits
        if isinstance(block, Counts):
            assert arrays[0].sum() <= 1
        if isinstance(block, Moments) and block.by is not None:
            assert np.count_nonzero(arrays[0].sum(axis=1)) <= 1
        if isinstance(block, Gram):  # the dummies of one column: one of them at most
            assert arrays[0][0] <= 1


def test_blocks_are_checked_before_rows_are_read() -> None:
    table = Table("a", frame([]), SCHEMA)
    with pytest.raises(InvalidInput, match="did you mean 'x'"):
        table.sums([Moments(("xx",))])
    with pytest.raises(InvalidInput, match="a block must be"):
        table.sums([random])  # type: ignore[list-item]


def test_how_many_cells_were_clamped_is_known_at_the_site() -> None:
    table = pl.DataFrame({"x": [0.0, 0.1, 0.7, 0.71, None, np.nan, np.inf], "y": [0.0] * 7})
    assert Table("a", table, Schema(x=(0.1, 0.7), y=(-1, 1))).clamped() == {"x": 3, "y": 0}
