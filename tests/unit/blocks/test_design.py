from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, Table, batches, table
from cape.blocks.rows import Converter
from cape.core.errors import DataError, InvalidInput
from cape.data import Category, Number, Schema
from tests.slices import examples
from tests.unit.blocks import reference
from tests.unit.blocks.vectors import DESIGNS, SCHEMA, any_rows, complete_rows, frame, large

ONE = 2**20


@pytest.mark.one_in(3, seconds=0.3)
@pytest.mark.parametrize("design", DESIGNS, ids=str)
@given(rows=any_rows)
@examples(60)
def test_vectors_are_those_of_single_rows_in_python(design: Design, rows: list[dict[str, Any]]) -> None:
    x, y = Table("a", frame(rows), SCHEMA).vectors(design)
    wanted = reference.vectors(rows, design, SCHEMA)
    assert x.shape == (len(wanted), design.width(SCHEMA))
    assert x.tolist() == [found for found, _ in wanted]
    assert (y is None) == (design.target is None)
    assert y is None or y.tolist() == [target for _, target in wanted]


@pytest.mark.one_in(3, seconds=0.5)
@pytest.mark.parametrize("design", DESIGNS, ids=str)
@given(rows=complete_rows)
@examples(60)
def test_no_vector_is_longer_than_one_in_integers(design: Design, rows: list[dict[str, Any]]) -> None:
    x, y = Table("a", frame(rows), SCHEMA).vectors(design)
    assert len(x) == len(rows)
    assert all(sum(int(k) ** 2 for k in row) <= 2**40 for row in x.tolist())
    assert y is None or np.abs(y).max() <= ONE


def root(value: Fraction) -> Fraction:
    """A square root to 60 bits."""
    return Fraction(math.isqrt(math.floor(value * 2**120)), 2**60)


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@given(rows=complete_rows)
@examples(40)
def test_entries_are_the_true_ones_rounded_once_toward_zero(
    design: Design, rows: list[dict[str, Any]]
) -> None:
    found, _ = Table("a", frame(rows), SCHEMA).vectors(design)
    for row, k in zip(rows, found.tolist(), strict=True):
        t: list[Fraction] = []
        for name in design.features:
            column = SCHEMA[name]
            if isinstance(column, Number):
                clamped = Fraction(min(max(row[name], column.low), column.high))
                t.append((clamped - Fraction(column.middle)) / Fraction(column.half))
            else:
                t += [Fraction(row[name] == value) for value in column.values[1:]]
        features = Fraction(len(design.features))
        norm = root(features) if design.norm is None else min(root(features), Fraction(design.norm))
        longest = max(norm, root(sum((v * v for v in t), Fraction(0))))
        c = Fraction(design.intercept)
        true = [v / longest / root(1 + c * c) for v in t]
        true = [c / root(1 + c * c), *true] if c else true
        for got, wanted in zip(k, true, strict=True):
            slack = Fraction(1, 2**28)
            assert abs(got) <= abs(wanted) * ONE + slack
            assert abs(got) > abs(wanted) * ONE - 1 - slack
            assert got * wanted >= 0


@pytest.mark.parametrize("intercept", [0.0, 1.0, 0.37, 1e-9, 1e6])
@pytest.mark.parametrize("norm", [None, 0.999, 3.0])
@pytest.mark.parametrize("features", [1, 2, 3, 7, 50, 101])
def test_rows_at_all_bounds_fit_and_waste_little(features: int, norm: float | None, intercept: float) -> None:
    names = tuple(f"x{i}" for i in range(features))
    schema = Schema(dict.fromkeys(names, (-0.1, 0.3)))
    design = Design(names, norm=norm, intercept=intercept)
    signs = np.random.default_rng(features).choice([-1e9, -0.1, 0.3, 1e9], (64, features))
    x, _ = Table("a", pl.DataFrame(signs, schema=list(names)), schema).vectors(design)
    squares = [sum(int(k) ** 2 for k in row) for row in x.tolist()]
    assert max(squares) <= 2**40
    assert min(squares) >= 2**40 - 2 * 2**20 * math.sqrt(features + 1) - features - 1


def test_a_row_that_floats_put_outside_is_put_back() -> None:
    schema = Schema(x=(-1, 1), z=(-1, 1))
    converter = Converter(schema, Design(("x", "z"), norm=0.5))
    converter._shrink = 1 - 1e-6  # as if floating point were that bad
    found = converter.convert({"x": np.array([0.6, 1.0, 0.1]), "z": np.array([0.8, 0.0, 0.0])}, 3).x
    squares = [sum(int(k) ** 2 for k in row) for row in found.T]
    assert max(squares) <= 2**40
    assert squares[1] == 2**40
    assert found[0, 2] == math.trunc(0.2 * ONE / (1 - 1e-6))


def test_the_place_of_a_row_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = large(20_000)
    order = np.random.default_rng(2).permutation(len(rows))
    complete = ~rows.select(pl.any_horizontal(pl.all().is_null())).to_series().to_numpy()
    wanted = [Table("a", rows.filter(complete), SCHEMA).vectors(design) for design in DESIGNS]
    shuffled = rows.filter(complete)[order[order < complete.sum()]]
    for design, (x, y) in zip(DESIGNS, wanted, strict=True):
        found, targets = Table("a", shuffled, SCHEMA).vectors(design)
        assert np.array_equal(found, x[order[order < len(x)]])
        assert y is None or np.array_equal(targets, y[order[order < len(y)]])  # type: ignore[arg-type]
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    few = rows.filter(complete)[:300]
    for design, (x, _) in zip(DESIGNS, wanted, strict=True):
        found, _ = Table("a", few, SCHEMA).vectors(design)
        assert np.array_equal(found, x[:300])
    monkeypatch.setattr(batches, "PART_ROWS", 997)
    for design, (x, _) in zip(DESIGNS, wanted, strict=True):
        found, _ = Table("a", rows.filter(complete), SCHEMA).vectors(design)
        assert np.array_equal(found, x)


def test_incomplete_rows_are_left_out() -> None:
    rows = frame(
        [
            {"x": 0.7, "z": None, "g": "red", "i": 1, "y": 3.0, "b": "no"},
            {"x": 0.4, "z": 1000.0, "g": "blue", "i": 1, "y": None, "b": "yes"},
            {"x": float("nan"), "z": 1000.0, "g": None, "i": None, "y": 0.0, "b": None},
        ]
    )
    site = Table("a", rows, SCHEMA)
    for design, wanted in [
        (Design(("x",)), [[ONE], [0]]),
        (Design(("x",), "y"), [[ONE]]),
        (Design(("z",), "y"), [[ONE]]),
        (Design(("i", "g")), [[741455, 0, 0], [741455, 0, 741455]]),
        (Design(("x", "z", "i"), "y"), []),
    ]:
        x, y = site.vectors(design)
        assert x.tolist() == wanted
        assert x.shape[1] == design.width(SCHEMA)
        assert y is None or len(y) == len(x)


def test_a_target_of_two_categories_is_minus_one_or_one() -> None:
    rows = pl.DataFrame({"z": [-250.0, 1000.0, 375.0, 375.0], "b": ["yes", "no", None, "yes"]})
    x, y = Table("a", rows, SCHEMA).vectors(Design(("z",), "b"))
    assert x.tolist() == [[-ONE], [ONE], [0]]
    assert y is not None
    assert y.tolist() == [ONE, -ONE, ONE]


def test_values_outside_are_as_long_as_the_bounds_even_where_the_middle_is_rounded() -> None:
    schema = Schema(x=(2.0**53, 2.0**53 + 2), z=(0, 1))
    rows = pl.DataFrame({"x": [2.0**53, 0.0, 2.0**53 + 2, 1e300], "z": [0.5] * 4})
    for norm in (None, 0.5):
        x, _ = Table("a", rows, schema).vectors(Design(("x", "z"), norm=norm))
        assert x[0].tolist() == x[1].tolist()
        assert x[2].tolist() == x[3].tolist()


def test_what_cannot_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = large(100)
    monkeypatch.setattr(table, "_KEPT_CELLS", 199)
    site = Table("a", rows, SCHEMA)
    assert len(site.vectors(Design(("x",)))[0]) > 90
    with pytest.raises(DataError, match="512 MB"):
        site.vectors(Design(("x", "z")))
    with pytest.raises(DataError, match="512 MB"):
        site.vectors(Design(("x", "z")))
    assert len(site.vectors(Design(("x",)))[0]) > 90


def test_vectors_cannot_be_written_to() -> None:
    x, y = Table("a", large(100), SCHEMA).vectors(Design(("x",), "y"))
    assert y is not None
    for array in (x, y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Design(()), "at least one column"),
        (lambda: Design(("x", "x")), "only once"),
        (lambda: Design(("x",), "x"), "must not be one of the features"),
        (lambda: Design(("x",), norm=0.0), "norm"),
        (lambda: Design(("x",), norm=1e-300), "norm"),
        (lambda: Design(("x",), intercept=-1.0), "intercept"),
        (lambda: Design(("x",), intercept=1e300), "intercept"),
        (lambda: Design(("xx",)).check(SCHEMA), "did you mean 'x'"),
        (lambda: Design(("x",), "g").check(SCHEMA), "two categories"),
        (lambda: Design(("o",)).check(Schema(o=Category(("only",)))), "at least two categories"),
    ],
)
def test_designs_that_cannot_be_right(make: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        make()


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.floats(0.01, 3), st.floats(0, 5))
def test_one_row_of_any_norm_and_intercept_is_within_one(
    t: list[float], norm: float, intercept: float
) -> None:
    names = tuple(f"x{i}" for i in range(len(t)))
    schema = Schema(dict.fromkeys(names, (-1, 1)))
    design = Design(names, norm=norm, intercept=intercept)
    ((x,), _) = Table("a", pl.DataFrame([t], schema=list(names), orient="row"), schema).vectors(design)
    row = dict(zip(names, t, strict=True))
    assert x.tolist() == reference.vector(row, design, schema)[0]  # type: ignore[index]
    assert sum(int(k) ** 2 for k in x) <= 2**40
