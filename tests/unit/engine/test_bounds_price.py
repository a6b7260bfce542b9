"""A plan says what wide bounds cost and what tighter ones would, and both are so."""

from __future__ import annotations

import pytest

import cape
from cape.data import Schema
from cape.engine.plan import Plan

SITES = {name: f"{name}.csv" for name in "abcde"}


def plan(analysis: cape.Mean | cape.Variance | cape.Sum, schema: Schema, rows: int = 3_000) -> Plan:
    sizes = dict.fromkeys(SITES, rows // len(SITES))
    together = cape.Consortium(SITES, schema, cape.Budget(1.0, 1e-6), colluding=0, sizes=sizes)
    return together.plan(analysis, 1.0)


def nodes(low: float, high: float, **more: object) -> Schema:
    return Schema(nodes={"low": low, "high": high, "missing": False, **more})


STATED = {"expected": {"mean": 2.7, "sd": 4.4}}


def test_wide_bounds_cost_what_the_plan_says_and_tighter_ones_what_it_says_of_them() -> None:
    wide = plan(cape.Variance("nodes"), nodes(0, 80, integer=True, **STATED))
    (price,) = wide.bounds
    assert price.bounds == (0, 80)
    assert price.tighter == (0, 25)
    tight = plan(cape.Variance("nodes"), nodes(0, 25, integer=True, **STATED))
    assert tight.noise["nodes"]["cape"] / wide.noise["nodes"]["cape"] == pytest.approx(
        price.then / price.cost
    )
    assert tight.bounds == ()
    assert (
        f"Bounds 0 to 80 of nodes cost {price.cost:.2g} times the sampling error; with 0 to 25, where higher "
        f"values count as 25, {price.then:.2g}."
    ) in wide.advice
    assert wide.to_dict()["bounds"] == [price.to_dict()]


def test_bounds_on_both_sides_of_what_is_expected_are_tightened() -> None:
    (price,) = plan(cape.Mean("nodes"), nodes(-1000, 1000, expected={"mean": 10, "sd": 2.0})).bounds
    assert price.tighter == (0, 20)
    assert "where higher values count as 20 and lower ones as 0" in price.sentence("nodes")
    (price,) = plan(cape.Mean("nodes"), nodes(-1000, 25, expected={"mean": 20, "sd": 2.0})).bounds
    assert "with 10 to 25, where lower values count as 10" in price.sentence("nodes")


@pytest.mark.parametrize(
    ("analysis", "schema", "rows"),
    [
        (cape.Variance("nodes"), nodes(0, 80), 3_000),  # nothing is expected
        (cape.Variance("nodes"), nodes(0, 30, **STATED), 3_000),  # as tight as may be
        (cape.Mean("nodes"), nodes(0, 80, **STATED), 100_000),  # sampling errors are larger
        (cape.Sum("nodes"), nodes(0, 80, **STATED), 3_000),  # about the people in the tables
    ],
)
def test_nothing_is_said_where_bounds_cost_little_or_nothing_is_known(
    analysis: cape.Mean, schema: Schema, rows: int
) -> None:
    assert plan(analysis, schema, rows).bounds == ()


def test_a_histogram_whose_edges_need_the_bounds_is_planned() -> None:
    schema = nodes(0, 80, **STATED)
    asked = cape.KaplanMeier("nodes", "died", edges=[40, 80])
    assert plan(asked, Schema({**dict(schema.items()), "died": {"categories": [0, 1]}})).bounds == ()
