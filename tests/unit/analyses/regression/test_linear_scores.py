"""Linear regression by clipped scores: when they are asked for, what sites are told, and what comes out."""

from __future__ import annotations

import math
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.regression.linear_scores import LinearByScores
from cape.core.errors import InvalidInput
from cape.noise import SecureStream
from cape.privacy import mu
from cape.study.document import document

SCHEMA = cape.Schema(age=(0, 200), dose=(0, 100), sex=["f", "m"], y=(-100, 100))
ASKED = cape.LinearRegression("y", ["age", "dose", "sex"])
TIGHT = cape.Schema(x=(-1, 1), y=(-1, 1))


def people(rows=6000, seed=1):
    rng = np.random.default_rng(seed)
    age, dose = rng.normal(50, 12, rows), np.minimum(rng.exponential(6, rows), 100)
    sex = rng.choice(["f", "m"], rows)
    y = 0.2 * age - 0.5 * dose + 3 * (sex == "m") + 4 * rng.normal(size=rows)
    return pl.DataFrame({"age": np.clip(age, 0, 200), "dose": dose, "sex": sex, "y": y})


def released(analysis, table, epsilon=1.0, scheme="cape", key=1, schema=SCHEMA):
    parts = {name: table[i::3] for i, name in enumerate("abc")}
    stream = SecureStream(bytes([key]) * 32)
    consortium = cape.Consortium(parts, schema, cape.Budget(epsilon, 1e-6), colluding=1, stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return consortium.release(analysis, 1.0, scheme=scheme)


def chosen(analysis, schema, epsilon, rows):
    return analysis.chosen(schema, 1 / mu(epsilon, 1e-6), rows, "replace-one").method


def test_wide_bounds_take_scores_and_few_rows_or_nothing_to_gain_second_moments():
    assert chosen(ASKED, SCHEMA, 1.0, 10_000) == "scores"
    assert chosen(ASKED, SCHEMA, 1.0, 300) == "auto"  # noise hides lengths of scores
    plain = cape.LinearRegression("y", ["x"])
    known = cape.Schema(
        x={"low": -1, "high": 1, "expected": {"mean": 0, "sd": 0.6}},
        y={"low": -1, "high": 1, "expected": {"mean": 0, "sd": 0.6}},
    )
    assert chosen(plain, known, 10.0, 1_000_000) == "auto"  # sampling is all there is
    assert chosen(plain, TIGHT, 1.0, 2_000) == "scores"


@pytest.mark.parametrize(
    "given", [{"method": "moments"}, {"method": "scores"}, {"ridge": 0.1}, {"errors": "classical"}]
)
def test_what_was_given_stays(given):
    asked = cape.LinearRegression("y", ["age", "dose", "sex"], **given)
    for rows in (100, 10_000):
        assert asked.chosen(SCHEMA, 4.0, rows, "replace-one") == asked


def test_splines_leave_second_moments_because_caps_would_move_their_knots():
    asked = cape.LinearRegression("y", ["spline(age, 3)", "dose:sex"])
    assert chosen(asked, SCHEMA, 1.0, 10_000) == "auto"
    assert chosen(cape.LinearRegression("y", ["age", "dose:sex"]), SCHEMA, 1.0, 10_000) == "scores"


def test_many_columns_leave_second_moments():
    names = [f"x{i}" for i in range(41)]
    schema = cape.Schema(y=(0, 1), **dict.fromkeys(names, (0, 1)))
    assert chosen(cape.LinearRegression("y", names), schema, 1.0, 10_000) == "auto"


STUDY = """
[study]
name = "choice"
[privacy]
epsilon = 1.0
delta = 1e-6
colluding = 1
[schema]
age = [18, 90]
pressure = [0, 400]
[sites]
{sites}
[[analysis]]
kind = "linear-regression"
target = "pressure"
features = ["age"]
{more}
"""


def asked_of_sites(tmp_path, rows, more=""):
    sites = "\n".join(f'{name} = {{ path = "{name}.csv", rows = {rows} }}' for name in "abc")
    study = cape.Study.parse(STUDY.format(sites=sites, more=more), tmp_path / "study.toml")
    return document(study)["analyses"][0]


def test_the_document_that_all_sites_get_names_scores_and_is_as_before_without(tmp_path):
    few, many = (asked_of_sites(tmp_path, rows) for rows in (50, 10_000))
    assert set(few) == {
        *("kind", "target", "features", "intercept", "ridge", "errors", "share"),
    }  # as before there was a choice: hashes stay
    assert many == {**few, "method": "scores"}
    assert asked_of_sites(tmp_path, 10_000, 'method = "moments"') == {**few, "method": "moments"}
    told = {**many}
    told.pop("share")
    assert (
        "clipped scores"
        in cape.LinearRegression(**{k: told[k] for k in told if k != "kind"}).over(SCHEMA).describe()
    )


def test_what_is_asked_is_what_a_gaussian_glm_asks():
    """Whose sensitivity is proved."""
    asked = ASKED.changed(method="scores").over(SCHEMA)
    glm = cape.GLM("y", ["age", "dose", "sex"])
    assert isinstance(asked, LinearByScores)
    assert asked.query(SCHEMA, "replace-one") == glm.query(SCHEMA, "replace-one")
    assert asked.stages() == glm.stages()
    mine, other = (each.conduct(SCHEMA, "replace-one") for each in (asked, glm))
    assert next(mine) == next(other)


@pytest.mark.parametrize("cap", ["none", {"dose": (0, 10), "y": (-10, 20)}])
def test_without_noise_it_is_least_squares_on_capped_cells(cap):
    table = people(2000)
    asked = cape.LinearRegression("y", ["age", "dose", "sex"], method="scores", cap=cap)
    found = released(asked, table, scheme="none")
    cells = {name: table[name].to_numpy() for name in ("age", "dose", "y")}
    for name, (low, high) in ({} if cap == "none" else cap).items():
        cells[name] = np.clip(cells[name], low, high)
    x = np.column_stack([np.ones(2000), cells["age"], cells["dose"], table["sex"].to_numpy() == "m"])
    known = np.linalg.lstsq(x.astype(float), cells["y"], rcond=None)[0]
    assert [each.value for each in found.estimates] == pytest.approx(known.tolist(), rel=1e-4)


def test_a_release_says_how_it_was_asked_and_predicts_within_bounds():
    table = people()
    by_scores, by_moments = released(ASKED, table), released(ASKED.changed(method="moments"), table)
    assert 'method = "scores"' in str(by_scores)
    assert 'method = "moments"' in str(by_moments)
    for release, method in ((by_scores, "scores"), (by_moments, "moments")):
        assert release.model.found_by == release.model.to_dict()["method"] == method
        assert release.model.title == "y by least squares (about 6,000 rows)"
        some = release.model.predict({"age": [50.0, 200.0], "dose": [5.0, 100.0], "sex": ["f", "m"]})
        assert np.all(np.abs(some) <= 100)
    assert "by clipped scores in 5 steps" in by_scores.describe()
    model = by_scores.model
    assert 3 < model.residual < 6
    assert math.isnan(model.r_squared) or 0 < model.r_squared < 1
    assert cape.LinearRegression(**by_scores.analysis.keys()).keys() == by_scores.analysis.keys()


def test_the_choice_has_the_smaller_error():
    """Standard errors, of releases of a table that is not as it was planned."""
    for epsilon, rows in ((1.0, 3000), (3.0, 6000)):
        table = people(rows)
        errors = {}
        for method in ("auto", "moments", "scores"):
            each = released(ASKED.changed(method=method), table, epsilon).estimates
            errors[method] = np.array([e.standard_error for e in each])
        least = np.minimum(errors["moments"], errors["scores"])
        assert np.all(errors["auto"] <= 1.3 * least)
        assert np.median(errors["auto"] / errors["moments"]) < 0.5


@pytest.mark.slow_cases("scores", seconds=5)
@pytest.mark.parametrize("method", ["moments", "scores"])
def test_a_plan_has_the_noise_that_releases_print(method):
    table = people(20_000)
    known = {
        name: {
            "low": SCHEMA.number(name).low,
            "high": SCHEMA.number(name).high,
            "expected": {"mean": float(table[name].mean()), "sd": float(table[name].std())},
        }
        for name in ("age", "dose", "y")
    }
    schema = cape.Schema(sex=["f", "m"], **known)
    asked = ASKED.changed(method=method)
    parts = {name: table[i::3] for i, name in enumerate("abc")}
    plan = cape.Consortium(parts, schema, cape.Budget(3.0, 1e-6), colluding=1).plan(asked, 1.0)
    for each in released(asked, table, 3.0, schema=schema).estimates:
        assert 1 / 1.5 < each.privacy / plan.noise[each.label]["cape"] < 1.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "best"}, "must be 'auto', 'moments' or 'scores'"),
        ({"method": "scores", "ridge": 0.1}, "no ridge"),
        ({"method": "scores", "errors": "classical"}, "no ridge and no classical errors"),
        ({"cap": "none"}, "only method 'scores'"),
        ({"method": "scores", "cap": "some"}, "cap must be"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(InvalidInput, match=message):
        cape.LinearRegression("y", ["age"], **given)
