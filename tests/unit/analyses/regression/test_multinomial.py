"""Targets of several categories: statsmodels' estimates without noise, sensitivity that is attained, empty
categories by name, and intervals that cover where no model is true."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.miscmodels.ordinal_model import OrderedModel

from cape import Budget, Consortium, privacy
from cape.analyses import GLM
from cape.analyses.regression.multinomial import rising
from cape.analyses.regression.multinomial_query import choice_query, moved
from cape.analyses.regression.score_query import Parts
from cape.blocks import Choices, Design, Table
from cape.blocks.units import Units
from cape.core.errors import InvalidInput, PrivacyLeakWarning, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from cape.noise import SecureStream

MODELS = ["multinomial", "ordinal"]
FEATURES = ["a", "b", "c", "g"]
SCHEMA = Schema(
    a=Number(-4, 4, missing=False),
    b=Number(0, 400_000, missing=False),
    c=Number(0, 30, missing=False),
    g=Category(("u", "v"), missing=False),
    share=Number(0, 4, missing=False),
    stage=Category((1, 2, 3, 4), missing=False),
)


def people(rows=2000, seed=1):
    """Skewed features of different scales; the effect is not linear, nor errors logistic."""
    rng = np.random.default_rng(seed)
    a, b = np.clip(rng.normal(size=rows), -4, 4), np.minimum(rng.lognormal(9, 1, rows), 400_000)
    c, g = np.minimum(rng.exponential(2, rows), 30), rng.integers(0, 2, rows)
    latent = 0.7 * np.tanh(a) + 0.4 * (np.log(b) - 9) + 0.2 * np.sqrt(c) + 0.3 * g
    latent += rng.normal(size=rows) * (1 + 0.5 * g)
    return pl.DataFrame(
        {
            "a": a,
            "b": b,
            "c": c,
            "g": np.array(["u", "v"])[g],
            "share": rng.uniform(0.5, 4, rows),
            "stage": 1 + (latent[:, None] > [-0.6, 0.5, 1.7]).sum(axis=1),
        }
    )


def matrix(frame):
    return np.column_stack([frame["a"], frame["b"], frame["c"], frame["g"] == "v"]).astype(float)


def fitted(model, x, y):
    """The estimates of statsmodels; of an ordinal model, where it stops a bit before, after one more step."""
    scale = x.std(axis=0)
    if model == "multinomial":
        found = sm.MNLogit(y, sm.add_constant(x / scale)).fit(disp=0, maxiter=200, tol=1e-14)
        return (found.params / np.concatenate([[1.0], scale])[:, None]).T.ravel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = OrderedModel(y, x / scale, distr="logit")
        found = made.fit(method="bfgs", disp=0, gtol=1e-8, maxiter=500)
        found = found.params - np.linalg.solve(made.hessian(found.params), made.score(found.params))
    return np.concatenate([made.transform_threshold_params(found)[1:-1], found[: len(scale)] / scale])


def exact(block, frame, schema):
    """The sums of a block, without rounding of cells or scores."""
    if not isinstance(block, Choices):
        (found,) = Table("s", frame, schema).sums([block])
        return tuple(
            np.asarray(a, float) / 2.0**e.bits for a, e in zip(found, block.arrays(schema), strict=True)
        )
    x = Units(replace(block.design, intercept=0.0), schema).rows(frame)
    if block.design.intercept:
        x = np.column_stack([np.full(len(x), block.design.intercept), x])
        x = x / math.hypot(1.0, block.design.intercept)
    codes = frame[block.design.target].to_numpy() - 1
    rows = block.at(np.ascontiguousarray(x.T), codes, None, 1.0)
    lengths = np.linalg.norm(rows.scores, axis=1)
    s = rows.scores * np.minimum(1, block.bound / lengths)[:, None]
    norms = np.linalg.norm(rows.roots @ rows.roots.transpose(0, 2, 1), axis=(1, 2))
    z = (rows.roots * np.sqrt(np.minimum(1, block.curve / norms))[:, None, None]).reshape(-1, block.size)
    above, found = np.triu_indices(block.size, 1), [np.array([float(len(x))]), s.sum(axis=0) / block.bound]
    for square in (z.T @ z / block.curve, s.T @ s / block.bound**2):
        found += [np.diag(square).copy(), square[above]]
    if block.lengths:
        found.append(np.histogram(lengths, [-1, *block.lengths, math.inf])[0].astype(float))
    return (*found, np.array([block.shortened(rows.deviance).sum()]))


def conducted(asked, frame, schema=SCHEMA, mu=math.inf, rng=None, adding_up=exact):
    """The result of a conversation; five sites, one of them colluding, have noise sqrt(5/4) times that."""
    talk = asked.conduct(schema, "replace-one")
    query = next(talk)
    for share in asked.stages():
        unit = 0.0 if math.isinf(mu) else math.sqrt(5 / 4) * query.sensitivity / mu / math.sqrt(share)
        noise = tuple(tuple(unit * scale for scale in each) for each in query.scales)
        sums = tuple(
            tuple(
                a if rng is None else a + s * rng.normal(size=a.shape)
                for a, s in zip(found, each, strict=True)
            )
            for found, each in zip((adding_up(b, frame, schema) for b in query.blocks), noise, strict=True)
        )
        try:
            query = talk.send(Answer(sums, noise, len(frame), schema))
        except StopIteration as stop:
            return stop.value
    raise AssertionError("there are as many questions as stages")


def released(asked, frame, scheme="none", epsilon=3.0, schema=SCHEMA):
    """A release of three sites, with what was warned of."""
    parts = {f"s{i}": frame[i::3].select(list(schema)) for i in range(3)}
    consortium = Consortium(
        parts, schema, Budget(epsilon, 1e-6), colluding=0, stream=SecureStream(b"\x07" * 32)
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        release = consortium.release(asked, 1.0, scheme=scheme)
    assert all(issubclass(each.category, (TooNoisyWarning, PrivacyLeakWarning)) for each in seen)
    return release, [str(each.message) for each in seen if issubclass(each.category, TooNoisyWarning)]


@pytest.mark.parametrize("model", MODELS)
def test_without_noise_it_is_the_maximum_of_the_likelihood_to_six_digits(model):
    frame = people().head(700)
    asked = GLM("stage", FEATURES, model, cap="none").exactly()
    found = conducted(asked, frame).estimates
    known = fitted(model, matrix(frame), frame["stage"].to_numpy())
    error = np.array([each.sampling for each in found])
    assert (np.abs(np.array([each.value for each in found]) - known) < 1e-6 * np.maximum(error, 1)).all()
    assert all(each.privacy < 1e-6 for each in found)


@pytest.mark.parametrize("model", MODELS)
def test_so_is_a_release_up_to_the_grid_of_cells_and_sampling_errors_are_those_of_the_sandwich(model):
    frame = people()
    release, seen = released(GLM("stage", FEATURES, model, cap="none"), frame)
    x, y = matrix(frame), frame["stage"].to_numpy()
    known = fitted(model, x, y)
    error = np.array([each.sampling for each in release.estimates])
    assert (np.abs(np.array([each.value for each in release.estimates]) - known) < 0.01 * error).all()
    assert not seen
    if model == "multinomial":
        full = sm.add_constant(x)
        plain = sm.MNLogit(y, full / full.std(axis=0).clip(1e-9, None).clip(1, None)).fit(
            disp=0, cov_type="HC0"
        )
        scale = full.std(axis=0).clip(1, None)
        assert error == pytest.approx((plain.bse / scale[:, None]).T.ravel(), rel=0.01)
        assert release.model.deviance.value == pytest.approx(-2 * plain.llf, rel=1e-4)
        assert release.model.pseudo_r2.value == pytest.approx(plain.prsquared, abs=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_with_caps_it_is_the_fit_to_capped_cells_which_predictions_use_as_well(model):
    frame = people(4000)
    release, _ = released(GLM("stage", FEATURES, model), frame)
    fit = release.model
    caps = {each.column: each for each in fit.limited.capped}
    assert {"b", "c"} <= set(caps)
    assert all(0.005 < caps[name].above < 0.02 for name in ("b", "c"))
    cut = frame.with_columns(pl.col(name).clip(each.low, each.high) for name, each in caps.items())
    known = fitted(model, matrix(cut), cut["stage"].to_numpy())
    error = np.array([each.sampling for each in fit.estimates])
    assert (np.abs(np.array([each.value for each in fit.estimates]) - known) < 0.01 * error).all()
    assert fit.predict_proba(frame) == pytest.approx(fit.predict_proba(cut), abs=1e-9)
    notes = " ".join(fit.notes())
    assert "Cells beyond caps count as the caps" in notes
    assert "b above" in notes
    assert "Maximum-likelihood estimates." in notes
    assert "Caution" not in str(release)
    limited = json.loads(fit.to_json())["limited"]
    assert limited["caps"]["b"]["high"] == caps["b"].high
    assert set(limited["moved"]) == {each.label for each in fit.estimates}
    mine = released(GLM("stage", FEATURES, model, cap={"b": (0, 20_000)}), frame)[0].model
    assert [(each.column, each.high) for each in mine.limited.capped] == [("b", 20_000)]


@pytest.mark.parametrize("model", MODELS)
def test_weights_count(model):
    frame = people(900)
    doubled = pl.concat([frame, frame.filter(pl.col("a") > 0)])
    weighted = frame.with_columns(share=pl.when(pl.col("a") > 0).then(4.0).otherwise(2.0))
    once, _ = released(GLM("stage", ["a", "c"], model, weights="share", cap="none"), weighted)
    twice, _ = released(GLM("stage", ["a", "c"], model, cap="none"), doubled)
    assert [e.value for e in once.estimates] == pytest.approx([e.value for e in twice.estimates], abs=1e-4)
    assert math.isnan(once.model.pseudo_r2.value)


def test_without_an_intercept_log_odds_are_those_of_slopes_alone():
    frame = people(900).select("a", "g", "stage")
    schema = Schema(a=SCHEMA["a"], g=SCHEMA["g"], stage=SCHEMA["stage"])
    asked = GLM("stage", ["a", "g"], "multinomial", intercept=False, cap="none")
    found, _ = released(asked, frame, schema=schema)
    x = np.column_stack([frame["a"], frame["g"] == "v"]).astype(float)
    known = sm.MNLogit(frame["stage"].to_numpy(), x).fit(disp=0)
    assert [e.label for e in found.estimates][:2] == ["a [2]", "g=v [2]"]
    assert [e.value for e in found.estimates] == pytest.approx(known.params.T.ravel(), abs=1e-4)


PARTS = Parts(1.0, 0.5, 0.4, 0.7)
ONE = Schema(x=Number(-1, 1, missing=False), y=Category((1, 2, 3), missing=False))


def furthest():
    """A block, and two rows that move its sums as far as any: their scores are opposite, their curvatures at
    right angles.

    At x = 1 nearly everybody is in the second category and others in the first, at x = -1 in the third and
    the first: so curvature is that of one log-odds alone.
    """
    up, down = np.array([1, 1]) / math.sqrt(2), np.array([1, -1]) / math.sqrt(2)  # (1, x) at both
    weights = np.concatenate([10 * up - 30 * down, -30 * up + 10 * down])
    one, two, three, _ = np.eye(4)
    images = [one, one + 1.5 * three, two - three, two]  # of both places of `up`, and of `down`
    places = [np.kron(place, x) for x in (up, down) for place in np.eye(2)]
    turn = np.linalg.solve(np.array(places), np.array(images)).T
    block = Choices(
        Design(("x",), "y", intercept=1.0, labels=True),
        tuple(weights.tolist()),
        tuple(map(tuple, turn.tolist())),
        1e-3,
        1e-9,
        "multinomial",
        3,
        lengths=(1.2,),
    )
    rows = [
        pl.DataFrame({"x": [x], "y": [y]}, schema={"x": pl.Float64, "y": pl.Int64})
        for x, y in ((1.0, 3), (-1.0, 2))
    ]
    return block, rows


def distance(query, schema, one, other):
    (block,) = query.blocks
    sums = [
        [np.asarray(a, float) / 2.0**e.bits for a, e in zip(found, block.arrays(schema), strict=True)]
        for found in (Table("s", rows, schema).sums([block])[0] for rows in (one, other))
    ]
    parts = zip(*sums, query.flat_scales, strict=True)
    return math.sqrt(sum(float(((a - b) ** 2).sum()) / s**2 for a, b, s in parts))


def test_two_rows_move_the_sums_as_far_as_they_are_said_to():
    block, (one, other) = furthest()
    query = choice_query(block, PARTS, "replace-one")
    assert query.sensitivity**2 == pytest.approx(4 + 2 * 0.5 + 2 * 0.7)
    assert moved(PARTS, "replace-one") == pytest.approx(query.sensitivity)
    assert 0.998 < distance(query, ONE, one, other) / query.sensitivity <= 1
    added = choice_query(block, PARTS, "add-remove")
    assert 0.998 < distance(added, ONE, one, one.clear()) / added.sensitivity <= 1


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_scales_are_those_of_the_proof(neighbours):
    block, _ = furthest()
    query = choice_query(replace(block, deviance=16.0), PARTS, neighbours)
    count, score, square, cross, spread, beside, lengths, deviance = (s**-2 for s in query.scales[0])
    assert [score, square, cross, spread, beside] == pytest.approx([1, 0.5, 1, 0.4, 0.8])
    assert [lengths, deviance] == pytest.approx([0.7, 0.02])
    alone = score + square + spread + lengths + deviance + count
    replaced = 4 * score + 2 * square + 2 * lengths + deviance
    assert query.sensitivity**2 == pytest.approx(replaced if neighbours == "replace-one" else alone)
    assert alone <= query.sensitivity**2 * (1 + 1e-9)


def extremes(rng, many=24):
    def number(low, high):
        return np.where(rng.random(many) < 0.6, rng.choice([low, high], many), rng.uniform(low, high, many))

    return pl.DataFrame(
        {
            name: number(c.low, c.high) if isinstance(c, Number) else rng.choice(c.values, many)
            for name, c in SCHEMA.items()
        }
    )


HOLED = Schema({name: Number(c.low, c.high) if name == "a" else c for name, c in SCHEMA.items()})


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_no_neighbouring_tables_move_a_question_further_than_it_says(model, neighbours):
    rng, frame = np.random.default_rng(5), people(300)
    asked = GLM("stage", FEATURES, model, rounds=3, weights="share" if neighbours == "add-remove" else None)
    talk, rows, largest = asked.conduct(HOLED, neighbours), extremes(rng), 0.0
    query = next(talk)
    for stage, _ in enumerate(asked.stages()):
        if stage:
            for i in range(0, len(rows), 2):
                one, other = rows[i : i + 1], rows[i + 1 : i + 2]
                other = other.with_columns(a=pl.lit(None, pl.Float64)) if i % 3 == 0 else other
                other = other.clear() if neighbours == "add-remove" else other
                moved = distance(query, HOLED, one, other) / query.sensitivity
                largest = max(largest, moved)
                assert moved <= 1
        noise = tuple(tuple(2 * scale for scale in each) for each in query.scales)
        sums = tuple(
            tuple(np.asarray(a, float) / 2.0**e.bits for a, e in zip(found, block.arrays(HOLED), strict=True))
            for block, found in zip(
                query.blocks, Table("s", frame, HOLED).sums(list(query.blocks)), strict=True
            )
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            try:
                query = talk.send(Answer(sums, noise, len(frame), HOLED))
            except StopIteration:
                break
    assert largest > 0.6  # and some come near it


@given(
    weights=st.lists(st.floats(-3, 3), min_size=5, max_size=5),
    seed=st.integers(0, 1000),
    apart=st.lists(st.floats(1e-4, 1), min_size=2, max_size=2),
)
def test_thresholds_that_would_cross_go_to_the_most_likely_weights_that_rise(weights, seed, apart):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(5, 5)) + 2 * np.eye(5)
    curvature, start, least = root @ root.T, np.array(weights), np.array(apart)
    found = rising(start, least, curvature)

    def lost(at):
        return float((at - start) @ curvature @ (at - start))

    assert (np.diff(found[:3]) >= least - 1e-7).all()
    if (np.diff(start[:3]) >= least).all():
        assert (found == start).all()
    for _ in range(50):  # none of the others that rise is more likely
        other = found + rng.normal(size=5) * rng.choice([0.01, 0.3])
        if (np.diff(other[:3]) >= least).all():
            assert lost(other) >= lost(found) - 1e-6


def two_of_three(middle, seed=4, rows=3000):
    """Nobody is in one of three categories."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(size=rows), -3, 3)
    high, low = ("c", "a") if middle else ("b", "a")
    y = np.where(x + rng.logistic(size=rows) > 0, high, low)
    schema = Schema(x=Number(-3, 3, missing=False), y=Category(("a", "b", "c"), missing=False))
    return pl.DataFrame({"x": x, "y": y}), schema


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scheme", ["none", "cape"])
def test_nothing_is_claimed_about_a_category_in_which_nobody_is(model, scheme):
    frame, schema = two_of_three(middle=False)
    release, seen = released(GLM("y", ["x"], model), frame, scheme, schema=schema)
    who = "nobody is in 'c' of 'y'" if scheme == "none" else "noise hides whether anybody is in 'c' of 'y'"
    assert any(who in each for each in seen)
    assert who[1:] in " ".join(release.model.notes())
    hidden = {"multinomial": ["intercept [c]", "x [c]"], "ordinal": ["threshold [b|c]"]}[model]
    for label in hidden:
        low, high = release.interval()[label]
        assert (release.value[label], low) == (0, -high)
        assert high > 1
    known = next(label for label in release.value if label not in hidden and label.startswith("x"))
    low, high = release.interval()[known]
    assert high - low < 1
    assert low < 1 < high  # the slope in the data


@pytest.mark.parametrize("scheme", ["none", "cape"])
def test_an_empty_category_in_the_middle_leaves_the_model_of_the_others(scheme):
    frame, schema = two_of_three(middle=True)
    release, seen = released(GLM("y", ["x"], "ordinal"), frame, scheme, schema=schema)
    assert any("'b' of 'y'" in each for each in seen)
    two = sm.Logit((frame["y"] == "c").to_numpy().astype(float), sm.add_constant(frame["x"].to_numpy())).fit(
        disp=0
    )
    for label, known in (("threshold [a|b]", -two.params[0]), ("x", two.params[1])):
        low, high = release.interval(0.999)[label]
        assert low < known < high
        if scheme == "none":
            assert release.value[label] == pytest.approx(known, abs=2e-3)


def test_categories_that_rows_are_in_are_not_called_empty():
    frame = people(4000)
    for model in MODELS:
        for scheme, epsilon in (("none", 1.0), ("cape", 5.0)):
            release, seen = released(GLM("stage", ["a", "c"], model), frame, scheme, epsilon)
            assert not any("anybody" in each or "nobody" in each for each in seen)
            assert not release.model.empty


@pytest.mark.parametrize("model", MODELS)
def test_whatever_the_noise_the_answer_is_finite(model):
    for rows, epsilon in ((3, 0.1), (60, 1.0), (900, 5.0)):
        release, _ = released(GLM("stage", FEATURES, model), people(rows), "cape", epsilon)
        for each in release.estimates:
            low, high = each.interval()
            assert math.isfinite(each.value)
            assert low <= high
        assert release.model.summary()
        assert release.model.to_dict()["covariance"]
        assert release.model.predict_proba(people(5)).sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("model", MODELS)
def test_a_plan_names_every_coefficient_and_falls_with_rows(model):
    asked = GLM("stage", FEATURES, model)
    query = asked.query(SCHEMA, "replace-one")
    noise = [[20 * scale for scale in scales] for scales in query.scales]
    few, many = (asked.expected(SCHEMA, noise, rows) for rows in (20_000, 500_000))
    labels = [each.label for each in released(asked, people(60))[0].estimates]
    assert list(few) == labels
    assert all(0 < many[label] < few[label] for label in labels)
    assert list(asked.limits(SCHEMA, noise, 2000)) == labels
    sums = tuple(b.typical(SCHEMA, 10**6) for b in query.blocks)
    with pytest.warns(TooNoisyWarning, match="steps had not converged"):
        finished = asked.finish(Answer(sums, noise, 10**6, SCHEMA))
    assert [each.label for each in finished.estimates] == labels


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (Number(0, 1), "gives it bounds"),
        (Category(("a", "b")), "it 2. For two"),
        (Category(range(21)), "it 21"),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_targets_that_cannot_be_right(model, target, problem):
    schema = Schema(x=(0, 1), y=target)
    with pytest.raises(InvalidInput, match=problem):
        GLM("y", ["x"], model).query(schema, "replace-one")
    with pytest.raises(InvalidInput, match=problem):
        next(GLM("y", ["x"], model).conduct(schema, "replace-one"))


@pytest.mark.parametrize("model", MODELS)
def test_probabilities_add_up_and_predict_and_tests_know_their_categories(model):
    frame = people(1500)
    fit = released(GLM("stage", FEATURES, model), frame)[0].model
    chances = fit.predict_proba(frame)
    assert chances.sum(axis=1) == pytest.approx(1.0)
    observed = np.bincount(frame["stage"].to_numpy() - 1, minlength=4) / len(frame)
    assert chances.mean(axis=0) == pytest.approx(observed, abs=0.01)
    assert set(fit.predict(frame)) <= {1, 2, 3, 4}
    assert fit.test("a").freedom == (3 if model == "multinomial" else 1)
    assert fit.test("a", "g").freedom == (6 if model == "multinomial" else 2)


@pytest.mark.parametrize("model", MODELS)
def test_features_may_be_interactions_and_splines(model):
    fit = released(GLM("stage", ["a:g", "spline(c, 2)"], model), people(500))[0].model
    assert np.isfinite(np.asarray(fit.predict(people(50)), float)).all()
    assert fit.test("spline(c, 2)").freedom == 2 * (3 if model == "multinomial" else 1)


POPULATION = people(12_000, 9)


@pytest.mark.slow(5)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("rows", "epsilon"), [(3000, 3.0), (12_000, 1.0)])
def test_intervals_cover_what_the_population_fits_though_the_model_is_wrong(model, rows, epsilon):
    hits, widths, mu = [], [], float(privacy.mu(epsilon, 1e-6))
    for seed in range(16):
        rng = np.random.default_rng([seed, rows])
        frame = POPULATION.sample(rows, with_replacement=True, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            fit = conducted(GLM("stage", FEATURES, model), frame, mu=mu, rng=rng).model
        cut = POPULATION
        for each in fit.limited.capped:
            cut = cut.with_columns(pl.col(each.column).clip(each.low, each.high))
        known = fitted(model, matrix(cut), cut["stage"].to_numpy())
        ends = np.array([each.interval() for each in fit.estimates])
        hits.append((ends[:, 0] <= known) & (known <= ends[:, 1]))
        widths.append((ends[:, 1] - ends[:, 0]) / 3.92 / [each.sampling for each in fit.estimates])
    assert np.mean(hits) >= 0.9
    assert np.median(widths) < 3
