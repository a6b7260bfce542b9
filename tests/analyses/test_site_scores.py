"""No person moves clipped scores by site further than a query says, wherever they are asked for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest

from cape.analyses import MixedModel
from cape.analyses.site_scores import Point, moved_squared
from cape.blocks import Design, Table
from cape.data import Category, Number, Person, Schema
from cape.engine.query import Answer
from cape.engine.schemes import Parties
from cape.engine.stages import Setting
from cape.errors import InvalidInput
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


def point(own, seed, curve=0.25, place=0.5, level=0.5):
    """Anywhere: residuals of some rows are cut, and some rows are longer than scores may be."""
    rng = np.random.default_rng(seed)
    return Point(
        0.2 * rng.normal(size=(2, 3)),
        np.eye(3) * [1.0, 2.0, 2.0] + 0.3 * rng.normal(size=(2, 3, 3)),
        own,
        np.array([1.0, 0.7, 0.7]),
        0.3,
        0.2,
        0.8,
        1.2,
        0.9,
        curve,
        place,
        level,
        np.zeros(2),
        np.ones((2, own)),
        np.eye(3 - own),
    )


POINTS = [point(1, 0), point(2, 1), point(3, 2), point(1, 3, 0.25, 0.02, 0.02), point(1, 0, 0.6)]
NAMES = ["one own", "two own", "three own", "little beside", "much curvature"]
EACH = pytest.mark.parametrize("asked", POINTS, ids=NAMES)


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
def test_a_row_that_is_replaced_at_its_site_moves_sums_no_further_than_is_said(asked):
    query = asked.query(DESIGN, "site", SCHEMA, "replace-one")
    found = moved(query, SCHEMA, "bern")
    assert 0.75 * query.sensitivity < furthest(found, found) <= query.sensitivity * (1 + 1e-9)


@EACH
def test_a_row_that_is_added_or_left_out_moves_sums_no_further_than_is_said(asked):
    query = asked.query(DESIGN, "site", SCHEMA, "add-remove")
    alone = np.linalg.norm(moved(query, SCHEMA, "graz"), axis=1).max()
    assert 0.8 * query.sensitivity < alone <= query.sensitivity * (1 + 1e-9)


@EACH
def test_where_rows_may_not_count_one_may_be_replaced_by_nothing(asked):
    schema = SCHEMA.only("x > -2")
    query = asked.query(DESIGN, "site", schema, "replace-one")
    found = moved(query, schema, "bern")
    assert furthest(found, found) <= query.sensitivity * (1 + 1e-9)
    alone = np.linalg.norm(found, axis=1).max()
    assert 0.6 * query.sensitivity < alone <= query.sensitivity * (1 + 1e-9)


@EACH
def test_a_person_who_may_be_at_two_sites_can_move_from_one_to_the_other(asked):
    schema = SCHEMA.of_persons(Person("id", sites=2))
    query = asked.query(DESIGN, "site", schema, "replace-one")
    one, other = (moved(query, SCHEMA, site) for site in SITES)
    assert furthest(one, other) <= query.sensitivity * (1 + 1e-9)


def test_matrices_of_two_groups_can_be_further_apart_than_of_one():
    """The two thirds of b that a row of another group costs more: own entries held apart, and others not."""
    shares = np.linspace(0, 1, 3001)
    own, other = np.sqrt(shares), np.sqrt(1 - shares)  # z = (own, other), y = (own, -other)
    apart = 2 * own**4 + 2 * (2 * own * other) ** 2
    assert apart.max() == pytest.approx(2 + 2 / 3)
    schema = SCHEMA.of_persons(Person("id", sites=2))
    query = POINTS[0].query(DESIGN, "site", schema, "replace-one")
    counted = next(
        scale**-2
        for array, scale in zip(query.blocks[0].arrays(schema), query.scales[0], strict=True)
        if array.name == "count"
    )
    beside = query.sensitivity**2 - moved_squared(0.25, 0.5, 0.5) - 2 * counted
    assert beside >= (apart.max() - 2) * 0.25 * (1 - 1e-9)


def test_a_person_of_several_rows_moves_sums_as_often():
    schema = SCHEMA.of_persons(Person("id", rows=3))
    setting = Setting(schema, Budget(1.0, 1e-6), Parties(2, 0, 2), "replace-one")
    query = POINTS[0].query(DESIGN, "site", schema, "replace-one")
    assert setting.of_person(query).sensitivity == pytest.approx(3 * query.sensitivity)


def answers(query, value):
    """An answer that nobody's rows give."""
    (block,) = query.blocks
    sums = tuple(np.full(array.shape, value) for array in block.arrays(SCHEMA))
    return Answer((sums,), (tuple(query.scales[0]),), None, SCHEMA)


@pytest.mark.one_in(4, seconds=0.2)
@pytest.mark.parametrize("random", ["intercept", "x"])
@pytest.mark.parametrize("value", [0.0, -1e12, 1e12, 1e-300, -3.0])
@pytest.mark.filterwarnings("ignore::cape.errors.TooNoisyWarning")
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
