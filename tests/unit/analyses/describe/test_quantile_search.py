"""Quantiles found in stages: what each stage asks for, what it costs, and how near it comes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape.analyses import Quantiles, build
from cape.analyses.describe import quantile_search as search
from cape.analyses.describe.quantiles import MOST_SEARCHED
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.query import Answer
from cape.stats.law import Law
from cape.stats.ranks import Counted, Ranks
from tests.unit.analyses.slow_sums import release, release_laplace, vectors

SCHEMA = Schema(x=Number(0, 100, missing=False), y=Number(-5, 5))


def counted(edges, counts, noise):
    return Counted(np.array(edges, float), np.array(counts, float), noise)


def test_counts_of_all_stages_are_fitted_by_weighted_least_squares():
    first, last = counted([30, 60], [10, 30, 60], 2.0), counted([20, 45], [5, 22, 70], 1.0)
    ranks = Ranks(0, 100, (first, counted([60], [38], 0.5), last))
    np.testing.assert_array_equal(ranks.edges, [0, 20, 30, 45, 60, 100])
    sums = np.array(
        [
            [1, 1, 0, 0, 0],
            [0, 0, 1, 1, 0],
            [0, 0, 0, 0, 1],
            [1, 1, 1, 1, 0],
            [1, 0, 0, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 0, 0, 1, 1],
        ]
    )
    weights = 1 / np.array([2, 2, 2, 0.5, 1, 1, 1])
    counts = np.array([10, 30, 60, 38, 5, 22, 70])
    atoms, *_ = np.linalg.lstsq(sums * weights[:, None], counts * weights, rcond=None)
    np.testing.assert_allclose(ranks.over(0.5)[1:-1], np.cumsum(atoms)[:-1] - 0.5 * atoms.sum(), atol=1e-8)
    covariance = np.linalg.inv((sums * weights[:, None] ** 2).T @ sums)
    asked = np.tri(6, 5, -1) - 0.5
    np.testing.assert_allclose(
        ranks.errors(0.5)[0][1:-1], np.sqrt(np.diag(asked @ covariance @ asked.T))[1:-1], atol=1e-8
    )


def test_a_public_total_is_kept():
    ranks = Ranks(0, 100, (counted([50], [40, 70], 3.0),), total=100.0)
    assert ranks.over(0.5)[-1] == pytest.approx(50, abs=1e-3)
    assert ranks.over(0.0)[1] == pytest.approx(35, abs=1e-3)  # both counts are 5 too many
    assert ranks.count_noise == 0


@pytest.mark.one_in(5, seconds=0.5)
@pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("made_up", [0.0, -1e9, 9e18, "alternating", "noise"])
def test_no_answer_makes_a_later_stage_cost_more(neighbours, laplace, made_up):
    """Answers that nobody released: the edges still rise within the bounds, and one row moves what is
    claimed."""
    asked, rng = Quantiles("x", "y", probs=[0.1, 0.5]).under(laplace), np.random.default_rng(3)
    talk = asked.conduct(SCHEMA, neighbours)
    query, cells = next(talk), rng.uniform(-120, 120, 80)
    table = {"x": cells, "y": np.where(rng.random(80) < 0.1, np.nan, cells / 20)}
    for _ in range(len(asked.stages())):
        for block in query.blocks:
            (axis,) = block.axes
            column = SCHEMA.number(axis.column)
            assert np.isfinite(axis.edges).all()
            assert (np.diff(axis.edges) > 0).all()
            assert (axis.edges[0], axis.edges[-1]) == (column.low, column.high)
        rows = vectors(query, SCHEMA, table)
        alone, apart = np.abs(rows), np.abs(rows[:, None] - rows[None, :40])
        moved = alone.sum(1).max() if neighbours == "add-remove" else apart.sum(2).max()
        squared = (alone**2).sum(1).max() if neighbours == "add-remove" else (apart**2).sum(2).max()
        assert moved <= query.l1
        assert squared <= query.sensitivity**2 * (1 + 1e-12)
        assert query.l1 <= 2 * (2 if neighbours == "replace-one" else 1)
        sums = []
        for (array,) in ((block.arrays(SCHEMA)[0],) for block in query.blocks):
            forged = np.full(array.shape, 0.0 if isinstance(made_up, str) else made_up)
            if made_up == "alternating":
                forged = np.where(np.indices(array.shape).sum(0) % 2, 1e12, -1e12) if array.shape else forged
            elif made_up == "noise":
                forged = rng.normal(0, 1e4, array.shape)
            sums.append((forged,))
        public = 1000 if neighbours == "replace-one" else None
        answer = Answer(tuple(sums), ((1.0,),) * len(sums), public, SCHEMA, Law(1.25))
        try:
            query = talk.send(answer)
        except StopIteration as stop:
            found = stop.value
    for estimate in found:
        low, high = estimate.interval()
        assert estimate.within[0] <= low <= estimate.value <= high <= estimate.within[1]
        assert math.isfinite(estimate.standard_error)


def test_the_last_stage_asks_for_one_count_where_that_is_enough():
    public, private = (Quantiles(name, probs=[0.5]).query(SCHEMA, "replace-one") for name in ("x", "y"))
    assert (public.l1, public.sensitivity) == (1.0, 1.0)
    assert (private.l1, private.sensitivity) == (2.0, math.sqrt(2))
    assert Quantiles("x", probs=[0.5]).query(SCHEMA, "add-remove").l1 == 1.0
    assert Quantiles("x").query(SCHEMA, "replace-one").l1 == 2.0


def test_edges_are_never_forged():
    given = [math.nan, math.inf, -math.inf, 5e-324, 0.0, -0.0, 1.0, 1.0, 0.3, 2.0, -7.0]
    assert search.inner(given, 0.0, 1.0).tolist() == [5e-324, 0.3]
    assert search.first("x", Number(1e15, 1e15 + 1)).edges.tolist() == [1e15 + i / 8 for i in range(1, 8)]
    with pytest.raises(InvalidInput, match="too far apart"):
        search.first("x", Number(-1.7e308, 1.7e308))


def test_many_quantiles_or_given_bins_are_counted_in_bins():
    assert Quantiles("x").searches
    assert "bins" not in Quantiles("x").to_dict()
    assert Quantiles("x", probs=np.linspace(0.1, 0.9, MOST_SEARCHED)).searches
    many = Quantiles("x", probs=np.linspace(0.05, 0.95, MOST_SEARCHED + 1))
    assert (many.searches, many.bins, many.stages()) == (False, 256, (1.0,))
    again = build(Quantiles("x", bins=64).to_dict())
    assert not again.searches
    assert again.bins == 64
    assert build(Quantiles("x", probs=[0.5]).to_dict()) == Quantiles("x", probs=[0.5])
    assert "three stages" in Quantiles("x").describe()
    assert "64 bins" in again.describe()


POPULATIONS = {
    "skewed": lambda rng, n: rng.lognormal(2, 1, n),
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.4, 0.0, rng.lognormal(2, 1, n)),
    "whole": lambda rng, n: np.floor(rng.normal(55, 15, n)),
}


@pytest.mark.parametrize("population", POPULATIONS)
def test_without_noise_the_quantiles_are_those_of_the_rows(population):
    x = np.clip(POPULATIONS[population](np.random.default_rng(2), 5000), 0, 100)
    found = release(Quantiles("x"), SCHEMA, {"x": x}, np.random.default_rng(1), mu=0)
    for prob in (0.25, 0.5, 0.75):
        assert found[f"x quantile {prob:g}"].value == pytest.approx(np.quantile(x, prob), abs=0.6)


def test_a_search_has_less_error_than_counts_in_bins():
    """40 releases each at epsilon 1, delta 1e-6: known to 12%; the ratio is about 2."""
    rng, errors = np.random.default_rng(8), {None: [], 256: []}
    for _ in range(40):
        x = np.clip(rng.normal(55, 15, 1000), 0, 100)
        for bins, found in errors.items():
            asked = Quantiles("x", probs=[0.5], bins=bins)
            found.append(release(asked, SCHEMA, {"x": x}, rng)["x quantile 0.5"].value - np.median(x))
    searched, in_bins = (np.sqrt(np.mean(np.square(each))) for each in errors.values())
    assert searched < in_bins / 1.3


@pytest.mark.slow(15)
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("rows", [200, 1000])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_intervals_hold_whatever_lies_between_edges(population, rows, neighbours):
    rng, hits, runs = np.random.default_rng(rows), 0, 200
    true = np.quantile(np.clip(POPULATIONS[population](np.random.default_rng(1), 2_000_000), 0, 100), 0.5)
    for _ in range(runs):
        x = np.clip(POPULATIONS[population](rng, rows), 0, 100)
        asked = Quantiles("x", probs=[0.5])
        (found,) = release_laplace(asked, SCHEMA, {"x": x}, rng, neighbours=neighbours)
        low, high = found.interval()
        hits += low <= true <= high
    assert hits / runs > 0.92
