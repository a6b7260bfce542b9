from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape import Budget, GradientDescent, NeuralNetwork
from cape.blocks.table import Table
from cape.core.errors import BudgetExceeded, InvalidInput, PrivacyLeakWarning, TooFewSites
from cape.learning import Diverged, Training
from cape.noise import SecureStream
from cape.privacy import gaussian
from tests.slices import examples
from tests.unit.learning.tables import COLUMNS, LARGE, SCHEMA, TABLES, TEST, consortium


def exact(asked, **options):
    with pytest.warns(PrivacyLeakWarning):
        return consortium(**options).release(asked, 1.0, scheme="none")


class Listening(NeuralNetwork):
    """A network that keeps what it was told."""

    def _move(self, state, optimiser, answer):
        self.__dict__.setdefault("answers", []).append((state.parameters.copy(), state.clip, answer))
        return super()._move(state, optimiser, answer)


def test_a_network_learns_two_classes():
    release = exact(NeuralNetwork("label", COLUMNS, epochs=60, rate=0.05))
    right = release.model.predict(TEST) == TEST["label"].to_numpy()
    assert right.mean() > 0.95
    proba = release.model.predict_proba(TEST)
    assert proba.shape == (2000, 2)
    assert np.allclose(proba.sum(axis=1), 1)
    assert "neural network for label" in release.summary()
    assert release.model.to_dict()["hidden"] == [5]


@pytest.mark.slow(1)
def test_a_network_learns_three_classes_and_a_curve():
    classes = exact(NeuralNetwork("kind", COLUMNS, hidden=(8,), epochs=150, rate=0.05))
    assert (classes.model.predict(TEST) == TEST["kind"].to_numpy()).mean() > 0.85
    curve = exact(NeuralNetwork("y", COLUMNS, hidden=(8,), activation="tanh", epochs=200, rate=0.03))
    said, truth = curve.model.predict(TEST), TEST["y"].to_numpy().clip(-10, 10)
    assert np.mean((said - truth) ** 2) < 0.15 * np.var(truth)
    with pytest.raises(InvalidInput, match="no probabilities"):
        curve.model.predict_proba(TEST)


@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "pooled", "local"])
def test_with_a_large_budget_every_scheme_learns(scheme):
    release = consortium(scheme=scheme).release(NeuralNetwork("label", COLUMNS, epochs=40, rate=0.05), 1.0)
    assert (release.model.predict(TEST) == TEST["label"].to_numpy()).mean() > 0.93
    assert release.guarantee.mu == pytest.approx(LARGE.mu)


@pytest.mark.parametrize("sampling", [1.0, 0.3])
def test_a_step_s_noise_is_what_the_accountant_says(sampling):
    """Against the exact gradient at the same parameters; 1.15 times the noise, or 1/1.15, is rejected."""
    asked = Listening("label", COLUMNS, hidden=(40,), epochs=6 * sampling, sampling=sampling, clip=0.2)
    budget = Budget(3.0, 1e-6)
    consortium(budget=budget, key=b"noise").release(asked, 1.0)
    assert len(asked.answers) == 6
    errors = []
    for parameters, clip, answer in asked.answers:
        if sampling < 1:
            break
        query = asked.question(SCHEMA, "replace-one", parameters, clip)
        sums = [Table(n, t, SCHEMA).sums(query.blocks)[0][0] for n, t in TABLES.items()]
        errors.append(answer.sums[0][0] - np.sum(sums, axis=0) * 2.0**-40)
        whole = 2.0 * math.sqrt(3 / 2) / (budget.mu / math.sqrt(6))
        # a twentieth of the first step pays for counts of cells outside bounds
        expected = whole / math.sqrt(0.95) if answer is asked.answers[0][2] else whole
        assert answer.noise[0][0] == pytest.approx(expected, rel=2e-3)
    if sampling == 1:
        ratio = np.std(np.concatenate(errors)) / asked.answers[0][2].noise[0][0]
        assert 1 / 1.07 < ratio < 1.07  # 1,926 numbers: 1.6% each
    else:  # a sample needs less noise than the whole
        assert asked.answers[0][2].noise[0][0] < 2.0 * math.sqrt(3 / 2) / (budget.mu / math.sqrt(6))


def test_a_sample_takes_about_its_share_of_the_rows():
    sums = []
    asked = NeuralNetwork("label", COLUMNS, sampling=0.25, watch=True)
    for key in range(20):
        query = asked.query(SCHEMA, "replace-one")
        stream = SecureStream(bytes([key]) * 32)
        sums.append(Table("a", TABLES["a"], SCHEMA).sums(query.blocks, stream)[0][1][0])
    whole = NeuralNetwork("label", COLUMNS, watch=True).query(SCHEMA, "replace-one")
    below = Table("a", TABLES["a"], SCHEMA).sums(whole.blocks)[0][1][0]
    error = math.sqrt(below * 0.25 * 0.75 / 20)
    assert abs(np.mean(sums) - 0.25 * below) < 4 * error
    assert len(set(map(int, sums))) > 5
    with pytest.raises(InvalidInput, match="stream"):
        Table("a", TABLES["a"], SCHEMA).sums(asked.query(SCHEMA, "replace-one").blocks)


@examples(60)
@given(st.data())
def test_one_row_moves_a_step_by_no_more_than_its_sensitivity(data):
    watched = data.draw(st.booleans())
    asked = NeuralNetwork("label", COLUMNS, clip=data.draw(st.sampled_from([0.01, 1.0, 50.0])), watch=watched)
    seed = data.draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    network = asked.network(SCHEMA)
    parameters = rng.normal(size=network.size) * data.draw(st.sampled_from([0.1, 1.0, 30.0]))
    query = asked.question(SCHEMA, "replace-one", parameters, asked.training.first_clip())
    pair = []
    for label in ("a", "b"):
        x = rng.choice([-4.0, 4.0, 0.0], size=len(COLUMNS))
        row = pl.DataFrame(
            {**{n: [v] for n, v in zip(COLUMNS, x, strict=True)}, "label": [label], "kind": ["p"], "y": [0.0]}
        )
        arrays = Table("a", row, SCHEMA).sums(query.blocks)[0]
        units = [a.bits for a in query.arrays(SCHEMA)]
        scaled = [
            s / 2.0**bits / scale for s, bits, scale in zip(arrays, units, query.flat_scales, strict=True)
        ]
        pair.append(np.concatenate([np.ravel(s) for s in scaled]))
    assert np.linalg.norm(pair[0] - pair[1]) <= query.sensitivity
    assert max(map(np.linalg.norm, pair)) <= query.norm


def test_the_sensitivity_is_reached():
    """By two rows with opposite gradients: half of it would be wrong."""
    asked = NeuralNetwork("label", COLUMNS, hidden=(), clip=0.01)
    query = asked.question(SCHEMA, "replace-one", np.zeros(7), 0.01)
    sums = []
    for label in ("a", "b"):
        row = pl.DataFrame({**{n: [4.0] for n in COLUMNS}, "label": [label], "kind": ["p"], "y": [0.0]})
        sums.append(Table("a", row, SCHEMA).sums(query.blocks)[0][0] / 2.0**40)
    assert np.linalg.norm(sums[0] - sums[1]) > 0.999 * query.sensitivity


def test_the_total_is_exact_and_stops_at_the_budget():
    budget = Budget(1.0, 1e-6)
    together = consortium(budget=budget)
    release = together.release(NeuralNetwork("label", COLUMNS, epochs=7), 0.7)
    assert together.budget.spent == Fraction("0.7")
    assert release.guarantee.mu == pytest.approx(math.sqrt(0.7) * budget.mu, rel=1e-12)
    assert release.guarantee.epsilon == pytest.approx(gaussian.epsilon(1e-6, math.sqrt(0.7) * budget.mu))
    with pytest.raises(BudgetExceeded):
        together.release(NeuralNetwork("label", COLUMNS, epochs=7), 0.7)


def test_a_site_that_drops_at_a_step_is_back_at_the_next():
    asked = NeuralNetwork("label", COLUMNS, epochs=30, rate=0.05)
    together = consortium(min_sites=2)
    release = together.release(
        asked, 1.0, drop={3: {"b": "mask"}, 4: {"b": "unmask"}, 5: {"a": "consistency"}}
    )
    assert release.participants == ("a", "b", "c")
    assert (release.model.predict(TEST) == TEST["label"].to_numpy()).mean() > 0.9
    with pytest.raises(TooFewSites) as caught:
        consortium().release(asked, 0.6, drop={3: {"b": "mask"}})
    assert "4 of 30 stages had begun" in caught.value.__notes__[-1]


@pytest.mark.slow(1)
def test_losses_can_be_watched_and_the_clip_adapts():
    release = consortium(Budget(200.0, 1e-6)).release(
        NeuralNetwork("label", COLUMNS, epochs=60, rate=0.05, clip="adaptive", watch=True), 1.0
    )
    curve = release.model.learning_curve
    assert curve[-1]["loss"] < 0.5 * curve[0]["loss"]
    assert curve[-1]["clip"] < 0.5 * curve[0]["clip"]  # gradients shrink as it learns
    estimate = release.estimates[0]
    assert estimate.label == "mean loss"
    said = release.model.predict_proba(pl.concat(list(TABLES.values())))
    labels = np.concatenate([t["label"].to_numpy() == "b" for t in TABLES.values()])
    loss = -np.log(np.where(labels, said[:, 1], said[:, 0])).clip(None, 4.0).mean()
    assert abs(estimate.value - loss) < 5 * estimate.privacy + 0.02
    told = []
    consortium().release(NeuralNetwork("label", COLUMNS, epochs=3, watch=True), 0.5, progress=told.append)
    assert told[1].note.startswith("loss ")


def test_parameters_that_explode_stop_the_run_and_keep_what_is_left():
    together = consortium()
    with pytest.raises(Diverged, match="smaller rate") as caught:
        together.release(NeuralNetwork("label", COLUMNS, epochs=10, rate=1e9, optimiser="sgd"), 1.0)
    assert "1 of 10 stages had begun" in caught.value.__notes__[-1]
    assert together.budget.spent == Fraction(1, 10)


@pytest.mark.slow(1)
def test_gradient_descent_on_any_loss_finds_a_mean():
    def gradient(batch, w):
        return w - np.column_stack([batch["x0"], batch["y"]])

    asked = GradientDescent(
        gradient, columns=["x0", "y"], start=[0, 0], clip=20, epochs=40, rate=0.5, optimiser="sgd"
    )
    release = consortium().release(asked, 1.0)
    pooled = pl.concat(list(TABLES.values()))
    assert release.model.parameters == pytest.approx([pooled["x0"].mean(), pooled["y"].mean()], abs=0.05)
    assert list(release.value) == ["w[0]", "w[1]"]
    assert "parameters after 40 steps" in release.summary()
    sampled = GradientDescent(
        gradient,
        columns=["x0", "y"],
        start=[0, 0],
        clip=20,
        epochs=20,
        sampling=0.5,
        rate=0.3,
        optimiser="sgd",
    )
    again = consortium().release(sampled, 1.0)
    assert again.model.parameters == pytest.approx([pooled["x0"].mean(), pooled["y"].mean()], abs=0.4)


def test_a_gradient_that_is_not_a_number_adds_nothing():
    def gradient(batch, w):
        return np.full((len(batch["x0"]), 1), np.nan)

    asked = GradientDescent(
        gradient, columns=["x0"], start=[1.5], clip=1, epochs=3, rate=1.0, optimiser="sgd"
    )
    release = exact(asked)
    assert release.value == 1.5


def test_a_sample_may_be_empty():
    release = exact(NeuralNetwork("label", COLUMNS, epochs=3e-5, sampling=1e-5, optimiser="sgd"))
    asked = release.analysis
    assert np.array_equal(release.model.parameters, asked.start(SCHEMA))


def test_sizes_that_are_private_have_to_be_reckoned_with():
    together = consortium(neighbours="add-remove")
    with pytest.raises(InvalidInput, match="rows ="):
        together.release(NeuralNetwork("label", COLUMNS, epochs=5), 1.0)
    assert together.budget.spent == 0
    release = together.release(NeuralNetwork("label", COLUMNS, epochs=40, rate=0.05, rows=1600), 1.0)
    assert (release.model.predict(TEST) == TEST["label"].to_numpy()).mean() > 0.93


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 0}, "epochs"),
        ({"sampling": 1.5}, "sampling"),
        ({"clip": -1}, "clip"),
        ({"optimiser": "lion"}, "sgd, momentum, adam"),
        ({"learning_rate": 1}, "learning_rate"),
        ({"hidden": (0,)}, "hidden"),
        ({"hidden": None}, "hidden"),
        ({"clip": 1e30}, "clip"),
        ({"activation": "gelu"}, "activation"),
        ({"watch": "yes"}, "watch"),
        ({"checkpoint": 3}, "checkpoint"),
        ({"rows": 0}, "rows"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(options, said):
    with pytest.raises(InvalidInput, match=said):
        NeuralNetwork("label", COLUMNS, **options)


def test_columns_that_do_not_fit():
    with pytest.raises(InvalidInput, match="list of columns"):
        NeuralNetwork("label", "x0")
    with pytest.raises(InvalidInput, match="must not be one of the features"):
        NeuralNetwork("label", ["label"])
    with pytest.raises(InvalidInput, match="no column 'lable'"):
        consortium().release(NeuralNetwork("lable", COLUMNS), 0.1)
    with pytest.raises(InvalidInput, match="list of columns"):
        NeuralNetwork("label", None)
    for start in ([], ["x"], None):
        with pytest.raises(InvalidInput, match="start"):
            GradientDescent(lambda batch, w: w, columns=["x0"], start=start)
    with pytest.raises(InvalidInput, match="columns"):
        GradientDescent(lambda batch, w: w, columns=3, start=[0])
    with pytest.raises(InvalidInput, match="NeuralNetwork only"):
        GradientDescent(lambda batch, w: w, columns=["x0"], start=[0], watch=True)


def test_a_plan_tells_the_noise_of_a_step():
    plan = consortium(Budget(1.0, 1e-6)).plan(NeuralNetwork("label", COLUMNS, epochs=100, clip=0.5), 0.5)
    ((label, by),) = plan.noise.items()
    assert "gradient" in label
    each = 0.5 * 2 / (math.sqrt(0.5 / 100) * Budget(1.0, 1e-6).mu) / 1600
    assert by["pooled"] == pytest.approx(each, rel=1e-2)
    assert by["cape"] == pytest.approx(each * math.sqrt(3 / 2), rel=1e-2)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("sampling", [1.0, 0.1])
def test_noise_and_epsilon_are_found_from_each_other(sampling, neighbours):
    training = Training(epochs=20, sampling=sampling)
    noise = training.noise(2.0, 1e-5, neighbours)
    found = training.epsilon(noise, 1e-5, neighbours)
    if sampling == 1:
        assert found == pytest.approx(2.0, rel=1e-9)
        moved = 2 if neighbours == "replace-one" else 1
        assert noise == pytest.approx(moved * math.sqrt(20) / gaussian.mu(2.0, 1e-5))
    else:
        assert 1.8 < found <= 2.0
        assert training.epsilon(0.9 * noise, 1e-5, neighbours) > 2.0


def test_steps_without_end_are_refused():
    with pytest.raises(InvalidInput, match=r"epochs / sampling makes inf steps, and 65,536 are possible"):
        NeuralNetwork("ill", ["age"], epochs=2, sampling=5e-324)
