"""What an evaluation says of a model: as scikit-learn computes it, with intervals that hold."""

from __future__ import annotations

import json
import math
import re
import warnings

import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn import metrics

import cape
from benchmarks.evaluate import simulated
from cape import privacy
from cape.analyses import Evaluate, build
from cape.analyses.evaluate.bins import cell_edges, how_many
from cape.analyses.evaluate.errors import ErrorSums
from cape.analyses.evaluate.risk import MEASURES, Losses, RankSums, RiskTable
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.engine.query import Answer
from cape.show.svg import draw
from cape.stats.moments import Sums
from tests.unit.analyses.slow_sums import exact, noisy, vectors

SCHEMA = cape.Schema(
    age=(18, 90),
    bmi=(10, 60),
    sex=["female", "male"],
    chol=(100, 400),
    ill=["no", "yes"],
    stage=["a", "b", "c"],
)
RISK = {"target": "ill", "link": "logit", "intercept": -4.0, "coefficients": {"age": 0.06, "sex=male": 0.5}}
NUMBER = {"target": "chol", "link": "identity", "intercept": 150.0, "coefficients": {"age": 1.1, "bmi": 0.2}}


def frame(rows, seed=0):
    rng = np.random.default_rng(seed)
    age, bmi = rng.uniform(18, 90, rows), rng.normal(27, 5, rows)
    sex = rng.choice(["female", "male"], rows)
    ill = np.where(rng.random(rows) < expit(-4.5 + 0.07 * age + 0.4 * (sex == "male")), "yes", "no")
    chol = 140 + 1.2 * age + rng.normal(0, 25, rows)
    chol[rng.random(rows) < 0.03] = np.nan
    ids = [f"p{seed}-{i}" for i in range(rows)]
    return pl.DataFrame({"patient": ids, "age": age, "bmi": bmi, "sex": sex, "chol": chol, "ill": ill})


def released(analysis, rows=1200, scheme="none", share=1.0, epsilon=3.0, **more):
    sites = {name: frame(rows, seed) for seed, name in enumerate("abc")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hospital = cape.Consortium(
            sites, SCHEMA, cape.Budget(epsilon, 1e-6), colluding=1, scheme=scheme, **more
        )
        return pl.concat(sites.values()), hospital.release(analysis, share)


def risks(data):
    return expit(-4.0 + 0.06 * data["age"].to_numpy() + 0.5 * (data["sex"] == "male").to_numpy())


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_without_noise_measures_are_those_of_scikit_learn(threshold):
    data, release = released(Evaluate(RISK, threshold=threshold))
    y, p, table = (data["ill"] == "yes").to_numpy(), risks(data), release.model.table
    bins = np.clip(np.digitize(p, table.edges) - 1, 0, table.bins - 1)
    found = release.value
    binned = metrics.roc_auc_score(y, bins)
    assert found["AUC"] - table.inside == pytest.approx(binned, abs=1e-9)
    assert found["AUC"] == pytest.approx(metrics.roc_auc_score(y, p), abs=2e-4)
    assert found["Brier score"] == pytest.approx(metrics.brier_score_loss(y, p), abs=1e-6)
    means = np.array([p[bins == b].mean() for b in range(table.bins)])
    assert table.predicted == pytest.approx(means, abs=0.01)
    sizes = np.bincount(bins)
    assert len(sizes) in (20, 21)
    assert sizes.max() < 0.075 * len(y)
    said = p >= (threshold or 0.5)
    assert release.model.confusion.tolist() == metrics.confusion_matrix(y, said).tolist()
    assert found["sensitivity"] == pytest.approx(metrics.recall_score(y, said))
    assert found["specificity"] == pytest.approx(metrics.recall_score(~y, ~said))
    assert found["positive predictive value"] == pytest.approx(metrics.precision_score(y, said))
    assert found["negative predictive value"] == pytest.approx(metrics.precision_score(~y, ~said))
    false, true, _ = metrics.roc_curve(y, bins, drop_intermediate=False)
    ours = release.model.roc
    assert np.interp(ours[0], false, true) == pytest.approx(ours[1], abs=1e-9)


def test_risks_are_ties_where_they_are_the_same_and_nowhere_else():
    rng = np.random.default_rng(4)
    data = frame(3000).with_columns(stage=pl.Series(rng.choice(["a", "b", "c"], 3000)))
    model = RISK | {"coefficients": {"sex=male": 0.2, "stage=b": 0.01, "stage=c": 1.0}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sites = {"a": data[:1000], "b": data[1000:]}
        hospital = cape.Consortium(sites, SCHEMA, cape.Budget(3, 1e-6), scheme="none", colluding=0)
        release = hospital.release(Evaluate(model), 1.0)
    male, stage = data["sex"] == "male", data["stage"]
    eta = 0.2 * male + 0.01 * (stage == "b") + 1.0 * (stage == "c")
    assert release.value["AUC"] == pytest.approx(metrics.roc_auc_score(data["ill"] == "yes", eta), abs=1e-6)


def test_bins_end_at_quantiles_of_risk_whatever_is_typical_for_the_schema():
    for intercept, slope in ((-4.0, 0.06), (-2.0, 0.001), (-30.0, 0.5), (3.0, 0.2)):
        model = RISK | {"intercept": intercept, "coefficients": {"age": slope, "sex=male": slope}}
        data, release = released(Evaluate(model))
        counts = release.model.table.counts
        y, p = data["ill"] == "yes", intercept + slope * (data["age"] + (data["sex"] == "male"))
        assert counts.sum(axis=1).max() < 0.2 * len(data)
        low, high = release.interval()["AUC"]
        assert low < metrics.roc_auc_score(y, p) < high
        assert release.value["AUC"] == pytest.approx(metrics.roc_auc_score(y, p), abs=5e-4)


def test_edges_that_are_given_are_those_of_the_bins():
    _, release = released(Evaluate(RISK, edges=[0.05, 0.2, 0.7], threshold=0.3), scheme="cape")
    assert release.model.table.edges.tolist() == [0.0, 0.05, 0.2, 0.3, 0.7, 1.0]


def test_bins_are_fewer_where_noise_outweighs_their_rows():
    assert [how_many(rows, 8.0) for rows in (0, 500, 2000, 1e6)] == [5, 5, 10, 20]
    assert how_many(10, 0.0) == 20


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_no_answer_of_the_first_stage_makes_a_row_move_the_last_one_further(neighbours):
    """The first stage may have been made up: counts of any size, and of any sign."""
    analysis, rng = Evaluate(RISK), np.random.default_rng(5)
    ages = np.repeat([18.0, 30.0, 60.0, 90.0, math.nan], 4)
    table = {"age": ages, "sex": np.tile([0, 1, 0, 1], 5), "ill": np.tile([0, 0, 1, 1], 5)}
    furthest = 0.0
    for counts in (
        np.zeros,
        np.ones,
        rng.normal,
        lambda size: 1e9 * rng.standard_cauchy(size),
        lambda size: np.eye(1, size)[0],
    ):
        conversation = analysis.conduct(SCHEMA, neighbours)
        first = next(conversation)
        rows = vectors(first, SCHEMA, table)
        assert moved(rows, neighbours) == pytest.approx(first.sensitivity)
        made_up = counts(size=rows.shape[1]) if counts == rng.normal else counts(rows.shape[1])
        last = conversation.send(Answer(((made_up,),), ((3.0,),), None, SCHEMA))
        furthest = max(furthest, moved(vectors(last, SCHEMA, table), neighbours))
        assert furthest <= last.sensitivity * (1 + 1e-12)
    assert furthest > 0.95 * last.sensitivity


def moved(rows, neighbours):
    """The largest distance between tables that hold one of these rows each, or one and none."""
    alone = np.linalg.norm(rows, axis=1).max()
    return alone if neighbours == "add-remove" else max(alone, cdist(rows, rows).max())


@pytest.mark.parametrize(
    "model",
    [NUMBER, NUMBER | {"link": "log", "intercept": 5.0, "coefficients": {"age": 0.005, "bmi": 0.001}}],
)
def test_without_noise_errors_are_those_of_scikit_learn(model):
    data, release = released(Evaluate(model))
    kept = data.filter(pl.col("chol").is_not_nan())
    eta = model["intercept"] + sum(
        value * kept[name].to_numpy() for name, value in model["coefficients"].items()
    )
    predicted = np.clip(np.exp(eta) if model["link"] == "log" else eta, 100, 400)
    y = np.clip(kept["chol"].to_numpy(), 100, 400)
    assert release.value["root mean squared error"] == pytest.approx(
        metrics.root_mean_squared_error(y, predicted), rel=1e-5
    )
    assert release.value["R²"] == pytest.approx(metrics.r2_score(y, predicted), abs=1e-5)


@pytest.mark.slow(1)
def test_a_released_model_is_evaluated_on_persons_it_has_not_seen():
    sites = {name: frame(4000, seed) for seed, name in enumerate("abc")}
    hospital = cape.Consortium(
        sites, SCHEMA, cape.Budget(8, 1e-6), colluding=1, person={"id": "patient", "keep_apart": 0.25}
    )
    model = hospital.release(cape.LogisticRegression("ill", ["age", "sex"], where="not held_out"), 0.5)
    said = hospital.release(Evaluate(model, where="held_out"), 0.5)
    data = pl.concat(sites.values())
    held = np.array([hospital.schema.person.holds_out(each) for each in data["patient"]])
    assert 0.22 < held.mean() < 0.28
    apart = data.filter(held)
    truth = metrics.roc_auc_score(apart["ill"] == "yes", model.model.predict_proba(apart)[:, 1])
    assert abs(said.value["AUC"] - truth) < 5 * said.estimates.privacy[0]
    assert abs(said.model.table.totals.sum() - held.sum()) < 6 * said.model.table.noise * math.sqrt(40)
    assert said.guarantee.open, "how many are held out at a site is private"


def test_interactions_and_splines_are_predicted_at_the_sites():
    sites = {name: frame(1500, seed) for seed, name in enumerate("abc")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hospital = cape.Consortium(sites, SCHEMA, cape.Budget(3, 1e-6), colluding=1, scheme="none")
        model = hospital.release(
            cape.LinearRegression(formula="chol ~ bmi * sex + spline(age, 3) + site"), 0.5
        )
        found = hospital.release(Evaluate(model), 0.5)
    data = pl.concat([data.with_columns(site=pl.lit(name)) for name, data in sites.items()])
    data = data.filter(pl.col("chol").is_not_nan())
    y, predicted = np.clip(data["chol"].to_numpy(), 100, 400), model.model.predict(data)
    assert found.value["root mean squared error"] == pytest.approx(
        metrics.root_mean_squared_error(y, predicted), rel=1e-5
    )


def test_everything_about_it_is_shown_and_written():
    _, release = released(Evaluate(RISK), scheme="cape")
    roc, calibration = release.figures()
    for figure in (roc, calibration):
        (panel,) = figure.panels
        assert panel.diagonal
        assert "<svg" in draw(panel)
    assert list(roc.panels[0].at) == sorted(roc.panels[0].at)
    assert [table.title for table in release.tables()] == ["", "Confusion matrix (ill=yes)", "Calibration"]
    told = json.loads(release.to_json())
    assert set(told) >= {"edges", "counts", "confusion", "roc", "mean_prediction"}
    assert "released quantiles" in release.notes()[0]
    assert build(release.analysis.to_dict()) == release.analysis


def test_counts_of_a_confusion_matrix_are_possible_and_have_intervals():
    _, release = released(Evaluate(RISK), scheme="cape", epsilon=0.3)
    table = release.tables()[1]
    raw = release.model.confusion
    for row, counts in zip(table.rows, raw, strict=True):
        for cell, count in zip(row[1:], counts, strict=True):
            value, low, high = (float(each.replace(",", "")) for each in re.findall(r"-?[0-9,]+", cell))
            assert 0 <= low <= value <= high
            assert value == pytest.approx(max(count, 0), abs=0.5)
    _, exact = released(Evaluate(RISK))
    assert "to" not in exact.tables()[1].rows[0][1]


def test_a_bin_with_most_rows_is_pointed_at():
    _, release = released(Evaluate(RISK, edges=[0.9], threshold=0.9))
    assert "give edges" in release.notes()[-1]


def test_too_much_noise_leaves_bounds_and_never_a_number_that_is_none():
    sites = {name: frame(3, seed) for seed, name in enumerate("abc")}
    hospital = cape.Consortium(sites, SCHEMA, cape.Budget(0.1, 1e-6), colluding=1)
    with pytest.warns(TooNoisyWarning):
        found = hospital.release(Evaluate(RISK), 1.0)
    for estimate in found.estimates:
        assert 0 <= estimate.interval()[0] <= estimate.interval()[1] <= 1
    assert len(found.figures()) < 2


def exactly(edges, counts):
    """A table without noise, in whose bins all risks are the same."""
    ranks = RankSums(np.zeros(counts.shape), 0.0, np.full(len(counts), 0.5))
    return RiskTable(edges, counts, 0.0, 0.5, (edges[1:] + edges[:-1]) / 2, ranks, Losses(5.0, 0.0, None))


def test_perfect_separation_leaves_an_interval():
    counts = np.zeros((4, 2))
    counts[0, 0], counts[3, 1] = 30, 20
    table = exactly(np.linspace(0, 1, 5), counts)
    low, high = table.auc().interval()
    assert (table.area, high) == (1.0, 1.0)
    assert 0.7 < low < 0.99


def test_outcomes_of_one_kind_only_have_no_area():
    counts = np.array([[40.0, 0.0], [50.0, 0.0]])
    table = exactly(np.array([0, 0.5, 1.0]), counts)
    assert table.auc().interval() == (0.0, 1.0)
    assert table.roc() == []
    assert [e.value for e in table.shares()][1] == pytest.approx(40 / 90)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "model.json"}, "cape.model_from_json"),
        ({"model": cape.Mean("age")}, "a release or a model with coefficients"),
        ({"model": True}, "not bool"),
        ({"model": RISK | {"coefficients": {}}}, "coefficients by name"),
        ({"model": RISK | {"coefficients": {f"c={i}": 1.0 for i in range(2001)}}}, "from 1 to 2000"),
        (
            {"model": RISK | {"columns": {"a": [0, 1]} | {f"c{i}": {"sql": "a > 0"} for i in range(201)}}},
            "at most 200 derived columns",
        ),
        ({"model": 0}, "model must be"),
        ({"model": RISK, "threshold": 1.0}, "below 1"),
        ({"model": RISK, "bins": 1}, "bins must be"),
        ({"model": RISK, "bins": 4, "edges": [0.1]}, "not both"),
        ({"model": RISK, "edges": []}, "edges must be"),
        ({"model": RISK, "edges": [0.2, 1.5]}, "edges must be"),
        ({"model": RISK, "edges": "abc"}, "risks that rise"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said):
        Evaluate(given.pop("model"), **given)


@pytest.mark.parametrize(
    ("analysis", "said"),
    [
        (Evaluate(RISK | {"target": "stage"}), "two categories"),
        (Evaluate(RISK | {"target": "chol"}), "two categories"),
        (Evaluate(RISK | {"link": "identity"}), "link must be logit"),
        (Evaluate(RISK | {"target": "gone"}), "no column 'gone'"),
        (Evaluate(RISK | {"coefficients": {"stage=b": 1.0}}), "no coefficient 'stage=c'"),
        (
            Evaluate(RISK | {"coefficients": {"age": 1.0, "sex=other": 1.0}}),
            "'sex=other': sex has the categories female and male",
        ),
        (Evaluate(RISK | {"coefficients": {"age": 1.0}, "features": ["age", "bmi"]}), "no coefficient 'bmi'"),
        (Evaluate(RISK | {"features": ["age"]}), "which no feature gives"),
        (Evaluate(RISK | {"coefficients": {"age": 1e300}}), "must not exceed"),
        (Evaluate(NUMBER, threshold=0.4), "for risks"),
        (Evaluate(2), "give the release itself"),
    ],
)
def test_a_model_that_does_not_fit_the_schema_is_refused_before_anything_is_spent(analysis, said):
    with pytest.raises(InvalidInput, match=said):
        analysis.query(SCHEMA, "replace-one")


POPULATIONS = {
    "a true model": lambda eta, u: (eta, expit(eta)),
    "a model that overstates": lambda eta, u: (3 * eta - 1, expit(eta / 2)),
    "wrong way in the middle": lambda eta, u: (eta, 0.3 + 0.4 * (np.sin(2 * eta) > 0) * (u > 0.2)),
    "four risks": lambda eta, u: (np.clip(np.round(eta / 2), -2, 1), expit(np.round(eta / 2))),
    "mostly one risk": lambda eta, u: (np.where(u < 0.8, -1.5, eta), np.where(u < 0.8, 0.1, expit(eta))),
    "hardly different risks": lambda eta, u: (eta / 200, expit(eta)),
    "rare": lambda eta, u: (eta - 3, expit(eta - 3)),
}


@pytest.mark.slow(3)
@pytest.mark.parametrize("kind", POPULATIONS)
@pytest.mark.parametrize(("rows", "epsilon"), [(1000, 1.0), (2000, 3.0), (10_000, 3.0)])
def test_intervals_of_all_measures_cover_those_of_the_population_whether_the_model_is_right(
    kind, rows, epsilon
):
    rng, runs = np.random.default_rng(rows), 300
    predictor, risk = POPULATIONS[kind](1.3 * rng.standard_t(5, 200_000) - 0.7, rng.random(200_000))
    outcomes = (rng.random(200_000) < risk).astype(int)
    cells = cell_edges(float(predictor.mean() + predictor.std()), 3 * float(predictor.std()), "logit", (0.5,))
    said = predictor >= 0
    truth = [
        metrics.roc_auc_score(outcomes, predictor),
        metrics.brier_score_loss(outcomes, expit(predictor)),
        *(
            np.mean(a[b]) if b.any() else None
            for a, b in (
                (said, outcomes == 1),
                (~said, outcomes == 0),
                (outcomes == 1, said),
                (outcomes == 0, ~said),
            )
        ),
    ]
    hits = np.zeros(len(truth))
    for _ in range(runs):
        rows_ = rng.integers(0, len(predictor), rows)
        table = simulated(rng, predictor[rows_], outcomes[rows_], cells, float(privacy.mu(epsilon, 1e-6)))
        ends = [e.interval() for e in (table.auc(), table.brier(), *table.shares())]
        hits += [
            value is None or low <= value <= high for (low, high), value in zip(ends, truth, strict=True)
        ]
    assert (hits / runs > 0.905).all(), dict(zip(MEASURES, hits / runs, strict=True))


RESIDUALS = {
    "normal": lambda rng, n: rng.normal(0, 1, n),
    "skewed": lambda rng, n: rng.exponential(1, n) - 1,
    "mostly 0": lambda rng, n: np.where(rng.random(n) < 0.8, 0.0, rng.normal(0, 2.2, n)),
}


def error_sums(rng, rows, kind, schema, mu):
    """One evaluation of a number, simulated: both stages."""
    analysis = Evaluate(NUMBER)
    age, bmi = rng.uniform(18, 90, rows), np.full(rows, 27.0)
    predicted = 150 + 1.1 * age + 0.2 * bmi
    data = {"age": age, "bmi": bmi, "chol": predicted + 20 * RESIDUALS[kind](rng, rows)}
    talk = analysis.conduct(schema, "replace-one")
    query = next(talk)
    for share in analysis.stages():
        answer = noisy(query, schema, exact(query, schema, data), rows, rng, mu=mu * math.sqrt(share))
        try:
            query = talk.send(answer)
        except StopIteration as stop:
            return stop.value.estimates
    raise AssertionError


@pytest.mark.slow(6)
@pytest.mark.parametrize("kind", RESIDUALS)
@pytest.mark.parametrize(("rows", "epsilon"), [(2000, 1.0), (20_000, 3.0)])
def test_intervals_of_errors_cover_whatever_residuals_are_like(kind, rows, epsilon):
    rng, runs = np.random.default_rng(rows), 400
    big = error_sums(rng, 1_000_000, kind, SCHEMA, 1e9)
    mu = float(privacy.mu(epsilon, 1e-6))
    hits = np.zeros(2)
    for _ in range(runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            found = error_sums(rng, rows, kind, SCHEMA, mu)
        hits += [e.interval()[0] <= true.value <= e.interval()[1] for e, true in zip(found, big, strict=True)]
    assert (hits / runs > 0.92).all(), hits / runs


def test_sums_without_rows_leave_errors_unknown():
    sums = ErrorSums(Sums(0.5, 0.1, 0.2, 3.0, 3.0, 3.0), 0.1, 3.0)
    assert not sums.known
    rmse, r_squared = sums.estimates(SCHEMA.number("chol"), None)
    assert rmse.interval() == (0.0, 300.0)
    assert r_squared.interval() == (-math.inf, 1.0)
    answer = Answer(((np.zeros(1),) * 4,), ((3.0,) * 4,), 0, SCHEMA)
    with pytest.warns(TooNoisyWarning):
        assert Evaluate(NUMBER).finish(answer).estimates[0].interval() == (0.0, 300.0)


def test_what_does_not_predict_is_named_with_what_does():
    rng = np.random.default_rng(1)
    tables = {
        name: pl.DataFrame(
            {
                "age": rng.uniform(20, 80, 300),
                "chol": rng.uniform(100, 400, 300),
                "stage": rng.choice(["a", "b", "c"], 300),
            }
        )
        for name in "ab"
    }
    schema = cape.Schema({name: SCHEMA[name] for name in ("age", "chol", "stage")})
    consortium = cape.Consortium(tables, schema, cape.Budget(20.0, 1e-6), colluding=0)
    mean = consortium.release(cape.Mean("age"), 0.1)
    several = consortium.release(cape.GLM("stage", ["age"], family="multinomial"), 0.3)
    mixed = consortium.release(cape.MixedModel("chol", ["age"]), 0.3)
    taken = "linear and logistic regressions and GLMs of numbers or two categories"
    for given, what in [(several, "a multinomial regression"), (several.model, "a multinomial regression")]:
        with pytest.raises(InvalidInput, match=f"^{what} cannot be evaluated; Evaluate takes {taken}"):
            Evaluate(given)
    with pytest.raises(InvalidInput, match="a result of kind 'mean' cannot be evaluated"):
        Evaluate(mean)
    for release, what in [
        (mean, "a result of kind 'mean'"),
        (several, "a multinomial regression"),
        (mixed, "a result of kind 'mixed-model'"),
    ]:
        with pytest.raises(InvalidInput, match=f"this is {what}, which does not predict; models .* {taken}"):
            cape.model_from_json(release.to_json())
