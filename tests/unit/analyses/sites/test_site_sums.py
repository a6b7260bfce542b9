"""No person moves sums by site further than a query says: rows of one site are played against each other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cape.analyses import (
    Association,
    Difference,
    Heterogeneity,
    LinearRegression,
    Mean,
    Proportion,
)
from cape.analyses.sites.site_sums import stays
from cape.data import Category, Number, Person, Schema
from cape.engine.schemes import Parties
from cape.engine.stages import Setting
from cape.privacy import Budget
from tests.unit.analyses.slow_sums import vectors

COLUMNS = {
    "y": Number(0, 10, missing=False),
    "x": Number(-1, 1, missing=False),
    "z": Number(5, 6),
    "sex": Category(("female", "male"), missing=False),
    "ill": Category(("no", "yes")),
}
SITES = ("bern", "graz")
SCHEMA = Schema(COLUMNS).at(SITES)
ASKED = [
    Heterogeneity(Mean("y")),
    Heterogeneity(Mean("y", "z")),
    Heterogeneity(Difference("y", by="sex")),
    Heterogeneity(Difference("z", by="ill")),
    Heterogeneity(Proportion("ill")),
    Heterogeneity(Association("sex", "ill")),
    Heterogeneity(LinearRegression("y", ["x"])),
    Heterogeneity(LinearRegression("y", ["x", "z"])),
]
EACH = pytest.mark.parametrize("asked", ASKED, ids=lambda each: each.describe())


def people(site):
    """Rows at the edges of bounds, and some within, with missing cells: all at one site."""
    rng = np.random.default_rng(1)
    numbers = [0.0, 3.0, 10.0], [-1.0, 0.4, 1.0], [math.nan, 5.0, 6.0]
    edges = np.array(list(itertools.product(*numbers, [0, 1], [-1, 0, 1])))
    inside = rng.uniform([0, -1, 5, 0, 0], [10, 1, 6, 2, 2], (40, 5))
    y, x, z, sex, ill = np.vstack([edges, inside]).T
    where = np.full(len(y), SITES.index(site))
    return {"y": y, "x": x, "z": z, "sex": sex.astype(int), "ill": ill.astype(int), "site": where}


def moved(query, schema, site):
    """What each row adds to all sums, each divided by its scale."""
    return vectors(query, schema, people(site))


def furthest(one, other):
    """The largest distance of a row of one table from one of another."""
    square, squares = (one**2).sum(axis=1), (other**2).sum(axis=1)
    return math.sqrt(float((square[:, None] + squares - 2 * one @ other.T).max()))


@EACH
def test_a_row_that_is_replaced_at_its_site_moves_sums_as_far_as_is_said(asked):
    query = asked.query(SCHEMA, "replace-one")
    found = moved(query, SCHEMA, "bern")
    assert furthest(found, found) <= query.sensitivity * (1 + 1e-9)
    assert furthest(found, found) > 0.85 * query.sensitivity


@EACH
def test_a_row_that_is_added_or_left_out_moves_sums_as_far_as_is_said(asked):
    query = asked.query(SCHEMA, "add-remove")
    alone = np.linalg.norm(moved(query, SCHEMA, "graz"), axis=1).max()
    assert 0.9 * query.sensitivity < alone <= query.sensitivity * (1 + 1e-9)


@EACH
def test_where_rows_may_not_count_one_may_be_replaced_by_nothing(asked):
    schema = SCHEMA.only("x > -2")
    query = asked.query(schema, "replace-one")
    found = moved(query, schema, "bern")
    assert furthest(found, found) <= query.sensitivity * (1 + 1e-9)
    assert np.linalg.norm(found, axis=1).max() <= query.sensitivity * (1 + 1e-9)


@EACH
def test_a_person_who_may_be_at_two_sites_can_move_from_one_to_the_other(asked):
    schema = SCHEMA.of_persons(Person("id", sites=2))
    assert stays(SCHEMA, "site")
    assert not stays(schema, "site")
    query = asked.query(schema, "replace-one")
    one, other = (moved(query, SCHEMA, site) for site in SITES)
    assert furthest(one, other) <= query.sensitivity * (1 + 1e-9)


def test_a_person_of_several_rows_moves_sums_as_often():
    schema = SCHEMA.of_persons(Person("id", rows=3))
    setting = Setting(schema, Budget(1.0, 1e-6), Parties(2, 0, 2), "replace-one")
    query = Heterogeneity(Mean("y")).query(schema, "replace-one")
    assert setting.of_person(query).sensitivity == pytest.approx(3 * query.sensitivity)


def test_public_sizes_cost_nothing_and_private_ones_are_asked_for():
    schema, asked = SCHEMA, Heterogeneity(LinearRegression("y", ["x"]))
    scales = asked.query(schema, "replace-one").scales[0]
    assert scales[0] == pytest.approx(1 / 64)
    missing = Heterogeneity(LinearRegression("y", ["z"]))
    assert missing.query(schema, "replace-one").scales[0][0] > 0.5
    assert asked.query(schema.only("x > 0"), "replace-one").scales[0][0] > 0.5
    assert asked.query(schema, "add-remove").scales[0][0] > 0.5
