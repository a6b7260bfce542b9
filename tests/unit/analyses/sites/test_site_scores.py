"""No person moves clipped scores by site further than a query says, wherever they are asked for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest

from cape.analyses import MixedModel
from cape.analyses.sites.site_scores import _INSIDE, _SPREAD, Point, moved_squared
from cape.blocks import Design, Table
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


def turned(own, kept, curve=1.0, place=1.0, level=1.0):
    """A point that two rows can be as far apart at as is said: orthogonal turns of some of (1, x, sex).

    Of (1, x), rows at the two ends of x have orthogonal z; of x alone, opposite ones. Rows with the same z
    have opposite scores where residuals are cut at both ends.
    """
    turn, _ = np.linalg.qr(np.random.default_rng(own).normal(size=(3, 3)))
    turns = np.stack([turn * np.array(kept) * [1.0, *[math.sqrt(2)] * 2]] * 2)  # x is in units of its norm
    square = float(np.sum(np.square(kept)))
    size = math.sqrt(square)
    beside = curve, place, level, np.zeros(2), np.ones((2, own)), np.eye(3 - own)
    return Point(np.zeros((2, 3)), turns, own, np.ones(3), 0.3, 0.9, size, square, 0.9, *beside)


OWN = pytest.mark.parametrize("own", [1, 2, 3])
TURNS = ((1.0, 1.0, 0.0), (0.0, 1.0, 0.0))
PARTS = {
    "scores": ("own score", "score"),
    "curvature": ("own square", "own cross", "square", "cross"),
    "spread": ("spread square", "spread cross"),
    "places": ("place",),
    "level": ("level",),
    "inside": ("inside",),
}


def weights(curve, place, level):
    return dict(zip(PARTS, (1.0, curve, _SPREAD, place, level, _INSIDE), strict=True))


def parts_moved(asked, neighbours):
    """How far one row moves each part of the sums, squared and over its weight."""
    query = asked.query(DESIGN, "site", SCHEMA, neighbours)
    found = moved(query, SCHEMA, "bern")
    arrays = query.blocks[0].arrays(SCHEMA)
    names = np.repeat([array.name for array in arrays], [array.size for array in arrays])
    one = np.zeros((1, found.shape[1])) if neighbours == "add-remove" else found
    weighed = weights(asked.curve_weight, asked.place_weight, asked.level_weight)
    return {
        part: furthest(found[:, mine], one[:, mine]) ** 2 / weight
        for part, weight in weighed.items()
        for mine in [np.isin(names, PARTS[part])]
    }


BOUNDS = {"replace-one": (4, 2, 2, 4, 4, 1), "add-remove": (1, 1, 1, 1, 1, 1)}


@OWN
@pytest.mark.parametrize("neighbours", BOUNDS)
def test_every_part_of_the_sums_moves_as_far_as_its_bound_and_no_further(own, neighbours):
    each = [parts_moved(turned(own, kept), neighbours) for kept in TURNS]
    found = {part: max(one[part] for one in each) for part in each[0]}
    for part, bound in zip(found, BOUNDS[neighbours], strict=True):
        assert 0.999 * bound < found[part] <= bound * (1 + 1e-9), part
    for beside in [(1.0, 1.0, 1.0), (1e-3, 1e-3, 1e-3), (5.0, 0.1, 0.1), (0.1, 5.0, 0.1), (0.1, 0.1, 5.0)]:
        wanted = sum(found[part] * weight for part, weight in weights(*beside).items())
        assert wanted <= moved_squared(*beside, neighbours) * (1 + 1e-9) <= wanted * 1.001


@OWN
@pytest.mark.parametrize("part", ["curve", "place", "level"])
def test_where_one_part_outweighs_the_others_all_that_is_said_is_attained(own, part):
    light = {"curve": 1e-3, "place": 1e-3, "level": 1e-3}
    asked = turned(own, TURNS[1] if part == "place" else TURNS[0], **light | {part: 1e3})
    for neighbours in BOUNDS:
        query = asked.query(DESIGN, "site", SCHEMA, neighbours)
        found = moved(query, SCHEMA, "bern")
        far = furthest(found, found if neighbours == "replace-one" else np.zeros((1, found.shape[1])))
        assert 0.99 * query.sensitivity < far <= query.sensitivity * (1 + 1e-9)


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
