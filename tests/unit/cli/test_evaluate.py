"""Models that are evaluated in a study file: of an earlier analysis, from a JSON file, or written out."""

from __future__ import annotations

import json

import pytest

from cape.study import Study

STUDY = """
[[analysis]]
kind = "logistic-regression"
target = "ill"
features = ["age", "sex"]
share = 0.5
where = "not held_out"
[[analysis]]
kind = "evaluate"
model = 1
threshold = 0.4
where = "held_out"
share = 0.25
[[analysis]]
kind = "evaluate"
model = "outside.json"
share = 0.25
"""
OUTSIDE = {"target": "ill", "link": "logit", "intercept": -4.0, "coefficients": {"age": 0.07}}


@pytest.fixture
def evaluated(study):
    text = study.read_text()
    person = '[person]\nid = "patient"\nkeep_apart = 0.4\n'
    study.write_text(text[: text.index("[[analysis]]")].replace("[sites]", f"{person}[sites]") + STUDY)
    (study.parent / "outside.json").write_text(json.dumps(OUTSIDE))
    for name in "abc":
        path = study.parent / "data" / f"{name}.csv"
        first, *lines = path.read_text().splitlines()
        path.write_text(
            "\n".join([f"{first},patient", *(f"{line},{name}{i}" for i, line in enumerate(lines))]) + "\n"
        )
    return study


@pytest.mark.slow(2)
def test_a_study_fits_a_model_and_evaluates_it_on_others(cape, evaluated):
    out = evaluated.parent / "out"
    done = cape("run", evaluated, "--json", "--out", out)
    assert done.code == 0, done.err
    fit, held, outside = json.loads(done.out)["analyses"]
    assert held["analysis"]["model"]["coefficients"] == fit["model"]["predictions"]["coefficients"]
    assert [e["label"] for e in held["estimates"]][:2] == ["AUC", "Brier score"]
    assert outside["analysis"]["model"]["coefficients"] == {"age": 0.07}
    report = (out / "report.html").read_text()
    assert "ROC curve" in report
    assert "Held out are 0.4 of the persons" in report


@pytest.mark.slow(1.5)
def test_a_resumed_run_takes_the_model_from_its_results(cape, evaluated):
    out = evaluated.parent / "out"
    assert cape("run", evaluated, "--out", out, "--only", "1").code == 0
    done = cape("run", evaluated, "--json", "--out", out, "--only", "2")
    assert done.code == 0, done.err
    fit, held = json.loads(done.out)["analyses"]
    assert held["analysis"]["model"]["coefficients"] == fit["model"]["predictions"]["coefficients"]


def test_an_evaluation_without_its_model_costs_nothing(cape, evaluated):
    done = cape("run", evaluated, "--only", "2")
    assert done.code == 2
    assert "analysis 2 needs the model of analysis 1, which is not released" in done.err
    assert "Nothing was spent" in done.err


@pytest.mark.slow(1.5)
def test_a_plan_needs_no_model(cape, evaluated):
    done = cape("plan", evaluated)
    assert done.code == 0, done.err
    assert "evaluation of the model of ill on age and sex" in " ".join(done.out.split())
    study = Study.load(evaluated)
    assert 0 < study.plan(study.analyses[1]).expected_error["AUC"] < 0.5


def test_a_json_file_that_is_not_there_is_named(cape, evaluated):
    (evaluated.parent / "outside.json").unlink()
    done = cape("plan", evaluated)
    assert done.code == 2
    assert "outside.json cannot be read" in done.err
