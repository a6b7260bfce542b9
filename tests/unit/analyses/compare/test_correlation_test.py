"""Tests of correlations: Pearson's and Spearman's without noise, and honest with it."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from cape.analyses import CorrelationTest, build
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Number, Schema
from tests.unit.analyses.slow_sums import codes, exact, noisy, scaled

SCHEMA = Schema(x=(-4, 4), y=Number(0, 30, missing=False))
PEARSON, SPEARMAN = CorrelationTest("x", "y"), CorrelationTest("x", "y", method="spearman")
EDGES = {"y": [0.0, 1.0, 2.0, 4.0, 8.0, 30.0]}
pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")


def finished(asked, table, *, mu=0.0, rng=None, neighbours="replace-one"):
    query = asked.query(SCHEMA, neighbours)
    rng = rng or np.random.default_rng(0)
    sums = exact(query, SCHEMA, table)
    result = asked.finish(noisy(query, SCHEMA, sums, len(table["x"]), rng, neighbours=neighbours, mu=mu))
    return result.estimates[0], result.model


def people(rows, rng, slope=0.0):
    x = rng.normal(0.5, 1, rows)
    return {"x": x, "y": np.clip(np.exp(slope * x + rng.normal(size=rows)), 0, 30)}


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("rows", [12, 300])
def test_without_noise_it_is_scipys_test_of_pearson(neighbours, rows):
    table = people(rows, np.random.default_rng(rows), 0.1)
    table["x"][3] = np.nan
    found, model = finished(PEARSON, table, neighbours=neighbours)
    x, y = (scaled(table[name], SCHEMA.number(name)) for name in ("x", "y"))
    known = pearsonr(x[~np.isnan(x)], y[~np.isnan(x)])
    assert model.p_value == pytest.approx(known.pvalue, abs=1e-6)
    assert found.value == pytest.approx(known.statistic, abs=1e-6)
    ends = known.confidence_interval(0.9)
    assert found.interval(0.9) == pytest.approx((ends.low, ends.high), abs=1e-6)


@pytest.mark.parametrize("edges", [None, EDGES])
def test_without_noise_it_is_scipys_test_of_spearman_with_ties(edges):
    table = people(300, np.random.default_rng(1), 0.2)
    asked = CorrelationTest("x", "y", method="spearman", edges=edges)
    found, model = finished(asked, table)
    axes = asked.query(SCHEMA, "replace-one").blocks[0].axes
    known = spearmanr(*(codes(table, axis, SCHEMA) for axis in axes))
    assert model.p_value == pytest.approx(known.pvalue, abs=1e-6)
    assert found.value == pytest.approx(known.statistic, abs=1e-6)


@pytest.mark.slow(1)
@pytest.mark.parametrize("asked", [PEARSON, SPEARMAN], ids=lambda asked: asked.method)
@pytest.mark.parametrize("mu", [0.2, 0.7, 3.0])
@pytest.mark.parametrize("rows", [200, 2000])
def test_the_level_is_kept_under_the_null(asked, mu, rows):
    rng = np.random.default_rng([rows, int(10 * mu)])
    found = [finished(asked, people(rows, rng), mu=mu, rng=rng)[1].p_value for _ in range(800)]
    rate = np.mean([p is not None and p < 0.05 for p in found])
    assert rate < 0.078
    if sum(p is not None for p in found) > 760:
        assert rate > 0.025


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    "asked",
    [PEARSON, CorrelationTest("x", "y", method="spearman", edges=EDGES)],
    ids=lambda asked: asked.method,
)
def test_intervals_cover(asked):
    rng, hits = np.random.default_rng(2), 0
    large = people(300_000, rng, 0.3)
    true = finished(asked, large)[0].value
    for _ in range(300):
        low, high = finished(asked, people(3000, rng, 0.3), mu=1.0, rng=rng)[0].interval()
        hits += low <= true <= high
    assert 0.92 < hits / 300 <= 1.0
    assert 0.05 < true < 0.5


def test_the_noise_of_a_rank_correlation_is_what_it_says():
    rng = np.random.default_rng(3)
    table = people(3000, rng, 0.8)
    found = [finished(SPEARMAN, table, mu=2.0, rng=rng)[0] for _ in range(250)]
    spread = np.std([each.value for each in found])
    assert np.mean([each.privacy for each in found]) == pytest.approx(spread, rel=0.15)


def test_noise_that_hides_everything_leaves_an_open_interval_and_says_so():
    rng = np.random.default_rng(4)
    for asked in (PEARSON, SPEARMAN):
        with pytest.warns(TooNoisyWarning, match="too much noise"):
            found, model = finished(asked, people(20, rng), mu=0.01, rng=rng, neighbours="add-remove")
        assert found.interval() == (-1, 1)
        assert model.p_value is None
        assert "too much noise" in model.notes()[0]


def test_columns_that_do_not_vary_have_no_test_and_no_nan():
    table = {"x": np.full(50, 2.0), "y": np.full(50, 3.0)}
    for asked in (PEARSON, SPEARMAN):
        found, model = finished(asked, table)
        assert model.p_value is None
        assert found.interval() == (-1, 1)
    _, model = finished(PEARSON, {"x": np.arange(5.0) - 2, "y": np.arange(5.0)})
    assert 0 <= model.p_value < 1e-6


def test_a_result_is_the_same_after_pickling_and_can_be_asked_again():
    rng = np.random.default_rng(5)
    found, model = finished(PEARSON, people(2000, rng), mu=1.0, rng=rng)
    assert pickle.loads(pickle.dumps(found)) == found
    assert math.isfinite(model.to_dict()["test"]["p_value"])
    for asked in (PEARSON, SPEARMAN, CorrelationTest("x", "y", method="spearman", edges=EDGES)):
        assert build(asked.to_dict()) == asked


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CorrelationTest("x"), "at least 2 columns"),
        (lambda: CorrelationTest("x", "y", "z"), "of two columns, not of 3"),
        (lambda: CorrelationTest("x", "y", method="kendall"), "'pearson' or 'spearman'"),
        (lambda: CorrelationTest("x", "y", bins=8), "bins and edges are for method='spearman'"),
        (lambda: CorrelationTest("x", "y", method="spearman", cut=3), "cut is for method='pearson'"),
        (lambda: CorrelationTest("x", "y", method="spearman", edges={"z": [0, 1, 2]}), "which is not tested"),
        (lambda: CorrelationTest("x", "y", method="spearman", edges={"y": [0, 1]}), "at least three numbers"),
        (lambda: CorrelationTest("x", "y", method="spearman", edges=[0, 1, 2]), "edges must be of columns"),
        (lambda: CorrelationTest("x", "y", method="spearman", edges={"y": 3}), "numbers that rise"),
    ],
)
def test_bad_arguments_are_refused(make, said):
    with pytest.raises(InvalidInput, match=said):
        make()
