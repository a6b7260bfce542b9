"""What bins leave unknown of where columns lie, and that no effect comes of it."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.regression.marginals import Marginals
from cape.analyses.survival.cox_baseline import Hazards, Left
from cape.analyses.survival.cox_coarse import coarse
from cape.blocks import Design
from cape.core.arrays import Floats
from cape.stats.capping import axis_edges, marginal

SCHEMA = cape.Schema(x={"low": 0, "high": 32, "missing": False})


def marginals(cells: Floats, noise: float = 0.0) -> Marginals:
    edges = axis_edges(0.0, 32.0)
    counts = np.histogram(cells, edges)[0].astype(float)
    one = marginal(edges, counts, noise, cap=False, rows=len(cells))
    return Marginals(SCHEMA, {"x": one}, {}, {}, {})


def unknown(cells: Floats, noise: float = 0.0) -> float:
    """The variance of the mean that bins leave unknown, in that of the column as it is taken to be."""
    of, design = marginals(cells, noise), Design(("x",))
    return float(coarse(of, design, SCHEMA)[0, 0] / of.rows(design, SCHEMA).var())


def test_a_column_in_one_bin_may_be_anywhere_in_it_and_one_in_many_bins_is_known() -> None:
    rng = np.random.default_rng(0)
    assert unknown(np.full(1000, 7.3)) == pytest.approx(1.0, abs=0.15)
    assert unknown(rng.uniform(0, 32, 1000)) == 0
    assert unknown(rng.normal(16, 4, 1000)) == 0
    assert 0.02 < unknown(rng.normal(16, 0.5, 1000)) < 0.9


def test_where_noise_hid_all_bins_they_are_one() -> None:
    assert unknown(np.full(50, 7.3), noise=100.0) == pytest.approx(1.0, abs=0.15)


def started(lumped: Floats) -> Hazards:
    even = np.full((1, 4), 250.0)
    left = Left(even, even, np.zeros(1), np.full(1, 1000.0), None, 5.0, 5.0, 2000.0)
    return Hazards.first(left, np.ones(4), np.eye(2), lumped)


def test_means_count_for_more_where_bins_leave_much_unknown_and_what_is_left_is_doubted() -> None:
    plain, lumped = started(np.zeros((2, 2))), started(np.diag([0.0, 1.0]))
    assert lumped.misled() > 3 * plain.misled()
    events = np.bincount(plain.groups, plain.events)
    sums = np.tile([0.3, 1.5], (len(events), 1)) * events[:, None]
    known, better = (each.with_means(sums, 250.0, np.eye(2)) for each in (plain, lumped))
    assert known.offsets[:, 0] == pytest.approx(better.offsets[:, 0])
    assert abs(better.offsets[0, 1] - 1.5) < 0.5 * abs(known.offsets[0, 1] - 1.5)
    assert better.misled() < 0.7 * lumped.misled()


def test_curvature_about_a_wrong_mean_is_told_from_that_of_a_column_which_varies() -> None:
    before = started(np.diag([0.0, 1.0]))
    events = np.bincount(before.groups, before.events)
    sums = np.tile([0.0, 1.5], (len(events), 1)) * events[:, None]
    known = before.with_means(sums, 0.1, np.eye(2))
    wrong, doubt = known.mistaken(before, np.zeros(2), np.eye(2))
    assert wrong / before.total == pytest.approx(np.diag([0.0, 2.25]), abs=0.1)
    assert doubt < 0.1 * before.total
    # of what a step moves a feature that varies nothing counts as mistaken
    score = before.total * np.array([0.0, 1.5])
    assert known.mistaken(before, score, np.eye(2))[0] == pytest.approx(np.zeros((2, 2)), abs=0.02 * 1000)


def test_about_another_centre_hazards_and_means_say_the_same() -> None:
    start = started(np.diag([0.0, 1.0]))
    events = np.bincount(start.groups, start.events)
    known = start.with_means(
        np.tile([0.4, -1.0], (len(events), 1)) * events[:, None], 1.0, np.diag([1.0, 2.0])
    )
    weights, x = np.array([0.5, -0.3]), np.array([0.2, 0.9])
    moved, away = known.centred(weights)
    assert moved.offsets + away == pytest.approx(known.offsets)
    rates = [each.rates * np.exp(weights @ (x - by)) for each, by in ((known, np.zeros(2)), (moved, away))]
    assert rates[0] == pytest.approx(rates[1])


def released(x: Floats, high: float, epsilon: float, seed: int) -> cape.Release:
    """A regression of times that no column explains."""
    rng, rows = np.random.default_rng(seed), len(x)
    time, censored = rng.exponential(4, rows), rng.uniform(1, 9, rows)
    table = pl.DataFrame(
        {
            "years": np.minimum(np.minimum(time, censored), 10.0),
            "died": np.where(time <= censored, "yes", "no"),
            "age": rng.normal(60, 12, rows).clip(20, 95),
            "x": x,
        }
    )
    schema = cape.Schema(
        years={"low": 0, "high": 10, "missing": False},
        died=["no", "yes"],
        age={"low": 20, "high": 95, "missing": False},
        x={"low": 0, "high": high, "missing": False},
    )
    sites = {f"s{i}": table.gather_every(3, i) for i in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cape.Consortium(sites, schema, cape.Budget(epsilon, 1e-5)).release(
            cape.Cox("years", "died", ["age", "x"]), share=1.0
        )


@pytest.mark.slow(45)
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_constant_has_no_effect_and_is_named(epsilon: float) -> None:
    found = [released(np.full(2400, 5.0), 10.0, epsilon, seed) for seed in range(15)]
    assert sum(not (r.interval()["x"][0] <= 0 <= r.interval()["x"][1]) for r in found) <= 2
    assert sum(any("x " in each for each in r.model.faults) for r in found) >= 12  # noise may hide it


@pytest.mark.slow(35)
@pytest.mark.parametrize("sort", ["narrow", "rare"])
def test_a_column_that_hardly_varies_and_says_nothing_has_no_effect(sort: str) -> None:
    wrong = 0
    for seed in range(20):
        rng = np.random.default_rng(100 + seed)
        narrow = sort == "narrow"
        x = rng.normal(120, 1, 2400) if narrow else (rng.random(2400) < 0.01).astype(float)
        low, high = released(x, 300.0 if narrow else 1.0, 1.0, seed).interval()["x"]
        wrong += not low <= 0 <= high
    assert wrong <= 4
