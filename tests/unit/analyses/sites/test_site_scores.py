"""No person moves clipped scores by site further than a query says, wherever they are asked for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest

from cape.analyses import MixedModel
from cape.analyses.regression.score_query import Parts
from cape.analyses.sites.site_scores import site_score_query
from cape.blocks import Design, SiteScores, Table
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Person, Schema
from cape.engine.query import Answer
from cape.engine.schemes import Parties
from cape.engine.stages import Setting
from cape.privacy import Budget

COLUMNS = {
    "y": Number(0, 10, missing=False),
    "x": Number(-1, 1, missing=False),
    "sex": Category(("female", "male"), missing=False),
}
SITES = ("bern", "graz")
SCHEMA = Schema(COLUMNS).at(SITES)
DESIGN = Design(("x", "sex"), "y")


def people():
    """Rows at the edges of bounds, and some within."""
    rng = np.random.default_rng(1)
    edges = np.array(list(itertools.product([0.0, 5.0, 10.0], [-1.0, 0.1, 1.0], [0, 1])))
    y, x, sex = np.vstack([edges, rng.uniform([0, -1, 0], [10, 1, 2], (4, 3))]).T
    named = np.array(["female", "male"])[sex.astype(int)]
    return pl.DataFrame({"y": y, "x": x, "sex": named})


def block(own, seed, lengths=(0.05, 0.1, 0.2, 0.5), square=0.02):
    """Anywhere: scores of some rows are longer than they may be, and so are curvatures."""
    rng = np.random.default_rng(seed)
    weights = 0.2 * rng.normal(size=(2, 3))
    turns = np.eye(3) * [1.0, 2.0, 2.0] + 0.3 * rng.normal(size=(2, 3, 3))
    return made(weights, turns, own, 0.3, 1.2, lengths, square)


def made(weights, turns, own, bound, curve, lengths, square):
    rows = tuple(tuple(map(float, each)) for each in weights)
    turned = tuple(tuple(tuple(map(float, row)) for row in turn) for turn in turns)
    return SiteScores(DESIGN, "site", rows, turned, own, bound, curve, lengths, square)


PARTS = Parts(0.6, 1.0, 0.3, 0.5)
FEW = Parts(0.6, 0.2, 0.05, 0.1)
ASKED = [
    (block(1, 0), PARTS),
    (block(2, 1), PARTS),
    (block(3, 2), FEW),
    (block(1, 3, (), 0.0), FEW),
    (block(1, 0, square=0.0), FEW),
]
NAMES = ["one own", "two own", "three own", "scores alone", "lengths alone"]
EACH = pytest.mark.parametrize(("asked", "parts"), ASKED, ids=NAMES)


@pytest.mark.parametrize("own", [1, 2, 3])
@pytest.mark.parametrize("parts", [PARTS, FEW], ids=["much curvature", "little"])
def test_what_is_said_of_a_replaced_row_is_attained(own, parts):
    """By two rows with opposite scores, or with u as far apart as the proof has it."""
    turn, _ = np.linalg.qr(np.random.default_rng(own).normal(size=(3, 3)))
    together = parts.curvature + parts.spread
    cosine = 1 / (2 * together) if together >= 0.5 else 1.0
    best = 0.0
    for angle in (0.0, math.acos(cosine) / 2):
        # rows at both ends of x have u = (cos, sin) and (cos, -sin); x is in units of its norm
        kept = np.array([math.cos(angle), math.sin(angle) * math.sqrt(2), 0.0])
        for slope in (0.0, 1.0, -1.0):
            weights = np.tile([0.0, slope, 0.0], (2, 1))
            asked = made(weights, np.stack([turn * kept] * 2), own, 0.05, 0.5, (0.3,), 0.0)
            query = site_score_query(asked, parts, SCHEMA, "replace-one")
            found = moved(query, SCHEMA, "bern")
            best = max(best, furthest(found, found) / query.sensitivity)
    assert 0.97 < best <= 1 + 1e-9


@pytest.mark.parametrize("own", [1, 2, 3])
def test_what_is_said_of_an_added_row_is_attained(own):
    asked = made(np.zeros((2, 3)), np.stack([np.eye(3)] * 2), own, 1e-3, 1e-3, (0.3,), 1e-3)
    query = site_score_query(asked, PARTS, SCHEMA, "add-remove")
    alone = np.linalg.norm(moved(query, SCHEMA, "graz"), axis=1).max()
    assert 0.9999 * query.sensitivity < alone <= query.sensitivity


def moved(query, schema, site):
    """What each row adds to all sums, each divided by its scale."""
    (block,) = query.blocks
    found = []
    rows = people()
    for place in range(len(rows)):
        (sums,) = Table(site, rows[place : place + 1], SCHEMA).sums([block])
        parts = zip(sums, block.arrays(schema), query.scales[0], strict=True)
        found.append(
            np.concatenate([np.ravel(each) * 2.0**-array.bits / scale for each, array, scale in parts])
        )
    return np.array(found)


def furthest(one, other):
    square, squares = (one**2).sum(axis=1), (other**2).sum(axis=1)
    return math.sqrt(max(float((square[:, None] + squares - 2 * one @ other.T).max()), 0.0))


@EACH
def test_a_row_that_is_replaced_at_its_site_moves_sums_no_further_than_is_said(asked, parts):
    query = site_score_query(asked, parts, SCHEMA, "replace-one")
    found = moved(query, SCHEMA, "bern")
    assert 0.75 * query.sensitivity < furthest(found, found) <= query.sensitivity * (1 + 1e-9)


@EACH
def test_a_row_that_is_added_or_left_out_moves_sums_no_further_than_is_said(asked, parts):
    query = site_score_query(asked, parts, SCHEMA, "add-remove")
    alone = np.linalg.norm(moved(query, SCHEMA, "graz"), axis=1).max()
    assert 0.8 * query.sensitivity < alone <= query.sensitivity * (1 + 1e-9)


@EACH
def test_where_rows_may_not_count_one_may_be_replaced_by_nothing(asked, parts):
    schema = SCHEMA.only("x > -2")
    query = site_score_query(asked, parts, schema, "replace-one")
    found = moved(query, schema, "bern")
    assert furthest(found, found) <= query.sensitivity * (1 + 1e-9)
    alone = np.linalg.norm(found, axis=1).max()
    assert 0.6 * query.sensitivity < alone <= query.sensitivity * (1 + 1e-9)


@EACH
def test_a_person_who_may_be_at_two_sites_can_move_from_one_to_the_other(asked, parts):
    schema = SCHEMA.of_persons(Person("id", sites=2))
    query = site_score_query(asked, parts, schema, "replace-one")
    one, other = (moved(query, SCHEMA, site) for site in SITES)
    assert furthest(one, other) <= query.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("own", [1, 2])
def test_squares_of_scores_at_two_sites_move_as_far_as_those_of_one_vector(own):
    """Own entries of two sites are orthogonal: no pair moves further than two rows of one site could."""
    asked, schema = block(own, 4), SCHEMA.of_persons(Person("id", sites=2))
    query = site_score_query(asked, PARTS, schema, "replace-one")
    stays = site_score_query(asked, PARTS, SCHEMA, "replace-one")
    count = query.scales[0][0] ** -2
    assert query.sensitivity**2 == pytest.approx(stays.sensitivity**2 + 2 * count, rel=1e-4)
    one, other = (moved(query, SCHEMA, site) for site in SITES)
    assert furthest(one, other) > furthest(one, one) * 0.8


def test_a_person_of_several_rows_moves_sums_as_often():
    schema = SCHEMA.of_persons(Person("id", rows=3))
    setting = Setting(schema, Budget(1.0, 1e-6), Parties(2, 0, 2), "replace-one")
    query = site_score_query(ASKED[0][0], PARTS, schema, "replace-one")
    assert setting.of_person(query).sensitivity == pytest.approx(3 * query.sensitivity)


def answers(query, value):
    """An answer that nobody's rows give."""
    sums = tuple(tuple(np.full(array.shape, value) for array in each.arrays(SCHEMA)) for each in query.blocks)
    return Answer(sums, tuple(map(tuple, query.scales)), None, SCHEMA)


@pytest.mark.one_in(4, seconds=0.2)
@pytest.mark.parametrize("random", ["intercept", "x"])
@pytest.mark.parametrize("value", [0.0, -1e12, 1e12, 1e-300, -3.0])
@pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")
def test_forged_answers_change_no_sensitivity_and_no_scale_but_by_what_is_proved(random, value):
    """Later questions are asked within what the proof covers, or not at all."""
    asked = MixedModel("y", ["x", "sex"], random=random)
    talk = asked.conduct(SCHEMA, "replace-one")
    query = next(talk)
    for _ in asked.stages()[1:]:
        try:
            query = talk.send(answers(query, value))
        except (InvalidInput, StopIteration):
            return
        found = moved(query, SCHEMA, "bern")
        assert furthest(found, found) <= query.sensitivity * (1 + 1e-9)
    with pytest.raises(StopIteration):
        talk.send(answers(query, value))
