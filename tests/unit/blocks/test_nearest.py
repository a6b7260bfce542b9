from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, Nearest, Table, batches
from cape.core.errors import InvalidInput
from cape.data import Schema
from tests.slices import examples
from tests.unit.blocks import reference
from tests.unit.blocks.vectors import (
    DESIGNS,
    SCHEMA,
    any_rows,
    assert_that_order_and_parts_do_not_matter,
    frame,
    large,
)


def centres(design: Design, many: int, seed: int) -> tuple[tuple[float, ...], ...]:
    points = np.random.default_rng(seed).uniform(-1, 1, (many, design.width(SCHEMA)))
    return tuple(tuple(point) for point in points.tolist())


def slow(rows: list[dict[str, Any]], block: Nearest, schema: Schema = SCHEMA) -> tuple[np.ndarray, ...]:
    counts, sums = (np.zeros(array.shape, object) for array in block.arrays(schema))
    for x, _ in reference.vectors(rows, block.design, schema):
        distances = []
        for centre in block.centres:
            distance = 0.0
            for k, value in zip(x, centre, strict=True):
                difference = k - value * 2**20
                distance += difference * difference
            distances.append(distance)
        nearest = distances.index(min(distances))
        counts[nearest] += 1
        sums[nearest] += np.array(x, object)
    return counts, sums


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@given(rows=any_rows, many=st.integers(1, 5), seed=st.integers(0, 2**32))
@examples(40)
def test_sums_are_those_of_single_rows_in_python(
    design: Design, rows: list[dict[str, Any]], many: int, seed: int
) -> None:
    block = Nearest(design, centres(design, many, seed))
    found = Table("a", frame(rows), SCHEMA).sums([block])
    assert reference.same(found, [slow(rows, block)])
    assert all(array.dtype == np.int64 for array in found[0])


def test_of_equally_near_centres_the_first_counts() -> None:
    schema = Schema(x=(-1, 1), z=(-1, 1))
    table = pl.DataFrame({"x": [0.0, 1.0, -1.0, 0.0], "z": [0.0, 0.0, 0.0, 1.0]})
    design = Design(("x", "z"), norm=1.0)
    for points, wanted in [
        (((1.0, 0.0), (-1.0, 0.0)), [3, 1]),
        (((-1.0, 0.0), (1.0, 0.0)), [3, 1]),
        (((5.0, 5.0), (0.5, 0.0), (0.5, 0.0), (-0.5, 0.0)), [0, 3, 0, 1]),
        (((1e100, 0.0), (0.0, -1e100)), [4, 0]),
    ]:
        counts, sums = Table("a", table, schema).sums([Nearest(design, points)])[0]
        assert counts.tolist() == wanted
        assert sums.sum(axis=0).tolist() == [0, 2**20]


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [Nearest(design, centres(design, 4, 3)) for design in DESIGNS]
    assert all((counts > 0).sum() > 1 for counts, _ in Table("a", large(20_000), SCHEMA).sums(blocks))
    assert_that_order_and_parts_do_not_matter(blocks, monkeypatch)


def test_where_rounding_decides_it_decides_the_same_in_any_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A row of equal entries is as far from a point as from it with coordinates in another order, but for
    # rounding, which decides: distances must be added in one order wherever the row stands.
    names = tuple(f"x{i}" for i in range(40))
    generator = np.random.default_rng(5)
    schema = Schema(dict.fromkeys(names, (-1, 1)))
    table = pl.DataFrame(np.tile(generator.uniform(-1, 1, (400, 1)), (1, 40)), schema=list(names))
    point = generator.uniform(-1, 1, 40)
    points = tuple(tuple(generator.permutation(point).tolist()) for _ in range(7))
    block = Nearest(Design(names), points)
    wanted = Table("a", table, schema).sums([block])
    assert (wanted[0][0] > 0).sum() > 3
    assert reference.same(wanted, [slow(table.to_dicts(), block, schema)])
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    assert reference.same(Table("a", table, schema).sums([block]), wanted)


def test_a_full_part_at_the_bound_is_exact() -> None:
    schema = Schema(x=(-1, 1))
    table = pl.DataFrame({"x": np.full(8192 + 3, -1.0)})
    counts, sums = Table("a", table, schema).sums([Nearest(Design(("x",)), ((0.0,),))])[0]
    assert counts.tolist() == [8195]
    assert sums.tolist() == [[-8195 * 2**20]]


def test_no_complete_row() -> None:
    table = frame([{"x": None, "z": 1.0, "g": "red", "i": 0, "y": 1.0, "b": None}])
    counts, sums = Table("a", table, SCHEMA).sums([Nearest(DESIGNS[0], centres(DESIGNS[0], 3, 1))])[0]
    assert not counts.any()
    assert not sums.any()
    assert sums.shape == (3, 2)


@pytest.mark.parametrize("points", [(), ((1.0, 2.0),), ((float("nan"),),), ((1e101,),)])
def test_centres_that_cannot_be_right(points: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(InvalidInput, match="centres"):
        Table("a", large(10), SCHEMA).sums([Nearest(Design(("x",)), points)])
