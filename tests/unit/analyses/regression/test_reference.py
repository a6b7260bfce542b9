"""The intercept is shown at stated values of the features: what the model predicts there."""

from __future__ import annotations

import numpy as np
import pytest

from cape.analyses.regression.joint import Joint
from cape.analyses.regression.reference import reference
from cape.data import Category, Number, Schema

SCHEMA = Schema(
    age=Number(30, 90, unit="years", label="Age"),
    bmi=Number(16, 50, expected={"mean": 27, "sd": 5}),
    sex=Category(("female", "male")),
)
LABELS = ("intercept", "age", "bmi", "sex=male", "age:bmi", "age:sex=male")
VALUES = (-3.0, 0.02, 0.05, 0.3, 0.001, 0.7)


def joint(labels=LABELS, values=VALUES, error=0.1) -> Joint:
    covariance = tuple(map(tuple, (np.eye(len(labels)) * error**2).tolist()))
    none = tuple(map(tuple, np.zeros((len(labels),) * 2).tolist()))
    return Joint(labels, ((-1e3, 1e3),) * len(labels), values, none, covariance)


def test_numbers_are_where_people_expect_them_and_categories_at_their_first():
    found = reference(joint(), SCHEMA)
    assert found.values == {"age": 60.0, "bmi": 27.0, "sex": "female"}
    assert found.words == "Age 60 years, bmi 27, sex female"
    assert found.estimate.value == pytest.approx(-3.0 + 0.02 * 60 + 0.05 * 27 + 0.001 * 60 * 27)
    error = 0.1 * np.sqrt(1 + 60**2 + 27**2 + (60 * 27) ** 2)
    assert found.estimate.standard_error == pytest.approx(error)


def test_the_prediction_there_is_said_with_its_interval():
    found = reference(joint(LABELS[:1], VALUES[:1]), SCHEMA)
    low, high = found.estimate.interval()
    assert (low, high) == pytest.approx((-3.196, -2.804), abs=1e-3)
    assert found.said("it", lambda x: x * 2) == "At reference: . There it is -6.00 (-6.39 to -5.61)."


@pytest.mark.parametrize("labels", [("age", "bmi"), ("intercept", "spline(bmi, 3)[27.3333]")])
def test_without_an_intercept_or_with_splines_there_is_none(labels):
    assert reference(joint(labels, (0.0, 0.0)), SCHEMA) is None


@pytest.mark.parametrize(("low", "high", "there"), [(0, 1, 0.5), (16, 50, 33), (0, 7, 3.5), (-1e6, 3e6, 1e6)])
def test_the_middle_of_bounds_is_a_round_number(low, high, there):
    found = reference(joint(("intercept", "x"), (0.0, 0.0)), Schema(x=(low, high)))
    assert found.values == {"x": pytest.approx(there)}
