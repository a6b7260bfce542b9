from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from cape.analyses import LogRank
from cape.analyses.registry import build
from cape.analyses.survival.logrank_estimate import Contrast
from cape.analyses.survival.logrank_model import LogRankModel
from cape.blocks.survival import woven
from cape.core.errors import InvalidInput
from cape.engine.query import Answer
from tests.unit.analyses.survival.people import EDGES, SCHEMA, at_ends, people, plainly

pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")


@pytest.mark.slow(3)
@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({}, {}),
        ({"weighting": "peto"}, {"weightings": "peto"}),
        (
            {"weighting": "fleming-harrington", "p": 1, "q": 0.5},
            {"weightings": "fleming-harrington", "p": 1, "q": 0.5},
        ),
    ],
)
def test_without_noise_tests_are_those_of_lifelines(options, known):
    frame = people(500, seed=2, ratio=0.9)
    model = plainly(LogRank("years", "died", by="sex", edges=EDGES, at_edges=True, **options), frame).model
    same(model, frame, "sex", known)


@pytest.mark.slow(1)
def test_without_noise_three_groups_are_tested_as_by_lifelines():
    frame = people(500, seed=2, ratio=0.9)
    model = plainly(LogRank("years", "died", by="cause", edges=EDGES, at_edges=True), frame).model
    assert model.test.freedom == 2
    same(model, frame, "cause", {})


def same(model: LogRankModel, frame: pl.DataFrame, by: str, known: dict[str, Any]) -> None:
    from lifelines.statistics import multivariate_logrank_test  # takes two seconds

    years, died = at_ends(frame["years"].to_numpy()), (frame["died"] == "yes").to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, of what lifelines does
        wanted = multivariate_logrank_test(years, frame[by].to_numpy(), died, **known)
    assert model.test is not None
    assert model.test.statistic == pytest.approx(wanted.test_statistic, rel=1e-6)
    assert model.p_value == pytest.approx(wanted.p_value, rel=1e-6)


def test_without_noise_the_statistic_is_the_textbooks():
    frame = people(300, seed=4)
    model = plainly(LogRank("years", "died", by="sex", edges=EDGES, at_edges=True), frame).model
    years, died = at_ends(frame["years"].to_numpy()), (frame["died"] == "yes").to_numpy()
    male, moved, variance = (frame["sex"] == "m").to_numpy(), 0.0, 0.0
    for edge in EDGES:
        events, at_risk = (died & (years == edge)).sum(), (years >= edge).sum()
        share = (male & (years >= edge)).sum() / at_risk
        moved += (died & male & (years == edge)).sum() - events * share
        variance += events * share * (1 - share) * (at_risk - events) / (at_risk - 1)
    assert model.test.statistic == pytest.approx(moved**2 / variance, rel=1e-9)


def test_strata_add_up_what_each_would_say():
    frame = people(500, seed=3)
    asked = {"by": "arm", "edges": EDGES, "at_edges": True}
    whole = plainly(LogRank("years", "died", strata="sex", **asked), frame).model
    parts = [
        plainly(LogRank("years", "died", **asked), frame.filter(pl.col("sex") == sex)).model.contrast
        for sex in "fm"
    ]
    together = Contrast.added(parts, 3)
    assert whole.contrast.observed == pytest.approx(together.observed)
    assert whole.contrast.expected == pytest.approx(together.expected)
    assert whole.contrast.sampling == pytest.approx(together.sampling)
    assert whole.test.freedom == 1  # the third arm is empty


@pytest.mark.slow(1)
def test_equal_groups_are_rejected_as_often_as_the_level_says_though_noise_outweighs_sampling():
    """At 228 rows and epsilon 1 two thirds of the variance is noise."""
    analysis, noise, rng, runs = (
        LogRank("years", "died", by="sex", bins=20),
        6.7,
        np.random.default_rng(5),
        400,
    )
    leaving = np.concatenate([np.full(20, 0.02), [0.1], np.full(20, 0.025), [0.0]])
    cells = np.outer([0.6, 0.4], leaving / leaving.sum())
    rejected, shares = 0, []
    for _ in range(runs):
        counts = rng.multinomial(228, cells.ravel()).reshape(2, 2, 21)
        released = counts @ woven(21).matrix.T + noise * rng.normal(size=counts.shape)
        model = analysis.finish(Answer(((released,),), ((noise,),), 228, SCHEMA)).model
        assert isinstance(model, LogRankModel)
        assert model.test is not None
        rejected += model.test.p_value < 0.05
        drawn, blurred = model.contrast.sampling[0, 0], model.contrast.noise[0, 0]
        shares.append(blurred / (blurred + drawn))
    assert 0.025 < rejected / runs < 0.085
    assert np.median(shares) > 0.6


def test_without_events_there_is_no_test():
    nobody = people(60).with_columns(pl.lit("no").alias("died"))
    release = plainly(LogRank("years", "died", by="sex"), nobody)
    assert release.model.p_value is None
    assert "There are no events" in release.notes()[0]
    assert [row[-1] for row in release.tables()[0].rows] == ["-", "-"]


def test_observed_less_expected_events_are_shown_with_their_interval():
    release = plainly(LogRank("years", "died", by="sex"), people(200))
    table = release.tables()[0]
    assert table.columns[-1] == "observed - expected (95% interval)"
    for row, estimate in zip(table.rows, release.estimates[:2], strict=True):
        shown = [float(each) for each in re.findall(r"-?[0-9.]+", row[-1])]
        assert shown == pytest.approx([estimate.value, *estimate.interval()], abs=0.6)
    assert table.caption == "", "there is no noise"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weighting": "gehan"}, "must be one of logrank, peto"),
        ({"p": 1}, "leave them out"),
        ({"weighting": "fleming-harrington"}, "needs a power"),
        ({"strata": "sex"}, "named twice"),
    ],
)
def test_arguments_that_fit_no_test_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        LogRank("years", "died", by="sex", **options)


def test_one_group_is_refused():
    schema = SCHEMA.changed({"sex": type(SCHEMA["sex"])(("f",))})
    with pytest.raises(InvalidInput, match="needs two groups"):
        LogRank("years", "died", by="sex").query(schema, "replace-one")


def test_a_study_file_says_the_same():
    asked = LogRank("years", "died", by="arm", strata=["sex"], weighting="fleming-harrington", q=1, bins=7)
    assert build(asked.to_dict()) == asked
