from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, Sandwich, Table, batches
from cape.blocks.clip import inside
from cape.blocks.parts import Pass
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

TO_NUMBERS = [design for design in DESIGNS if design.target == "y"]


def sandwich(design: Design, seed: int, size: float = 1.0, many: int = 3) -> Sandwich:
    numbers = np.random.default_rng(seed).normal(0, size, (many + 1, 1 + design.width(SCHEMA))).tolist()
    return Sandwich(design, tuple(numbers[0]), tuple(map(tuple, numbers[1:])))


def slow(rows: list[dict[str, Any]], block: Sandwich, schema: Schema = SCHEMA) -> tuple[np.ndarray, ...]:
    """Row by row, products in Python's integers."""
    many, length = len(block.directions), len(block.weights)
    bits = 33 - math.ceil(math.log2(length))
    out = [np.zeros(array.shape, object) for array in block.arrays(schema)]
    for x, y in reference.vectors(rows, block.design, schema):
        found = []
        for numbers in (block.weights, *block.directions):
            shift = bits - math.frexp(max(map(abs, numbers)))[1]
            whole = [round(math.ldexp(number, shift)) for number in numbers]
            total = sum(a * k for a, k in zip(whole, [2**20, *x], strict=True))
            assert abs(total) <= 2**53
            found.append(math.ldexp(total, -shift))
        residual = (float(y) - found[0]) / 2**20  # type: ignore[arg-type]
        long = [each * (residual / 2**20) for each in found[1:]]
        squares = 0.0
        for each in long:
            squares += each * each
        shorter = 2**20 / max(math.sqrt(squares), 1.0)
        w = inside(np.array([[math.trunc(each * shorter) for each in long]]))[0].tolist()
        assert sum(k * k for k in w) <= 2**40
        above = [(i, j) for i in range(many) for j in range(i + 1, many)]
        for i in range(many):
            out[0][i] += w[i] * w[i]
        for n, (i, j) in enumerate(above):
            out[1][n] += w[i] * w[j]
    return tuple(out)


@pytest.mark.parametrize("design", TO_NUMBERS, ids=str)
@given(rows=any_rows, seed=st.integers(0, 2**32), size=st.sampled_from([0.0, 1e-300, 0.1, 10.0, 1e4, 1e28]))
@examples(60)
def test_sums_are_those_of_single_rows_in_python(
    design: Design, rows: list[dict[str, Any]], seed: int, size: float
) -> None:
    block = sandwich(design, seed, size)
    found = Table("a", frame(rows), SCHEMA).sums([block])
    assert reference.same(found, [slow(rows, block)])
    assert [array.shape for array in found[0]] == [array.shape for array in block.arrays(SCHEMA)]


@pytest.mark.parametrize("size", [0.05, 3.0])
def test_it_is_squared_residuals_times_products_cut_to_a_length_of_1(size: float) -> None:
    rows, design = large(500), TO_NUMBERS[0]
    block = sandwich(design, 1, size)
    x, y = (array / 2**20 for array in Table("a", rows, SCHEMA).vectors(design))  # type: ignore[operator]
    u = np.column_stack([np.ones(len(x)), x])
    w = (u @ np.array(block.directions).T) * (y - u @ np.array(block.weights))[:, None]
    lengths = np.linalg.norm(w, axis=1, keepdims=True)
    assert (lengths > 1).any() == (size == 3.0)
    w = w / np.maximum(lengths, 1.0)
    wanted = w.T @ w
    square, cross = Table("a", rows, SCHEMA).sums([block])[0]
    assert np.allclose(square / 2**40, np.diag(wanted), atol=len(x) * 2**-18)
    assert np.allclose(cross / 2**40, wanted[np.triu_indices(3, 1)], atol=len(x) * 2**-18)


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_that_order_and_parts_do_not_matter([sandwich(design, 3) for design in TO_NUMBERS], monkeypatch)


def test_many_columns_do_not_depend_on_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    # weights that cancel: what is left would be rounding, if anything rounded
    names = tuple(f"x{i}" for i in range(40))
    generator = np.random.default_rng(5)
    schema = Schema({**dict.fromkeys(names, (-1, 1)), "y": (0, 3)})
    order = generator.permutation(20)
    half, huge = generator.uniform(-1, 1, (300, 20)), generator.normal(0, 1e16, 20)
    table = pl.DataFrame(np.hstack([half, half[:, order]]), schema=list(names)).with_columns(
        y=pl.Series(generator.uniform(0, 3, 300))
    )
    weights = (0.0, *huge.tolist(), *(-huge[order]).tolist())
    block = Sandwich(Design(names, "y"), weights, (weights, tuple(generator.normal(0, 0.1, 41).tolist())))
    wanted = Table("a", table, schema).sums([block])
    assert reference.same(wanted, [slow(table.to_dicts(), block, schema)])
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    assert reference.same(Table("a", table, schema).sums([block]), wanted)


def test_no_complete_row() -> None:
    table = frame([{"x": 0.5, "z": 1.0, "g": "red", "i": 0, "y": None, "b": "no"}])
    for design in TO_NUMBERS:
        found = Table("a", table, SCHEMA).sums([sandwich(design, 1)])[0]
        assert not any(array.any() for array in found)


def test_a_total_beyond_64_bits_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    block = sandwich(TO_NUMBERS[0], 1)
    sums = block.summer(Pass("a", SCHEMA))
    sums._total.add(np.int64(-(2**63)))
    sums._total.add(np.int64(-(2**63)))
    monkeypatch.setattr(Sandwich, "summer", lambda *_: sums)
    (found,) = Table("a", large(10), SCHEMA).sums([block])
    assert any(part.dtype == object and min(part.flat) < -(2**63) for part in found)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (Sandwich(Design(("x",)), (0.0, 1.0), ((0.0, 1.0),)), "needs a target"),
        (Sandwich(Design(("x",), "y"), (1.0,), ((0.0, 1.0),)), "2 weights"),
        (Sandwich(Design(("x",), "y"), (0.0, 1.0), ()), "at least one direction"),
        (Sandwich(Design(("x",), "y"), (0.0, 1.0), ((1.0,),)), "direction must have 2"),
        (Sandwich(Design(("x",), "b"), (0.0, 1.0), ((0.0, 1.0),)), "must have numeric bounds"),
        (Sandwich(Design(("x",), "y"), (0.0, float("nan")), ((0.0, 1.0),)), "numbers of at most 1e\\+30"),
        (Sandwich(Design(("x",), "y"), (0.0, 1.0), ((0.0, 1e31),)), "directions"),
    ],
)
def test_blocks_that_cannot_be_right(block: Sandwich, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Table("a", large(10), SCHEMA).sums([block])
