"""Linear regressions by steps after second moments: when they are taken, what they gain, what they count."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.scores import Point, Scale, Step, score_query
from cape.blocks import Design
from cape.blocks.families import Gaussian
from cape.data import Number, Schema

from .tables import conducted

SCHEMA = Schema(
    age=Number(18, 95, missing=False), bmi=Number(15, 45, missing=False), sbp=Number(70, 220, missing=False)
)
ASKED = LinearRegression("sbp", ["age", "bmi"])


def people(rows, rng, *, skewed=False):
    age, bmi = np.clip(rng.normal(58, 13, rows), 18, 95), np.clip(rng.normal(27, 4, rows), 15, 45)
    residual = 14 * (rng.exponential(size=rows) - 1 if skewed else rng.normal(size=rows))
    return {"age": age, "bmi": bmi, "sbp": np.clip(90 + 0.5 * age + 0.4 * bmi + residual, 70, 220)}


def test_where_bounds_are_wide_steps_have_a_third_of_the_noise_of_second_moments():
    table = people(8_000, np.random.default_rng(1))
    found = conducted(ASKED, SCHEMA, table, np.random.default_rng(2))
    moments = conducted(
        LinearRegression("sbp", ["age", "bmi"], errors="classical"), SCHEMA, table, np.random.default_rng(3)
    )
    assert found.model.method == "steps"
    assert moments.model.method == "moments"
    for ours, theirs, true in zip(found.estimates[1:], moments.estimates[1:], (0.5, 0.4), strict=True):
        assert ours.privacy < theirs.privacy / 3
        low, high = ours.interval(0.999)
        assert low <= true <= high
    assert "steps of clipped scores" in found.model.summary()
    assert found.model.residual == pytest.approx(14, rel=0.15)
    assert found.model.predict({"age": [60.0], "bmi": [27.0]}) == pytest.approx([130.8], abs=2.0)


def test_residuals_that_are_visibly_not_symmetric_are_left_to_second_moments_or_counted():
    table = people(60_000, np.random.default_rng(4), skewed=True)
    found = conducted(ASKED, SCHEMA, table, np.random.default_rng(5), epsilon=3.0)
    for estimate, true in zip(found.estimates[1:], (0.5, 0.4), strict=True):
        low, high = estimate.interval(0.999)
        assert low <= true <= high


@pytest.mark.parametrize(
    ("neighbours", "square"), [("replace-one", 7.02), ("add-remove", 2.3 * 1.125 + 0.52)]
)
def test_directions_of_cut_scores_are_paid_for(neighbours, square):
    scale = Scale(Gaussian(1.0), 1.0, 1.0, 1.0, 1.0, 1.0, beyond=True)
    point = Point(np.zeros(1), np.eye(1), 1.0, 1.0, scale)
    query = score_query(Design(("age",), "sbp"), point, SCHEMA, neighbours)
    assert query.sensitivity == pytest.approx(math.sqrt(square), rel=1e-4)
    assert len(query.scales[0]) == len(query.blocks[0].arrays(SCHEMA)) == 8


def test_scores_that_are_cut_on_one_side_are_counted_as_error():
    scale = Scale(Gaussian(1.0), 1.0, 1.0, 1.0, 1.0, 1.0, beyond=True)
    point = Point(np.zeros(2), np.eye(2), 1.4, 1.0, scale)

    def step(beyond):
        return Step(
            point, np.zeros(2), 1000 * np.eye(2), 1000 * np.eye(2), 10.0, 10.0, 1000.0,
            beyond=np.array(beyond), beyond_noise=10.0, found=np.zeros(2),
        )  # fmt: skip

    assert not step([5.0, -8.0]).lopsided(0.99)
    assert step([60.0, 0.0]).lopsided(0.99)
    assert step([60.0, 0.0]).cut > 10 * step([5.0, -8.0]).cut
    assert not step([5.0, -8.0]).cut < 0.5 * 1.4 * 10
