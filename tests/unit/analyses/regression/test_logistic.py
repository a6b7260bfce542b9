"""Logistic regression: right without noise, safe under any, and its intervals cover."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as Reference

from benchmarks.columns import SCHEMA as SKEWED
from benchmarks.columns import sample
from cape import privacy
from cape.analyses.describe.pca import PCA
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.logistic import LogisticRegression
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.noise import SecureStream
from cape.privacy import Budget
from tests.slices import examples
from tests.unit.analyses.regression.conversations import MU, converse

SCHEMA = Schema(
    age=Number(20, 80, missing=False),
    dose=Number(0, 10, missing=False),
    sex=Category(("f", "m"), missing=False),
    ill=Category(("no", "yes"), missing=False),
)
TRUE = {"intercept": -3.0, "age": 0.05, "dose": -0.2, "sex=m": 0.8}
FEATURES = ["age", "dose", "sex"]
NO_NOISE = math.inf


def people(rng, rows):
    table = {
        "age": np.clip(rng.normal(50, 10, rows), 20, 80),
        "dose": np.clip(rng.exponential(3, rows), 0, 10),
        "sex": (rng.random(rows) < 0.4).astype(int),
    }
    odds = TRUE["intercept"] + sum(
        TRUE[name] * table[name.partition("=")[0]] for name in ("age", "dose", "sex=m")
    )
    return table | {"ill": (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)}


def quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return converse(*args, **kwargs)


@pytest.mark.parametrize("intercept", [True, False])
def test_steps_end_at_the_maximum_of_the_likelihood(intercept):
    rng = np.random.default_rng(1)
    table = people(rng, 4000)
    analysis = LogisticRegression("ill", FEATURES, rounds=5, intercept=intercept)
    found, steps = converse(analysis, SCHEMA, table, rng, mu=NO_NOISE)
    assert steps <= 5
    if intercept:
        x = np.stack([table[name] for name in FEATURES], axis=1)
        known = Reference(C=np.inf, tol=1e-10, max_iter=1000).fit(x, table["ill"])
        expected = [known.intercept_[0], *known.coef_[0]]
    else:  # log-odds are 0 in the middle of the bounds
        x = np.stack([table["age"] - 50, table["dose"] - 5, table["sex"]], axis=1)
        known = Reference(C=np.inf, tol=1e-10, max_iter=1000, fit_intercept=False).fit(x, table["ill"])
        expected = list(known.coef_[0])
    assert [estimate.value for estimate in found.estimates] == pytest.approx(expected, rel=2e-3, abs=2e-4)


def test_standard_errors_without_noise_are_those_of_the_sandwich():
    rng = np.random.default_rng(2)
    table = people(rng, 4000)
    found, _ = converse(LogisticRegression("ill", FEATURES, rounds=8), SCHEMA, table, rng, mu=NO_NOISE)
    x = np.stack([np.ones(4000), table["age"], table["dose"], table["sex"]], axis=1)
    p = found.model.predict_proba({**table, "sex": np.array(["f", "m"])[table["sex"]]})[:, 1]
    bread = np.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
    meat = (x * ((p - table["ill"]) ** 2)[:, None]).T @ x
    assert [e.sampling for e in found.estimates] == pytest.approx(
        np.sqrt(np.diag(bread @ meat @ bread)), rel=1e-3
    )
    # what is left is the rounding of rows, the same in every step
    assert all(e.privacy < 3e-4 * e.sampling for e in found.estimates)


@examples(40)
@given(
    mu=st.one_of(st.floats(1e-6, 10), st.sampled_from([1e-9, 1e3])),
    seed=st.integers(0, 2**32 - 1),
    rounds=st.sampled_from([1, 2, "auto", 7]),
    rows=st.sampled_from([1, 3, 40, 1500]),
    neighbours=st.sampled_from(["replace-one", "add-remove"]),
    intercept=st.booleans(),
)
def test_whatever_the_noise_the_answer_is_finite_and_little_worse_than_even_odds(
    mu, seed, rounds, rows, neighbours, intercept
):
    rng = np.random.default_rng(seed)
    table = people(rng, rows)
    analysis = LogisticRegression("ill", FEATURES, rounds=rounds, intercept=intercept)
    found, _ = quietly(analysis, SCHEMA, table, rng, mu=mu, neighbours=neighbours)
    for estimate in found.estimates:
        assert math.isfinite(estimate.value)
        assert math.isfinite(estimate.standard_error)
    named = {**table, "sex": np.array(["f", "m"])[table["sex"]]}
    p = found.model.predict_proba(named)[np.arange(rows), table["ill"]]
    assert np.all((p > 0) & (p < 1))
    assert found.model.summary()
    if rows == 1500:
        assert -np.log(p).mean() < 1.1 * math.log(2)


@pytest.mark.quick_cases("0.001", "5.0", seconds=0.48)
@pytest.mark.parametrize("epsilon", [0.001, 0.01, 0.1, 0.5, 1.0, 5.0])
def test_predictions_are_hardly_worse_than_even_odds_however_little_is_spent(epsilon):
    """Twelve runs each; rows on a sphere in ten dimensions."""
    names = [f"x{i}" for i in range(10)]
    schema = Schema(
        {name: Number(-1, 1, missing=False) for name in names} | {"y": Category((0, 1), missing=False)}
    )
    analysis = LogisticRegression("y", names, norm=1.0)
    losses = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(2000, 10))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        y = (rng.random(2000) < 1 / (1 + np.exp(-4 * x[:, 0] - 0.2))).astype(int)
        table = {name: x[:, i] for i, name in enumerate(names)} | {"y": y}
        found, _ = quietly(analysis, schema, table, rng, mu=float(privacy.mu(epsilon, 1e-5)))
        p = found.model.predict_proba(x)[np.arange(2000), y]
        losses.append(-np.log(p).mean() / math.log(2))
    assert np.mean(losses) <= 1.01
    assert max(losses) <= 1.15


def covered(analysis, rows, runs, seed):
    rng = np.random.default_rng(seed)
    hits = dict.fromkeys(TRUE, 0)
    for _ in range(runs):
        found, steps = quietly(analysis, SCHEMA, people(rng, rows), rng)
        assert steps <= analysis.steps
        for estimate in found.estimates:
            low, high = estimate.interval(0.95)
            hits[estimate.label] += low <= TRUE[estimate.label] <= high
    return {label: count / runs for label, count in hits.items()}


@pytest.mark.slow(4.2)
@pytest.mark.parametrize("rounds", [1, "auto"])
def test_intervals_cover_where_steps_are_made(rounds):
    """At epsilon 1; with 150 runs the standard error of a coverage is 1.8%."""
    found = covered(LogisticRegression("ill", FEATURES, rounds=rounds, cap="none"), 20_000, 150, 5)
    assert all(0.9 <= share <= (0.99 if rounds == "auto" else 1) for share in found.values()), found


@pytest.mark.slow(60)
@pytest.mark.parametrize("rounds", [1, 2, 3, "auto"])
@pytest.mark.parametrize("rows", [8_000, 30_000])
def test_intervals_cover_92_to_98_percent_in_many_runs(rounds, rows):
    """Eight hundred runs: known to 0.8%. What one or two steps leave widens intervals."""
    found = covered(LogisticRegression("ill", FEATURES, rounds=rounds, cap="none"), rows, 800, 6)
    assert all(share >= 0.92 for share in found.values()), found
    assert rounds in (1, 2) or all(share <= 0.98 for share in found.values()), found


@pytest.mark.slow(1.3)
def test_an_interval_that_forgets_the_noise_would_be_found_out():
    rng, hits = np.random.default_rng(7), 0
    for _ in range(60):
        found, _ = quietly(LogisticRegression("ill", FEATURES), SCHEMA, people(rng, 4000), rng, mu=0.08)
        age = found.estimates[1]
        hits += abs(age.value - TRUE["age"]) <= 1.96 * age.sampling
    assert hits / 60 < 0.85


@pytest.mark.parametrize("klass", [0, 1])
@pytest.mark.parametrize("rounds", [1, "auto"])
def test_one_class_alone_gives_an_answer_and_a_warning(klass, rounds):
    rng = np.random.default_rng(11)
    table = people(rng, 3000) | {"ill": np.full(3000, klass)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, _ = converse(LogisticRegression("ill", FEATURES, rounds=rounds), SCHEMA, table, rng)
    assert any("categories of 'ill'" in str(one.message) for one in told)
    rows = pl.DataFrame({"age": [50.0], "dose": [1.0], "sex": ["f"]})
    assert found.model.predict(rows)[0] == ("no", "yes")[klass]
    assert all(math.isfinite(estimate.value) for estimate in found.estimates)


@pytest.mark.parametrize("rows", [2, 5, 5000])
def test_columns_that_do_not_vary_or_repeat_others_do_no_harm(rows):
    rng = np.random.default_rng(12)
    table = people(rng, rows)
    table["dose"] = (table["age"] - 20) / 6
    table["sex"] = np.zeros(rows, int)
    for mu in (NO_NOISE, 0.5):
        found, _ = quietly(LogisticRegression("ill", FEATURES), SCHEMA, table, rng, mu=mu)
        assert all(math.isfinite(e.value) and math.isfinite(e.standard_error) for e in found.estimates)
        assert max(abs(w) for w in found.model.weights) < 1e4


def test_rows_that_miss_a_cell_are_left_out():
    rng = np.random.default_rng(13)
    schema = Schema(age=(20, 80), dose=(0, 10), sex=["f", "m"], ill=["no", "yes"])
    table = people(rng, 6000)
    holed = {name: values.astype(float) for name, values in table.items()}
    holed["age"][::5] = np.nan
    holed["ill"][1::5] = -1
    kept = np.arange(6000) % 5 > 1
    analysis = LogisticRegression("ill", FEATURES)
    some, _ = converse(analysis, schema, holed, rng, mu=NO_NOISE)
    whole, _ = converse(analysis, SCHEMA, {name: v[kept] for name, v in table.items()}, rng, mu=NO_NOISE)
    assert some.model.count == pytest.approx(3600)
    for a, b in zip(some.estimates, whole.estimates, strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"target": 3}, "target"),
        ({"features": []}, "at least one column"),
        ({"features": ["age", "ill"]}, "must not be one of the features"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": "many"}, "rounds"),
        ({"rounds": np.array([1, 2])}, "rounds"),
        ({"features": 5}, "list of names"),
        ({"features": None}, "list of names"),
        ({"features": {"age": 1}}, "list of names"),
        ({"features": ["age", "intercept"]}, "called 'intercept'"),
        ({"norm": 0}, "norm"),
        ({"threshold": 1}, "threshold"),
        ({"intercept": 1}, "intercept"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, told):
    with pytest.raises(InvalidInput, match=told):
        LogisticRegression(**{"target": "ill", "features": ["age"], **arguments})


@pytest.mark.parametrize("rounds", [1, "auto"])
@pytest.mark.parametrize("target", ["age", "stage", "nothing"])
def test_a_target_that_is_not_two_categories_is_refused(target, rounds):
    schema = Schema(age=(20, 80), dose=(0, 10), stage=["I", "II", "III"])
    with pytest.raises(InvalidInput, match=target):
        LogisticRegression(target, ["dose"], rounds=rounds).query(schema, "replace-one")


@pytest.mark.parametrize("rounds", [1, 2, "auto"])
@pytest.mark.parametrize("intercept", [True, False])
def test_what_is_expected_is_about_what_is_found(rounds, intercept):
    """Rows as a plan has them: no relation, numbers around the middle, categories equal."""
    rng = np.random.default_rng(14)
    rows = 40_000
    table = {
        "age": np.clip(rng.normal(50, 10, rows), 20, 80),
        "dose": np.clip(rng.normal(5, 10 / 6, rows), 0, 10),
        "sex": rng.integers(0, 2, rows),
    }
    table["ill"] = (rng.random(rows) < 1 / (1 + np.exp(-(table["age"] - 50) / 15))).astype(int)
    analysis = LogisticRegression("ill", FEATURES, rounds=rounds, intercept=intercept)
    query = analysis.query(SCHEMA, "replace-one")
    mu = float(privacy.mu(1.0, 1e-6)) * math.sqrt(analysis.stages()[-1])
    std = query.sensitivity / mu * math.sqrt(5 / 4)
    noise = [[std * scale for scale in scales] for scales in query.scales]
    expected = analysis.expected(SCHEMA, noise, rows)
    found, _ = quietly(analysis, SCHEMA, table, rng)
    assert list(expected) == [estimate.label for estimate in found.estimates]
    for estimate in found.estimates:
        if rounds != "auto":  # what few steps leave comes on top, and is in proportion to the estimates
            assert expected[estimate.label] <= 2 * estimate.privacy
        else:
            assert expected[estimate.label] == pytest.approx(estimate.privacy, rel=0.5)


@pytest.mark.parametrize("rows", [10_000, 100_000])
def test_a_plan_for_the_right_moments_of_skewed_columns_has_the_noise_of_a_release(rows):
    """Visits with a kurtosis of 19 and 410, of which the target hardly follows."""
    names = ("inpatient", "emergency")
    cells = sample(rows, np.random.default_rng(3))
    schema = Schema(
        {n: replace(SKEWED[n], expected={"mean": cells[n].mean(), "sd": cells[n].std()}) for n in names}
        | {"readmitted": replace(SKEWED["readmitted"], expected={"share": cells["readmitted"].mean()})}
    )
    analysis = LogisticRegression("readmitted", names)
    query = analysis.query(schema, "replace-one")
    std = query.sensitivity / MU / math.sqrt(analysis.stages()[-1]) * math.sqrt(5 / 4)
    expected = analysis.expected(schema, [[std * scale for scale in query.scales[0]]], rows)
    found, _ = quietly(analysis, schema, {n: cells[n] for n in schema}, np.random.default_rng(4))
    for estimate in found.estimates:
        assert 0.5 <= estimate.privacy / expected[estimate.label] <= 2


def test_the_model_predicts_and_tells_about_itself():
    rng = np.random.default_rng(15)
    found, _ = converse(LogisticRegression("ill", FEATURES), SCHEMA, people(rng, 20_000), rng, mu=5.0)
    model = found.model
    rows = pl.DataFrame({"age": [50.0, 79.0, 200.0], "dose": [1.0, 0.0, 3.0], "sex": ["f", "m", "m"]})
    odds = model.decision_function(rows)
    by_hand = model.intercept + 50 * model.coefficients["age"] + model.coefficients["dose"]
    assert odds[0] == pytest.approx(by_hand)
    p = model.predict_proba(rows)
    assert p.sum(axis=1) == pytest.approx(1)
    assert p[:, 1] == pytest.approx(1 / (1 + np.exp(-odds)))
    assert model.predict(rows, threshold=0.0).tolist() == ["yes"] * 3
    assert model.predict(rows, threshold=1.0).tolist() == ["no"] * 3
    assert np.isnan(model.predict_proba(rows.with_columns(sex=pl.lit(None)))).all()
    assert model.odds_ratios["sex=m"] == pytest.approx(math.exp(model.coefficients["sex=m"]))
    for word in ("odds ratio", "sex=m", "P>|z|", "Maximum-likelihood"):
        assert word in model.summary()
    with pytest.raises(InvalidInput, match="dose"):
        model.predict(rows.drop("dose"))
    with pytest.raises(InvalidInput, match="must be one of"):
        model.predict(rows.with_columns(sex=pl.lit("x")))
    with pytest.raises(InvalidInput, match="all features"):
        model.predict(rows.with_columns(age=pl.lit(None)))
    with pytest.raises(InvalidInput, match="one column a feature"):
        model.predict(np.zeros((2, 3)))
    for threshold in ("a", 5, -0.1):
        with pytest.raises(InvalidInput, match="threshold"):
            model.predict(rows, threshold=threshold)
    with pytest.raises(InvalidInput, match="numbers"):
        model.predict(rows.with_columns(age=pl.lit("secret")))


@pytest.mark.parametrize("intercept", [True, False])
def test_the_intercept_is_the_log_odds_where_all_columns_are_0(intercept):
    rng = np.random.default_rng(17)
    analysis = LogisticRegression("ill", FEATURES, intercept=intercept)
    model = converse(analysis, SCHEMA, people(rng, 20_000), rng, mu=5.0)[0].model
    row = pl.DataFrame({"age": [50.0], "dose": [1.0], "sex": ["m"]})
    slopes = model.coefficients
    assert list(slopes) == ["age", "dose", "sex=m"]
    by_hand = model.intercept + 50 * slopes["age"] + slopes["dose"] + slopes["sex=m"]
    assert model.decision_function(row)[0] == pytest.approx(by_hand)


def test_a_model_predicts_its_own_table_whatever_type_its_categories_have():
    schema = Schema(a=Number(0, 1, missing=False), b=Category((0, 1), missing=False), y=Category((0, 1)))
    rng = np.random.default_rng(18)
    table = {"a": rng.random(500), "b": rng.integers(0, 2, 500), "y": rng.integers(0, 2, 500)}
    model = quietly(LogisticRegression("y", ["a", "b"]), schema, table, rng)[0].model
    expected = model.predict_proba(table)
    for other in (table["b"].astype(float), table["b"].astype(bool), table["b"].astype(float).astype(str)):
        assert model.predict_proba(table | {"b": other}) == pytest.approx(expected)


# Strong effects: log-odds with a standard deviation of 1.9, which hides the Hessian where they are largest.
STRONG = {"intercept": -0.5, "x0": 1.5, "x1": -1.0, "x2": 0.5, "x3": 0.0}
MILD = {"intercept": -0.5, "x0": 0.8, "x1": -0.5, "x2": 0.3, "x3": 0.0}
WIDE = Schema(
    {name: Number(-2, 4, missing=False) for name in list(STRONG)[1:]} | {"y": Category((0, 1), missing=False)}
)


def effects_covered(true, epsilon, runs, rows=5000, seed=19):
    """The coverage of each coefficient, and how wide its interval is at the median."""
    rng = np.random.default_rng(seed)
    names = list(true)[1:]
    analysis = LogisticRegression("y", names)
    hits, widths = dict.fromkeys(true, 0), {name: [] for name in true}
    for _ in range(runs):
        x = np.clip(rng.normal(1, 1, (rows, len(names))), -2, 4)
        odds = true["intercept"] + x @ np.array([true[name] for name in names])
        table = {name: x[:, i] for i, name in enumerate(names)}
        table["y"] = (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)
        found, _ = quietly(analysis, WIDE, table, rng, mu=float(privacy.mu(epsilon, 1e-6)))
        for estimate in found.estimates:
            low, high = estimate.interval(0.95)
            hits[estimate.label] += low <= true[estimate.label] <= high
            widths[estimate.label].append(high - low)
    return {k: n / runs for k, n in hits.items()}, {k: float(np.median(w)) for k, w in widths.items()}


@pytest.mark.slow(2.6)
@pytest.mark.quick_cases("2.8", seconds=2.2)
@pytest.mark.parametrize("epsilon", [1.4, 2.0, 2.8, 4.5])
def test_intervals_cover_strong_effects(epsilon):
    """With 80 runs the standard error of a coverage is 2.4%."""
    found, _ = effects_covered(STRONG, epsilon, 80)
    assert all(share >= 0.88 for share in found.values()), found


SMALL = pytest.mark.xfail(
    reason="steps toward such strong effects do not arrive at so small a budget", strict=False
)


@pytest.mark.slow(15)
@pytest.mark.parametrize(
    "epsilon", [pytest.param(0.3, marks=SMALL), pytest.param(0.8, marks=SMALL), 1.3, 2.0, 2.8, 4.5, 9.0]
)
def test_intervals_cover_strong_effects_over_many_runs(epsilon):
    found, _ = effects_covered(STRONG, epsilon, 600)
    assert all(share >= 0.92 for share in found.values()), found


@pytest.mark.slow(2.8)
def test_intervals_of_mild_effects_are_not_wide_where_noise_is_not():
    """At 20,000 rows and epsilon 1 half an interval is about 0.06 wide, with errors of 0.03."""
    found, widths = effects_covered(MILD, 1.0, 80, rows=20_000)
    assert all(0.88 <= share <= 1 for share in found.values()), found
    assert all(width < 0.16 for label, width in widths.items() if label != "intercept"), widths


@pytest.mark.slow(20)
@pytest.mark.parametrize(("rows", "epsilon"), [(20_000, 1.2), (20_000, 3.5), (5000, 11.0)])
def test_intervals_of_mild_effects_cover_over_many_runs(rows, epsilon):
    found, _ = effects_covered(MILD, epsilon, 600, rows=rows)
    assert all(0.92 <= share <= 0.985 for share in found.values()), found


def test_a_last_step_that_has_not_settled_is_told_with_a_number_and_counted():
    """From second moments that bad features mislead, one step is too few."""
    rng = np.random.default_rng(20)
    schema = Schema(a=Number(0, 40, missing=False), y=Category((0, 1), missing=False))
    a = np.minimum(rng.exponential(1, 20_000) ** 2, 40)
    table = {"a": a, "y": (rng.random(20_000) < 1 / (1 + np.exp(2 - 2 * a))).astype(int)}
    with pytest.warns(TooNoisyWarning, match=r"not converged: the last one changed log-odds by an SD of \d"):
        found, _ = converse(LogisticRegression("y", ["a"], rounds=1), schema, table, rng, mu=NO_NOISE)
    low, high = found.estimates[1].interval(0.95)
    assert high - low > 5 * found.estimates[1].sampling


@pytest.mark.slow(2)
def test_a_feature_that_noise_hides_has_an_interval_that_says_so():
    rng, hits = np.random.default_rng(21), 0
    true = np.array([1.0, -0.7, 0.3, 2.0])
    for _ in range(40):
        x = np.clip(rng.normal(1, 1, (5000, 4)), -2, 4)
        x[:, 3] = 1 + 0.1 * (x[:, 3] - 1)
        table = {f"x{i}": x[:, i] for i in range(4)}
        table["y"] = (rng.random(5000) < 1 / (1 + np.exp(0.5 - x @ true))).astype(int)
        found, _ = quietly(
            LogisticRegression("y", list(table)[:4]), WIDE, table, rng, mu=float(privacy.mu(5.0, 1e-6))
        )
        low, high = found.estimates[4].interval(0.95)
        hits += low <= 2.0 <= high
    assert hits / 40 >= 0.8


@pytest.mark.parametrize("rounds", [3, "auto"])
def test_five_sites_answer_as_one(rounds):
    rng = np.random.default_rng(16)
    table = people(rng, 20_000)
    frame = pl.DataFrame(
        {
            **table,
            "sex": [("f", "m")[i] for i in table["sex"]],
            "ill": [("no", "yes")[i] for i in table["ill"]],
        }
    )
    sites = {f"s{i}": frame[i * 4000 : (i + 1) * 4000] for i in range(5)}
    stream = SecureStream(b"\x01" * 32)
    consortium = Consortium(sites, SCHEMA, Budget(1.0, 1e-6), colluding=1, stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three steps may not have arrived, which is said
        released = consortium.release(LogisticRegression("ill", FEATURES, rounds=rounds), 1.0)
    for estimate in released.estimates:
        assert abs(estimate.value - TRUE[estimate.label]) < 4 * estimate.standard_error
    assert float(consortium.budget.remaining) == 0


def rows_of_the_table(text):
    """The label, z, P and interval of each row of a summary."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if len(cells) == 9:
            yield (
                cells[0],
                cells[4],
                cells[3],
                [float(end.replace(",", "")) for end in cells[6].split(" to ")],
            )


@pytest.mark.quick_cases("0.3", "20.0", seconds=0.73)
@pytest.mark.parametrize("mu", [0.1, 0.3, 2.0, 20.0, NO_NOISE])
def test_a_printed_p_agrees_with_the_interval(mu):
    rng = np.random.default_rng(31)
    for _ in range(20):
        found, _ = quietly(LogisticRegression("ill", FEATURES), SCHEMA, people(rng, 3000), rng, mu=mu)
        assert "in 5 steps" in found.model.describe()
        for label, _, p, (low, high) in rows_of_the_table(found.model.summary()):
            if p not in ("0.050", "-", ""):  # rounded to the limit itself
                assert (p == "<0.001" or float(p) < 0.05) == (not low <= 0 <= high), label


def test_what_is_asked_says_how_many_steps_there_are():
    assert LogisticRegression("ill", "age").describe().endswith("on age, in 5 steps")
    assert LogisticRegression("ill", "age", rounds=1).describe().endswith("on age, in 1 step")


def test_a_title_has_no_more_rows_than_are_public():
    schema = Schema(age=Number(20, 80), ill=Category(("no", "yes")), dose=Number(0, 10))
    rng, titles = np.random.default_rng(32), set()
    for analysis in (LogisticRegression("ill", "age"), LinearRegression("dose", "age"), PCA("age", "dose")):
        for mu in (0.2, 0.5, 50.0):
            for _ in range(5):
                found, _ = quietly(analysis, schema, people(rng, 2500), rng, mu=mu)
                rows = re.search(r"\((?:about |at most )?([\d,]+) rows\)", found.model.summary())
                titles.add(int(rows[1].replace(",", "")))
    assert max(titles) == 2500
    assert len(titles) > 5


def test_few_rows_and_a_small_share_leave_two_steps_and_what_was_given_stays():
    asked = LogisticRegression("y", ("x1", "x2"))
    assert asked.sized(2_000, 0.1).rounds == 2
    assert asked.sized(20_000, 0.1) == asked.sized(2_000, 1.0) == asked
    given = LogisticRegression("y", ("x1", "x2"), rounds=4)
    assert given.sized(10, 0.01) == given
    wide = LogisticRegression("y", [f"x{i}" for i in range(40)])
    assert wide.sized(10_000, 0.1).rounds == 2


def test_predictions_are_better_than_a_coin_where_noise_hides_each_coefficient():
    """Twenty features at epsilon .1: what intervals count as hidden does not draw predictions to nothing."""
    names, right = [f"x{i}" for i in range(20)], []
    schema = Schema({name: Number(-1, 1, missing=False) for name in names} | {"y": Category(("no", "yes"))})
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(11_000, 20))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        y = np.where(rng.random(len(x)) < expit(10 * x[:, 0]), "yes", "no")
        frame = pl.DataFrame(x[:10_000], schema=names).with_columns(y=pl.Series(y[:10_000]))
        sites = {f"s{i}": frame[i::5] for i in range(5)}
        stream = SecureStream(bytes([seed]) * 32)
        consortium = Consortium(sites, schema, Budget(0.1, 1e-5), colluding=1, stream=stream)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = consortium.release(LogisticRegression("y", names, norm=1.0), 1.0).model
        right.append((model.predict(x[10_000:]) == y[10_000:]).mean())
    assert np.median(right) > 0.68
