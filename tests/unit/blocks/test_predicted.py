"""Sums over predictions of a public model: exact, whatever the order and the parts of the rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cape.blocks import Design, Form, Table
from cape.blocks.predicted import LINKS, Errors, ErrorSquares, RiskCounts, Risks, inverse
from cape.core.errors import InvalidInput
from cape.data import Schema

SCHEMA = Schema(
    age=(18, 90), sex=["female", "male", "other"], chol=(100, 600), ill=["no", "yes"], stage=["a", "b", "c"]
)
RISKS = Design(("age", "sex"), "ill", cube=True)
NUMBERS = Design(("age", "sex"), "chol", cube=True)
WEIGHTS = (-0.3, 1.7, 0.4, -0.2)
CELLS = (0.0, 0.2, 0.35, 0.6, 1.0)
RANKS = ((-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0))
BLOCKS = [
    Risks(RISKS, WEIGHTS, "logit", CELLS, (0, 2, 3), RANKS),
    RiskCounts(RISKS, WEIGHTS, "logit", CELLS),
    Errors(NUMBERS, (340.0, 90.0, 10.0, -5.0), "identity"),
    ErrorSquares(
        NUMBERS, (340.0, 90.0, 10.0, -5.0), "identity", 0.1, (Form(((0, 0, 1.0), (1, 1, -0.3)), 0.2),)
    ),
]


def frame(rows=20_000, seed=0):
    rng = np.random.default_rng(seed)
    found = {
        "age": rng.uniform(10, 100, rows),
        "sex": rng.choice(["female", "male", "other"], rows),
        "chol": rng.normal(300, 120, rows),
        "ill": rng.choice(["no", "yes"], rows),
    }
    found["age"][rng.random(rows) < 0.05] = np.nan
    return pl.DataFrame(found).with_columns(
        pl.when(pl.col("chol") < 150).then(None).otherwise(pl.col("ill")).alias("ill")
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_sums_do_not_depend_on_the_order_and_the_parts_of_rows(block):
    data = frame()
    whole = Table("a", data, SCHEMA).sums([block])[0]
    mixed = Table("a", data.sample(fraction=1.0, shuffle=True, seed=1), SCHEMA).sums([block])[0]
    halves = [Table("a", data[i::2], SCHEMA).sums([block])[0] for i in (0, 1)]
    for one, other, first, second in zip(whole, mixed, *halves, strict=True):
        assert (one == other).all()
        assert (one == first + second).all()


def test_counts_are_those_of_risks_that_anybody_would_compute():
    data = frame().drop_nulls().filter(pl.col("age").is_not_nan())
    t = np.trunc((np.clip(data["age"], 18, 90) - 54) / 36 * 2**20) / 2**20
    eta = (
        -0.3 + 1.7 * t + 0.4 * (data["sex"] == "male").to_numpy() - 0.2 * (data["sex"] == "other").to_numpy()
    )
    risk, ill = 1 / (1 + np.exp(-eta)), (data["ill"] == "yes").to_numpy().astype(int)
    cell = np.digitize(risk, CELLS[1:-1])
    cells, table = Table("a", frame(), SCHEMA).sums([BLOCKS[1], BLOCKS[0]])
    assert cells[0].tolist() == np.bincount(cell, minlength=4).tolist()
    wanted, sums = np.zeros((3, 2), int), np.zeros((3, 2))
    rank = np.select(
        [cell == 0, cell == 1, cell == 2, cell == 3],
        [-1.0, 1.0, 2 * (risk - 0.35) / 0.25 - 1, 2 * (risk - 0.6) / 0.4 - 1],
    )
    place = np.array([0, 0, 1, 2])[cell]
    np.add.at(wanted, (place, ill), 1)
    np.add.at(sums, (place, ill), rank)
    counts, ranks, losses = table
    assert counts.tolist() == wanted.tolist()
    np.testing.assert_allclose(ranks / 2**20, sums, atol=len(data) / 2**20)
    assert losses[0] / 2**20 == pytest.approx(((ill - risk) ** 2).sum(), abs=len(data) / 2**20)


def test_links_give_what_their_names_say():
    eta = np.array([-800.0, -1.0, 0.0, 0.5, 800.0])
    with np.errstate(over="raise", invalid="raise"):
        for link in LINKS:
            assert np.isfinite(inverse(link, eta)).all()
    assert inverse("logit", eta)[2] == 0.5
    assert inverse("cloglog", eta)[2] == pytest.approx(1 - np.exp(-1))
    assert inverse("log", eta)[3] == pytest.approx(np.exp(0.5))


@pytest.mark.parametrize("edges", [(0.0, 5e-324, 1.0), (0.0, 5e-324, 1e-323, 0.5, 1.0)])
def test_a_bin_that_is_as_narrow_as_floats_are_moves_sums_no_further(edges):
    """Anybody may ask for it, and a model whose risks lie in it."""
    cells = len(edges) - 1
    model = RISKS, (-1e90, 1e95, 0.0, 0.0), "logit"
    block = Risks(*model, edges, tuple(range(cells)), ((-1.0, 1.0),) * cells)
    block.arrays(SCHEMA)
    for age in (18.0, 54.0, 90.0):
        row = pl.DataFrame({"age": [age], "sex": ["male"], "ill": ["yes"]})
        counts, ranks, losses = Table("a", row, SCHEMA).sums([block])[0]
        assert counts.sum() == 1
        assert np.abs(ranks).sum() <= 2**20
        assert 0 <= losses[0] <= 2**20


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (RiskCounts(RISKS, WEIGHTS[:3], "logit", (0.0, 0.5, 1.0)), "4 weights"),
        (RiskCounts(RISKS, WEIGHTS, "tangent", (0.0, 0.5, 1.0)), "link must be one of"),
        (RiskCounts(RISKS, WEIGHTS, "logit", (0.0, 1.0)), "rise from 0 to 1"),
        (RiskCounts(RISKS, WEIGHTS, "logit", (0.1, 0.5, 1.0)), "rise from 0 to 1"),
        (RiskCounts(RISKS, (np.nan, *WEIGHTS[1:]), "logit", (0.0, 0.5, 1.0)), "weights must be"),
        (
            RiskCounts(Design(("age",), "stage", cube=True), WEIGHTS[:2], "logit", (0.0, 0.5, 1.0)),
            "two categories",
        ),
        (RiskCounts(Design(("age",), "ill"), WEIGHTS[:2], "logit", (0.0, 0.5, 1.0)), "in a cube"),
        (Risks(RISKS, WEIGHTS, "logit", CELLS, (1, 2), RANKS), "start at cells"),
        (Risks(RISKS, WEIGHTS, "logit", CELLS, (0, 2, 2), RANKS), "start at cells"),
        (Risks(RISKS, WEIGHTS, "logit", CELLS, (0, 4), RANKS), "start at cells"),
        (Risks(RISKS, WEIGHTS, "logit", CELLS, (), RANKS), "start at cells"),
        (Risks(RISKS, WEIGHTS, "logit", CELLS, (0,), RANKS[1:]), "must have ranks"),
        (Risks(RISKS, WEIGHTS, "logit", CELLS, (0,), ((0.0, 1.1), *RANKS[1:])), "ranks must be"),
        (Risks(RISKS, WEIGHTS, "logit", CELLS, (0,), ((0.0, np.nan), *RANKS[1:])), "ranks must be"),
        (Errors(RISKS, WEIGHTS, "identity"), "numeric bounds"),
        (ErrorSquares(NUMBERS, WEIGHTS, "identity", 2.0, (Form(((0, 0, 1.0),), 1.0),)), "centre"),
        (ErrorSquares(NUMBERS, WEIGHTS, "identity", 0.0, (Form(((0, 2, 1.0),), 1.0),)), "place"),
        (ErrorSquares(NUMBERS, WEIGHTS, "identity", 0.0, ()), "form"),
    ],
)
def test_a_block_that_does_not_fit_is_refused_before_any_row_is_read(block, problem):
    with pytest.raises(InvalidInput, match=problem):
        block.arrays(SCHEMA)


@pytest.mark.parametrize("weights", [(1e9, 0.0, 0.0, 0.0), (-1e99, 1e99, 0.0, 0.0), (350.0, -1e6, 1e6, 1e6)])
def test_a_model_far_out_of_bounds_makes_no_row_add_more_than_1(weights):
    rows = frame(50).with_columns(chol=pl.Series(np.linspace(-1e6, 1e6, 50)))
    forms = (Form(((0, 0, 1.0),), 0.1), Form(((0, 1, -3.0), (1, 1, 1.0)), 0.2))
    blocks = [Errors(NUMBERS, weights, "identity"), ErrorSquares(NUMBERS, weights, "identity", -1.0, forms)]
    for i in range(50):
        (count, target, squares, errors), (forms_,) = Table("a", rows[i : i + 1], SCHEMA).sums(blocks)
        assert 0 <= count[0] <= 1
        assert abs(target[0]) <= 2**20
        assert (np.concatenate([squares, errors, forms_]) <= 2**40).all()
        assert (np.concatenate([squares, errors, forms_]) >= 0).all()
