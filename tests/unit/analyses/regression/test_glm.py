"""Generalised linear models: statsmodels' without noise, never further than their sensitivity, covering."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from functools import cache

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm

from benchmarks.glm import FAMILIES as FAMILIES_BY_SUMS
from benchmarks.glm import Case, Rows, Skewed, conducted, run
from cape import Budget, Consortium
from cape.analyses import GLM, LinearRegression, LogisticRegression, build
from cape.blocks import Table
from cape.core.errors import InvalidInput, PrivacyLeakWarning, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from cape.noise import SecureStream

FEATURES = ["a", "b", "g"]
SCHEMA = Schema(
    a=Number(-1, 1, missing=False),
    b=Number(0, 5, missing=False),
    g=Category(("u", "v", "w"), missing=False),
    time=Number(-2, 2, missing=False),
    share=Number(0, 4, missing=False),
    count=Number(0, 40, missing=False),
    cost=Number(0.01, 60, missing=False),
    level=Number(-12, 12, missing=False),
    ill=Category(("no", "yes"), missing=False),
    stage=Category((1, 2, 3, 4), missing=False),
)
ROWS = 1500
FAMILIES = {
    "poisson": ("count", "poisson", None),
    "negative binomial": ("count", "negative-binomial", None),
    "gamma": ("cost", "gamma", None),
    "logit": ("ill", "binomial", None),
    "probit": ("ill", "binomial", "probit"),
    "cloglog": ("ill", "binomial", "cloglog"),
}
NUMERIC = ["poisson", "negative binomial", "gamma"]
WHOLE = {"cap": "none"}  # columns up to their bounds


@cache
def people(rows: int = ROWS, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, rows), np.clip(rng.exponential(1.5, rows), 0, 5)
    g, time = rng.integers(0, 3, rows), rng.uniform(-1, 1, rows)
    eta = 0.4 + 0.8 * a - 0.2 * b + 0.3 * (g == 2)
    latent = eta + rng.logistic(size=rows)
    return pl.DataFrame(
        {
            "a": a,
            "b": b,
            "g": np.array(["u", "v", "w"])[g],
            "time": time,
            "share": rng.uniform(0.5, 4, rows),
            "count": np.minimum(rng.negative_binomial(3, 3 / (3 + np.exp(eta + time))), 40).astype(float),
            "cost": np.clip(rng.gamma(2, np.exp(eta) / 2), 0.01, 60),
            "level": eta + rng.normal(size=rows),
            "ill": np.array(["no", "yes"])[(latent > 0.4).astype(int)],
            "stage": 1 + (latent[:, None] > [-0.8, 0.4, 1.6]).sum(axis=1),
        }
    )


def matrix(frame: pl.DataFrame) -> np.ndarray:
    return np.column_stack(
        [np.ones(len(frame)), frame["a"], frame["b"], frame["g"] == "v", frame["g"] == "w"]
    ).astype(float)


def analysis(name, **options):
    target, family, link = FAMILIES[name]
    return GLM(target, FEATURES, family, link, **options)


def released(asked, frame, scheme="none", epsilon=1.0, sites=2):
    """One release; the scheme "none" adds no noise."""
    names = [name for name in SCHEMA if name in frame.columns]
    parts = {f"s{i}": frame[i::sites].select(names) for i in range(sites)}
    schema = Schema({name: SCHEMA[name] for name in names})
    consortium = Consortium(
        parts, schema, Budget(epsilon, 1e-6), colluding=0, stream=SecureStream(b"\x07" * 32)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (TooNoisyWarning, PrivacyLeakWarning)[scheme == "none"])
        return consortium.release(asked, 1.0, scheme=scheme)


def fitted(name, frame, alpha=1.0, **options):
    """The coefficients, and the deviance, of statsmodels."""
    x, links, families = matrix(frame), sm.families.links, sm.families
    family = {
        "poisson": families.Poisson(),
        "negative binomial": families.NegativeBinomial(alpha=alpha),
        "gamma": families.Gamma(links.Log()),
        "logit": families.Binomial(),
        "probit": families.Binomial(links.Probit()),
        "cloglog": families.Binomial(links.CLogLog()),
    }[name]
    y = frame[FAMILIES[name][0]]
    y = (y == "yes").to_numpy().astype(float) if y.dtype == pl.String else y.to_numpy()
    found = sm.GLM(y, x, family=family, **options).fit(tol=1e-12, maxiter=300)
    return found.params, found.deviance


@pytest.mark.one_in(2, seconds=0.3)
@pytest.mark.parametrize("name", FAMILIES)
def test_without_noise_it_is_the_maximum_of_the_likelihood(name):
    """Standard errors are 0.03; cells are rounded to 2^-20 of their bounds, which moves counts by 2e-5."""
    frame = people()
    model = released(analysis(name, **WHOLE), frame).model
    found = np.array([each.value for each in model.estimates])
    known, deviance = fitted(name, frame, model.dispersion.value if name == "negative binomial" else 1.0)
    assert np.abs(found - known).max() < 2e-5
    if name != "negative binomial":
        assert model.deviance.value == pytest.approx(deviance, rel=1e-3 if name == "gamma" else 1e-5)


@pytest.mark.quick_cases("poisson", seconds=0.4)
@pytest.mark.parametrize("family", ["logit", "probit", "cloglog", "poisson", "gamma"])
def test_exact_sums_give_the_maximum_of_the_likelihood_to_six_digits(family):
    case, rng = Case(family), np.random.default_rng(3)
    x, y = case.table(rng, 1500)
    estimates = conducted(case, Rows(case, x, y), 1500, 1e9, rng)
    known, _ = case.plain(x, y)
    assert np.abs(np.array([each.value for each in estimates]) - known).max() < 1e-6


def test_an_offset_and_weights_are_those_of_statsmodels():
    frame = people()
    for name in ("poisson", "gamma"):
        model = released(analysis(name, offset="time", weights="share", **WHOLE), frame).model
        beside = {"offset": frame["time"].to_numpy(), "var_weights": frame["share"].to_numpy()}
        known, _ = fitted(name, frame, **beside)
        assert np.abs(np.array([each.value for each in model.estimates]) - known).max() < 5e-5
        table = frame.head(50)
        expected = np.exp(matrix(table) @ known + table["time"].to_numpy())
        assert model.predict(table) == pytest.approx(expected, rel=1e-3)
        with pytest.raises(InvalidInput, match="'time'"):
            model.predict(table.drop("time"))


def test_errors_are_those_of_the_sandwich():
    frame = people()
    model = released(analysis("poisson", **WHOLE), frame).model
    x, y = matrix(frame), frame["count"].to_numpy()
    mean = model.predict(frame)
    bread = np.linalg.inv((x * mean[:, None]).T @ x)
    robust = bread @ ((x * (mean - y)[:, None] ** 2).T @ x) @ bread
    assert [e.sampling for e in model.estimates] == pytest.approx(np.sqrt(np.diag(robust)), rel=1e-3)
    assert np.array(model.covariance) == pytest.approx(robust, rel=1e-2, abs=1e-6)
    assert model.dispersion.value > 1.3  # counts are overdispersed
    assert model.score_test.p < 1e-6
    assert model.test("g").freedom == 2
    both = model.combination({"a": 1.0, "b": 2.0})
    assert both.value == pytest.approx(model.coefficients["a"] + 2 * model.coefficients["b"], abs=1e-6)


def test_a_gaussian_model_and_log_odds_are_the_regressions_of_these_names():
    frame = people().head(400)
    one, other = (
        released(asked, frame).estimates
        for asked in (GLM("level", FEATURES, **WHOLE), LinearRegression("level", FEATURES))
    )
    assert [e.value for e in one] == pytest.approx([e.value for e in other], abs=1e-4)
    logit = released(GLM("ill", FEATURES, "binomial"), frame).estimates
    named = released(LogisticRegression("ill", FEATURES), frame).estimates
    assert [e.value for e in logit] == pytest.approx([e.value for e in named], abs=1e-9)
    weighted = released(GLM("level", FEATURES, weights="share", **WHOLE), frame).model
    known = sm.WLS(frame["level"].to_numpy(), matrix(frame), weights=frame["share"].to_numpy()).fit()
    assert [e.value for e in weighted.estimates] == pytest.approx(known.params, abs=5e-5)


def test_the_unit_of_a_gaussian_target_changes_nothing():
    frame, found = people().head(600).select("a", "level"), []
    for unit in (1.0, 2.0**-20, 2.0**30):
        schema = Schema(a=SCHEMA["a"], level=Number(-8 * unit, 8 * unit, missing=False))
        rows = frame.with_columns(pl.col("level") * unit)
        consortium = Consortium(
            {"s": rows},
            schema,
            Budget(5.0, 1e-6),
            scheme="pooled",
            colluding=0,
            stream=SecureStream(b"\x07" * 32),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            estimates = consortium.release(GLM("level", ["a"]), 1.0).estimates
        found.append([each / unit for e in estimates for each in (e.value, *e.interval())])
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-6)


HOLED = Schema(
    {name: (c if name not in ("a", "count") else Number(c.low, c.high)) for name, c in SCHEMA.items()}
)


def queries(asked, schema, neighbours, frame):
    """All questions of a conversation over these rows; answers are said to be noisy, so that it clips."""
    talk = asked.conduct(schema, neighbours)
    query, found = next(talk), []
    for _ in asked.stages():
        found.append(query)
        sums = exact(query, schema, frame)
        noise = tuple(tuple(4 * scale for scale in scales) for scales in query.scales)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            try:
                query = talk.send(Answer(sums, noise, len(frame), schema))
            except StopIteration:
                return found
    raise AssertionError("there are as many questions as stages")


def exact(query, schema, frame):
    found = Table("s", frame, schema).sums(query.blocks)
    return tuple(
        tuple(np.asarray(a, float) / 2.0**e.bits for a, e in zip(sums, block.arrays(schema), strict=True))
        for sums, block in zip(found, query.blocks, strict=True)
    )


def distance(query, schema, one, other):
    (a, b), scales = (sum(exact(query, schema, each), ()) for each in (one, other)), query.flat_scales
    return math.sqrt(sum(float(((x - y) ** 2).sum()) / s**2 for x, y, s in zip(a, b, scales, strict=True)))


def extremes(rng, many=40):
    """Rows at the bounds, and elsewhere."""

    def number(low, high):
        return np.where(rng.random(many) < 0.6, rng.choice([low, high], many), rng.uniform(low, high, many))

    return pl.DataFrame(
        {
            **{n: number(c.low, c.high) for n, c in SCHEMA.items() if isinstance(c, Number)},
            **{n: rng.choice(c.values, many) for n, c in SCHEMA.items() if isinstance(c, Category)},
        }
    ).select(list(SCHEMA))


@pytest.mark.quick_cases("replace-one-poisson", "add-remove-gamma", seconds=0.3)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_no_neighbouring_tables_move_a_question_further_than_it_says(name, neighbours):
    rng = np.random.default_rng(5)
    options = {"rounds": 3} | ({"weights": "share"} if neighbours == "add-remove" else {})
    if name in NUMERIC:
        options["offset"] = "time"
    rows, furthest = extremes(rng, 24), 0.0
    for query in queries(analysis(name, **options), HOLED, neighbours, people().head(300)):
        for i in range(0, 24, 2):
            one, other = rows[i : i + 1], rows[i + 1 : i + 2]
            if i % 3 == 0:
                other = other.with_columns(a=pl.lit(None, pl.Float64))
            if neighbours == "add-remove":
                other = other.clear()
            moved = distance(query, HOLED, one, other)
            furthest = max(furthest, moved / query.sensitivity)
            assert moved <= query.sensitivity
    assert furthest > 0.5  # and some come near it


def test_a_bound_that_is_too_small_would_be_found_out():
    rng = np.random.default_rng(5)
    rows = extremes(rng)
    query = queries(analysis("poisson", rounds=3), SCHEMA, "replace-one", people().head(300))[-1]
    moved = [distance(query, SCHEMA, rows[i : i + 1], rows[i + 1 : i + 2]) for i in range(0, 40, 2)]
    assert max(moved) > 0.6 * query.sensitivity


@pytest.mark.quick_cases("gamma", seconds=0.4)
@pytest.mark.parametrize("name", FAMILIES)
def test_whatever_the_noise_the_answer_is_finite(name):
    for rows, epsilon in ((3, 0.1), (60, 1.0), (800, 5.0)):
        model = released(analysis(name), people().head(rows), "cape", epsilon, sites=3).model
        for each in model.estimates:
            low, high = each.interval()
            assert math.isfinite(each.value)
            assert low <= high
        assert model.summary()
        assert model.to_dict()["covariance"]


def test_perfect_separation_has_wide_intervals():
    frame = (
        people()
        .head(900)
        .with_columns(ill=pl.when(pl.col("a") > 0).then(pl.lit("yes")).otherwise(pl.lit("no")))
    )
    for link in ("logit", "probit", "cloglog"):
        for scheme in ("pooled", "cape"):
            low, high = released(GLM("ill", ["a", "b"], "binomial", link), frame, scheme, 3.0).interval()["a"]
            assert high - low > 2.0
            assert high > 5.0


def test_a_feature_that_separates_two_categories_is_said_to():
    frame = (
        people()
        .head(900)
        .with_columns(ill=pl.when(pl.col("a") > 0).then(pl.lit("yes")).otherwise(pl.lit("no")))
    )
    parts = {"s": frame[::2], "t": frame[1::2]}
    for scheme, said in (
        ("none", "log-odds grow with every step"),
        ("pooled", "not converged|with every step"),
    ):
        consortium = Consortium(
            parts, SCHEMA, Budget(3.0, 1e-6), colluding=0, stream=SecureStream(b"\x07" * 32)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            with pytest.warns(TooNoisyWarning, match=said):
                consortium.release(GLM("ill", ["a", "b"], "binomial"), 1.0, scheme=scheme)


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        ({"target": "ill", "family": "poisson"}, "must be a number with bounds for family 'poisson'"),
        ({"target": "level", "family": "poisson"}, "lower bound of at least 0 for family 'poisson', not -12"),
        ({"target": "count", "family": "gamma"}, "lower bound above 0 for family 'gamma', not 0"),
        ({"target": "count", "family": "binomial"}, "two categories for family 'binomial'.*'ordinal'"),
        ({"target": "stage", "family": "binomial"}, "the schema gives it 4"),
        ({"target": "ill", "family": "ordinal"}, "3 to 20 categories for family 'ordinal'"),
        ({"target": "count", "family": "ordinal"}, "the schema gives it bounds"),
        ({"target": "ill", "family": "gaussian"}, "must be a number with bounds"),
        ({"target": "count", "family": "poisson", "offset": "g"}, "offset 'g' must be a number"),
        ({"target": "cost", "family": "poisson", "offset": "count"}, "between -20 and 20.*logarithm"),
        (
            {"target": "count", "family": "poisson", "weights": "time"},
            "weights 'time' must have a lower bound",
        ),
    ],
)
def test_a_family_that_does_not_fit_is_refused_before_anything_is_spent(described, problem):
    asked = build({"kind": "glm", "features": ["a"], **described})
    sites = {name: people(seed=seed).head(40) for seed, name in enumerate("st")}
    consortium = Consortium(sites, SCHEMA, Budget(1.0, 1e-6), colluding=0)
    with pytest.raises(InvalidInput, match=problem):
        consortium.release(asked, 1.0)
    assert float(consortium.budget.remaining) > 0.999


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"family": "weibull"}, "family must be one of"),
        ({"family": ["poisson"]}, "family must be one of"),
        ({"family": "poisson", "link": "logit"}, "link of family 'poisson' must be log, not 'logit'"),
        ({"family": "binomial", "link": "log"}, "one of logit, probit and cloglog"),
        ({"family": "poisson", "rounds": 0}, "rounds"),
        ({"family": "poisson", "cap": "some"}, "cap must be 'auto', 'none'"),
        ({"family": "poisson", "cap": {"count": (5, 2)}}, "cap of 'count' must be two numbers that rise"),
        ({"family": "poisson", "offset": 3}, "offset must be a column"),
        ({"family": "poisson", "weights": "b", "offset": "b"}, "'b' must not be a feature or the target"),
        ({"family": "multinomial", "offset": "time"}, "takes no offset"),
        ({"family": "ordinal", "intercept": False}, "thresholds"),
    ],
)
def test_arguments_that_cannot_be_right(options, problem):
    with pytest.raises(InvalidInput, match=problem):
        GLM("count", ["a"], **options).query(SCHEMA, "replace-one")


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        (GLM("cost", ["place"], "gamma"), 2001),
        (LogisticRegression("ill", ["place"]), 2001),
        (GLM("stage", ["place"], "multinomial"), 700),
        (GLM("stage", ["place"], "ordinal"), 1999),
    ],
)
def test_more_weights_than_a_site_should_solve_for_are_refused_at_once(asked, values):
    for many, refused in ((values, True), (30, False)):
        schema = Schema({**SCHEMA, "place": Category(tuple(range(many)))})
        with pytest.raises(InvalidInput, match="at most 2,000") if refused else nullcontext():
            asked.query(schema, "replace-one")
        with pytest.raises(InvalidInput, match="at most 2,000") if refused else nullcontext():
            next(asked.conduct(schema, "replace-one"))


@pytest.mark.quick_cases("poisson", seconds=0.4)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_plan_names_every_coefficient_and_falls_with_rows(name):
    asked = analysis(name)
    query = asked.query(SCHEMA, "replace-one")
    noise = [[20 * scale for scale in scales] for scales in query.scales]
    few, many = (asked.expected(SCHEMA, noise, rows) for rows in (2000, 200_000))
    labels = [each.label for each in released(asked, people().head(60)).estimates]
    assert list(few) == labels
    assert all(0 < many[label] < few[label] for label in labels)
    assert all(math.isfinite(each) for each in asked.limits(SCHEMA, noise, 2000).values())


def test_features_may_be_interactions_and_splines():
    frame = people().head(500)
    model = released(GLM("count", ["a:g", "spline(b, 2)"], "poisson"), frame).model
    assert np.isfinite(np.asarray(model.predict(frame), float)).all()
    assert model.test("spline(b, 2)").freedom == 2


@pytest.mark.slow(20)
@pytest.mark.parametrize("family", FAMILIES_BY_SUMS)
@pytest.mark.parametrize("case", [Case, Skewed])
def test_intervals_cover(case, family):
    """At epsilon 1 with 20,000 rows; of 40 runs and 4 coefficients or more 3 to 4% are the standard error."""
    hits = np.mean([run(case(family), 20_000, seed, (1.0,)).covered[1.0] for seed in range(40)])
    assert hits >= 0.9


def test_a_release_names_its_condition_offset_and_weights():
    asked = GLM("count", ["a"], "poisson", offset="time", weights="share", where="a > 0")
    release = released(asked, people().head(300), scheme="pooled", epsilon=20.0)
    assert release.describe().endswith("steps, with offset time and weights share, where a > 0")
    assert str(release).startswith(release.describe()[:60])
    assert "pseudo-R²" in " ".join(release.notes())


def test_a_gaussian_model_is_of_the_mean_of_its_target():
    release = released(GLM("level", ["a"]), people().head(300), scheme="pooled", epsilon=20.0)
    assert release.model.title.startswith("mean of level, gaussian (")
    assert release.figures()[0].panels[0].axis == "Change of the mean of level"
