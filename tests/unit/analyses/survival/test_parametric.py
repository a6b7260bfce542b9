from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.conversation import conducted
from cape import Budget, Consortium, SurvivalRegression, privacy
from cape.analyses.registry import build
from cape.blocks import Table
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.query import AnalysisResult, Answer, Neighbours, Query

SCHEMA = Schema(
    a=Number(-1, 1, missing=False),
    b=Number(0, 2, missing=False),
    c=Category(("u", "v"), missing=False),
    t=Number(0, 5, missing=False),
    e=Category(("no", "yes"), missing=False),
    start=Number(0, 5, missing=False),
)
TRUE = {"a": 0.6, "b": -0.4, "c=v": 0.5, "shape": 1.3}
FEATURES = ["a", "b", "c"]


def people(n: int, seed: int, shape: float = 1.3, *, late: bool = False) -> dict[str, Any]:
    """Rows of Weibull's law, some of them censored, some at risk from later on."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(-1, 1, n), rng.uniform(0, 2, n), rng.integers(0, 2, n)
    r = np.exp(0.6 * a - 0.4 * b + 0.5 * c)
    start = np.where(rng.random(n) < 0.5, rng.uniform(0, 0.5, n), 0.0) if late else np.zeros(n)
    t = (start**shape + rng.exponential(size=n) / r) ** (1 / shape)
    censored = np.minimum(start + rng.exponential(2.5, n), 5.0)
    return {
        "a": a, "b": b, "c": np.array(["u", "v"])[c], "t": np.minimum(t, censored),
        "e": np.where(t <= censored, "yes", "no"), "start": start,
    }  # fmt: skip


def found(
    table: dict[str, Any],
    mu: float = math.inf,
    seed: int = 0,
    neighbours: Neighbours = "replace-one",
    **how: Any,
) -> AnalysisResult:
    analysis = SurvivalRegression("t", "e", FEATURES, **how)
    return conducted(analysis, table, SCHEMA, mu, np.random.default_rng(seed), neighbours)


def values(result: AnalysisResult) -> np.ndarray:
    return np.array([each.value for each in result.estimates])


@pytest.mark.parametrize("shape", [0.6, 3.0])
def test_without_noise_it_is_lifelines_weibull_regression(shape: float) -> None:
    """To 1e-4, as far as its optimiser goes: the next test has a maximum of its own, and six digits."""
    lifelines = pytest.importorskip("lifelines")
    import pandas as pd

    table = people(1500, 3, shape)
    x = np.column_stack([table["a"], table["b"] - 1, table["c"] == "v"]).astype(float)
    frame = pd.DataFrame(x, columns=list("abc")).assign(t=table["t"], e=(table["e"] == "yes") * 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = lifelines.WeibullAFTFitter().fit(frame, "t", "e")
        rows = pd.DataFrame({"a": [0.0, 1.0], "b": [0.0, -1.0], "c": [0.0, 1.0]})
        median = fit.predict_median(rows).to_numpy()
        survival = fit.predict_survival_function(rows, [0.3, 1.0, 4.0]).to_numpy().T
    known = math.exp(fit.params_["rho_", "Intercept"])
    result = found(table, rounds=12)
    ours = values(result)
    assert ours[3] == pytest.approx(known, rel=1e-4)
    assert np.abs(ours[:3] + known * fit.params_["lambda_"][list("abc")].to_numpy()).max() < 1e-4
    new = {"a": [0.0, 1.0], "b": [1.0, 0.0], "c": ["u", "v"]}
    assert result.model.predict_quantile(new) == pytest.approx(median, rel=1e-4)
    assert result.model.predict_survival(new, [0.3, 1.0, 4.0]) == pytest.approx(survival, abs=1e-4)
    ratios = np.exp(fit.params_["lambda_"][list("abc")].to_numpy())
    assert np.array(list(result.model.time_ratios.values())) == pytest.approx(ratios, rel=1e-4)


def grid(cells: np.ndarray, column: Number) -> np.ndarray:
    """Cells as a site has them in features: in steps of 2^-20 of half the bounds."""
    half = (column.high - column.low) / 2
    return column.low + half + np.trunc((cells - column.low - half) / half * 2**20) * half / 2**20


def likelihood(x: np.ndarray, table: dict[str, Any], begun: np.ndarray) -> Any:
    """The negative log-likelihood with its slope, in the level, the slopes and the shape, a row."""
    event = (table["e"] == "yes").astype(float)

    def at(w: np.ndarray) -> tuple[float, np.ndarray]:
        k, eta = w[-1], w[0] + x @ w[1:-1]
        log, first = np.log(table["t"]), np.log(np.maximum(begun, 1e-300))
        until, before = np.exp(eta + k * log), np.where(begun > 0, np.exp(eta + k * first), 0.0)
        value = event * (np.log(k) + eta + (k - 1) * log) - until + before
        g = event - until + before
        last = event * (1 / k + log) - until * log + before * first
        return -float(value.mean()), -np.array([g.mean(), *(x * g[:, None]).mean(axis=0), last.mean()])

    return at


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("skewed", [False, True])
def test_without_noise_it_is_the_maximum_of_the_likelihood_to_six_digits(skewed: bool, late: bool) -> None:
    """Also with a feature as skewed as receptor counts are, whose largest cells are 40 SDs out.

    Vectors of rows are in steps of 2^-20, which is what moves the sixth digit.
    """
    from scipy.optimize import minimize, root

    table, rng = people(2500, 8, 1.4, late=late), np.random.default_rng(9)
    schema = SCHEMA
    if skewed:
        table["a"] = np.minimum(np.exp(rng.normal(3.0, 1.6, 2500)), 4900.0)
        schema = schema.changed({"a": Number(0, 5000, missing=False)})
    columns = [grid(table["a"], schema.number("a")), grid(table["b"], schema.number("b")), table["c"] == "v"]
    x = np.column_stack(columns).astype(float)
    size = np.array([x[:, 0].std(), 1.0, 1.0])
    z = (x - x.mean(axis=0)) / size
    start = np.array([-1.0, 0.0, 0.0, 0.0, 1.0])
    at = likelihood(z, table, table["start"])
    near = minimize(at, start, jac=True, method="BFGS").x
    known = root(lambda w: at(w)[1], near, tol=1e-13).x
    entry = {"entry": "start"} if late else {}
    analysis = SurvivalRegression("t", "e", FEATURES, rounds=30, cap="none", **entry)
    result = conducted(analysis, table, schema, math.inf, rng)
    scaled = values(result) * np.append(size, 1.0)
    assert scaled == pytest.approx(known[1:], abs=1e-6 if not skewed else 2e-6)
    assert result.model.note == "Maximum-likelihood estimates."
    errors = np.array([each.standard_error for each in result.estimates])
    assert (np.array([each.privacy for each in result.estimates]) < 1e-4 * errors).all()


def test_with_caps_it_is_the_fit_to_capped_cells() -> None:
    table, rng = people(3000, 8), np.random.default_rng(9)
    table["a"] = np.minimum(np.exp(rng.normal(0.0, 1.0, 3000)), 50.0)
    schema = SCHEMA.changed({"a": Number(0, 400, missing=False)})
    result = conducted(SurvivalRegression("t", "e", FEATURES), table, schema, math.inf, rng)
    (cap,) = result.model.limited.capped
    assert cap.column == "a"
    assert 0 < (table["a"] > cap.high).mean() < 0.015
    cut = {**table, "a": np.minimum(table["a"], cap.high)}
    plain = conducted(SurvivalRegression("t", "e", FEATURES, cap="none"), cut, schema, math.inf, rng)
    assert values(result) == pytest.approx(values(plain), abs=1e-3)
    assert any("Cells beyond caps" in note for note in result.model.notes())
    asked = SurvivalRegression("t", "e", FEATURES, cap={"t": (0.5, 4)})
    result = conducted(asked, table, schema, math.inf, rng)
    cut = {**table, "t": np.clip(table["t"], 0.5, 4)}
    plain = conducted(SurvivalRegression("t", "e", FEATURES, cap="none"), cut, schema, math.inf, rng)
    assert values(result) == pytest.approx(values(plain), abs=1e-6)


def test_times_at_the_lower_bound_count_as_the_first_that_are_seen_and_that_is_said() -> None:
    """Days from 0 on: the logarithm of 0 is none."""
    table = people(4000, 3)
    table["t"] = np.floor(table["t"] * 20) / 20
    result = found(table)
    (cap,) = result.model.limited.capped
    assert cap.column == "t"
    assert 0.01 < cap.low <= 0.05
    assert cap.below == pytest.approx((table["t"] == 0).mean(), abs=0.02)
    assert result.estimates[-1].value == pytest.approx(1.3, abs=0.2)
    assert "lower bound of t" not in result.model.note
    assert "Rows are seen at the lower bound of t" in found(table, cap="none").model.note
    assert "lower bound" not in found(table, cap="none", distribution="exponential").model.note


def test_without_noise_an_exponential_law_is_a_poisson_model_of_events() -> None:
    import statsmodels.api as sm

    table = people(2000, 4, 1.0)
    x = np.column_stack([np.ones(2000), table["a"], table["b"] - 1, table["c"] == "v"]).astype(float)
    event = (table["e"] == "yes").astype(float)
    known = sm.GLM(event, x, sm.families.Poisson(), offset=np.log(table["t"])).fit(tol=1e-12)
    result = found(table, distribution="exponential", rounds=12)
    assert np.abs(values(result) - known.params[1:]).max() < 1e-4
    assert result.model.shape == ()
    at = result.model.predict_survival({"a": [0.5], "b": [1.0], "c": ["u"]}, [2.0])[0, 0]
    assert at == pytest.approx(math.exp(-2 * math.exp(known.params[0] + 0.5 * known.params[1])), abs=1e-4)


def test_late_entry_does_not_bias() -> None:
    table = people(20_000, 5, late=True)
    analysis = SurvivalRegression("t", "e", FEATURES, entry="start", rounds=8)
    result = conducted(analysis, table, SCHEMA, math.inf, np.random.default_rng(0))
    errors = np.array([each.standard_error for each in result.estimates])
    assert (np.abs(values(result) - list(TRUE.values())) < 3.5 * errors).all()


@pytest.mark.slow(3)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_intervals_with_noise_hold_the_truth(neighbours: Neighbours) -> None:
    mu, inside = float(privacy.mu(3.0, 1e-3)), []
    for seed in range(15):
        result = found(people(3000, 100 + seed), mu, seed, neighbours)
        for each in result.estimates:
            low, high = each.interval()
            inside.append(low <= TRUE[each.label] <= high)
    assert np.mean(inside) >= 0.88  # 60 intervals of 95%: fewer than 53 have a probability of 0.9%


def test_a_release_prints_and_can_be_read_back() -> None:
    sites = {str(seed): pl.DataFrame(people(900, seed)) for seed in range(4)}
    consortium = Consortium(sites, SCHEMA, budget=Budget(3, 1e-3))
    release = consortium.release(SurvivalRegression("t", "e", formula="a + c"), share=1.0)
    assert "Shape of Weibull's law" in str(release)
    assert set(release.interval(0.95)) == {"a", "c=v", "shape"}
    assert release.model.to_dict()["law"]["shape"] == pytest.approx(release.model.law.shape)
    assert release.model.test("a", "c=v").freedom == 2
    assert release.model.hazard_ratios["a"] == pytest.approx(math.exp(release.model.coefficients["a"]))


@pytest.mark.parametrize("mu", [0.2, 1e-5])
def test_few_rows_warn_and_intervals_are_wide_but_numbers(mu: float) -> None:
    with pytest.warns(TooNoisyWarning, match="unreliable|converged|any events"):
        result = found(people(60, 2), mu)
    for each in result.estimates:
        low, high = each.interval()
        assert high - low > 1
        assert math.isfinite(low)
        assert math.isfinite(each.value)


def extremes(rng: np.random.Generator, many: int) -> pl.DataFrame:
    def cells(column: Any) -> Any:
        if isinstance(column, Category):
            return rng.choice(column.values, many)
        low, high = column.low, column.high
        return np.where(rng.random(many) < 0.6, rng.choice([low, high], many), rng.uniform(low, high, many))

    return pl.DataFrame({name: cells(column) for name, column in SCHEMA.items()})


@pytest.mark.parametrize("entry", [None, "start"])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_no_neighbouring_tables_move_a_question_further_than_it_says(
    neighbours: Neighbours, entry: str | None
) -> None:
    asked = SurvivalRegression("t", "e", FEATURES, rounds=3, entry=entry)
    frame, rows, largest = pl.DataFrame(people(300, 1)), extremes(np.random.default_rng(5), 24), []
    talk = asked.conduct(SCHEMA, neighbours)
    query = next(talk)

    def totals(query: Query, some: pl.DataFrame) -> list[np.ndarray]:
        found = Table("s", some, SCHEMA).sums(list(query.blocks))
        return [
            np.asarray(total, float) / 2.0**array.bits
            for block, sums in zip(query.blocks, found, strict=True)
            for total, array in zip(sums, block.arrays(SCHEMA), strict=True)
        ]

    for _ in asked.stages():
        moved = []
        for i in range(0, len(rows), 2):
            one, other = rows[i : i + 1], rows[i + 1 : i + 2]
            other = other.clear() if neighbours == "add-remove" else other
            parts = zip(totals(query, one), totals(query, other), query.flat_scales, strict=True)
            moved.append(math.sqrt(sum(float(((a - b) ** 2).sum()) / s**2 for a, b, s in parts)))
        largest.append(max(moved) / query.sensitivity)
        noise = tuple(tuple(2 * scale for scale in each) for each in query.scales)
        whole = iter(totals(query, frame))
        sums = tuple(tuple(next(whole) for _ in each) for each in query.scales)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            try:
                query = talk.send(Answer(sums, noise, len(frame), SCHEMA))
            except StopIteration:
                break
    assert max(largest) <= 1 + 1e-12
    assert min(largest[1:]) > 0.6
    assert largest[0] > 0.999  # one bin of each column


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"features": ["a"], "distribution": "piecewise"}, "piecewise exponential regression is cape.Cox"),
        ({"features": ["a"], "distribution": "weibul"}, "weibull"),
        ({"features": ["t"]}, "'t' is named twice"),
        ({"features": ["a"], "entry": "t"}, "'t' is named twice"),
        ({"features": ["a"], "rounds": 0}, "rounds"),
        ({}, "must have features, or a formula"),
        ({"formula": "t ~ a"}, "has no target"),
    ],
)
def test_what_makes_no_sense_is_refused(made: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        SurvivalRegression("t", "e", **made)


def test_a_study_file_says_the_same() -> None:
    analysis = SurvivalRegression("t", "e", ["a", "c"], "exponential", entry="start", rounds=3, norm=0.5)
    assert build(analysis.to_dict()) == analysis
    assert analysis.describe().startswith("exponential regression of e by t on a and c, at risk from start")
    with pytest.raises(InvalidInput, match="part must be between 0 and 1"):
        found(people(500, 1)).model.predict_quantile({"a": [0.0], "b": [0.0], "c": ["u"]}, 1.0)


@pytest.mark.parametrize("mu", [0.3, 1.0, math.inf])
def test_where_there_are_no_events_that_is_said_and_intervals_are_open(mu: float) -> None:
    table = people(1200, 3)
    table["e"] = np.array(["no"] * 1200)
    for seed in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = found(table, mu, seed).model
        none = "There are no events (e=yes)" if math.isinf(mu) else "Noise hides whether there are any events"
        assert any(each.startswith(none) for each in model.faults)
        assert "Maximum-likelihood" not in model.note
        for each in (*model.estimates, *model.joint.estimates):
            low, high = each.interval()
            assert low < -5 / (2 if each.label in "ab" else 1) < 0 < high


def test_few_events_are_counted_by_scores_which_have_less_noise_than_counts_by_time() -> None:
    table = people(2000, 4)
    rare = np.random.default_rng(1).random(2000) < 0.08
    table["e"] = np.where(rare, table["e"], "no")
    true, away = float((table["e"] == "yes").sum()), []
    for seed in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = found(table, 2.0, seed).model
        away.append((model.events - true) / model.events_noise)
        assert model.events_noise < 30  # 36 if bins of time are added up
    assert np.abs(away).mean() < 1.6
