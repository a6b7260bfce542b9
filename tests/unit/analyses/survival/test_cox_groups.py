"""Cox on one category: from tables, with the ratio of Cox's regression and what goes with it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses import Cox, LogRank
from cape.analyses.survival.cox_groups import CoxOfGroups
from cape.blocks.survival import woven
from cape.core.errors import TooNoisyWarning
from cape.engine.query import Answer

pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")
SCHEMA = cape.Schema(years=(0, 15), died=["no", "yes"], arm=["old", "new"], ward=["a", "b"], age=(18, 90))


def people(many: int, seed: int) -> pl.DataFrame:
    """Hazards cross: they are not proportional."""
    rng = np.random.default_rng(seed)
    arm, unit = rng.integers(0, 2, many), rng.exponential(size=many)
    time, censored = np.where(arm > 0, 9 * unit**0.6, 7 * unit**1.1), rng.uniform(0, 20, many)
    return pl.DataFrame(
        {
            "years": np.minimum(np.minimum(time, censored), 14.99),
            "died": np.where((time <= censored) & (time < 14.99), "yes", "no"),
            "arm": np.where(arm > 0, "new", "old"),
            "ward": rng.choice(["a", "b"], many),
            "age": rng.uniform(20, 80, many),
        }
    )


def consortium(frame: pl.DataFrame, epsilon: float = 1.0, schema: cape.Schema = SCHEMA, **more):
    sites = {name: frame[place::4] for place, name in enumerate("abcd")}
    return cape.Consortium(sites, schema, budget=cape.Budget(epsilon=epsilon, delta=1e-6), **more)


@pytest.mark.parametrize("strata", [(), "ward"])
def test_the_ratio_covers_that_of_the_regression_by_steps_without_noise(strata):
    analysis = Cox("years", "died", ["arm"], strata=strata)
    target = consortium(people(60_000, 0), scheme="none").release(analysis, share=1.0).estimates[0].value
    z = []
    for seed in range(1, 31):
        release = consortium(people(1500, seed), 3.0).release(analysis, share=1.0)
        assert isinstance(release.analysis, CoxOfGroups)
        (estimate,) = release.estimates
        z.append((estimate.value - target) / estimate.standard_error)
    assert np.mean(np.abs(z) < 1.96) >= 0.85
    assert 0.6 < np.std(z) < 1.4


def test_a_log_rank_test_shows_the_same_ratio():
    cox, test = (
        Cox("years", "died", ["arm"], bins=20).over(SCHEMA),
        LogRank("years", "died", by="arm", bins=20),
    )
    query = cox.query(SCHEMA, "replace-one")
    assert query.blocks == test.query(SCHEMA, "replace-one").blocks
    rng = np.random.default_rng(2)
    counts = rng.multinomial(4000, np.full(2 * 2 * 21, 1 / 84)).reshape(2, 2, 21) @ woven(21).matrix.T
    answer = Answer(((counts + rng.normal(0, 9, counts.shape),),), ((9.0,),), 4000, SCHEMA)
    one, other = (each.finish(answer) for each in (cox, test))
    assert one.estimates[0].interval() == pytest.approx(other.estimates[-1].interval())
    assert other.model.hazard_ratios["arm=new"] == pytest.approx(math.exp(one.estimates[0].value))
    assert other.model.to_dict()["hazard_ratios"]["arm=new"]["interval"][0] < 1


def test_what_goes_with_it_is_that_of_steps():
    frame = people(40_000, 3)
    steps = consortium(frame, scheme="none").release(Cox("years", "died", ["arm"]), share=1.0).model
    tables = consortium(frame, 20.0).release(Cox("years", "died", ["arm"]), share=1.0).model
    for data in ({"arm": ["old", "new"]},):
        wanted, found = (model.predict_survival(data, [1, 5, 10]) for model in (steps, tables))
        assert found == pytest.approx(wanted, abs=0.02)
    assert tables.concordance.value == pytest.approx(steps.concordance.value, abs=0.02)
    low = [each.interval()[0] for each in tables.baseline_survival()]
    high = [each.interval()[1] for each in tables.baseline_survival()]
    at = steps.edges[1:]
    centre = np.exp(-steps.cumulative_hazard(at))
    assert np.mean((np.array(low) - 0.02 < centre) & (centre < np.array(high) + 0.02)) > 0.9
    assert "from tables of groups" in tables.describe()


@pytest.mark.parametrize(
    "other",
    [
        {"features": ["arm", "ward"]},
        {"features": ["age"]},
        {"features": ["arm"], "rounds": 3},
        {"features": ["arm"], "proportional": True},
        {"features": ["arm"], "entry": "age"},
    ],
)
def test_all_else_is_asked_by_steps(other):
    analysis = Cox("years", "died", **other)
    assert type(analysis.over(SCHEMA)) is Cox


def test_persons_with_several_rows_and_events_that_compete_are_asked_by_steps():
    analysis = Cox("years", "died", ["arm"])
    assert isinstance(analysis.over(SCHEMA), CoxOfGroups)
    assert type(analysis.over(SCHEMA.changed({"died": cape.Category(("no", "yes", "other"))}))) is Cox
    assert type(analysis.over(SCHEMA.of_persons(cape.Person("patient", rows=2)))) is Cox


def test_where_nothing_is_known_that_is_said():
    with pytest.warns(TooNoisyWarning, match="nothing is known of the hazard of arm=old and arm=new"):
        release = consortium(people(60, 1), 0.01).release(Cox("years", "died", ["arm"]), share=1.0)
    assert "Not identified" in str(release)
    assert release.model.baseline_survival()[0].interval() == (0.0, 1.0)


def test_a_plan_has_the_noise_of_a_release():
    analysis = Cox("years", "died", ["arm"])
    frame = people(3000, 4)
    time = frame["years"]
    expected = SCHEMA.changed(
        {
            "years": replace(SCHEMA["years"], expected={"mean": time.mean(), "sd": time.std()}),
            "died": replace(SCHEMA["died"], expected={"share": (frame["died"] == "yes").mean()}),
        }
    )
    planned = consortium(frame, schema=expected, sizes=dict.fromkeys("abcd", 750)).plan(analysis, share=1.0)
    noise = [
        consortium(people(3000, seed)).release(analysis, share=1.0).estimates[0].privacy for seed in range(8)
    ]
    assert 1 / 1.6 < np.median(noise) / planned.noise["arm=new"]["cape"] < 1.6


def test_the_number_of_events_has_no_bias_and_is_said_to_be_noisy():
    z, about = [], 0
    for seed in range(20):
        frame = people(900, seed)
        model = consortium(frame).release(Cox("years", "died", ["arm"]), share=0.3).model
        z.append((model.events - (frame["died"] == "yes").sum()) / model.events_noise)
        about += "(about " in model.title
    assert abs(np.mean(z)) < 0.8
    assert np.abs(z).max() < 4
    assert about > 10  # in others noise may hide whether there are any
