"""What a plan says of columns it does not know, and of questions that will have no answer, is so."""

from __future__ import annotations

import dataclasses
import statistics
import time
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.blocks.typical import steepest
from cape.data import Schema
from cape.engine.consortium import Consortium
from cape.engine.outlook import LEGEND, hidden
from cape.privacy import Budget

SITES = 20
COLUMNS = {
    "age": {"low": 5, "high": 65, "expected": {"mean": 17, "sd": 8}},
    "score": {"low": 40, "high": 160, "expected": {"mean": 108, "sd": 15}},
    "motion": {"low": 0, "high": 1, "expected": {"mean": 0.093, "sd": 0.08}},
    "ill": {"categories": ["no", "yes"], "expected": {"share": 0.15}},
}
STATED = Schema(COLUMNS)
BARE = Schema({name: {k: v for k, v in each.items() if k != "expected"} for name, each in COLUMNS.items()})


def plan(analysis, share, *, rows=1112, schema=STATED, epsilon=1.0):
    sizes = {str(i): rows // SITES for i in range(SITES)}
    sites = {name: f"{name}.csv" for name in sizes}
    together = Consortium(sites, schema, Budget(epsilon, 1e-6), colluding=1, sizes=sizes)
    return together.plan(analysis, share)


def test_a_plan_goes_by_what_is_expected_and_names_it():
    bare, stated = (plan(cape.Variance("motion"), 0.5, rows=100_000, schema=s) for s in (BARE, STATED))
    assert stated.noise["motion"]["cape"] > 2 * bare.noise["motion"]["cape"]
    assert stated.shapes.ranges == {}
    assert "Planned for what is expected of motion (mean 0.093, SD 0.08)." in stated.advice
    assert "Nothing is expected of motion" in bare.advice
    assert LEGEND in bare.notes()
    assert LEGEND not in stated.notes()


def test_without_expectations_the_range_holds_the_plan_of_the_right_ones():
    for analysis in (cape.Variance("motion", "age"), cape.Covariance("age", "motion"), cape.Mean("age")):
        bare, stated = (plan(analysis, 0.5, rows=100_000, schema=s) for s in (BARE, STATED))
        for label, by in stated.noise.items():
            low, high = bare.shapes.ranges.get(label, (bare.noise[label]["cape"],) * 2)
            assert 0.8 * low <= by["cape"] <= 1.25 * high


def test_the_range_stands_beside_the_noise_in_table_and_json():
    bare = plan(cape.Variance("motion"), 0.5, rows=100_000, schema=BARE)
    low, high = bare.shapes.ranges["motion"]
    assert low <= bare.noise["motion"]["cape"] <= high
    assert high > 2 * low
    assert bare.table().columns[1:3] == ("cape", "range")
    assert bare.to_dict()["range"] == {"motion": [low, high]}
    assert bare.to_dict()["nothing_expected_of"] == ["motion"]


def test_where_the_shape_changes_nothing_nothing_is_said_of_it():
    found = plan(cape.Count(ill="yes"), 0.5, schema=BARE)
    assert found.shapes.ranges == {}
    assert found.shapes.sentences(BARE) == []
    assert "range" not in found.table().columns


def test_quantiles_have_a_range_even_with_the_right_moments():
    found = plan(cape.Quantiles("motion"), 0.5, rows=100_000)
    assert all(high > low for low, high in found.shapes.ranges.values())
    assert "in few values" in found.advice


def test_a_quantile_of_whole_numbers_may_be_put_anywhere_between_two_of_them():
    whole = Schema({**COLUMNS, "age": {**COLUMNS["age"], "integer": True}})
    found = plan(cape.Quantiles("age", "motion"), 0.5, rows=100_000, schema=whole)
    plain = plan(cape.Quantiles("age", "motion"), 0.5, rows=100_000)
    assert found.shapes.ranges["age quantile 0.5"][1] > 0.5 > plain.shapes.ranges["age quantile 0.5"][1]
    assert found.shapes.ranges["motion quantile 0.5"] == plain.shapes.ranges["motion quantile 0.5"]


def test_columns_that_go_together_are_said_to_be_taken_as_uncorrelated():
    assert "uncorrelated" in plan(cape.Covariance("age", "motion"), 0.5).advice
    assert "uncorrelated" not in plan(cape.Variance("age", "motion"), 0.5).advice


def test_the_range_of_a_regression_is_also_for_features_that_are_correlated():
    analysis = cape.LinearRegression("score", ["age", "motion"], method="moments")
    found = plan(analysis, 0.5, rows=100_000)
    assert "uncorrelated; the range is for moderately correlated ones." in found.advice
    assert "in few values" not in found.advice
    assert "the range is also for moderately correlated ones." in plan(analysis, 0.5, schema=BARE).advice
    low, high = found.shapes.ranges["age"]
    assert high > 1.25 * found.noise["age"]["cape"]
    assert low <= found.noise["age"]["cape"]


@pytest.mark.slow(1)
def test_planned_noise_of_a_slope_is_that_of_releases_where_a_ridge_is_needed():
    schema = Schema(
        x={"low": 0, "high": 40, "missing": False, "expected": {"mean": 20, "sd": 0.7}},
        y={"low": 0, "high": 10, "missing": False, "expected": {"mean": 5, "sd": 2}},
    )
    random = np.random.default_rng(1)
    table = pl.DataFrame({"x": random.normal(20, 0.7, 20_000), "y": random.normal(5, 2, 20_000)})
    analysis, values, stated = cape.LinearRegression("y", ["x"], errors="classical"), [], []
    for _ in range(60):
        one = Consortium({"a": table}, schema, Budget(1.0, 1e-6), colluding=0, scheme="pooled")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            slope = one.release(analysis, 1.0).estimates[1]
        values.append(slope.value)
        stated.append(slope.privacy)
    planned = one.plan(analysis, 1.0).noise["x"]["pooled"]
    assert 0.65 < statistics.stdev(values) / planned < 1.45
    assert statistics.median(stated) > 1.3 * planned  # which counts the furthest that a ridge can move it


QUESTIONS = {
    "correlation": (cape.Correlation("age", "score"), 0.08),
    "linear": (cape.LinearRegression("score", ["age", "motion"], method="moments"), 0.2),
    "k-means": (cape.KMeans(["age", "score"], 3), 0.1),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_thousand_rows_have_no_answer_and_a_hundred_thousand_do(name):
    analysis, share = QUESTIONS[name]
    small, large = (plan(analysis, share, rows=rows) for rows in (1112, 100_000))
    assert small.answers.hidden
    assert small.no_answer.startswith("No answer at this budget and size: the 95% interval of ")
    assert small.no_answer in small.notes()
    assert small.to_dict()["no_answer"] == list(small.answers.hidden)
    assert "halve" not in small.advice
    assert large.no_answer == ""


def test_an_answer_needs_the_share_that_the_plan_names():
    analysis, share = QUESTIONS["correlation"]
    needed, *_ = plan(analysis, share).answers.instead
    assert needed.startswith("a share of ")
    named = float(needed.rpartition(" ")[2])
    assert not plan(analysis, named).answers.hidden
    assert plan(analysis, 0.6 * named).answers.hidden


def test_a_smaller_question_that_the_plan_names_has_an_answer():
    analysis = cape.Correlation("age", "score", "motion")
    bare = plan(analysis, 0.08, schema=BARE)
    assert bare.answers.hidden
    assert "a smaller question: correlation of age and score" in bare.answers.instead
    assert not plan(cape.Correlation("age", "score"), 0.08, schema=BARE).answers.hidden


def _released(analysis, share, schema):
    random = np.random.default_rng(5)
    sites = {}
    for i in range(SITES):
        rows = 1112 // SITES
        sites[str(i)] = pl.DataFrame(
            {
                "age": np.clip(5 + random.gamma(2.25, 5.3, rows), 5, 65),
                "score": np.clip(random.normal(108, 15, rows), 40, 160),
                "motion": np.minimum(0.07 * np.exp(0.75 * random.normal(size=rows)), 1.0),
                "ill": np.where(random.random(rows) < 0.15, "yes", "no"),
            }
        )
    # a trusted curator's noise, for speed: that of `cape` is sqrt(20 / 19) times as large
    together = Consortium(sites, schema, Budget(1.0, 1e-6), colluding=1, scheme="pooled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return together.release(analysis, share)


@pytest.mark.slow(2)
def test_a_regression_without_an_answer_has_a_smaller_one_whose_release_has_it():
    whole = cape.LinearRegression("score", ["age", "motion", "ill"])
    small = plan(whole, 0.2)
    assert set(small.answers.hidden) == {"age", "motion", "ill=yes"}
    assert small.answers.instead == ("a smaller question: linear regression of score on ill",)
    possible = steepest(STATED, "score", ("ill",))["ill=yes"]
    answered = []
    for analysis in (whole, cape.LinearRegression("score", ["ill"])):
        widths = []
        for _ in range(7):
            low, high = _released(analysis, 0.2, STATED).interval()["ill=yes"]
            widths.append((high - low) / 2)
        answered.append(statistics.median(widths) < possible)
    assert answered == [False, True]


@pytest.mark.slow(2)
def test_a_logistic_regression_without_an_answer_names_a_smaller_one_that_has_it():
    small = plan(cape.LogisticRegression("ill", ["age", "motion", "score"]), 1.0)
    assert small.answers.hidden == ("age", "motion", "score")
    assert small.answers.instead == ("a smaller question: logistic regression of ill on age, in 6 steps",)
    assert not plan(cape.LogisticRegression("ill", ["age"]), 1.0).answers.hidden


def test_where_nothing_smaller_helps_the_plan_names_rows_and_epsilon_that_do():
    analysis, few = cape.Correlation("age", "motion", cut=3.0), 100
    rows, epsilon = plan(analysis, 0.9, rows=few).answers.instead
    many = int(rows.split()[1].replace(",", ""))
    assert not plan(analysis, 0.9, rows=int(1.1 * many)).answers.hidden
    assert plan(analysis, 0.9, rows=many // 2).answers.hidden
    enough = float(epsilon.rpartition(" ")[2])
    assert not plan(analysis, 0.9, rows=few, epsilon=1.1 * enough).answers.hidden


def test_an_answer_that_depends_on_the_shape_is_doubtful():
    bare = plan(cape.Correlation("age", "score"), 0.08, schema=BARE)
    assert bare.answers.hidden == ()
    assert bare.no_answer.startswith("Perhaps no answer")
    assert bare.to_dict()["perhaps_no_answer"] == ["age, score correlation"]


@pytest.mark.slow(2)
def test_a_histogram_of_many_bins_is_planned_in_seconds():
    start = time.process_time()
    found = plan(cape.Histogram("age", bins=100_000), 0.5)
    assert time.process_time() - start < 10  # it is 2: labels are written once, not for each of 16 forecasts
    assert len(found.noise) == 100_000
    assert list(found.noise)[-1] == "age in [64.9994, 65]"
    assert found.halving["sites"] is None


def test_the_fewest_sites_that_halve_the_noise_are_named():
    analysis = cape.Mean("age")
    found = plan(analysis, 0.5)
    needed = int(found.halving["sites"])
    noise = {}
    for sites in (needed - 1, needed):
        sizes = {str(i): 55 for i in range(sites)}
        together = Consortium(
            {name: f"{name}.csv" for name in sizes}, STATED, Budget(1.0, 1e-6), colluding=1, sizes=sizes
        )
        noise[sites] = together.plan(analysis, 0.5).noise["age"]["cape"]
    assert noise[needed] <= found.noise["age"]["cape"] / 2 < noise[needed - 1]


def test_half_of_what_is_possible_is_the_limit():
    assert hidden({"a": 0.52, "b": 0.50, "c": 9.0}, {"a": 1.0, "b": 1.0}) == ("a",)


def test_smaller_questions_keep_every_other_argument():
    whole = cape.LinearRegression("score", ["age", "motion", "ill"], intercept=False, norm=1.5)
    *found, last = whole.smaller(STATED)
    assert [each.features for each in found] == [("age", "motion"), ("age",), ("motion",), ("ill",)]
    assert all(dataclasses.replace(each, features=whole.features) == whole for each in found)
    assert last == cape.TableOne("score", by="ill")
    odds = cape.LogisticRegression("ill", ["age", "motion"], norm=1.5)
    assert [each.features for each in odds.smaller(STATED)] == [("age",), ("motion",)]
    assert list(cape.LinearRegression("score", ["age"]).smaller(STATED)) == []
    assert [each.clusters for each in cape.KMeans(["age", "score"], 4).smaller(STATED)] == [3, 2]
    assert list(cape.Correlation("age", "score").smaller(BARE)) == []


@pytest.mark.slow(9)
def test_a_plan_of_second_moments_says_how_small_errors_of_clipped_scores_are():
    """Which is what releases have: over rows as the plan expects them."""
    of_method = {
        method: cape.LinearRegression("score", ["age", "ill"], method=method)
        for method in ("moments", "scores")
    }
    (table,) = plan(of_method["moments"], 0.5, rows=20_000).outlook
    assert table.columns[1:] == ("moments", "scores")
    assert 'method = "scores" has less' in table.title
    for (name, *both), of in zip(table.rows, ("age", "ill=yes"), strict=True):
        assert name == of
        for text, analysis in zip(both, of_method.values(), strict=True):
            noise = plan(analysis, 0.5, rows=20_000).noise[of]["cape"]
            assert noise < float(text) < 3 * noise  # and sampling
    assert not plan(of_method["scores"], 0.5, rows=20_000).outlook
    assert not plan(cape.LinearRegression("score", ["age"], method="moments"), 1e-4).outlook
