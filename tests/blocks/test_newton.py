from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from cape.blocks import Design, Newton, Table, batches
from cape.blocks.parts import Pass
from cape.data import Schema
from cape.errors import InvalidInput, OverflowRisk
from tests.blocks import reference
from tests.blocks.vectors import DESIGNS, SCHEMA, any_rows, frame, large
from tests.slices import examples

TO_CLASSES = [design for design in DESIGNS if design.target == "b"]


def weights(design: Design, seed: int, size: float = 3.0) -> tuple[float, ...]:
    return tuple(np.random.default_rng(seed).normal(0, size, design.width(SCHEMA)).tolist())


def one_row(x: list[int], y: int, w: tuple[float, ...]) -> tuple[int, list[int]]:
    """g and z of a row in steps."""
    linear = 0.0
    for k, weight in zip(x, w, strict=True):
        linear += k * (weight / 2**20)
    p = float(expit(linear))
    g = math.trunc((p - (y + 2**20) / 2**21) * 2**20)
    root = math.sqrt(p * (1 - p))
    return g, [math.trunc(root * k) for k in x]


def slow(rows: list[dict[str, Any]], block: Newton, schema: Schema = SCHEMA) -> tuple[np.ndarray, ...]:
    out = [np.zeros(array.shape, object) for array in block.arrays(schema)]
    for x, y in reference.vectors(rows, block.design, schema):
        assert y is not None
        g, z = one_row(x, y, block.weights)
        assert abs(g) <= 2**20
        assert 4 * sum(k * k for k in z) <= 2**40
        above = [(i, j) for i in range(len(x)) for j in range(i + 1, len(x))]
        out[0][0] += 1
        for i in range(len(x)):
            out[1][i] += g * x[i]
            out[2][i] += z[i] * z[i]
        for n, (i, j) in enumerate(above):
            out[3][n] += z[i] * z[j]
    return tuple(out)


@pytest.mark.parametrize("design", TO_CLASSES, ids=str)
@given(rows=any_rows, seed=st.integers(0, 2**32), size=st.sampled_from([0.0, 0.1, 10.0, 1e4, 1e99]))
@examples(60)
def test_sums_are_those_of_single_rows_in_python(
    design: Design, rows: list[dict[str, Any]], seed: int, size: float
) -> None:
    block = Newton(design, weights(design, seed, size))
    found = Table("a", frame(rows), SCHEMA).sums([block])
    assert reference.same(found, [slow(rows, block)])
    assert [array.shape for array in found[0]] == [array.shape for array in block.arrays(SCHEMA)]


def test_it_is_gradient_and_hessian_of_the_logistic_loss() -> None:
    rows, design = large(500), TO_CLASSES[2]
    w = np.array(weights(design, 1))
    x, y = (array / 2**20 for array in Table("a", rows, SCHEMA).vectors(design))  # type: ignore[operator]
    _, gradient, square, cross = Table("a", rows, SCHEMA).sums([Newton(design, tuple(w))])[0]

    def loss(v: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * (x @ v)).sum())

    step = 1e-5
    slopes = [(loss(w + step * e) - loss(w - step * e)) / (2 * step) for e in np.eye(len(w))]
    assert np.allclose(gradient / 2**40, slopes, atol=len(x) * 2**-19)
    p = 1 / (1 + np.exp(-x @ w))
    hessian = (x.T * (p * (1 - p))) @ x
    assert np.allclose(square / 2**40, np.diag(hessian), atol=len(x) * 2**-18)
    assert np.allclose(cross / 2**40, hessian[np.triu_indices(len(w), 1)], atol=len(x) * 2**-18)


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = large(20_000)
    blocks = [Newton(design, weights(design, 3)) for design in TO_CLASSES]
    wanted = Table("a", rows, SCHEMA).sums(blocks)
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=2)
    assert reference.same(Table("a", shuffled, SCHEMA).sums(blocks), wanted)
    monkeypatch.setattr(batches, "PART_ROWS", 311)
    assert reference.same(Table("a", rows, SCHEMA).sums(blocks), wanted)
    few, wanted = rows[:200], Table("a", rows[:200], SCHEMA).sums(blocks)
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    assert reference.same(Table("a", few, SCHEMA).sums(blocks), wanted)


def test_many_columns_are_added_in_one_order_whatever_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    # Huge weights that cancel: w·x is 0 but for rounding, which depends on the order of the columns alone
    names = tuple(f"x{i}" for i in range(40))
    generator = np.random.default_rng(5)
    schema = Schema({**dict.fromkeys(names, (-1, 1)), "b": ["no", "yes"]})
    order = generator.permutation(20)
    half, large_weights = generator.uniform(-1, 1, (300, 20)), generator.normal(0, 1e16, 20)
    table = pl.DataFrame(np.hstack([half, half[:, order]]), schema=list(names)).with_columns(
        b=pl.Series(generator.choice(["no", "yes"], 300))
    )
    block = Newton(Design(names, "b"), (*large_weights.tolist(), *(-large_weights[order]).tolist()))
    wanted = Table("a", table, schema).sums([block])
    assert reference.same(wanted, [slow(table.to_dicts(), block, schema)])
    x = Table("a", table, schema).vectors(block.design)[0] / 2**20
    assert np.ptp(x @ np.array(block.weights)) > 0  # rounding is there to be seen
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    assert reference.same(Table("a", table, schema).sums([block]), wanted)


@given(st.floats(-1, 1), st.floats(-1, 1), st.sampled_from(["no", "yes"]), st.floats(-50, 50))
def test_one_row_moves_the_sums_by_at_most_what_is_promised(a: float, c: float, b: str, w: float) -> None:
    schema = Schema(a=(-1, 1), c=(-1, 1), b=["no", "yes"])
    design = Design(("a", "c"), "b", norm=0.5)
    block = Newton(design, (w, -w))
    _, gradient, square, cross = Table("a", pl.DataFrame([{"a": a, "c": c, "b": b}]), schema).sums([block])[0]
    assert sum(Fraction(int(k)) ** 2 for k in gradient) <= 2**80
    assert 16 * (sum(int(k) ** 2 for k in square) + 2 * int(cross[0]) ** 2) <= 2**80


def test_no_complete_row() -> None:
    table = frame([{"x": 0.5, "z": 1.0, "g": "red", "i": 0, "y": 1.0, "b": None}])
    for design in TO_CLASSES:
        found = Table("a", table, SCHEMA).sums([Newton(design, weights(design, 1))])[0]
        assert not any(array.any() for array in found)


@pytest.mark.parametrize("place", ["_gradient", "_hessian"])
def test_a_total_that_does_not_fit_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = Newton(TO_CLASSES[0], (1.0,))
    sums = block.summer(Pass("a", SCHEMA))
    getattr(sums, place).add(np.int64(-(2**63)))
    getattr(sums, place).add(np.int64(-(2**63)))
    monkeypatch.setattr(Newton, "summer", lambda *_: sums)
    with pytest.raises(OverflowRisk, match="64 bits"):
        Table("a", large(10), SCHEMA).sums([block])


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (Newton(Design(("x",)), (1.0,)), "needs a target"),
        (Newton(Design(("x",), "b"), (1.0, 2.0)), "1 weights"),
        (Newton(Design(("x",), "y"), (1.0,)), "must have categories"),
        (Newton(Design(("x",), "b"), (float("nan"),)), "weights"),
        (Newton(Design(("x",), "b"), (1e101,)), "weights"),
    ],
)
def test_blocks_that_cannot_be_right(block: Newton, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Table("a", large(10), SCHEMA).sums([block])
