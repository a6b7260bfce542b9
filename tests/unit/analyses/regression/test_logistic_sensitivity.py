"""Scores move by no more than their proof says, and a weight just above the limit is found out."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.regression.scores import Point, score_query
from cape.blocks import Design, Scores
from cape.blocks.table import Table
from cape.data import Category, Number, Schema
from tests.unit.analyses.regression.conversations import sums_of

SCHEMA = Schema(
    a=Number(-1, 1, missing=False),
    b=Number(0, 5, missing=False),
    c=Category(("u", "v", "w"), missing=False),
    y=Category(("no", "yes"), missing=False),
)
HOLED = Schema(a=(-1, 1), b=(0, 5), c=["u", "v", "w"], y=["no", "yes"])


def furthest(b, m, rng, tries=400_000):
    """The largest change found at random, squared; lengths and cosines are often at their ends."""

    def often_at_an_end(low):
        return np.where(rng.random(tries) < 0.6, rng.choice([low, 1.0], tries), rng.uniform(low, 1, tries))

    r, other_r, a, other_a = (often_at_an_end(0.0) for _ in range(4))
    k = often_at_an_end(-1.0)
    return float(
        (
            r**2 + other_r**2 + 2 * r * other_r * k
            + b * (a**2 + other_a**2 - 2 * a * other_a * k**2)
            + m * (r**4 + other_r**4 - 2 * r**2 * other_r**2 * k**2)
        ).max()
    )  # fmt: skip


def test_no_pair_of_rows_moves_scores_by_more_than_the_root_of_5_and_some_do():
    rng = np.random.default_rng(1)
    assert 4.999 < furthest(1.0, 0.3, rng) <= 5 + 1e-12
    assert furthest(1.0, 0.4, rng) > 5.05  # the same search finds a weight that is too large


def weights_of(query):
    return [scale**-2 for scale in query.scales[0]]


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_scales_are_those_of_the_proof(neighbours):
    query = score_query(Design(("a",), "y"), Point.first(1), SCHEMA, neighbours)
    count, *others = weights_of(query)
    assert others == pytest.approx([1, 1, 2, 0.3, 0.6])
    alone = 1 + 1 + 0.3 + count
    assert query.sensitivity**2 == pytest.approx(5 if neighbours == "replace-one" else alone, rel=1e-4)
    assert alone <= 5 + 1e-12
    if neighbours == "replace-one":  # truncation counts, in steps of 2^-20
        assert query.sensitivity > math.sqrt(5) + 8 * (3 + 2 * math.sqrt(0.3)) * 2.0**-20


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


def point(width, weights, seed, bound):
    turn = np.random.default_rng(seed).normal(0, 3, (width, width))
    return Point(np.array(weights[:width]), turn, bound, 2 * bound**2)


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@given(
    rows=st.lists(CELLS, min_size=2, max_size=4),
    weights=st.lists(st.floats(-60, 60), min_size=5, max_size=5),
    seed=st.integers(0, 1000),
    bound=st.sampled_from([0.01, 0.5, 10.0]),
    norm=st.sampled_from([None, 0.7]),
)
def test_no_neighbouring_tables_move_scores_further(intercept, rows, weights, seed, bound, norm):
    design = Design(("a", "b", "c"), "y", norm, intercept)
    at = point(design.width(SCHEMA), weights, seed, bound)
    one, other, *shared = rows
    for neighbours, tables in {
        "replace-one": ([one, *shared], [other, *shared]),
        "add-remove": ([one, other, *shared], [other, *shared]),
    }.items():
        query = score_query(design, at, SCHEMA, neighbours)
        assert distance(query, SCHEMA, *map(as_table, tables)) <= query.sensitivity


@given(row=CELLS, weights=st.lists(st.floats(-60, 60), min_size=5, max_size=5))
def test_nor_does_a_row_that_becomes_incomplete(row, weights):
    design = Design(("a", "b", "c"), "y", None, 0.5)
    query = score_query(design, point(5, weights, 1, 0.01), HOLED, "replace-one")
    holed = [*row]
    holed[0] = math.nan
    assert distance(query, HOLED, as_table([row]), as_table([holed])) <= query.sensitivity


def test_two_rows_of_opposite_categories_reach_the_bound_on_scores():
    query = score_query(Design(("a",), "y"), Point.first(1), SCHEMA, "replace-one")
    tables = ({"a": np.array([1.0]), "y": np.array([i])} for i in (0, 1))
    assert distance(query, SCHEMA, *tables) == pytest.approx(2.0, abs=1e-5)


def test_a_site_adds_up_the_same_scores():
    rng = np.random.default_rng(3)
    table = {
        "a": rng.uniform(-1, 1, 50),
        "b": rng.uniform(0, 5, 50),
        "c": rng.integers(0, 3, 50),
        "y": rng.integers(0, 2, 50),
    }
    turn = tuple(map(tuple, rng.normal(size=(5, 5)).tolist()))
    block = Scores(Design(("a", "b", "c"), "y", None, 0.5), (0.3, -2.0, 1.0, 4.0, -0.5), turn, 0.3, 0.1)
    frame = pl.DataFrame(
        {**table, "c": [("u", "v", "w")[i] for i in table["c"]], "y": [("no", "yes")[i] for i in table["y"]]}
    )
    (found,) = Table("s", frame, SCHEMA).sums((block,))
    for mine, theirs, array in zip(sums_of(block, SCHEMA, table), found, block.arrays(SCHEMA), strict=True):
        assert np.abs(mine - theirs * 2.0**-array.bits).max(initial=0) < 50 * 1e-5
