"""Linear regressions: units, predictions, intervals that cover, and what is said when noise hides it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cape import Budget, Consortium
from cape.analyses.regression.joint import Joint
from cape.analyses.regression.linear import LinearRegression
from cape.core.errors import InvalidInput, PrivacyLeakWarning, TooNoisyWarning
from cape.data import Number, Schema
from cape.stats.estimates import Estimate
from tests.unit.analyses.regression.tables import conducted, found, numeric

SCHEMA = Schema(
    age=Number(18, 90, missing=False),
    bmi=Number(15, 45, missing=False),
    chol=Number(100, 400, missing=False),
    sex={"categories": ["female", "male"], "missing": False},
    stage={"categories": ["I", "II", "III"], "missing": False},
)
TRUE = {"intercept": 80.0, "age": 1.2, "bmi": 2.5, "sex=male": 8.0, "stage=II": -5.0, "stage=III": 12.0}


def people(rows, rng):
    """Patients, with a cholesterol that is linear in what is known of them."""
    age = np.clip(rng.normal(55, 12, rows), 18, 90)
    bmi = np.clip(rng.normal(27, 5, rows), 15, 45)
    sex = rng.choice(["female", "male"], rows)
    stage = rng.choice(["I", "II", "III"], rows)
    chol = 80 + 1.2 * age + 2.5 * bmi + 8 * (sex == "male") - 5 * (stage == "II") + 12 * (stage == "III")
    return {"age": age, "bmi": bmi, "sex": sex, "stage": stage, "chol": chol + rng.normal(0, 20, rows)}


FEATURES = ["age", "bmi", "sex", "stage"]
FULL = LinearRegression("chol", FEATURES)


def least_squares(table):
    columns = [np.ones(len(table["age"])), table["age"], table["bmi"], table["sex"] == "male"]
    columns += [table["stage"] == "II", table["stage"] == "III"]
    design = np.column_stack(columns).astype(float)
    return design, np.linalg.lstsq(design, np.clip(table["chol"], 100, 400), rcond=None)[0]


def test_without_noise_it_is_least_squares_with_its_classical_errors():
    table = people(3000, np.random.default_rng(1))
    result = found(FULL, SCHEMA, table, np.random.default_rng(2), epsilon=math.inf)
    design, known = least_squares(table)
    residuals = np.clip(table["chol"], 100, 400) - design @ known
    variance = residuals @ residuals / (3000 - 6)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    assert [e.label for e in result.estimates] == list(TRUE)
    assert [e.value for e in result.estimates] == pytest.approx(list(known), rel=1e-3)
    assert [e.sampling for e in result.estimates] == pytest.approx(list(errors), rel=1e-3)
    assert all(e.privacy == 0 and e.at is None for e in result.estimates)
    model = result.model
    assert {"intercept": model.intercept, **model.coefficients} == pytest.approx(
        dict(zip(TRUE, known, strict=True)), rel=1e-3
    )
    assert model.r_squared == pytest.approx(
        1 - residuals.var() / np.var(np.clip(table["chol"], 100, 400)), rel=1e-3
    )
    assert model.residual == pytest.approx(math.sqrt(variance), rel=1e-3)


def test_predictions_and_coefficients_are_the_same_function():
    table = people(20_000, np.random.default_rng(3))
    model = found(FULL, SCHEMA, table, np.random.default_rng(4)).model
    frame = pd.DataFrame(table).head(50)
    by_hand = (
        model.intercept
        + model.coefficients["age"] * frame["age"]
        + model.coefficients["bmi"] * frame["bmi"]
        + model.coefficients["sex=male"] * (frame["sex"] == "male")
        + model.coefficients["stage=II"] * (frame["stage"] == "II")
        + model.coefficients["stage=III"] * (frame["stage"] == "III")
    )
    assert model.predict(frame) == pytest.approx(by_hand.to_numpy())
    one = {"age": [200.0], "bmi": [100.0], "sex": ["male"], "stage": ["III"]}
    assert model.predict(one) == pytest.approx(
        model.predict({"age": [90.0], "bmi": [45.0], "sex": ["male"], "stage": ["III"]})
    )
    assert np.isnan(model.predict({"age": [math.nan], "bmi": [30.0], "sex": ["male"], "stage": ["I"]}))
    with pytest.raises(InvalidInput, match="stage"):
        model.predict({"age": [50.0], "bmi": [30.0], "sex": ["male"]})
    text = model.summary()
    for word in ("chol", "age", "sex=male", "std err", "from privacy", "P>|z|", "R²", "ridge"):
        assert word in text


def test_units_do_not_matter():
    """The same table in grams and kilograms, with bounds to match, gives the same fit."""
    rng = np.random.default_rng(5)
    x = rng.normal(50, 10, 5000)
    table = {"x": x, "y": 3 + 0.1 * x + rng.normal(0, 1, 5000)}
    first = Schema(x=Number(0, 100, missing=False), y=Number(0, 20, missing=False))
    second = Schema(x=Number(0, 100_000, missing=False), y=Number(-273, -253, missing=False))
    other = {"x": 1000 * table["x"], "y": table["y"] - 273}
    a = found(LinearRegression("y", "x"), first, table, np.random.default_rng(6))
    b = found(LinearRegression("y", "x"), second, other, np.random.default_rng(6))
    assert b.estimates[1].value == pytest.approx(a.estimates[1].value / 1000, rel=1e-6)
    assert b.estimates[0].value == pytest.approx(a.estimates[0].value - 273, rel=1e-6)
    assert b.model.predict({"x": [40_000.0]}) == pytest.approx(a.model.predict({"x": [40.0]}) - 273)
    assert b.estimates[1].interval() == pytest.approx(
        [end / 1000 for end in a.estimates[1].interval()], rel=1e-6
    )


def test_without_an_intercept_the_middle_goes_to_the_middle():
    schema, names = numeric(2)
    rng = np.random.default_rng(7)
    x = rng.uniform(-1, 1, (4000, 2))
    table = {"x0": x[:, 0], "x1": x[:, 1], "y": np.clip(0.5 * x[:, 0] - 0.2 * x[:, 1] + 0.1, -1, 1)}
    analysis = LinearRegression("y", names, intercept=False)
    result = found(analysis, schema, table, rng, epsilon=5)
    assert [e.label for e in result.estimates] == names
    assert [e.value for e in result.estimates] == pytest.approx([0.5, -0.2], abs=0.05)
    assert result.model.predict(np.zeros((1, 2))) == pytest.approx([0.0])
    assert result.model.intercept == 0.0


def test_a_shorter_norm_shortens_rows_in_the_fit_and_in_predictions():
    schema, names = numeric(2)
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, (5000, 2))
    short = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True) / 0.5, 1)
    table = {"x0": x[:, 0], "x1": x[:, 1], "y": short @ [0.8, -0.4]}
    model = found(LinearRegression("y", names, norm=0.5), schema, table, rng, epsilon=math.inf).model
    assert model.predict(x) == pytest.approx(table["y"], abs=1e-3)
    assert model.coefficients["x0"] == pytest.approx(0.8, abs=1e-3)


def test_cells_outside_the_bounds_are_cut():
    schema, _ = numeric(1)
    table = {"x0": np.linspace(-1, 1, 500), "y": np.linspace(-50, 50, 500)}
    result = found(LinearRegression("y", "x0"), schema, table, np.random.default_rng(9), epsilon=math.inf)
    assert np.abs(result.model.predict({"x0": table["x0"]})).max() <= 1.0


@pytest.mark.one_in(2, seconds=0.3)
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
@pytest.mark.parametrize("case", ["constant", "copies", "few rows"])
def test_what_cannot_be_told_is_said_to_be_unknown(case, epsilon):
    schema, names = numeric(6)
    rng = np.random.default_rng(10)
    rows = 4 if case == "few rows" else 200_000
    table = {name: rng.uniform(-1, 1, rows) for name in names}
    if case == "constant":
        table["x3"] = np.full(rows, 0.5)
    if case == "copies":
        table["x3"] = table["x2"]
    table["y"] = np.clip(0.5 * table["x0"] + 0.2 * table["x2"] + 0.05 * rng.normal(size=rows), -1, 1)
    with pytest.warns(TooNoisyWarning, match=r"\d"):
        result = found(LinearRegression("y", names), schema, table, rng, epsilon=epsilon)
    by_label = {e.label: e for e in result.estimates}
    low, high = by_label["x3"].interval()
    assert high - low > 0.9  # a slope of 1 is the target's whole range
    if case != "few rows":
        low, high = by_label["x0"].interval()
        assert low - 0.001 <= 0.5 <= high + 0.001
        assert high - low < 0.5  # what can be told still is
        y = result.model.predict(np.column_stack([table[name] for name in names]))
        assert np.mean((y - table["y"]) ** 2) < 0.02


def coverage(rows, runs, epsilon, *, neighbours="replace-one", missing=0.0, seed=1):
    """The share of intervals that cover, and of those that rest on an assumption, over all coefficients."""
    width = 4
    schema, names = numeric(width, missing=missing > 0)
    rng = np.random.default_rng(seed)
    slopes = np.array([0.3, -0.2, 0.0, 0.1])
    hits, wide = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        for _ in range(runs):
            x = np.clip(0.4 * rng.normal(size=(rows, width)) + np.linspace(-0.3, 0.3, width), -1, 1)
            y = 0.2 + x @ slopes + 0.1 * rng.normal(size=rows)
            x[rng.random(rows) < missing, 0] = math.nan
            table = {**dict(zip(names, x.T, strict=True)), "y": y}
            result = conducted(
                LinearRegression("y", names), schema, table, rng, epsilon=epsilon, neighbours=neighbours
            )
            for estimate, true in zip(result.estimates, [0.2, *slopes], strict=True):
                low, high = estimate.interval(0.95)
                assert low <= estimate.value <= high
                hits.append(low <= true <= high)
                wide.append(estimate.within[0] > -math.inf)
    return np.mean(hits), np.mean(wide)


@pytest.mark.quick_cases("replace-one-0.0-3000-10.0", seconds=2)
@pytest.mark.parametrize(("rows", "epsilon"), [(20_000, 1.0), (3_000, 10.0)])
@pytest.mark.parametrize(("neighbours", "missing"), [("replace-one", 0.0), ("add-remove", 0.1)])
def test_intervals_cover_where_there_are_rows_enough(rows, epsilon, neighbours, missing):
    covered, wide = coverage(rows, 60, epsilon, neighbours=neighbours, missing=missing)
    assert wide < 0.05
    assert 0.91 <= covered <= 0.985  # 300 intervals: 92 to 98%, and a standard error


@pytest.mark.quick_cases("300-1.0", seconds=0.7)
@pytest.mark.parametrize(("rows", "epsilon"), [(300, 1.0), (2_000, 1.0), (2_000, 0.01)])
def test_intervals_cover_at_least_as_often_where_there_are_not(rows, epsilon):
    covered, _ = coverage(rows, 60, epsilon, seed=3)
    assert covered >= 0.91


@pytest.mark.slow(10)
@pytest.mark.parametrize(("rows", "epsilon"), [(20_000, 1.0), (50_000, 1.0), (3_000, 10.0), (300, 100.0)])
@pytest.mark.parametrize(("neighbours", "missing"), [("replace-one", 0.0), ("add-remove", 0.1)])
def test_intervals_cover_92_to_98_percent_in_many_runs(rows, epsilon, neighbours, missing):
    covered, wide = coverage(rows, 400, epsilon, neighbours=neighbours, missing=missing, seed=2)
    assert wide < 0.05
    assert 0.92 <= covered <= 0.98


@pytest.mark.slow(3)
def test_a_plan_says_about_what_a_release_will():
    rng = np.random.default_rng(11)
    schema = Schema({name: Number(-1, 1, missing=False) for name in ("a", "b", "y")})
    rows = 20_000
    x = np.clip(rng.normal(0, 1 / 3, (rows, 2)), -1, 1)
    table = {
        "a": x[:, 0],
        "b": x[:, 1],
        "y": np.clip(0.5 * (x[:, 0] + x[:, 1]) + rng.normal(0, 0.23, rows), -1, 1),
    }
    analysis = LinearRegression("y", ["a", "b"])
    sites = {f"s{i}": pd.DataFrame({name: cells[i::5] for name, cells in table.items()}) for i in range(5)}
    consortium = Consortium(sites, schema, Budget(1.0, 1e-6), colluding=1)
    plan = consortium.plan(analysis, 1.0)
    release = consortium.release(analysis, 1.0)
    privacy = {e.label: e.privacy for e in release.estimates}
    expected = {label: value * math.sqrt(math.pi / 2) for label, value in plan.expected_error.items()}
    assert privacy == pytest.approx(expected, rel=0.35)
    assert release.model.coefficients == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.1)


def test_a_consortium_without_noise_gives_least_squares():
    table = pd.DataFrame(people(2000, np.random.default_rng(12)))
    sites = {f"s{i}": table.iloc[i::3] for i in range(3)}
    consortium = Consortium(sites, SCHEMA, Budget(1.0, 1e-6), colluding=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        release = consortium.release(FULL, 0.5, scheme="none")
    _, known = least_squares({name: table[name].to_numpy() for name in table})
    assert list(release.value.values()) == pytest.approx(list(known), rel=1e-3)


def test_what_is_refused():
    with pytest.raises(InvalidInput, match="LogisticRegression"):
        LinearRegression("sex", ["age"]).query(SCHEMA, "replace-one")
    with pytest.raises(InvalidInput, match="target"):
        LinearRegression("age", ["age", "bmi"])
    with pytest.raises(InvalidInput, match="ridge"):
        LinearRegression("age", ["bmi"], ridge="some")
    with pytest.raises(InvalidInput, match="intercept"):
        LinearRegression("age", ["bmi"], intercept=1)
    with pytest.raises(InvalidInput, match="target"):
        LinearRegression(3, ["bmi"])
    with pytest.raises(InvalidInput, match="errors must be 'robust' or 'classical', not 'HC1'"):
        LinearRegression("age", ["bmi"], errors="HC1")


def test_it_reads_like_a_question():
    assert FULL.describe() == "linear regression of chol on age, bmi, sex and stage"
    assert FULL.to_dict() == {
        "kind": "linear-regression",
        "target": "chol",
        "features": ("age", "bmi", "sex", "stage"),
        "intercept": True,
        "ridge": "auto",
        "errors": "robust",
    }


def test_what_is_not_known_is_said_in_words():
    from cape.analyses.regression.linear_model import LinearModel

    told = {"target": "chol", "design": FULL.design, "schema": SCHEMA, "weights": (0.0,), "rows": 100.0}
    rest = {"intercept": 0.0, "coefficients": {"age": 1.0}, "noise": math.nan, "ridge": 0.1}
    rest |= {"joint": Joint(("age",), ((-4.0, 4.0),)), "errors": "robust"}
    hidden = (Estimate("age", 1.0, math.nan, math.nan),)
    text = LinearModel(
        estimates=hidden, error=0.0, residual=math.nan, r_squared=math.nan, **told, **rest
    ).summary()
    assert "not known" in text
    assert "- to -" not in text
    assert "R² is not known" in text
    assert "error of predictions too small to tell from noise" in text
    text = LinearModel(
        estimates=hidden, error=math.nan, residual=2.0, r_squared=0.5, **told, **rest
    ).summary()
    assert "R² 0.500; residual SD 2; error of predictions not known" in text


def test_no_number_of_rows_is_named_where_noise_does_not_tell_how_many_would_be_enough():
    schema, names = numeric(3)
    rng = np.random.default_rng(10)
    table = {name: rng.uniform(-1, 1, 60) for name in names}
    table["y"] = 0.5 * table["x0"]
    with pytest.warns(TooNoisyWarning, match="It would take far more rows or a far larger epsilon; method"):
        result = found(LinearRegression("y", names), schema, table, rng, epsilon=1.0)
    noise = [note for note in result.model.notes() if note.startswith("Noise is")]
    assert all("e+" not in note for note in noise)


def test_a_huge_ratio_of_noise_is_said_in_words():
    schema, names = numeric(2)
    rng = np.random.default_rng(10)
    table = {name: rng.uniform(-1, 1, 2_000) for name in names} | {"y": np.zeros(2_000)}
    model = found(LinearRegression("y", names), schema, table, rng, epsilon=50.0).model
    assert any("times the least that features vary." in note for note in model.notes())
    model = replace(model, noise=4.167e298)
    assert any("more than 1,000 times the least" in note for note in model.notes())
