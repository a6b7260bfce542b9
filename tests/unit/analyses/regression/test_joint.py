"""Coefficients together: covariances, tests of several and combinations, against plain linear algebra."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from cape.analyses.regression.inference import z_and_p
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.linear import LinearRegression
from cape.core.errors import InvalidInput
from cape.data import Schema
from tests.unit.analyses.regression.tables import conducted
from tests.unit.analyses.regression.test_linear import FULL, SCHEMA, least_squares, people

LABELS = ("intercept", "age", "stage=II", "stage=III")
WITHIN = ((-100.0, 100.0),) * 4


def positive(seed: int, size: float = 1.0) -> np.ndarray:
    half = np.random.default_rng(seed).normal(size=(4, 6))
    return size * half @ half.T


VALUES = np.array([3.0, 2.0, -1.0, 4.0])
PLAIN = Joint(LABELS, WITHIN, tuple(VALUES), rows_of(positive(1)), rows_of(positive(2)))
NOISY = Joint(
    LABELS,
    WITHIN,
    tuple(VALUES),
    rows_of(positive(1)),
    rows_of(positive(2) - 2 * np.eye(4)),
    rows_of(positive(2)),
    rows_of(positive(3, 0.5)),
)


def test_a_combination_has_the_error_of_its_covariance() -> None:
    total = positive(1) + positive(2)
    a = np.array([0.0, 10.0, 0.0, 1.0])
    found = PLAIN.combination({"age": 10, "stage=III": 1})
    assert found.label == "10 age + stage=III"
    assert found.value == pytest.approx(24.0)
    assert found.sampling == pytest.approx(math.sqrt(a @ positive(2) @ a), rel=1e-4)
    assert found.privacy == pytest.approx(math.sqrt(a @ positive(1) @ a))
    assert found.interval()[1] == pytest.approx(24 + 1.96 * math.sqrt(a @ total @ a), rel=1e-4)
    assert np.asarray(PLAIN.covariance) == pytest.approx(total, rel=1e-6)
    assert PLAIN.covariance["age", "stage=II"] == pytest.approx(total[1, 2])


def test_walds_test_is_chi_square_of_the_coefficients_over_their_covariance() -> None:
    places = [1, 2, 3]
    b, total = VALUES[places], (positive(1) + positive(2))[np.ix_(places, places)]
    found = PLAIN.test("age", "stage")
    assert found.labels == ("age", "stage=II", "stage=III")
    assert found.statistic == pytest.approx(b @ np.linalg.solve(total, b))
    assert (found.freedom, found.p) == (3, pytest.approx(chi2.sf(found.statistic, 3)))
    assert "age, stage=II and stage=III: chi-square" in str(found)
    assert found.to_dict()["freedom"] == 3


@pytest.mark.parametrize("joint", [PLAIN, NOISY], ids=["known", "through noise"])
def test_one_coefficient_is_tested_as_in_the_table(joint: Joint) -> None:
    for estimate in joint.estimates:
        z, p = z_and_p(estimate)
        one = joint.test(estimate.label)
        assert math.isnan(z) or one.statistic == pytest.approx(z * z, rel=1e-3)
        assert one.p == pytest.approx(p, rel=1e-2)
        alone = joint.combination({estimate.label: 1})
        assert alone.interval() == pytest.approx(estimate.interval())
        assert joint.covariance[estimate.label, estimate.label] == pytest.approx(estimate.standard_error**2)


def test_what_noise_hides_makes_tests_and_combinations_less_sure() -> None:
    exact = Joint(LABELS, WITHIN, NOISY.values, NOISY.privacy, NOISY.sampling, NOISY.clear)
    a, b = (joint.combination({"age": 1, "stage=II": -1}).interval() for joint in (NOISY, exact))
    assert a[0] < b[0] < b[1] < a[1]
    assert NOISY.test("stage").p > exact.test("stage").p
    assert np.linalg.eigvalsh(np.asarray(NOISY.covariance))[0] > 0


def test_without_noise_a_model_agrees_with_the_sandwich_of_its_rows() -> None:
    table = people(3000, np.random.default_rng(1))
    model = conducted(FULL, SCHEMA, table, np.random.default_rng(2), epsilon=math.inf).model
    design, known = least_squares(table)
    residuals = np.clip(table["chol"], 100, 400) - design @ known
    inverse = np.linalg.inv(design.T @ design)
    meat = (design * residuals[:, None] ** 2).T @ design
    wanted = inverse @ meat @ inverse * 3000 / (3000 - 6)
    size = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    assert np.asarray(model.covariance) / size == pytest.approx(wanted / size, abs=2e-3)
    chosen = [4, 5]
    b = known[chosen]
    statistic = b @ np.linalg.solve(wanted[np.ix_(chosen, chosen)], b)
    assert model.test("stage").statistic == pytest.approx(statistic, rel=1e-2)
    ten = model.combination({"age": 10, "sex=male": 1})
    assert ten.value == pytest.approx(10 * known[1] + known[3], rel=1e-3)
    told = model.to_dict()
    assert told["covariance"]["labels"] == ["intercept", *model.coefficients]
    assert told["covariance"]["rows"][1][1] == pytest.approx(wanted[1, 1], rel=1e-2)
    assert told["errors"] == "robust"
    assert pickle.loads(pickle.dumps(model)) == model


@pytest.mark.slow(3)
def test_p_of_several_that_are_0_is_even_through_noise() -> None:
    """The residuals spread with x0, and noise is as large as sampling."""
    schema = Schema({name: {"low": -1, "high": 1, "missing": False} for name in ("x0", "x1", "x2", "y")})
    rng, analysis, found = np.random.default_rng(8), LinearRegression("y", ["x0", "x1", "x2"]), []
    for _ in range(400):
        x = np.clip(0.4 * rng.normal(size=(5000, 3)), -1, 1)
        y = 0.3 * x[:, 2] + 0.5 * np.abs(x[:, 0]) * rng.normal(size=5000)
        table = {"x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "y": y}
        model = conducted(analysis, schema, table, rng, epsilon=3.0).model
        found.append(model.test("x0", "x1").p)
    assert 0.02 <= np.mean(np.array(found) < 0.05) <= 0.08
    assert kstest(found, "uniform").pvalue > 1e-4


def test_where_nothing_is_known_it_is_said() -> None:
    nothing = Joint(LABELS, WITHIN)
    assert math.isnan(nothing.test("age").p)
    assert "not known" in str(nothing.test("age"))
    assert np.isnan(np.asarray(nothing.covariance)).all()
    assert nothing.combination({"age": 2, "stage=II": -1}).interval() == (-300.0, 300.0)
    assert [each.interval() for each in nothing.estimates] == list(WITHIN)


def test_a_hidden_direction_widens_what_depends_on_it() -> None:
    pulls = np.zeros((4, 2))
    pulls[1] = 30.0, -10.0
    pulls[2] = -30.0, 0.0
    joint = Joint(LABELS, WITHIN, PLAIN.values, PLAIN.privacy, PLAIN.sampling, pulls=rows_of(pulls))
    free, hidden = joint.combination({"stage=III": 1}), joint.combination({"age": 1})
    assert free.within[0] == -math.inf
    assert hidden.interval()[1] - hidden.interval()[0] >= 80
    both = joint.combination({"age": 1, "stage=II": 1})  # the sum is known better than its parts
    assert both.interval()[1] - both.interval()[0] < 80
    assert joint.test("age").p == 1.0


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no coefficient 'weight'; there are intercept, age"):
        PLAIN.test("weight")
    with pytest.raises(InvalidInput, match="a test must name coefficients"):
        PLAIN.test()
    with pytest.raises(InvalidInput, match="no coefficient 'stage'"):
        PLAIN.combination({"stage": 1})
    with pytest.raises(InvalidInput, match=r"as in \{'age': 10\}"):
        PLAIN.combination({})
    with pytest.raises(InvalidInput, match=r"combination\['age'\]"):
        PLAIN.combination({"age": math.inf})
