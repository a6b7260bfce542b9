"""The first stage: caps cut few rows, and made-up rows are like real ones, however little is spent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape import GLM, Cox, LogisticRegression, privacy
from cape.analyses.regression.marginals import Marginals, marginals_query
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from tests.unit.analyses.regression.conversations import answer_to

SCHEMA = Schema(
    near=Number(-2, 4, missing=False), far=Number(0, 200, missing=False), y=Category((0, 1), missing=False)
)
SHARE = 0.06


def table(rng, rows):
    return {
        "near": np.clip(rng.normal(1, 1, rows), -2, 4),
        "far": np.clip(rng.exponential(4, rows), 0, 200),
        "y": (rng.random(rows) < 0.3).astype(int),
    }


def looked(rng, rows, epsilon, schema=SCHEMA):
    columns = tuple(schema)
    query = marginals_query(columns, schema, "replace-one")
    mu = float(privacy.mu(epsilon, 1e-6)) * math.sqrt(SHARE)
    cells = table(rng, rows)
    return Marginals.of(answer_to(query, schema, cells, rng, mu), columns, "auto"), cells


@pytest.mark.parametrize(("rows", "epsilon"), [(3000, 1.0), (5000, 0.3), (1000, 3.0), (20_000, 1.0)])
def test_caps_cut_few_rows_where_noise_hides_most_of_a_histogram(rows, epsilon):
    rng, cut = np.random.default_rng(1), []
    for _ in range(20):
        found, cells = looked(rng, rows, epsilon)
        one = found.numbers["near"]
        cut.append(np.mean((cells["near"] < one.low) | (cells["near"] > one.high)))
    assert np.median(cut) < 0.12
    assert np.max(cut) < (0.02 if rows == 20_000 else 0.4)


def test_the_share_that_a_cap_cuts_is_at_most_what_is_said():
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(40):
        found, cells = looked(rng, 3000, 1.0)
        for name in ("near", "far"):
            one = found.numbers[name]
            if one.capped[1]:
                wrong += np.mean(cells[name] > one.high) > one.above + 1.64 * one.doubt
    assert wrong <= 2


def test_bounds_much_wider_than_the_data_are_cut_near_their_end():
    rng = np.random.default_rng(2)
    for _ in range(10):
        found, cells = looked(rng, 10_000, 1.0)
        one = found.numbers["far"]
        assert one.capped == (False, True)
        assert 10 < one.high < 100
        assert np.mean(cells["far"] > one.high) < 0.06


def test_a_share_that_noise_hides_starts_at_even_odds():
    rng = np.random.default_rng(3)
    for _ in range(20):
        _, chance = looked(rng, 500, 0.001)[0].target("y")
        assert chance == pytest.approx([0.5, 0.5], abs=0.25)
    _, chance = looked(rng, 50_000, 3.0)[0].target("y")
    assert chance[1] == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    ("cap", "says"),
    [
        ({"afar": (0, 1)}, "cap names 'afar', which is no number of this model; these are: near and far"),
        ({"y": (0, 1)}, "cap names 'y', which is no number of this model"),
        ({"far": (300, 400)}, "cap of 'far' is \\(300, 400\\), outside its bounds 0 to 200"),
        ({"far": (20, 10)}, "two numbers that rise"),
        ("some", "cap must be 'auto', 'none', or the ends of columns"),
    ],
)
def test_caps_of_what_is_no_number_of_the_model_are_refused(cap, says):
    schema = Schema({**SCHEMA, "t": Number(0, 5, missing=False)})
    for model in (
        lambda: LogisticRegression("y", ["near", "far"], cap=cap),
        lambda: GLM("y", ["near", "far"], "binomial", cap=cap),
        lambda: Cox("t", "y", ["near", "far"], cap=cap),
    ):
        with pytest.raises(InvalidInput, match=says):
            model().query(schema, "replace-one")
