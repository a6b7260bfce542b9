"""Scores move by no more than their proof says, and weights beyond it are found out."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.regression.glm import GLM
from cape.analyses.regression.marginals import marginals_query
from cape.analyses.regression.score_query import Parts, score_query
from cape.analyses.regression.score_rounds import ROUNDS
from cape.blocks import Design, Scores
from cape.blocks.families import Gaussian, Logit, Poisson
from cape.blocks.table import Table
from cape.data import Category, Number, Schema

SCHEMA = Schema(
    a=Number(-1, 1, missing=False),
    b=Number(0, 5, missing=False),
    c=Category(("u", "v", "w"), missing=False),
    y=Category(("no", "yes"), missing=False),
    n=Number(0, 40, missing=False),
)
HOLED = Schema(a=(-1, 1), b=(0, 5), c=["u", "v", "w"], y=["no", "yes"], n=(0, 40))
PARTS = [Parts(1.0, 1.0, 0.3, 0.5), Parts(1.0, 0.5, 0.5, 0.8), Parts(1.0, 0.2, 0.5, 0.0)]


def furthest(b, m, rng, tries=400_000):
    """The largest change of scores, curvature and spread at random, squared; often at the ends."""

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


@pytest.mark.parametrize("parts", [*PARTS, Parts(1.0, 0.1, 0.2, 0.3)])
def test_no_pair_of_rows_moves_scores_further_than_the_proof_says_and_some_do(parts):
    rng = np.random.default_rng(1)
    claim = parts.both - 2 * parts.lengths
    found = furthest(parts.curvature, parts.spread, rng)
    assert 0.97 * claim < found <= claim + 1e-9


def test_a_claim_that_forgets_the_curvature_would_be_found_out():
    assert furthest(1.0, 0.4, np.random.default_rng(1)) > 5.05


@pytest.mark.parametrize("parts", PARTS)
def test_the_sensitivity_counts_what_rounding_adds(parts):
    """Each entry of s and z moves by at most three steps, and so does one of the other row."""
    turn = tuple(map(tuple, np.eye(3)))
    block = Scores(Design(("a", "b"), "y", intercept=0.5), (0.0,) * 3, turn, 1.0, 1.0, Logit())
    width = block.design.width(SCHEMA)
    of_rounding = score_query(block, parts, SCHEMA, "replace-one").sensitivity - math.sqrt(
        parts.both - 2 * parts.lengths
    )
    steps = 1 + 2 * math.sqrt(parts.curvature) + 2 * math.sqrt(parts.spread)
    assert of_rounding > 6 * math.sqrt(width) * steps * 2.0**-20


def test_every_stage_of_a_regression_is_among_what_is_proved():
    for rounds in (1, 2, 3, ROUNDS, 12):
        analysis = GLM("n", ["a"], "poisson", rounds=rounds)
        assert sum(analysis.stages()) == pytest.approx(1)
        assert len(analysis.stages()) == rounds + 1
        for parts in analysis._parts:
            assert parts.spread <= 0.5
            assert parts.curvature <= 2


CELLS = st.tuples(
    st.one_of(st.sampled_from([-1.0, 1.0, 0.0]), st.floats(-1, 1)),
    st.one_of(st.sampled_from([0.0, 5.0]), st.floats(0, 5)),
    st.sampled_from(["u", "v", "w"]),
    st.sampled_from(["no", "yes"]),
    st.one_of(st.sampled_from([0.0, 40.0]), st.floats(0, 40)),
)


def block_of(target, family, width, weights, seed, bound, deviance, lengths=(0.01, 0.1, 1.0, 5.0)):
    turn = np.random.default_rng(seed).normal(0, 3, (width, width))
    return Scores(
        Design(("a", "b", "c"), target, None, 0.5),
        tuple(weights[:width]),
        tuple(map(tuple, turn.tolist())),
        bound,
        2 * bound**2,
        family,
        lengths,
        deviance,
    )


def distance(query, schema, one, other):
    def sums(rows):
        frame = pl.DataFrame(
            rows,
            schema={"a": pl.Float64, "b": pl.Float64, "c": pl.String, "y": pl.String, "n": pl.Float64},
            orient="row",
        )
        return Table("s", frame, schema).sums(list(query.blocks))

    square = 0.0
    for block, mine, theirs, scales in zip(query.blocks, sums(one), sums(other), query.scales, strict=True):
        for array, a, b, scale in zip(block.arrays(schema), mine, theirs, scales, strict=True):
            moved = (a - b).astype(float) * 2.0**-array.bits / scale
            square += float((moved**2).sum())
    return math.sqrt(square)


@pytest.mark.parametrize(
    ("target", "family"),
    [("y", Logit()), ("n", Poisson()), ("n", Gaussian())],
    ids=["logit", "poisson", "gaussian"],
)
@given(
    rows=st.lists(CELLS, min_size=2, max_size=3),
    weights=st.lists(st.floats(-9, 9), min_size=5, max_size=5),
    seed=st.integers(0, 1000),
    bound=st.sampled_from([0.01, 0.5, 10.0]),
    parts=st.sampled_from(PARTS),
    deviance=st.sampled_from([0.0, 4.0]),
)
def test_no_neighbouring_tables_move_scores_further(
    target, family, rows, weights, seed, bound, parts, deviance
):
    lengths = (0.01, 0.1, 1.0, 5.0) if parts.lengths else ()
    block = block_of(target, family, 5, weights, seed, bound, deviance, lengths)
    one, other, *shared = rows
    for neighbours, tables in {
        "replace-one": ([one, *shared], [other, *shared]),
        "add-remove": ([one, other, *shared], [other, *shared]),
    }.items():
        query = score_query(block, parts, SCHEMA, neighbours)
        assert distance(query, SCHEMA, *tables) <= query.sensitivity


@given(row=CELLS, weights=st.lists(st.floats(-9, 9), min_size=5, max_size=5), parts=st.sampled_from(PARTS))
def test_nor_does_a_row_that_becomes_incomplete(row, weights, parts):
    lengths = (0.01, 0.1) if parts.lengths else ()
    query = score_query(
        block_of("y", Logit(), 5, weights, 1, 0.01, 4.0, lengths), parts, HOLED, "replace-one"
    )
    assert distance(query, HOLED, [row], [(None, *row[1:])]) <= query.sensitivity


def test_two_opposite_rows_reach_the_bound_on_scores():
    design = Design(("a",), "n")
    block = Scores(design, (0.0,), ((1.0,),), 0.5, 1e6, Gaussian(), (0.1, 1e3))
    query = score_query(block, PARTS[0], SCHEMA, "replace-one")
    tables = [[(a, 0.0, "u", "no", 40.0)] for a in (1.0, -1.0)]
    assert distance(query, SCHEMA, *tables) == pytest.approx(2.0, abs=1e-3)
    assert query.sensitivity == pytest.approx(math.sqrt(5 + 1), rel=1e-4)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_row_is_in_one_bin_of_each_column(neighbours):
    query = marginals_query(("a", "b", "c", "y"), SCHEMA, neighbours)
    one, other = (-1.0, 0.0, "u", "no", 0.0), (1.0, 5.0, "v", "yes", 40.0)
    tables = ([one], [other]) if neighbours == "replace-one" else ([one, other], [other])
    assert distance(query, SCHEMA, *tables) == pytest.approx(query.sensitivity)
