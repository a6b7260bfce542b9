"""A Newton step moves by no more than its proof says, and a weight just above the limit is found out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.regression.logistic import LogisticRegression
from cape.analyses.regression.newton import newton_query
from cape.blocks import Design, Newton
from cape.data import Category, Number, Schema

from .conversations import sums_of

SCHEMA = Schema(
    a=Number(-1, 1, missing=False),
    b=Number(0, 5, missing=False),
    c=Category(("u", "v", "w"), missing=False),
    y=Category(("no", "yes"), missing=False),
)
HOLED = Schema(a=(-1, 1), b=(0, 5), c=["u", "v", "w"], y=["no", "yes"])


def change(r, q, other_r, other_q, cosine, b):
    return (
        r**2 + other_r**2 + 2 * r * other_r * cosine + b * (q**2 + other_q**2 - 2 * q * other_q * cosine**2)
    )


def furthest(b, rng, tries=400_000):
    """The largest change found at random, and near the best of them."""
    g, length = rng.random((2, tries)) ** 0.3, rng.random((2, tries)) ** 0.1
    length[:, ::2] = 1.0
    g[0, ::3] = 1.0
    r, q = g * length, g * (1 - g) * length**2
    cosine = np.where(rng.random(tries) < 0.5, 1.0, rng.uniform(-1, 1, tries))
    return float(change(r[0], q[0], r[1], q[1], cosine, b).max())


def test_the_limits_of_the_proof_are_what_it_says():
    e = np.linspace(1e-6, 1 - 1e-6, 2_000_001)
    u = (1 - e) ** 2 * (1 + 24 * e**2)
    assert ((4 - e) / (e * (1 - e) ** 2)).min() == pytest.approx(24.68, abs=0.01)
    assert u.max() < 1.7734
    assert u[e <= 0.15].max() < 1.113
    assert u[e <= 0.2152].max() < 1.301
    assert u[e <= 0.309].max() < 1.572
    r = 1 - e
    phi = (1 + math.sqrt(5)) / 2
    assert ((1 - r**2) / (r**2 * (1 - r) ** 2)).min() == pytest.approx(phi**5, rel=1e-9)


def test_no_pair_of_rows_moves_a_step_by_more_than_2_and_some_do():
    rng = np.random.default_rng(1)
    top = furthest(24.0, rng)
    assert 3.99 < top <= 4.0 + 1e-12
    assert furthest(26.0, rng) > 4.0  # the same search finds a weight that is too large


def test_alone_a_row_moves_a_step_by_1_and_a_larger_weight_is_found_out():
    r = np.linspace(0, 1, 100_001)
    assert (r**2 + 11 * (r * (1 - r)) ** 2).max() <= 1
    assert (r**2 + 12 * (r * (1 - r)) ** 2).max() > 1


CELLS = st.tuples(
    st.one_of(st.sampled_from([-1.0, 1.0, 0.0]), st.floats(-1, 1)),
    st.one_of(st.sampled_from([0.0, 5.0]), st.floats(0, 5)),
    st.integers(0, 2),
    st.integers(0, 1),
)


def as_table(rows):
    a, b, c, y = zip(*rows, strict=True)
    return {"a": np.array(a), "b": np.array(b), "c": np.array(c), "y": np.array(y)}


def distance(query, schema, one, other):
    parts = zip(
        sums_of(query.blocks[0], schema, one),
        sums_of(query.blocks[0], schema, other),
        query.flat_scales,
        strict=True,
    )
    return math.sqrt(sum(float(((a - b) ** 2).sum()) / s**2 for a, b, s in parts))


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@given(
    rows=st.lists(CELLS, min_size=2, max_size=4),
    weights=st.lists(st.floats(-60, 60), min_size=5, max_size=5),
    norm=st.sampled_from([None, 0.7]),
)
def test_no_neighbouring_tables_move_a_step_further(intercept, rows, weights, norm):
    design = Design(("a", "b", "c"), "y", norm, intercept)
    width = design.width(SCHEMA)
    one, other, *shared = rows
    for neighbours, tables in {
        "replace-one": ([one, *shared], [other, *shared]),
        "add-remove": ([one, other, *shared], [other, *shared]),
    }.items():
        query = newton_query(design, np.array(weights[:width]), SCHEMA, neighbours)
        assert distance(query, SCHEMA, *map(as_table, tables)) <= query.sensitivity


@given(row=CELLS, weights=st.lists(st.floats(-60, 60), min_size=5, max_size=5))
def test_nor_does_a_row_that_becomes_incomplete(row, weights):
    query = newton_query(Design(("a", "b", "c"), "y", None, 0.5), np.array(weights), HOLED, "replace-one")
    holed = [*row]
    holed[0] = math.nan
    assert distance(query, HOLED, as_table([row]), as_table([holed])) <= query.sensitivity


@pytest.mark.parametrize(("intercept", "squared"), [(True, 5.0), (False, 4.0)])
def test_second_moments_move_by_what_the_docstring_says(intercept, squared):
    analysis = LogisticRegression("y", ["a", "b", "c"], intercept=intercept, rounds=0)
    assert analysis.query(SCHEMA, "replace-one").sensitivity == pytest.approx(math.sqrt(squared), rel=1e-5)


@given(rows=st.lists(CELLS, min_size=2, max_size=2))
def test_no_neighbouring_tables_move_the_second_moments_further(rows):
    query = LogisticRegression("y", ["a", "b", "c"], rounds=0).query(SCHEMA, "replace-one")
    assert distance(query, SCHEMA, as_table(rows[:1]), as_table(rows[1:])) <= query.sensitivity


def test_a_site_adds_up_the_same_step():
    import polars as pl

    from cape.blocks.table import Table

    rng = np.random.default_rng(3)
    table = {
        "a": rng.uniform(-1, 1, 50),
        "b": rng.uniform(0, 5, 50),
        "c": rng.integers(0, 3, 50),
        "y": rng.integers(0, 2, 50),
    }
    block = Newton(Design(("a", "b", "c"), "y", None, 0.5), (0.3, -2.0, 1.0, 4.0, -0.5))
    frame = pl.DataFrame(
        {**table, "c": [("u", "v", "w")[i] for i in table["c"]], "y": [("no", "yes")[i] for i in table["y"]]}
    )
    (found,) = Table("s", frame, SCHEMA).sums((block,))
    for mine, theirs, array in zip(sums_of(block, SCHEMA, table), found, block.arrays(SCHEMA), strict=True):
        assert np.abs(mine - theirs * 2.0**-array.bits).max(initial=0) < 50 * 5e-6
