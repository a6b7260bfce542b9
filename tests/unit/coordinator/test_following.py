"""An analysis that needs the model of an earlier one, across machines: sites are told released numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cape.core.errors import InvalidInput
from cape.site.decide.request import Request
from cape.study.document import document, read
from tests.world import LINEAR, LOGISTIC, MEAN, World

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")

EVALUATE = 'kind = "evaluate"\nmodel = 1\nbins = 5'


@pytest.mark.slow(2)
def test_sites_evaluate_the_model_that_was_released(world: World):
    study = world.study(LOGISTIC, EVALUATE, epsilon=10.0)
    submission = world.submission(study)
    assert all(not any(report.refusals) for report in submission.check().values())
    model, said = (submission.answer(entry) for entry in study.analyses)
    assert said.analysis.model == model.model.predictor
    here = study.consortium().release(said.analysis, 0.5)
    for ours, theirs in zip(said.estimates, here.estimates, strict=True):
        assert abs(ours.value - theirs.value) < 6 * (ours.privacy**2 + theirs.privacy**2) ** 0.5 + 1e-9
    again = world.submission(study, submission.record).answer(study.analyses[1])
    assert again.value == said.value, "replayed from the record, with the model from the record"


@pytest.mark.slow(2)
def test_the_errors_of_a_number_are_asked_in_two_stages(world: World):
    study = world.study(LINEAR, 'kind = "evaluate"\nmodel = 1', epsilon=10.0)
    submission = world.submission(study)
    _, said = (submission.answer(entry) for entry in study.analyses)
    assert said.cost.rounds == 10
    assert said.value["R²"] < 1


def test_it_is_refused_before_the_model_is_there(world: World):
    study = world.study(LOGISTIC, EVALUATE)
    submission = world.submission(study)
    with pytest.raises(InvalidInput, match="analysis 2 needs the model of analysis 1, which is not released"):
        submission.answer(study.analyses[1])
    assert submission.spent == 0


@pytest.mark.parametrize(
    ("analyses", "said"),
    [
        ((EVALUATE, LOGISTIC), "must come after"),
        ((MEAN, EVALUATE), "of kind 'mean'"),
        ((LOGISTIC, EVALUATE.replace("1", "2")), "must come after"),
    ],
)
def test_a_study_whose_analysis_follows_nothing_is_refused(world: World, analyses, said):
    with pytest.raises(InvalidInput, match=said):
        world.study(*analyses)


def test_what_a_site_is_told_of_the_model_is_checked_and_costs_the_same(world: World):
    study = document(world.study(LOGISTIC, EVALUATE))
    coefficients = {"age": 0.1, "sex=male": 1.0}
    model = {
        "target": "ill",
        "features": ["age", "sex"],
        "link": "logit",
        "intercept": 1.0,
        "coefficients": coefficients,
    }
    asked, told = read(study, 2), read(study, 2, model)
    assert asked.price() == told.price()
    prices = [each.analysis.query(each.setting.schema, "replace-one").sensitivity for each in (asked, told)]
    assert prices == [math.sqrt(11 / 4)] * 2
    for other in ({"age": 0.1}, {"age": 1e200, "sex=male": 0.0}, {"weight": 1.0}):
        with pytest.raises(InvalidInput):
            read(study, 2, model | {"coefficients": other}).session().calibrate()


def test_the_model_is_signed_with_the_request(world: World):
    request = world.request()
    model = {"target": "ill", "coefficients": {"age": 1.0}}
    told = replace(request, model=model).signed(world.office)
    assert Request.open(told.pack(), lambda key: True).model == model
    assert told.plan != request.plan
    assert told.study_hash == request.study_hash, "what a steward approved"
