from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cape.blocks import Custom, Table, batches
from cape.blocks.clip import clip_rows, inside
from cape.core.errors import DataError
from cape.data import Category, Schema

SCHEMA = Schema(x=(0, 100), g=["a", "b"])
finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 30)), elements=finite),
    st.floats(5e-324, 1.7e308),
)
@example(np.full((1, 3), 1.7e308), 5e-324)
@example(np.array([[3.0, 4.0]]), 5.0)
def test_every_row_is_within_the_bound_in_integers(rows: np.ndarray, bound: float) -> None:
    found = clip_rows(rows, bound)
    for w, row in zip(found.tolist(), rows.tolist(), strict=True):
        assert sum(k * k for k in w) <= 2**40
        assert all(k == 0 or (k > 0) == (value > 0) for k, value in zip(w, row, strict=True))


@given(arrays(np.float64, (200, 7), elements=st.floats(-1, 1)))
def test_clipping_costs_little_and_only_rows_outside(rows: np.ndarray) -> None:
    found, norms = clip_rows(rows, 1.5) * (1.5 / 2**20), np.linalg.norm(rows, axis=1)
    inside = norms <= 1.5
    assert (np.abs(found - rows)[inside] <= 1.5 / 2**20).all()
    ideal = rows[~inside] * (1.5 / norms[~inside])[:, None]
    assert (np.abs(found[~inside] - ideal) <= 2**-17).all()


def test_a_row_at_the_bound_that_floats_would_let_out_is_put_back() -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(20_000, 3))
    rows /= np.linalg.norm(rows, axis=1)[:, None]  # half of these are a little longer than 1
    found = clip_rows(rows * 7, 1.0)
    assert ((found**2).sum(axis=1) <= 2**40).all()
    assert ((found**2).sum(axis=1) > 2**40 - 2**23).all()


def test_whatever_floats_did_integers_have_the_last_word() -> None:
    found = inside(np.array([[2**20, 3, -2], [2**20, 0, 0], [-(2**19), 5, 7]]))
    assert found.tolist() == [[2**20 - 1, 2, -1], [2**20, 0, 0], [-(2**19), 5, 7]]


def test_the_function_sees_clamped_numbers_codes_and_what_is_missing() -> None:
    seen: dict[str, Any] = {}

    def function(batch: dict[str, np.ndarray]) -> np.ndarray:
        for name, values in batch.items():  # the first call is the whole batch
            seen.setdefault(name, values.tolist())
        return np.where(np.isnan(batch["x"]), 0.0, batch["x"] / 100) * (batch["g"] == 1)

    table = pl.DataFrame({"x": [50.0, 1000.0, None, 25.0], "g": ["b", "b", "a", None]})
    (found,) = Table("a", table, SCHEMA).sums([Custom(function, ("x", "g"), 1, 1.0)])
    assert str(seen["x"]) == "[50.0, 100.0, nan, 25.0]"
    assert seen["g"] == [1, 1, 0, -1]
    assert found[0].tolist() == [2**19 + 2**20]


def test_a_row_that_is_not_finite_adds_nothing() -> None:
    table = pl.DataFrame({"x": [50.0, None, 25.0, 75.0], "g": ["b", "b", "a", None]})
    with np.errstate(divide="ignore"):
        block = Custom(lambda b: np.stack([b["x"] / 100, 1 / (b["x"] - 25)], axis=1), ("x",), 2, 1.0)
        (found,) = Table("a", table, SCHEMA).sums([block])
    assert found[0][0] == 2**19 + 3 * 2**18


@pytest.mark.parametrize(
    "function",
    [
        lambda b: b["x"] - b["x"].mean(),
        lambda b: np.full(len(b["x"]), float(b["x"].max() > 80)),
        lambda b: np.cumsum(b["x"]),
        lambda b: b["x"] / len(b["x"]),
    ],
)
def test_a_function_that_mixes_rows_is_caught(function: Any) -> None:
    table = pl.DataFrame({"x": [10.0, 90.0, 25.0, 75.0], "g": ["b", "b", "a", None]})
    with pytest.raises(DataError, match="each row by itself"):
        Table("a", table, SCHEMA).sums([Custom(function, ("x",), 1, 1.0)])


def test_the_batches_do_not_matter(monkeypatch: Any) -> None:
    table = pl.DataFrame({"x": np.random.default_rng(1).uniform(-10, 110, 10_000)})
    block = Custom(lambda b: np.stack([b["x"] / 50 - 0.25 * i for i in range(9)], axis=1), ("x",), 9, 1.7)
    schema = Schema(x=(0, 100), unused=Category((0, 1)))
    (wanted,) = Table("a", table, schema).sums([block])
    monkeypatch.setattr(batches, "PART_ROWS", 311)
    (found,) = Table("a", table.reverse(), schema).sums([block])
    assert found[0].tolist() == wanted[0].tolist()
