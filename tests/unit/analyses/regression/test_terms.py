"""Regressions on interactions, splines and sites: against statsmodels, and through a whole release."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cape
from cape.core.errors import InvalidInput, TooNoisyWarning

pytestmark = pytest.mark.filterwarnings("ignore:scheme 'none'")
SITES = ["north", "south", "west"]


def people(rows: int = 1500, seed: int = 3) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "age": draw.uniform(18, 90, rows),
            "chol": draw.uniform(100, 400, rows),
            "bmi": draw.gamma(9, 3, rows).clip(15, 50),
            "sex": draw.choice(["F", "M"], rows),
            "stage": draw.choice(["I", "II", "III"], rows, p=[0.6, 0.3, 0.1]),
            "site": draw.choice(SITES, rows),
        }
    )
    man = data["sex"] == "M"
    mean = 100 + 0.3 * data["age"] + man * (4 + 0.1 * data["age"]) + 0.05 * (data["bmi"] - 27) ** 2
    data["sbp"] = (mean + 3 * (data["site"] == "south") + draw.normal(0, 8, rows)).clip(60, 220)
    odds = (data["age"] - 54) / 20 + 0.5 * man - 0.05 * (data["bmi"] - 27)
    data["ill"] = np.where(draw.uniform(size=rows) < 1 / (1 + np.exp(-odds)), "yes", "no")
    return data


SCHEMA = cape.Schema(
    age={"low": 18, "high": 90, "label": "Age", "unit": "years", "per": 10},
    chol=(100, 400),
    bmi={"low": 15, "high": 50, "label": "BMI"},
    sex={"categories": ["F", "M"], "label": "Sex"},
    stage=["I", "II", "III"],
    sbp=(60, 220),
    ill=["no", "yes"],
)


def consortium(data: pd.DataFrame, scheme: str = "none", epsilon: float = 1.0, **options: Any) -> Any:
    tables = {name: data[data["site"] == name].drop(columns="site") for name in SITES}
    return cape.Consortium(tables, SCHEMA, cape.Budget(epsilon, 1e-6), scheme=scheme, colluding=1, **options)


def model_of(analysis: Any, data: pd.DataFrame) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return consortium(data).release(analysis, 1.0).model


def spline(x: Any, df: int) -> dict[int, Any]:
    """The natural spline of patsy on the bounds of BMI, without its first column."""
    import patsy

    inner = np.linspace(15, 50, df + 1)[1:-1]
    formula = "cr(x, knots=inner, lower_bound=15, upper_bound=50) - 1"
    return dict(enumerate(np.asarray(patsy.dmatrix(formula, {"x": np.asarray(x), "inner": inner})).T[1:], 1))


FORMULAS = [
    "age * sex + spline(bmi, 4) + site",
    "age * chol",
    "age:sex + stage",
    "sex * stage * site",
    "spline(bmi, 3) * sex + age:site",
]


@pytest.mark.slow_cases(*FORMULAS[1:], seconds=1.5)
@pytest.mark.parametrize("formula", FORMULAS)
def test_without_noise_a_formula_gives_the_least_squares_of_its_columns(formula: str) -> None:
    from formulaic import model_matrix

    data = people()
    model = model_of(cape.LinearRegression(formula=f"sbp ~ {formula}"), data)
    columns = np.asarray(model_matrix(formula, data, context={"spline": spline}), float)
    true = np.linalg.lstsq(columns, data["sbp"].to_numpy(), rcond=None)[0]
    found = np.array([estimate.value for estimate in model.estimates])
    size = np.abs(columns).max(axis=0)  # how far a coefficient moves the target, beside its width
    assert np.abs((found - true) * size).max() / 160 < 5e-6
    assert np.abs(model.predict(data) - columns @ true).max() / 160 < 2e-6
    missing = data.head(3).assign(age=[np.nan, 50.0, 50.0], sex=["F", None, "M"])
    needed = [re.search(rf"\b{name}\b", formula) is not None for name in ("age", "sex")]
    assert np.isnan(model.predict(missing)).tolist() == [*needed, False]


@pytest.mark.slow(12)
@pytest.mark.parametrize("formula", ["age * sex + site", "sex * stage + bmi"])
def test_without_noise_regressions_agree_with_statsmodels_formulas(formula: str) -> None:
    import statsmodels.formula.api as smf

    data = people(6000).assign(y=lambda each: (each["ill"] == "yes") * 1)
    linear = model_of(cape.LinearRegression(formula=f"sbp ~ {formula}"), data)
    theirs = smf.ols(f"sbp ~ {formula}", data).fit()
    assert np.abs(linear.predict(data) - theirs.predict(data)).max() / 160 < 1e-6
    ours = sorted(estimate.value for estimate in linear.estimates)
    np.testing.assert_allclose(ours, sorted(theirs.params), rtol=2e-5, atol=2e-5)
    errors = sorted(estimate.sampling for estimate in linear.estimates)
    np.testing.assert_allclose(errors, sorted(theirs.get_robustcov_results("HC0").bse), rtol=0.01)
    logistic = model_of(cape.LogisticRegression(formula=f"ill ~ {formula}", rounds=12), data)
    theirs = smf.logit(f"y ~ {formula}", data).fit(disp=0)
    assert np.abs(logistic.predict_proba(data)[:, 1] - theirs.predict(data)).max() < 1e-3


def test_a_private_release_has_coefficients_tests_and_titles_of_terms() -> None:
    data = people(9_000)
    question = cape.LinearRegression(formula="sbp ~ age * sex + spline(bmi, 3)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        release = consortium(data, "cape", epsilon=8.0).release(question, 1.0)
    model = release.model
    assert [estimate.label for estimate in model.estimates] == [
        *("intercept", "age", "sex=M", "spline(bmi, 3)[26.6667]", "spline(bmi, 3)[38.3333]"),
        *("spline(bmi, 3)[50]", "age:sex=M"),
    ]
    low, high = model.estimates[-1].interval(1 - 1e-6)  # noise is fresh in each run
    assert low < 0.1 < high
    assert model.test("sex:age").labels == ("age:sex=M",)
    assert model.test("spline(bmi,3)").freedom == 3
    shown = str(release)
    assert "Age (per 10 years) × Sex: M" in shown
    assert "BMI 50 against 15 (spline)" in shown
    assert question.describe() == "linear regression of sbp on age, sex, spline(bmi, 3) and age:sex"
    plan = consortium(data, "cape", epsilon=8.0).plan(question, 1.0)
    assert set(plan.noise) == {estimate.label for estimate in model.estimates}
    said = {each.label: plan.noise[each.label]["cape"] / each.privacy for each in model.estimates}
    assert 0.5 < said["age:sex=M"] < 8  # ages are more spread out than a plan takes them to be


def test_a_plan_that_knows_the_columns_says_the_noise_of_splines_too() -> None:
    data = people(9_000)
    told = {
        name: {**SCHEMA.to_dict()[name], "expected": {"mean": data[name].mean(), "sd": data[name].std()}}
        for name in ("age", "bmi", "sbp")
    }
    schema = cape.Schema({**SCHEMA.to_dict(), **told})
    tables = {name: data[data["site"] == name].drop(columns="site") for name in SITES}
    asked = cape.LinearRegression(formula="sbp ~ age + spline(bmi, 3)", errors="classical")
    shared = cape.Consortium(tables, schema, cape.Budget(8.0, 1e-6), colluding=1)
    plan, model = shared.plan(asked, 1.0), shared.release(asked, 1.0).model
    for each in model.estimates:
        assert 0.4 < plan.noise[each.label]["cape"] / each.privacy < 2.5


@pytest.mark.slow(2)
def test_where_and_persons_with_several_rows_count_for_terms_too() -> None:
    from formulaic import model_matrix

    data = people(900)
    data["who"] = [f"{site} {i // 2}" for i, site in enumerate(data["site"])]  # one or two rows each
    question = cape.LinearRegression(formula="sbp ~ age * sex + site", where="chol < 250")
    shared = consortium(data, person=cape.Person("who", rows=2), neighbours="add-remove")
    model, kept = shared.release(question, 1.0).model, data[data["chol"] < 250]
    assert model.rows == pytest.approx(len(kept))
    columns = np.asarray(model_matrix("age * sex + site", kept), float)
    true = columns @ np.linalg.lstsq(columns, kept["sbp"].to_numpy(), rcond=None)[0]
    assert np.abs(model.predict(kept) - true).max() / 160 < 2e-6


def test_smaller_questions_than_one_with_terms_have_terms_or_columns() -> None:
    question = cape.LinearRegression(formula="sbp ~ age * sex + spline(bmi, 4)")
    smaller = list(question.smaller(SCHEMA))
    assert [getattr(each, "features", each.kind) for each in smaller] == [
        ("age", "sex", "spline(bmi, 4)"),
        ("age", "sex"),
        ("age",),
        ("sex",),
        ("spline(bmi, 4)",),
        "table-one",
    ]


def test_a_random_slope_is_of_a_column_without_interactions_and_sites_are_no_feature_of_their_own() -> None:
    terms = ["age", "sex", "chol", "age:sex"]
    cape.MixedModel("sbp", terms, random=["intercept", "chol"]).query(SCHEMA.at(SITES), "replace-one")
    with pytest.raises(InvalidInput, match=r"without interactions.*'age'"):
        cape.MixedModel("sbp", terms, random=["age"]).query(SCHEMA.at(SITES), "replace-one")
    with pytest.raises(InvalidInput, match="site"):
        cape.Heterogeneity(cape.LinearRegression("sbp", ["age", "age:site"]))


def test_other_analyses_with_features_take_terms_and_those_of_columns_refuse_them() -> None:
    data = people(300)
    loss = cape.PolynomialLoss("sbp", ["age", "sex", "age:sex"], {1: [0, -2], 2: [1]})
    assert list(model_of(loss, data).coefficients) == ["age", "sex=M", "age:sex=M"]
    network = cape.NeuralNetwork("ill", ["age:sex", "spline(bmi, 3)"], hidden=(2,), epochs=2, rows=300)
    assert model_of(network, data).predict_proba(data).shape == (300, 2)
    for question in (cape.PCA("age", "age:chol"), cape.KMeans(["age", "spline(bmi, 3)"], 2)):
        with pytest.raises(InvalidInput, match="no column"):
            consortium(data).release(question, 1.0)
