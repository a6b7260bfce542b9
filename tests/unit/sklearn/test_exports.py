"""Released models in scikit-learn and as JSON: the same predictions, and the same numbers."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.core.errors import InvalidInput
from cape.sklearn.exports import exported

TERMS = "chol ~ age * sex + spline(bmi, 3) + site"
RNG = np.random.default_rng(1)
SCHEMA = cape.Schema(
    age=cape.Number(18, 90, unit="years"),
    bmi=(10, 60),
    sex=["female", "male"],
    chol=(100, 400),
    ill=["no", "yes"],
)


def frame(rows, rng=RNG):
    age, bmi = rng.uniform(10, 95, rows), rng.normal(27, 6, rows)
    sex = rng.choice(["female", "male"], rows)
    eta = 0.05 * (age - 50) + 0.08 * (bmi - 27) + 0.5 * (sex == "male")
    ill = np.where(rng.random(rows) < 1 / (1 + np.exp(-eta)), "yes", "no")
    chol = 150 + age + 1.5 * bmi + rng.normal(0, 20, rows)
    return pl.DataFrame({"age": age, "bmi": bmi, "sex": sex, "chol": chol, "ill": ill})


@pytest.fixture(scope="module")
def releases():
    sites = {name: frame(1500) for name in "abc"}
    hospital = cape.Consortium(sites, SCHEMA, cape.Budget(8, 1e-6), colluding=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "linear": hospital.release(cape.LinearRegression("chol", ["age", "bmi", "sex"]), 0.2),
            "logistic": hospital.release(cape.LogisticRegression("ill", ["age", "sex", "bmi"]), 0.2),
            "terms": hospital.release(
                cape.LinearRegression(formula="chol ~ age * sex + spline(bmi, 3) + site"), 0.1
            ),
            "pca": hospital.release(cape.PCA("age", "bmi", "chol", components=2), 0.2),
            "k-means": hospital.release(cape.KMeans(["age", "bmi"], clusters=3), 0.2),
            "mean": hospital.release(cape.Mean("age"), 0.1),
        }


def test_a_linear_regression_predicts_the_same_where_bounds_leave_it(releases):
    new, release = frame(500, np.random.default_rng(5)), releases["linear"]
    plain = pickle.loads(pickle.dumps(release.to_sklearn()))
    found = np.clip(plain.predict(new), 100, 400)
    assert found == pytest.approx(release.model.predict(new), rel=1e-9)
    assert (
        dict(zip(plain[0].get_feature_names_out(), plain[-1].coef_, strict=True))
        == release.model.coefficients
    )
    assert type(plain[-1]).__module__.startswith("sklearn.")


def test_interactions_splines_and_sites_predict_the_same_elsewhere(releases):
    new = frame(300, np.random.default_rng(4)).with_columns(site=pl.lit("b"))
    release = releases["terms"]
    wanted = release.model.predict(new)
    assert np.clip(release.to_sklearn().predict(new), 100, 400) == pytest.approx(wanted, rel=1e-9)
    assert cape.model_from_json(release.to_json()).predict(new) == pytest.approx(wanted, rel=1e-9)


def test_a_logistic_regression_gives_the_same_probabilities_and_classes(releases):
    new, model = frame(500, np.random.default_rng(6)), releases["logistic"].model
    plain = model.to_sklearn()
    assert plain.predict_proba(new) == pytest.approx(model.predict_proba(new), abs=1e-9)
    assert (plain.predict(new) == model.predict(new, 0.5)).all()
    assert plain.score(new, new["ill"]) > 0.6


def test_components_and_clusters_put_rows_where_the_model_does(releases):
    new = frame(500, np.random.default_rng(7))
    pca, clusters = releases["pca"], releases["k-means"]
    assert pca.to_sklearn().transform(new) == pytest.approx(pca.model.transform(new), abs=1e-9)
    assert (clusters.to_sklearn().predict(new) == clusters.model.predict(new)).all()
    array = np.stack([new[name] for name in ("age", "bmi")], axis=1)
    assert (clusters.to_sklearn().predict(array) == clusters.model.predict(new)).all()


def test_what_has_no_counterpart_is_refused_with_what_there_is_instead(releases):
    with pytest.raises(InvalidInput, match="not a result of kind 'mean'; to_json"):
        releases["mean"].to_sklearn()
    with pytest.raises(InvalidInput, match="can become objects"):
        exported(object())


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_model_as_json_has_all_that_another_program_needs(releases, kind, tmp_path):
    release = releases[kind]
    path = tmp_path / "model.json"
    text = release.to_json(path)
    told = json.loads(path.read_text())
    assert told == json.loads(text)
    columns = told["coefficients"]
    assert len({len(column) for column in columns.values()}) == 1, "equal lengths: a data frame in R"
    by_name = dict(zip(columns["name"], columns["estimate"], strict=True))
    assert by_name == {e.label: e.value for e in release.estimates}
    ends = [tuple(pair) for pair in zip(columns["low"], columns["high"], strict=True)]
    assert ends == [tuple(release.interval()[name]) for name in columns["name"]]
    assert told["reference"] == {"sex": "female"}
    assert told["units"] == {"age": "years"}
    assert told["link"] == {"linear": "identity", "logistic": "logit"}[kind]
    assert told["guarantee"]["epsilon"] == pytest.approx(release.guarantee.epsilon)
    assert "guarantee" not in json.loads(release.model.to_json())
    if told["covariance"] is not None:
        matrix = np.array(told["covariance"]["rows"])
        assert np.sqrt(np.diag(matrix)) == pytest.approx(columns["standard_error"], rel=1e-6)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_model_from_json_predicts_as_the_one_that_was_written(releases, kind, tmp_path):
    release, new = releases[kind], frame(300, np.random.default_rng(8))
    release.to_json(tmp_path / "model.json")
    model = release.model
    wanted = model.predict(new) if kind == "linear" else model.predict_proba(new)[:, 1]
    for source in (
        tmp_path / "model.json",
        str(tmp_path / "model.json"),
        release.to_json(),
        json.loads(release.to_json()),
    ):
        assert cape.model_from_json(source).predict(new) == pytest.approx(wanted, rel=1e-9)


def test_results_without_a_model_are_json_too(releases):
    assert json.loads(releases["mean"].to_json())["estimates"][0]["label"] == "age"
    assert json.loads(releases["pca"].to_json())["names"] == ["age", "bmi", "chol"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "must be JSON"),
        ("[1]", "cannot be read"),
        ('{"target": "ill"}', "coefficients by name"),
        ('{"target": 3, "link": "logit", "coefficients": {"age": 1}}', "column's name"),
        ('{"target": "ill", "link": "root", "coefficients": {"age": 1}}', "link of a model must be one of"),
        ('{"target": "ill", "link": "logit", "coefficients": {"age": "1"}}', "finite number"),
        (
            '{"target": "ill", "link": "logit", "features": "age", "coefficients": {"age": 1}}',
            "list of columns",
        ),
    ],
)
def test_json_that_is_no_model_is_refused(text, said):
    with pytest.raises(InvalidInput, match=said):
        cape.model_from_json(text)


def test_a_model_without_columns_says_that_it_cannot_predict():
    model = cape.model_from_json('{"target": "ill", "link": "logit", "coefficients": {"age": 1}}')
    with pytest.raises(InvalidInput, match="brings no columns"):
        model.predict({"age": [50]})
