"""Tests and measures of association: those of scipy without noise, and honest with it."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.stats import binomtest, chi2, chi2_contingency
from scipy.stats.contingency import association, odds_ratio, relative_risk

from cape.analyses import Association
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Schema
from cape.engine.query import Answer
from tests.unit.analyses.slow_sums import MU, noisy

TWO = Schema(sex=["f", "m"], ill=["no", "yes"])
MORE = Schema(stage=["I", "II", "III", "IV"], ill=["no", "yes"])
NOISE = math.sqrt(2) / MU
pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")


def finished(counts, noise=0.0, schema=TWO, **options):
    columns = tuple(schema)[:2]
    table = np.asarray(counts, float)
    return Association(*columns, **options).finish(Answer(((table,),), ((noise,),), None, schema))


def by_label(result):
    return {estimate.label: estimate for estimate in result.estimates}


def test_without_noise_everything_is_scipys():
    counts = np.array([[60, 12], [45, 30]])
    result = finished(counts)
    found, known = by_label(result), chi2_contingency(counts, correction=False)
    assert result.model.test.statistic == pytest.approx(known.statistic, abs=1e-6)
    assert result.model.p_value == pytest.approx(known.pvalue, abs=1e-6)
    assert found["Cramer's V"].value == pytest.approx(association(counts), abs=1e-6)
    risk = relative_risk(30, 75, 12, 72)
    assert found["risk ratio"].value == pytest.approx(risk.relative_risk, abs=1e-6)
    ends = risk.confidence_interval(0.95)
    assert found["risk ratio"].interval() == pytest.approx((ends.low, ends.high), abs=1e-6)
    odds = odds_ratio(counts, kind="sample")
    assert found["odds ratio"].value == pytest.approx(odds.statistic, abs=1e-6)
    ends = odds.confidence_interval(0.9)
    assert found["odds ratio"].interval(0.9) == pytest.approx((ends.low, ends.high), abs=1e-6)
    assert found["risk difference"].value == pytest.approx(30 / 75 - 12 / 72)
    ill, well = (binomtest(k, n).proportion_ci(method="wilson") for k, n in [(30, 75), (12, 72)])
    ends = (
        30 / 75 - 12 / 72 - math.hypot(30 / 75 - ill.low, well.high - 12 / 72),
        30 / 75 - 12 / 72 + math.hypot(ill.high - 30 / 75, 12 / 72 - well.low),
    )  # Newcombe
    assert found["risk difference"].interval() == pytest.approx(ends, abs=1e-6)


def test_without_noise_the_trend_is_that_of_cochran_and_armitage():
    counts = np.array([[40, 10], [35, 14], [30, 20], [20, 22]])
    model = finished(counts, schema=MORE, trend=True).model
    n, ill, size, score = counts.sum(), counts[:, 1], counts.sum(axis=1), np.arange(4)
    p = ill.sum() / n
    t = (score * (ill - size * p)).sum()
    spread = p * (1 - p) * ((size * score**2).sum() - (size * score).sum() ** 2 / n)
    assert model.trend.statistic == pytest.approx(t**2 / spread, abs=1e-9)
    assert model.trend.p_value == pytest.approx(chi2.sf(t**2 / spread, 1), abs=1e-9)
    assert model.test.freedom == 3
    assert "trend" in " ".join(model.notes())


def rejected(shares, rows, noise, runs, *, trend=False, schema=TWO, seed=5):
    """Return the share of P values below .05 of the test of independence, or for trend."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(runs):
        counts = rng.multinomial(rows, shares.ravel()).reshape(shares.shape)
        noised = counts + rng.normal(size=shares.shape) * noise
        model = finished(noised, noise, schema, trend=trend).model
        test = model.trend if trend else model.test
        found.append(test is not None and test.p_value < 0.05)
    return float(np.mean(found))


def test_noise_that_is_not_counted_would_reject_too_often():
    """What the test is for: on the same tables the textbook formula rejects three times as often."""
    rng, shares, noise = np.random.default_rng(1), np.outer([0.5, 0.5], [0.6, 0.4]), 2 * NOISE
    tables = rng.multinomial(500, shares.ravel(), size=400).reshape(-1, 2, 2)
    tables = tables + rng.normal(size=tables.shape) * noise
    textbook = np.mean([chi2_contingency(table, correction=False).pvalue < 0.05 for table in tables])
    ours = np.mean([finished(table, noise).model.p_value < 0.05 for table in tables])
    assert textbook > 0.15
    assert ours < 0.085  # 3.2 standard errors


@pytest.mark.slow(8)
@pytest.mark.parametrize("rows", [200, 1000, 20_000])
@pytest.mark.parametrize("trend", [False, True])
def test_the_level_is_kept_under_the_null(rows, trend):
    """Three thousand runs: 5% is known to 0.4%."""
    schema, first = (MORE, [0.2, 0.3, 0.3, 0.2]) if trend else (TWO, [0.5, 0.5])
    found = rejected(np.outer(first, [0.65, 0.35]), rows, NOISE, 3000, trend=trend, schema=schema)
    assert found < 0.0635  # 3.4 standard errors
    assert found > 0.03 or rows == 200


@pytest.mark.slow(6)
@pytest.mark.parametrize(("control", "exposed"), [(0.3, 0.3), (0.1, 0.2), (0.02, 0.06)])
@pytest.mark.parametrize("rows", [200, 1000, 20_000])
def test_intervals_cover(control, exposed, rows):
    """Two thousand runs: 95% is known to 0.5%."""
    rng = np.random.default_rng(7)
    shares = np.array([[1 - control, control], [1 - exposed, exposed]]) / 2
    margin = shares.sum(axis=0)
    true = {
        "risk difference": exposed - control,
        "risk ratio": exposed / control,
        "odds ratio": exposed * (1 - control) / control / (1 - exposed),
        "Cramer's V": abs(np.linalg.det(shares)) / math.sqrt(margin.prod() / 4),
    }
    hits = dict.fromkeys(true, 0)
    for _ in range(2000):
        counts = rng.multinomial(rows, shares.ravel()).reshape(2, 2) + rng.normal(size=(2, 2)) * NOISE
        for label, estimate in by_label(finished(counts, NOISE)).items():
            low, high = estimate.interval()
            hits[label] += low <= true[label] <= high
    assert all(count / 2000 > 0.935 for count in hits.values()), hits


def test_an_empty_cell_leaves_a_ratio_open_and_an_empty_group_leaves_everything_open():
    found = by_label(finished([[60, 12], [45, 0]]))
    assert found["odds ratio"].interval() == (0, math.inf)
    assert math.isfinite(found["odds ratio"].value)
    low, high = found["risk difference"].interval()
    assert -0.3 < low < high < 0
    result = finished([[60, 12], [0.4, -0.3]], NOISE)
    found = by_label(result)
    assert found["risk difference"].interval() == (-1, 1)
    assert found["risk ratio"].interval() == (0, math.inf)
    assert result.model.p_value is None
    assert "Noise hides whether anybody is in the group" in result.model.notes()[0]
    assert "There is too much noise for a test of independence." in result.model.notes()
    assert result.model.to_dict()["tests"] == {"independence": None}


def test_a_group_of_nobody_is_warned_of():
    with pytest.warns(TooNoisyWarning, match="Cramer's V"):
        finished([[60, 12], [0.0, 0.0]], NOISE)


def test_an_interval_that_noise_reaches_is_open_at_that_end_only():
    low, high = by_label(finished([[500, 10], [400, 100]], NOISE))["odds ratio"].interval()
    assert 0 < low < 5
    assert high == math.inf


def test_a_result_is_the_same_after_pickling():
    result = finished([[600, 120], [450, 300]], NOISE)
    again = pickle.loads(pickle.dumps(result.estimates))
    assert again == result.estimates
    assert [e.interval(0.8) for e in again] == [e.interval(0.8) for e in result.estimates]


def test_rows_that_count_privately_give_the_same_answer():
    """The table's own sum is the number of rows: a public one is not needed."""
    rng = np.random.default_rng(2)
    asked = Association("sex", "ill")
    query = asked.query(TWO, "replace-one")
    answer = noisy(query, TWO, ((np.array([[600.0, 120.0], [450.0, 300.0]]),),), 1470, rng)
    private = Answer(answer.sums, answer.noise, None, answer.schema)
    assert asked.finish(answer).estimates == asked.finish(private).estimates


@pytest.mark.parametrize(("first", "second"), [((0.5, 0.5), (0.5, 0.5)), ((0.9, 0.1), (0.2, 0.5, 0.3))])
def test_a_plan_supposes_columns_that_go_together_and_keeps_their_shares(first, second):
    schema = Schema(
        a=Category(range(len(first)), missing=False, expected=first),
        b=Category(range(len(second)), missing=False, expected=second),
    )
    answer = Association("a", "b").typical(schema, [[5.0]], 10_000, "replace-one")
    ((table,),) = answer.sums
    assert table.sum(axis=1) == pytest.approx(10_000 * np.array(first))
    assert table.sum(axis=0) == pytest.approx(10_000 * np.array(second))
    assert (table > 0).all()
    places = np.repeat(
        [(i, j) for i in range(len(first)) for j in range(len(second))], table.ravel().astype(int), axis=0
    )
    assert np.corrcoef(places.T)[0, 1] == pytest.approx(0.17, abs=0.002)
