"""Persons with several rows: errors are those of sampling persons, or a result says that they are not."""

from __future__ import annotations

import math
import warnings

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm

import cape
from cape.analyses.regression.sandwich import sandwich_query
from cape.blocks import Design, Table
from cape.data import Person
from cape.noise import SecureStream

ROWS = 4
FEATURES = ["x", "z"]
SCHEMA = cape.Schema(
    x=(0, 10),
    z=(0, 10),
    y=(0, 40),
    n=(0, 60),
    ill=["no", "yes"],
    stage=["a", "b", "c"],
    years=(0, 8),
    died=["no", "yes"],
)
MODELS = {
    "linear": cape.LinearRegression("y", FEATURES),
    "logistic": cape.LogisticRegression("ill", FEATURES, cap="none"),
    "gaussian": cape.GLM("y", FEATURES, cap="none"),
    "poisson": cape.GLM("n", FEATURES, family="poisson", cap="none"),
    "multinomial": cape.GLM("stage", FEATURES, family="multinomial", cap="none"),
    "ordinal": cape.GLM("stage", FEATURES, family="ordinal", cap="none"),
    "cox": cape.Cox("years", "died", FEATURES, cap="none"),
}
ASSUMED = "take rows as independent"
ROBUST = "cluster-robust"


def people(seed, persons=300, rows=ROWS):
    """Persons with one to so many rows each, which have features and errors in common."""
    rng = np.random.default_rng(seed)
    whose = np.repeat(np.arange(persons), rng.integers(1, rows + 1, persons))
    many = len(whose)
    own, level = rng.normal(size=persons)[whose], rng.normal(size=persons)[whose]
    x = np.clip(5 + 1.5 * level + 0.5 * rng.normal(size=many), 0, 10)
    slope = 0.2 * (x - 5)
    t = rng.exponential(5 * np.exp(-slope / 2 - 0.6 * own))
    latent = slope + 1.2 * own + rng.logistic(size=many)
    frame = pl.DataFrame(
        {
            "id": [f"p{each}" for each in whose],
            "x": x,
            "z": np.clip(rng.normal(5, 1.5, many), 0, 10),
            "y": np.clip(10 + 0.5 * x + 2 * own + rng.normal(size=many), 0, 40),
            "n": np.clip(rng.poisson(np.exp(0.2 + slope / 2 + 0.5 * own)), 0, 60).astype(float),
            "ill": np.where(latent > 0.7, "yes", "no"),
            "stage": np.array(["a", "b", "c"])[np.digitize(latent, [-0.7, 0.8])],
            "years": np.minimum(t, 8),
            "died": np.where(t <= 8, "yes", "no"),
        }
    )
    return frame, whose


def released(analysis, frame, whose, *, rows=ROWS, scheme="none", epsilon=3.0, seed=1):
    """The release of three sites, each person at one of them."""
    parts = {name: frame.filter(pl.Series(whose % 3 == i)) for i, name in enumerate("abc")}
    person = None if rows is None else {"id": "id", "rows": rows}
    consortium = cape.Consortium(
        parts,
        SCHEMA,
        cape.Budget(epsilon, 1e-6),
        colluding=1,
        person=person,
        stream=SecureStream(bytes([seed % 256]) * 32),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return consortium.release(analysis, share=1.0, scheme=scheme)


@pytest.mark.one_in(2, seconds=0.1)
@pytest.mark.parametrize("name", ["linear", "logistic", "gaussian", "poisson", "multinomial"])
def test_without_noise_errors_are_those_of_clusters(name):
    frame, whose = people(1)
    x = sm.add_constant(frame.select(FEATURES).to_numpy())
    if name == "multinomial":
        model = sm.MNLogit(_codes(frame["stage"]), x)
    else:
        target = {"logistic": "ill", "poisson": "n"}.get(name, "y")
        y = _codes(frame[target]) if target == "ill" else frame[target].to_numpy()
        families = {"logistic": sm.families.Binomial(), "poisson": sm.families.Poisson()}
        model = sm.GLM(y, x, family=families.get(name))
    kinds = {"groups": whose, "use_correction": False}
    quiet = {"disp": 0} if name == "multinomial" else {}
    known = model.fit(tol=1e-12, cov_type="cluster", cov_kwds=kinds, **quiet)
    release = released(MODELS[name], frame, whose)
    errors = np.asarray(known.bse).T.ravel()
    if name == "linear":  # counts rows less coefficients
        errors = errors * math.sqrt(len(whose) / (len(whose) - 3))
    assert release.estimates.values == pytest.approx(np.asarray(known.params).T.ravel(), abs=1e-4)
    sampling = [each.sampling for each in release.estimates]
    assert sampling == pytest.approx(errors, rel=1e-3)
    rows = [each.sampling for each in released(MODELS[name], frame, whose, rows=None).estimates]
    ratios = [one / other for one, other in zip(sampling, rows, strict=True)]
    assert max(ratios) > 1.1, "a plain sandwich would be noticed"


def _codes(column):
    return np.unique(column.to_numpy(), return_inverse=True)[1]


@pytest.mark.one_in(3, seconds=0.1)
@pytest.mark.parametrize("name", MODELS)
def test_rows_that_are_repeated_say_nothing_more(name):
    frame, whose = people(2, persons=240, rows=1)
    once = released(MODELS[name], frame, whose, rows=None)
    twice = released(MODELS[name], pl.concat([frame] * 2), np.concatenate([whose] * 2), rows=2)
    assert twice.estimates.values == pytest.approx(once.estimates.values, abs=1e-4)
    first, second = ([each.sampling for each in release.estimates] for release in (once, twice))
    assert second == pytest.approx(first, rel=0.01)


@pytest.mark.one_in(4, seconds=0.1)
@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize("name", ["linear", "logistic", "ordinal", "cox"])
def test_models_say_that_rows_of_a_person_need_not_be_independent(name, scheme):
    frame, whose = people(3)
    said = " ".join(released(MODELS[name], frame, whose, scheme=scheme).notes())
    assert ROBUST in said
    assert ASSUMED not in said


@pytest.mark.parametrize(
    "analysis",
    [
        cape.Mean("y"),
        cape.Difference("y", by="ill"),
        cape.KaplanMeier("years", "died"),
        cape.LinearRegression("y", FEATURES, errors="classical"),
    ],
    ids=lambda each: each.kind,
)
def test_others_say_that_rows_are_taken_to_be_independent(analysis):
    frame, whose = people(3)
    said = " ".join(released(analysis, frame, whose).notes())
    assert f"{ASSUMED}, and up to 4 rows a person count" in said
    assert "up to 2 times as large" in said
    for rows in (None, 1):
        said = " ".join(released(analysis, frame, whose, rows=rows).notes())
        assert ASSUMED not in said
        assert ROBUST not in said
    assert ASSUMED not in " ".join(released(cape.Sum("y"), frame, whose).notes()), "no sampling error in it"


PERSONS = SCHEMA.of_persons(Person("id", rows=ROWS))
CELLS = {
    "x": [0.0, 5.0, 10.0, None],
    "z": [0.0, 5.0, 10.0],
    "y": [0.0, 20.0, 40.0],
    "n": [0.0, 60.0],
    "ill": ["no", "yes", None],
    "stage": ["a", "b", "c", None],
    "years": [0.0, 4.0, 8.0],
    "died": ["no", "yes"],
}


def mine(rng, alike):
    """One person's rows, up to six of them, beside another's; all the same, or not."""
    many = int(rng.integers(0, 7))
    rows = [
        tuple(rng.choice(np.array(cells, object)) for cells in CELLS.values()) for _ in range(max(many, 1))
    ]
    rows = [("me", *(rows[0] if alike else each)) for each in rows[: many or 0]]
    kinds = {"id": pl.String} | {
        name: pl.String if isinstance(c[0], str) else pl.Float64 for name, c in CELLS.items()
    }
    other = ("other", 5.0, 5.0, 20.0, 1.0, "no", "a", 4.0, "no")
    return pl.DataFrame([other, *rows], schema=kinds, orient="row")


def asked(analysis, neighbours):
    """Every question of one conversation over typical rows."""
    conversation, found = analysis.conduct(PERSONS, neighbours), []
    query = next(conversation)
    for _ in analysis.stages():
        found.append(query)
        sums = tuple(block.typical(PERSONS, 500) for block in query.blocks)
        noise = tuple(tuple(1e-3 * scale for scale in each) for each in query.scales)
        try:
            query = conversation.send(cape.engine.query.Answer(sums, noise, None, PERSONS))
        except StopIteration:
            return found
    raise AssertionError("more questions than stages")


def change(query, one, two):
    sums = [
        [part for parts in Table("a", each, PERSONS, key=b"k").sums(query.blocks) for part in parts]
        for each in (one, two)
    ]
    squares = 0.0
    for first, second, array, scale in zip(*sums, query.arrays(PERSONS), query.flat_scales, strict=True):
        away = (second - first).astype(float) * 2.0**-array.bits / scale
        squares += float(away @ away)
    return math.sqrt(squares)


@pytest.mark.one_in(2, seconds=0.3)
@pytest.mark.parametrize("name", ["linear", "logistic", "multinomial", "ordinal", "cox"])
def test_no_person_moves_any_question_further_than_is_paid_for(name):
    rng = np.random.default_rng(len(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        queries = asked(MODELS[name], "replace-one")
    nearest = 0.0
    for query in queries[-2:]:
        most = query.of_person or ROWS * query.sensitivity
        for i in range(24):
            moved = change(query, *(mine(rng, i % 2 == 0) for _ in range(2)))
            assert moved <= most * (1 + 1e-9)
            nearest = max(nearest, moved / most)
    assert nearest > 0.45, "a bound that is far too large would cost noise"


def test_two_persons_move_the_spread_of_least_squares_as_far_as_any():
    """Four rows each whose residuals are as long as they may be, along two features."""
    design, weights = Design(("x", "z"), "y"), np.zeros(3)
    query = sandwich_query(design, weights, np.array([[0, 1e6, 0], [0, 0, 1e6]]), PERSONS, "replace-one")
    frames = []
    for x, z in ((10.0, 5.0), (5.0, 10.0)):
        row = {"id": "me", "x": x, "z": z, "y": 40.0, "n": 0.0, "ill": "no", "stage": "a", "years": 1.0}
        frames.append(pl.DataFrame([row | {"died": "no"}] * 5))
    assert query.of_person == query.sensitivity
    assert change(query, *frames) == pytest.approx(query.of_person, rel=1e-5)


@pytest.mark.slow(20)
def test_intervals_cover_where_rows_of_a_person_are_alike():
    """A spread of rows covers in about .82."""
    covered = {ROWS: [], None: []}
    for seed in range(100):
        frame, whose = people(seed, persons=700)
        for rows, hits in covered.items():
            release = released(
                MODELS["gaussian"], frame, whose, rows=rows, scheme="cape", epsilon=20.0, seed=seed
            )
            low, high = release.interval()["x"]
            hits.append(low <= 0.4983 <= high)  # of 150,000 rows: cells are cut at bounds
    assert np.mean(covered[ROWS]) >= 0.9
    assert np.mean(covered[None]) < 0.88
