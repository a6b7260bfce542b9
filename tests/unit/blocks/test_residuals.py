"""Coordinates of residuals: the tables that they make, and how far neighbouring tables are apart."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.tables.tables import Tables
from cape.blocks import Axis, Residuals, Table
from cape.blocks.residuals import _coordinates, _lengths, basis, rounding
from cape.data import Category, Number, Person, Schema
from tests.slices import examples

SCHEMA = Schema(
    age=Number(18, 90),
    sex=Category(("f", "m"), missing=False),
    stage=["I", "II", "III"],
    ill=Category(("no", "yes")),
)
ASKED = Tables(["age", "sex", "stage", "ill"], ways=3, edges={"age": [18, 40, 65, 90]})
CELLS = {
    "age": st.sampled_from([None, 18.0, 39.9, 40.0, 80.0, 1e9]),
    "sex": st.sampled_from(["f", "m"]),
    "stage": st.sampled_from([None, "I", "II", "III"]),
    "ill": st.sampled_from([None, "no", "yes"]),
}
KINDS = {"age": pl.Float64, "sex": pl.String, "stage": pl.String, "ill": pl.String}
ROW = st.fixed_dictionaries(CELLS)


@pytest.mark.parametrize("values", [2, 3, 7, 40])
def test_a_basis_is_orthonormal_and_orthogonal_to_one(values):
    u = basis(values)
    assert np.allclose(u.T @ u, np.eye(values - 1))
    assert np.allclose(u.T @ np.ones(values), 0)


@pytest.mark.parametrize("shape", [(), (2,), (5,), (2, 3), (4, 2, 3), (60, 50)])
def test_coordinates_are_those_of_the_basis(shape):
    counts = np.random.default_rng(1).poisson(30, shape)
    wanted = counts.astype(float)
    for direction, many in enumerate(shape):
        wanted = np.moveaxis(np.tensordot(basis(many).T, wanted, (1, direction)), 0, direction)
    assert np.allclose(_coordinates(counts) / 2**20, wanted, atol=2**-20 + 1e-8 * np.abs(wanted).max())


@pytest.mark.parametrize("shape", [(2,), (9,), (2, 3), (4, 2, 3)])
def test_very_many_rows_are_added_in_python_integers(shape):
    counts = np.random.default_rng(1).integers(0, 1 << 40, shape)
    small = _coordinates(counts >> 22).astype(object)
    assert np.abs(_coordinates(counts) - (small << 22)).max() < 1 << 43
    assert _coordinates(counts).dtype == np.int64


@pytest.mark.parametrize("shape", [(2,), (3,), (500,), (7, 8), (2, 3, 4), (1000, 1000)])
def test_no_coordinate_is_longer_than_its_contrast_allows(shape):
    weights, shifts = _lengths(shape)
    squares = np.array([1.0])
    for many in shape:
        j = np.arange(1, many)
        squares = np.multiply.outer(squares, j * (j + 1.0)).reshape(-1)
    sample = np.random.default_rng(1).integers(0, squares.size, 200)
    for i in sample:
        w, s, square = int(weights.flat[i]), int(shifts.flat[i]), int(squares[i])
        assert w * w * square <= 1 << (2 * s + 40)  # w 2^-s sqrt(square) <= 2^20, in integers
        assert (w + 2) ** 2 * square > 1 << (2 * s + 40)


def sums(rows, schema, query):
    found = Table("a", pl.DataFrame(rows, schema=KINDS | ({"id": pl.Int64} if schema.person else {})), schema)
    return [array.reshape(-1).astype(float) / 2**20 for array in found.sums(query.blocks)[0]]


def moved(one, other, query):
    return math.sqrt(
        sum(float(((a - b) ** 2).sum()) / s**2 for a, b, s in zip(one, other, query.flat_scales, strict=True))
    )


@pytest.mark.parametrize("where", [None, "ill = 'yes' or age >= 40"])
@given(rows=st.lists(ROW, min_size=1, max_size=6), other=ROW)
@examples(60)
def test_no_two_neighbouring_tables_are_further_apart_than_the_sensitivity(where, rows, other):
    schema = SCHEMA if where is None else SCHEMA.only(where)
    replaced, removed = ASKED.query(schema, "replace-one"), ASKED.query(schema, "add-remove")
    here, there = ([*rows, other][1:], rows)
    assert (
        moved(sums(here, schema, replaced), sums(there, schema, replaced), replaced) <= replaced.sensitivity
    )
    assert (
        moved(sums([*rows, other], schema, removed), sums(rows, schema, removed), removed)
        <= removed.sensitivity
    )


@given(
    rows=st.lists(ROW, min_size=1, max_size=3),
    others=st.lists(ROW, max_size=3),
    rest=st.lists(ROW, max_size=3),
)
@examples(40)
def test_a_person_of_several_rows_moves_tables_by_so_many_times_the_sensitivity(rows, others, rest):
    schema = SCHEMA.of_persons(Person("id", rows=3))
    query = ASKED.query(schema, "replace-one")
    assert () in query.blocks[0].sets  # how many rows there are is private
    one, other = (
        [*(row | {"id": 1} for row in own), *(row | {"id": 2 + i} for i, row in enumerate(rest))]
        for own in (rows, others)
    )
    assert moved(sums(one, schema, query), sums(other, schema, query), query) <= 3 * query.sensitivity


def test_rows_that_are_worst_attain_the_sensitivity():
    cells = [[None, 20.0], ["f", "m"], [None, "I"], [None, "no"]]
    rows = [dict(zip(KINDS, cell, strict=True)) for cell in itertools.product(*cells)]
    query = ASKED.query(SCHEMA, "replace-one")
    vectors = [sums([row], SCHEMA, query) for row in rows]
    far = max(moved(a, b, query) for a, b in itertools.combinations(vectors, 2))
    assert 0.99 * query.sensitivity < far <= query.sensitivity


def test_a_missing_cell_where_none_may_be_counts_as_the_first_value():
    block = Residuals((Axis("sex"), Axis("stage")), ((0, 1),))
    schema = Schema(sex=Category(("f", "m"), missing=False), stage=["I", "II", "III"])
    rows = [{"sex": "f", "stage": "I"}, {"sex": None, "stage": None}, {"sex": "m", "stage": "II"}]
    filled = [{"sex": "f", "stage": "I"}, {"sex": "f", "stage": None}, {"sex": "m", "stage": "II"}]
    kinds = {"sex": pl.String, "stage": pl.String}
    one, other = (
        Table("a", pl.DataFrame(each, schema=kinds), schema, unreadable="missing").sums([block])
        for each in (rows, filled)
    )
    assert (one[0][0] == other[0][0]).all()


def test_rounding_counts_one_unit_an_entry():
    assert rounding([3, 5], [1.0, 2.0]) == pytest.approx(2.0**-20 * math.sqrt(3 + 5 / 4))
    query = ASKED.query(SCHEMA, "replace-one")
    sizes = [array.size for array in query.arrays(SCHEMA)]
    assert query.sensitivity > 1 + rounding(sizes, query.flat_scales) > 1
