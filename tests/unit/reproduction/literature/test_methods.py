"""Methods of the literature: their sensitivities by search, their noise, and what they tend to without it."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as Reference

from cape import Budget, Schema
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.logistic import LogisticRegression
from cape.core.errors import InvalidInput, PrivacyLeakWarning, TooNoisyWarning
from cape.data import Category, Number
from cape.engine.consortium import Consortium
from cape.engine.schemes import SCHEMES
from cape.noise import SecureStream
from cape.show.plain import to_json
from reproduction.literature import Curator, functional, methods_of
from reproduction.literature.curator import Holdings
from reproduction.literature.data import Pooled
from reproduction.literature.erm import (
    ClippedSquare,
    LogLoss,
    minimiser,
    objective_perturbation,
    output_perturbation,
    split,
)
from reproduction.literature.functional import LEAST_SQUARES, LOGISTIC, functional_mechanism
from reproduction.literature.noise import laplace_sums, spherical
from tests.slices import examples

FORMS = {"least squares": LEAST_SQUARES, "logistic": LOGISTIC}
FUNCTIONAL = ("dp-fm", "dp-fm-tight", "dp-fm-pairs")
PERTURBED = ("objective-perturbation", "output-perturbation")
STEP = 2.0**-20


def stream(key):
    return SecureStream(key.to_bytes(32, "big"))


def pooled(x, y, rows=None):
    """Rows on the grid, no longer than 1."""
    x, y = np.atleast_2d(np.asarray(x, float)), np.atleast_1d(np.asarray(y, float))
    x = x / np.fmax(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    return Pooled(np.trunc(x / STEP) * STEP, np.trunc(y / STEP) * STEP, rows or len(y), False)


def change(form, one, other):
    """How far the coefficients of two single rows are apart, in the L1 norm."""
    a, b = (np.array(form.coefficients(pooled(*row)), float) for row in (one, other))
    return float(np.abs(a - b).sum()) * 2.0**-form.bits


def farthest(form, width, seed, tries=12):
    """The largest change that a search finds: ascent on v'Sv - t'St, S the signs of vv' - tt'."""
    rng = np.random.default_rng(seed)
    fixed = form is LOGISTIC

    def held(v):
        v[:width] /= max(np.linalg.norm(v[:width]), 1.0)
        v[width] = 2.0 if fixed else np.clip(v[width], -1.0, 1.0)
        return v

    best, found = 0.0, None
    for _ in range(tries):
        v, t = held(3 * rng.normal(size=width + 1)), held(3 * rng.normal(size=width + 1))
        for _ in range(300):
            difference = np.outer(v, v) - np.outer(t, t)
            signs = np.sign(difference)
            if (signs * difference).sum() > best:
                best, found = float((signs * difference).sum()), (v.copy(), t.copy())
            v, t = held(v + 0.3 * signs @ v), held(t - 0.3 * signs @ t)
    v, t = found
    y, u = (1.0, 1.0) if fixed else (v[width], t[width])
    return change(form, (v[:width], y), (t[:width], u))


def objective_loss(loss, ridge, times):
    """What objective perturbation really costs at epsilon 1, if its noise were so many times too small.

    In one dimension, with two rows. The density of w is that of b, which w tells, times how fast b changes
    with w.
    """
    left, extra = split(1.0, 2, ridge, loss.bend)
    at = np.linspace(-6, 6, 1201)
    logs = []
    for x in (-1.0, 0.0, 0.3, 1.0):
        for y in (-1.0, 1.0):
            parts = [(x_, loss(x_ * at, np.full(len(at), y_))) for x_, y_ in ((1.0, 1.0), (x, y))]
            b = sum(x_ * part[1] for x_, part in parts) + 2 * (ridge + extra) * at
            faster = sum(x_**2 * part[2] for x_, part in parts) + 2 * (ridge + extra)
            logs.append(np.log(faster) - times * left / (2 * loss.slope) * np.abs(b))
    return max(float((one - other).max()) for one in logs for other in logs)


class TestSensitivity:
    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 20])
    def test_no_search_finds_more(self, form, width):
        most = farthest(form, width, width)
        pairs, tight, published = (form.sensitivities[name](width) for name in reversed(FUNCTIONAL))
        assert most <= pairs <= tight <= published

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @pytest.mark.parametrize("width", [4, 8, 20])
    def test_a_tenth_less_would_be_too_little_for_pairs(self, form, width):
        assert farthest(form, width, width) > 0.9 * form.sensitivities["dp-fm-pairs"](width)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @pytest.mark.parametrize("width", [1, 4, 9])
    def test_one_row_adds_half_of_the_tight_value(self, form, width):
        row = np.full(width, 1 / math.sqrt(width)), 1.0
        alone = change(form, row, (np.zeros(width), 0.0))
        assert alone == pytest.approx(form.sensitivities["dp-fm-tight"](width) / 2, rel=1e-5)
        assert alone <= form.sensitivities["dp-fm-pairs"](width)  # where the other row misses a cell

    @pytest.mark.parametrize("name", FUNCTIONAL)
    @given(data=st.data())
    @examples(40)
    def test_any_two_rows_are_closer(self, name, data):
        width = data.draw(st.integers(1, 6))
        cell = st.floats(-1, 1)
        rows = [
            (data.draw(st.lists(cell, min_size=width, max_size=width)), data.draw(cell)) for _ in range(2)
        ]
        assert change(LEAST_SQUARES, *rows) <= LEAST_SQUARES.sensitivities[name](width)
        classes = [(x, 1.0 if y > 0 else -1.0) for x, y in rows]
        assert change(LOGISTIC, *classes) <= LOGISTIC.sensitivities[name](width)

    def test_the_published_values(self):
        assert LEAST_SQUARES.sensitivities["dp-fm"](20) == 2 * 21**2
        assert LOGISTIC.sensitivities["dp-fm"](20) == 20**2 / 4 + 3 * 20

    @pytest.mark.parametrize("loss", [ClippedSquare(), LogLoss()], ids=["square", "logistic"])
    def test_derivatives_are_those_of_the_loss_and_bounded(self, loss):
        z = np.linspace(-9, 9, 30_001)
        for y in (-1.0, 1.0):
            values, first, second = loss(z, np.full(len(z), y))
            assert np.allclose(np.gradient(values, z)[1:-1], first[1:-1], atol=1e-6)
            assert np.allclose(np.gradient(first, z)[1:-1], second[1:-1], atol=1e-3)
            assert np.abs(first).max() <= loss.slope
            assert 0 <= second.min() <= second.max() <= loss.bend
            assert np.abs(np.diff(second)).max() < 2e-3  # no jump

    @pytest.mark.parametrize("loss", [ClippedSquare(), LogLoss()], ids=["square", "logistic"])
    def test_a_row_moves_the_minimiser_by_at_most_the_bound(self, loss):
        rng = np.random.default_rng(2)
        for _ in range(60):
            rows, ridge = int(rng.integers(1, 8)), 10 ** rng.uniform(-3, 1)
            x, y = rng.normal(size=(rows, 2)), rng.choice([-1.0, 1.0], rows)
            one = pooled(x, y)
            x[0], y[0] = rng.normal(size=2), rng.choice([-1.0, 1.0])
            other = pooled(x, y)
            apart = minimiser(one, loss, ridge, np.zeros(2)) - minimiser(other, loss, ridge, np.zeros(2))
            assert np.linalg.norm(apart) <= 2 / (rows * ridge)

    def test_half_that_bound_would_be_too_little(self):
        ends = [minimiser(pooled([1.0], [y]), ClippedSquare(), 10.0, np.zeros(1))[0] for y in (-1.0, 1.0)]
        assert 0.85 * 2 / 10 < ends[1] - ends[0] <= 2 / 10

    @pytest.mark.parametrize("ridge", [0.0, 0.05, 2.0, 20.0])
    @pytest.mark.parametrize("loss", [ClippedSquare(), LogLoss()], ids=["square", "logistic"])
    def test_objective_perturbation_in_one_dimension_is_private(self, loss, ridge):
        assert objective_loss(loss, ridge, 1.0) <= 1.0

    def test_a_fifth_less_noise_would_be_too_little(self):
        assert objective_loss(ClippedSquare(), 20.0, 1.2) > 1.0

    def test_epsilon_is_split_as_in_the_algorithm(self):
        left, extra = split(1.0, 100, 0.1, 0.25)
        assert left == pytest.approx(1 - math.log(1 + 2 * 0.025 + 0.025**2))
        assert extra == 0
        left, extra = split(0.1, 10, 0.01, 1.0)
        assert (left, extra) == (0.05, pytest.approx(1 / (10 * (math.exp(0.025) - 1)) - 0.01))
        assert split(1.0, 10, 0.0, 1.0)[0] == 0.5


def off(lengths, shape, rate):
    """How many standard deviations the sum of Gamma lengths is off what a rate says."""
    expected = shape * len(lengths)
    return (rate * lengths.sum() - expected) / math.sqrt(expected)


class TestNoise:
    @pytest.mark.parametrize("epsilon", [0.01, 1.0, 1e6])
    @pytest.mark.parametrize("bits", [20, 40])
    def test_laplace_has_its_scale_and_no_other(self, epsilon, bits):
        sensitivity, entries = 50.0, 4000
        noisy, scale = laplace_sums([7 << bits] * entries, bits, sensitivity, epsilon, stream(1))
        assert sensitivity <= epsilon * scale <= 1.001 * sensitivity
        if scale > 2.0**-bits * 10:  # else the grid shows
            sizes = np.abs(noisy - 7)
            assert abs(off(sizes, 1, 1 / scale)) < 4
            assert abs(off(sizes, 1, 1.1 / scale)) > 4
            assert abs(off(sizes, 1, 1 / (1.1 * scale))) > 4

    def test_rounding_is_counted(self):
        """Sums that are one unit apart must not be told apart by more than they are counted for."""
        _, scale = laplace_sums([0] * 100, 40, 1.0, 1.0, stream(2))
        assert scale > 1.0
        assert laplace_sums([0] * 100, 10, 1.0, 1.0, stream(2))[1] == pytest.approx(1.0)  # nothing is rounded

    @pytest.mark.parametrize("width", [1, 10])
    def test_spherical_noise_has_its_length_and_every_direction(self, width):
        drawn = stream(3)
        b = np.stack([spherical(width, 0.7, drawn) for _ in range(4000 // width)])
        lengths = np.linalg.norm(b, axis=1)
        assert abs(off(lengths, width, 0.7)) < 4
        assert abs(off(lengths, width, 0.77)) > 4
        spread = (b.T @ b) / (b**2).sum() * width
        assert np.abs(spread - np.eye(width)).max() < 0.4
        assert np.abs((b / lengths[:, None]).mean(axis=0)).max() < 4 / math.sqrt(len(b))

    @pytest.mark.parametrize("loss", [ClippedSquare(), LogLoss()], ids=["square", "logistic"])
    def test_what_is_added_to_the_objective_has_its_scale(self, loss):
        rng = np.random.default_rng(4)
        data = pooled(rng.normal(size=(30, 10)), rng.choice([-1.0, 1.0], 30))
        drawn, lengths = stream(5), []
        for _ in range(300):
            w, ridge = objective_perturbation(data, loss, 0.1, 1.0, drawn)
            first = loss(data.x @ w, data.y)[1]
            lengths.append(np.linalg.norm(data.x.T @ first + 30 * ridge * w))  # |b|: the gradient is 0 at w
        left, extra = split(1.0, 30, 0.1, loss.bend)
        assert ridge == pytest.approx(0.1 + extra)
        rate = left / 2
        assert abs(off(np.array(lengths), 10, rate)) < 4
        assert abs(off(np.array(lengths), 10, 1.1 * rate)) > 4

    def test_what_is_added_to_the_output_has_its_scale(self):
        rng = np.random.default_rng(6)
        data = pooled(rng.normal(size=(30, 10)), rng.choice([-1.0, 1.0], 30))
        best, drawn = minimiser(data, LogLoss(), 0.1, np.zeros(10)), stream(7)
        ends = [output_perturbation(data, LogLoss(), 0.1, 2.0, drawn)[0] for _ in range(300)]
        lengths = np.linalg.norm(np.array(ends) - best, axis=1)
        assert abs(off(lengths, 10, 30 * 0.1 * 2.0 / 2)) < 4
        assert abs(off(lengths, 10, 1.1 * 30 * 0.1 * 2.0 / 2)) > 4

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    def test_the_functional_mechanism_asks_for_its_noise_on_every_coefficient(self, form, monkeypatch):
        asked = []

        def recorded(sums, bits, sensitivity, epsilon, drawn):
            asked.append((len(sums), sensitivity, epsilon))
            return laplace_sums(sums, bits, sensitivity, epsilon, drawn)

        monkeypatch.setattr(functional, "laplace_sums", recorded)
        w, ridge = functional_mechanism(pooled(np.eye(3), np.ones(3)), form, 11.0, 0.5, stream(8))
        assert asked == [(9 + form.constant, 11.0, 0.5)]
        assert ridge == pytest.approx(4 * math.sqrt(2) * 22.0 / 3, rel=1e-3)
        assert np.isfinite(w).all()

    def test_directions_that_noise_turns_down_are_left_out(self):
        matrix = np.diag([2.0, -1.0])
        assert functional._trimmed(np.array([-4.0, 8.0]), matrix) == pytest.approx([1.0, 0.0])


RNG = np.random.default_rng(9)
X = RNG.uniform(-0.5, 0.5, size=(3000, 3))
Y = X @ np.array([0.5, -0.3, 0.2]) + 0.05 * RNG.normal(size=3000)
CLASS = RNG.random(3000) < expit(6 * X @ np.array([1.0, -0.5, 0.2]))
NAMES = ["a", "b", "c"]
PLAIN = {name: Number(-1, 1, missing=False) for name in NAMES}
LINEAR_SCHEMA = Schema(PLAIN | {"y": Number(-1, 1, missing=False)})
LOGISTIC_SCHEMA = Schema(PLAIN | {"y": Category(("no", "yes"), missing=False)})


def frames(y):
    table = pl.DataFrame(X, schema=NAMES).with_columns(y=pl.Series(y))
    return {f"site {i}": table.gather_every(3, i) for i in range(3)}


LINEAR_FRAMES, LOGISTIC_FRAMES = frames(Y), frames(np.where(CLASS, "yes", "no"))


def released(analysis, scheme, epsilon, key=1, **options):
    linear = isinstance(analysis, LinearRegression)
    tables, columns = (LINEAR_FRAMES, LINEAR_SCHEMA) if linear else (LOGISTIC_FRAMES, LOGISTIC_SCHEMA)
    budget, given = Budget(epsilon, 1e-6), {"stream": stream(key), **options}
    if scheme not in SCHEMES:
        curator = Curator(tables, columns, budget, **given)
        return curator, curator.release(analysis, 1.0, method=scheme)
    consortium = Consortium(tables, columns, budget, colluding=1, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return consortium, consortium.release(analysis, 1.0, scheme=scheme)


class TestWithoutNoise:
    """At an epsilon of a million there is next to none."""

    @pytest.mark.parametrize("scheme", FUNCTIONAL)
    @pytest.mark.parametrize("intercept", [False, True])
    def test_the_functional_mechanism_is_least_squares(self, scheme, intercept):
        question = LinearRegression("y", NAMES, intercept=intercept, norm=1.0)
        model = released(question, scheme, 1e6)[1].model
        columns = np.column_stack([np.ones(len(X)), X]) if intercept else X
        known = columns @ np.linalg.lstsq(columns, Y, rcond=None)[0]
        assert model.predict(X) == pytest.approx(known, abs=1e-4)

    @pytest.mark.parametrize("scheme", PERTURBED)
    def test_perturbation_is_a_ridge_regression(self, scheme):
        model = released(LinearRegression("y", NAMES, intercept=False, norm=1.0, ridge=0.02), scheme, 1e6)[
            1
        ].model
        known = np.linalg.solve(X.T @ X / len(X) + 0.02 * np.eye(3), X.T @ Y / len(X))
        assert model.weights[1:] == pytest.approx(known, abs=1e-4)
        assert model.ridge == 0.02

    def test_the_published_output_perturbation_is_least_squares_in_a_ball(self):
        question = LinearRegression("y", NAMES, intercept=False, norm=1.0)
        weights = released(question, "output-perturbation-published", 1e6)[1].model.weights[1:]
        assert weights == pytest.approx(np.linalg.lstsq(X, Y, rcond=None)[0], abs=1e-4)

    @pytest.mark.parametrize("scheme", FUNCTIONAL)
    def test_for_classes_the_functional_mechanism_is_taylors_quadratic(self, scheme):
        question = LogisticRegression("y", NAMES, intercept=False, norm=1.0)
        weights = released(question, scheme, 1e6)[1].model.weights[1:]
        known = 2 * np.linalg.solve(X.T @ X, X.T @ np.where(CLASS, 1.0, -1.0))
        assert weights == pytest.approx(known, abs=1e-3)

    @pytest.mark.parametrize("perturbation", [objective_perturbation, output_perturbation])
    def test_for_classes_perturbation_is_a_ridge_regression(self, perturbation):
        data = pooled(X, np.where(CLASS, 1.0, -1.0))
        weights, _ = perturbation(data, LogLoss(), 0.005, 1e6, stream(9))
        known = Reference(C=1 / (len(X) * 0.005), fit_intercept=False, tol=1e-10).fit(X, CLASS)
        assert weights == pytest.approx(known.coef_[0], abs=1e-3)


QUESTIONS = {
    "linear": LinearRegression("y", NAMES, norm=1.0),
    "logistic": LogisticRegression("y", NAMES, norm=1.0),
}
ALL = {name: sorted(methods_of(question)) for name, question in QUESTIONS.items()}


class TestReleases:
    def test_the_names(self):
        assert set(ALL["logistic"]) == {*FUNCTIONAL, *PERTURBED}
        assert set(ALL["linear"]) == {*ALL["logistic"], "output-perturbation-published"}

    @pytest.mark.parametrize(("kind", "scheme"), [(kind, scheme) for kind in ALL for scheme in ALL[kind]])
    def test_a_release_spends_the_budget_and_claims_no_errors(self, kind, scheme):
        curator, release = released(QUESTIONS[kind], scheme, 1.0)
        assert curator.budget.spent == 1
        assert release.scheme == scheme
        assert [each.label for each in release.estimates] == ["intercept", *NAMES]
        assert all(math.isnan(each.standard_error) for each in release.estimates)
        assert all(math.isfinite(each.value) for each in release.estimates)
        assert all(math.isnan(end) for each in release.estimates for end in each.interval(0.95))
        for text in (release.summary(), str(release)):
            assert "nan" not in text
        assert scheme in release.model.summary()
        assert json.loads(to_json(release.to_dict()))["estimates"][0]["standard_error"] is None
        assert np.isin(release.model.predict(X), ["no", "yes"]).all() or kind == "linear"

    @pytest.mark.parametrize("kind", QUESTIONS)
    def test_any_other_share_is_refused_and_costs_nothing(self, kind):
        tables, columns = {
            "linear": (LINEAR_FRAMES, LINEAR_SCHEMA),
            "logistic": (LOGISTIC_FRAMES, LOGISTIC_SCHEMA),
        }[kind]
        curator = Curator(tables, columns, Budget(1.0, 1e-6))
        with pytest.raises(InvalidInput, match="share must be 1"):
            curator.release(QUESTIONS[kind], 0.5, method="dp-fm")
        assert curator.budget.spent == 0

    @pytest.mark.parametrize("kind", QUESTIONS)
    @pytest.mark.parametrize("scheme", ["cape", "conventional", "local", "pooled", "none"])
    def test_schemes_answer_the_same_question(self, kind, scheme):
        release = released(QUESTIONS[kind], scheme, 5.0)[1]
        assert [each.label for each in release.estimates] == ["intercept", *NAMES]
        assert len(release.model.predict(X)) == len(X)

    @pytest.mark.parametrize("scheme", ALL["linear"])
    def test_private_sizes_are_refused(self, scheme):
        with pytest.raises(InvalidInput, match="replace-one"):
            released(QUESTIONS["linear"], scheme, 1.0, neighbours="add-remove")

    def test_output_perturbation_needs_a_ridge(self):
        with pytest.raises(InvalidInput, match="ridge must be above 0"):
            released(LinearRegression("y", NAMES, ridge=0.0), "output-perturbation", 1.0)

    @pytest.mark.parametrize("scheme", ALL["linear"])
    def test_coefficients_in_the_columns_units_are_the_predictions(self, scheme):
        rng = np.random.default_rng(10)
        table = pl.DataFrame(
            {
                "age": rng.uniform(18, 90, 900),
                "sex": rng.choice(["f", "m"], 900),
                "chol": rng.uniform(100, 400, 900),
            }
        ).with_columns(age=pl.when(pl.int_range(900) % 10 == 0).then(None).otherwise("age"))
        schema = Schema(age=(18, 90), sex=["f", "m"], chol=(100, 400))
        tables = {"one": table[:500], "two": table[500:]}
        curator = Curator(tables, schema, Budget(1e4, 1e-6), stream=stream(2))
        model = curator.release(LinearRegression("chol", ["age", "sex"]), 1.0, method=scheme).model
        assert model.rows == 900  # those that miss a cell too: how many do is not public
        by_hand = model.intercept + 50 * model.coefficients["age"] + model.coefficients["sex=m"]
        told = model.predict({"age": [50.0], "sex": ["m"]})[0]
        assert told == pytest.approx(min(max(by_hand, 100.0), 400.0))

    def test_a_site_that_holds_no_table_is_refused(self):
        held = Holdings({"one": object()}, LINEAR_SCHEMA, 1.0, 1e-6, "replace-one", stream(1))
        with pytest.raises(InvalidInput, match="holds something else"):
            methods_of(QUESTIONS["linear"])["dp-fm"](held)

    def test_the_same_stream_gives_the_same_answer(self):
        first, second = (released(QUESTIONS["linear"], "dp-fm", 1.0)[1].value for _ in range(2))
        assert first == second
        assert released(QUESTIONS["linear"], "dp-fm", 1.0, key=2)[1].value != first

    @pytest.mark.parametrize("method", [*FUNCTIONAL[:2], *PERTURBED])
    def test_models_predict_and_can_be_pickled(self, method):
        rng = np.random.default_rng(4)
        x = rng.uniform(-1, 1, (20_000, 2))
        y = np.clip(x @ [0.4, -0.3] + rng.normal(0, 0.1, len(x)), -1, 1)
        table = pl.DataFrame(x, schema=["a", "b"]).with_columns(y=y, c=np.where(y > 0.1, "yes", "no"))
        columns = Schema(a=(-1, 1), b=(-1, 1), y=(-1, 1), c=["no", "yes"])
        linear, logistic = (
            Curator({"all": table}, columns, Budget(200.0, 1e-6)).release(asked, 1.0, method=method)
            for asked in (
                LinearRegression("y", ["a", "b"], norm=2.0),
                LogisticRegression("c", ["a", "b"], norm=2.0),
            )
        )
        assert linear.scheme == method
        assert 1 - np.mean((linear.model.predict(x) - y) ** 2) / np.var(y) > 0.5
        assert np.mean(logistic.model.predict(x) == table["c"].to_numpy()) > 0.7
        again = pickle.loads(pickle.dumps([linear, logistic]))
        assert np.array_equal(again[0].model.predict(x), linear.model.predict(x))
