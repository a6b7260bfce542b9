"""Polynomial losses: approximations, minimisers that always exist, and what is released."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from cape import Budget, Consortium
from cape.analyses.regression.minimise import Objective, dense, minimum
from cape.analyses.regression.polynomial import PolynomialLoss
from cape.core.errors import InvalidInput, PrivacyLeakWarning, TooNoisyWarning
from cape.data import Number, Schema
from tests.unit.analyses.regression.tables import found, numeric, vectors

LEAST_SQUARES = {1: [0, -2], 2: [1]}


def logistic(m):
    return np.logaddexp(0, -m)


def test_the_minimax_quadratic_of_the_logistic_loss():
    fitted = PolynomialLoss.approximating(logistic, 2, 4.0)
    assert fitted.polynomial == pytest.approx((0.7525, -0.5, 0.0828), abs=1e-4)
    assert fitted.error == pytest.approx(0.059, abs=5e-4)
    assert {j: c[j] for j, c in fitted.coefficients.items()} == pytest.approx({1: -0.5, 2: 0.0828}, abs=1e-4)


def test_taylors_quadratic_is_far_off_at_its_ends():
    fitted = PolynomialLoss.approximating(logistic, 2, 4.0, fit="taylor")
    assert fitted.polynomial == pytest.approx((math.log(2), -0.5, 0.125), abs=1e-9)
    assert fitted.error == pytest.approx(0.675, abs=5e-4)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("function", [logistic, np.cosh, lambda m: np.maximum(0, 1 - m) ** 2])
def test_minimax_errors_alternate_and_no_polynomial_is_better(function, degree):
    """De la Vallée Poussin: an error that alternates degree + 2 times bounds every other polynomial's."""
    fitted = PolynomialLoss.approximating(function, degree, 3.0)
    m = np.linspace(-3, 3, 4001)
    error = np.polynomial.polynomial.polyval(m, fitted.polynomial) - function(m)
    near = np.abs(error) > 0.99 * fitted.error
    signs = np.sign(error[near])
    assert 1 + np.count_nonzero(np.diff(signs)) >= degree + 2
    other = PolynomialLoss.approximating(function, degree, 3.0, fit="taylor")
    assert other.error >= fitted.error * (1 - 1e-4)


def test_a_polynomial_is_its_own_approximation():
    fitted = PolynomialLoss.approximating(lambda m: 1 - 2 * m + m**2, 3, 2.0)
    assert fitted.polynomial == pytest.approx((1, -2, 1, 0), abs=1e-6)
    assert fitted.error < 1e-6


def objective_of(rng, degree, width, scale=1.0, noise=0.0):
    tensors = []
    for j in range(1, degree + 1):
        full = rng.normal(size=(width,) * j) * scale
        tensors.append((j, sum(np.transpose(full, p) for p in itertools.permutations(range(j)))))
    return Objective(tuple(tensors), (noise,) * degree, width)


def test_derivatives_are_right():
    rng = np.random.default_rng(1)
    objective = objective_of(rng, 4, 3)
    w, step = rng.normal(size=3), 1e-6
    for i in range(3):
        shift = step * np.eye(3)[i]
        slope = (objective.value(w + shift) - objective.value(w - shift)) / (2 * step)
        bend = (objective.gradient(w + shift) - objective.gradient(w - shift)) / (2 * step)
        assert objective.gradient(w)[i] == pytest.approx(slope, rel=1e-6)
        assert objective.hessian(w)[i] == pytest.approx(bend, rel=1e-5, abs=1e-5)


@pytest.mark.slow(1.4)
@given(
    seed=st.integers(0, 10_000),
    degree=st.integers(1, 4),
    width=st.integers(1, 4),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e6]),
    noise=st.sampled_from([0.0, 1.0, 1e6]),
    ridge=st.sampled_from([None, 0.0, 10.0]),
)
def test_a_minimiser_exists_whatever_the_tensors_are(seed, degree, width, scale, noise, ridge):
    objective = objective_of(np.random.default_rng(seed), degree, width, scale, noise)
    end = minimum(objective, 2.0, 100.0, ridge)
    assert np.isfinite(end.weights).all()
    assert np.linalg.norm(end.weights) <= 2.0 * (1 + 1e-9)
    kept = 0.0 if end.hidden else end.ridge
    size = 1e-9 * scale
    assert objective.value(end.weights) + kept * float(end.weights @ end.weights) <= size  # no worse than 0


@pytest.mark.quick_cases("2-0", "3-0", "4-0", seconds=0.21)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("degree", [2, 3, 4])
def test_it_is_the_least_value_that_many_descents_find(seed, degree):
    """Indefinite tensors in two dimensions: against a grid of the disc."""
    objective = objective_of(np.random.default_rng(seed), degree, 2)
    end = minimum(objective, 1.5, 1.0, 0.0)
    angle, length = np.meshgrid(np.linspace(0, 2 * np.pi, 181), np.linspace(0, 1.5, 61))
    points = np.stack([(length * np.cos(angle)).ravel(), (length * np.sin(angle)).ravel()], axis=1)
    values = [objective.value(point) for point in points]
    best = points[int(np.argmin(values))]
    ball = {"type": "ineq", "fun": lambda w: 1.5**2 - w @ w}
    polished = minimize(objective.value, best, constraints=ball, method="SLSQP")
    least = min(polished.fun if np.linalg.norm(polished.x) <= 1.5 * (1 + 1e-9) else math.inf, min(values))
    assert objective.value(end.weights) <= least + 1e-4 * abs(least)


def test_dense_puts_entries_where_they_belong():
    places = np.array([[0, 0, 1], [0, 1, 1]])
    tensor = dense(3, 2, [(places, np.array([3.0, 5.0]))])
    assert tensor[0, 0, 1] == tensor[0, 1, 0] == tensor[1, 0, 0] == 3.0
    assert tensor[1, 1, 0] == 5.0
    assert tensor[0, 0, 0] == 0.0


def linear_table(rows, rng):
    x = rng.uniform(-1, 1, (rows, 3))
    y = np.clip(x @ [0.4, -0.3, 0.2] + 0.1 + 0.1 * rng.normal(size=rows), -1, 1)
    return {"x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "y": y}


@pytest.mark.parametrize("intercept", [True, False])
def test_least_squares_is_one_of_them(intercept):
    schema, names = numeric(3)
    rng = np.random.default_rng(2)
    table = linear_table(4000, rng)
    analysis = PolynomialLoss("y", names, LEAST_SQUARES, intercept=intercept)
    result = found(analysis, schema, table, rng, epsilon=math.inf)
    x, y = vectors(analysis.design, schema, table)
    known = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    model = result.model
    at = np.column_stack([table[name] for name in names])
    assert model.decision_function(at) == pytest.approx(known, abs=1e-3)
    by_hand = model.intercept + sum(model.coefficients[name] * table[name] for name in names)
    assert model.decision_function(at) == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.quick_cases("2", seconds=2)
@pytest.mark.parametrize("degree", [2, 4])
def test_noise_moves_the_minimiser_as_far_as_is_said(degree):
    schema, names = numeric(3)
    rng = np.random.default_rng(3)
    table = linear_table(50_000, rng)
    coefficients = LEAST_SQUARES if degree == 2 else {1: [0, -2], 2: [1], 3: [0, 0.2], 4: [0.1]}
    analysis = PolynomialLoss("y", names, coefficients)
    truth = [e.value for e in found(analysis, schema, table, rng, epsilon=math.inf).estimates]
    hits = []
    for _ in range(40):
        result = found(analysis, schema, table, rng, epsilon=3.0)
        hits += [
            e.interval()[0] <= t <= e.interval()[1] for e, t in zip(result.estimates, truth, strict=True)
        ]
    assert np.mean(hits) >= 0.93


def test_where_noise_hides_all_the_score_is_zero_and_it_is_said():
    schema, names = numeric(3)
    rng = np.random.default_rng(4)
    with pytest.warns(TooNoisyWarning, match=r"long, their noise \d"):
        result = found(
            PolynomialLoss("y", names, LEAST_SQUARES), schema, linear_table(50, rng), rng, epsilon=0.01
        )
    assert all(value == 0 for value in result.model.coefficients.values())
    assert math.isinf(result.model.ridge)


def test_a_consortium_fits_a_logistic_loss_of_degree_four(stream):
    rng = np.random.default_rng(5)
    rows = 20_000
    a, b = rng.uniform(0, 10, rows), rng.choice(["u", "v"], rows)
    odds = 0.4 * (a - 5) + 1.0 * (b == "v")
    ill = np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), "yes", "no")
    schema = Schema(a=Number(0, 10, missing=False), b=["u", "v"], ill=["no", "yes"])
    sites = {f"s{i}": {"a": a[i::4], "b": b[i::4], "ill": ill[i::4]} for i in range(4)}
    tables = {name: pl.DataFrame(table) for name, table in sites.items()}
    fitted = PolynomialLoss.approximating(logistic, 4, 6.0)
    analysis = PolynomialLoss("ill", ["a", "b"], fitted.coefficients, radius=6.0)
    consortium = Consortium(tables, schema, Budget(2.0, 1e-6), colluding=1, stream=stream)
    model = consortium.release(analysis, 1.0).model
    assert "score for ill" in model.summary()
    with pytest.warns(PrivacyLeakWarning):
        exact = Consortium(tables, schema, Budget(2.0, 1e-6), colluding=1).release(
            analysis, 1.0, scheme="none"
        )
    assert exact.model.coefficients == pytest.approx({"a": 0.4, "b=v": 1.0}, rel=0.2)
    # the standard deviation of the noise is 1% of the first coefficient, 3% of the other
    assert model.coefficients == pytest.approx(exact.model.coefficients, rel=0.15)


def test_what_is_refused():
    for wrong in ({}, {0: [1.0]}, {5: [1.0]}, {1: [0.0]}, [1.0]):
        with pytest.raises(InvalidInput, match="coefficients"):
            PolynomialLoss("y", ["x0"], wrong)
    schema, names = numeric(80)
    with pytest.raises(InvalidInput, match="few features"):
        PolynomialLoss("y", names, {4: [1.0]}).query(schema, "replace-one")
    with pytest.raises(InvalidInput, match="fit"):
        PolynomialLoss.approximating(logistic, 2, 4.0, fit="best")
    with pytest.raises(InvalidInput, match="one finite number"):
        PolynomialLoss.approximating(lambda m: 1 / m, 2, 4.0)
    with pytest.raises(InvalidInput, match="radius"):
        PolynomialLoss("y", ["x0"], LEAST_SQUARES, radius=0.0)


@pytest.mark.parametrize(
    "wrong", [{1: 5}, {1: None}, {"²": [1]}, {1: {"a": 1}}, {1: "ab"}, {"1": [1.0], 1: [2.0]}, {5.5: [1]}]
)
def test_coefficients_that_are_none_are_refused(wrong):
    with pytest.raises(InvalidInput, match="coefficients"):
        PolynomialLoss("y", ["x0"], wrong)


def test_a_feature_called_intercept_is_refused_where_there_is_one():
    with pytest.raises(InvalidInput, match="called 'intercept'"):
        PolynomialLoss("y", ["intercept"], LEAST_SQUARES)
    assert PolynomialLoss("y", ["intercept"], LEAST_SQUARES, intercept=False).features == ("intercept",)


@pytest.mark.parametrize("unit", [5e-324, 1e-320, 1e-200, 1e-12, 1e150, 8e307])
def test_the_unit_of_a_loss_changes_nothing(unit):
    schema, names = numeric(2)
    usual = PolynomialLoss("y", names, {1: [0, -2], 2: [1]}, ridge=0.25)
    other = PolynomialLoss("y", names, {1: [0, -2 * unit], 2: [unit]}, ridge=0.25 * unit)
    a, b = usual.query(schema, "replace-one"), other.query(schema, "replace-one")
    assert b.sensitivity == pytest.approx(a.sensitivity, rel=1e-9)
    assert b.flat_scales == pytest.approx(a.flat_scales, rel=1e-9)
    rng = np.random.default_rng(5)
    table = {name: rng.uniform(-1, 1, 500) for name in (*names, "y")}
    if unit > 1e-300:
        ends = [found(each, schema, table, np.random.default_rng(6)).model for each in (usual, other)]
        assert ends[1].weights == pytest.approx(ends[0].weights, rel=1e-6)
        assert ends[1].ridge == pytest.approx(unit * ends[0].ridge, rel=1e-6)


def test_coefficients_too_small_to_matter_are_left_out():
    assert PolynomialLoss("y", ["x0"], {1: [1e150], 2: [1e-150]}).coefficients == ((1, (1e150,)),)
    assert PolynomialLoss("y", ["x0"], {1: [1.0, 1e-13], 2: [1e-3]}).coefficients == (
        (1, (1.0,)),
        (2, (1e-3,)),
    )
    with pytest.raises(InvalidInput, match="ridge"):
        PolynomialLoss("y", ["x0"], {1: [5e-324]}, ridge=1.0)


def test_it_reads_like_a_question():
    analysis = PolynomialLoss("y", ["x0", "x1"], {0: [1.0], 1: [0, -2], 2: [1]})
    assert analysis.describe() == "loss of degree 2 for y, linear in x0 and x1"
    assert analysis.to_dict()["coefficients"] == {1: [0.0, -2.0], 2: [1.0]}
    again = {key: value for key, value in analysis.to_dict().items() if key != "kind"}
    assert PolynomialLoss(**again) == analysis
