"""Sampling errors without a model: how far one row moves what they are made of, and that intervals cover."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from benchmarks.columns import SCHEMA, population, sample
from cape import Budget, Consortium
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.sandwich import sandwich_query
from cape.blocks import Design, Table
from cape.core.errors import TooNoisyWarning
from cape.data import Number, Schema
from cape.noise import SecureStream
from tests.unit.analyses.regression.tables import conducted, numeric

SKEWED = LinearRegression("emergency", ["inpatient"])
CLASSICAL = LinearRegression("emergency", ["inpatient"], errors="classical")


def moved(directions, neighbours, cells):
    """The furthest that one of these rows moves the sum, as sites compute it, and the sensitivity."""
    schema = Schema({name: Number(-1, 1, missing=True) for name in ("a", "b", "y")})
    design = Design(("a", "b"), "y")
    query = sandwich_query(design, np.array([0.1, 0.2, -0.3]), directions, schema, neighbours)
    scales = np.repeat(query.scales[0], [array.size for array in query.blocks[0].arrays(schema)])
    rows = []
    for a, b, y in cells:
        frame = pl.DataFrame({"a": [a], "b": [b], "y": [y]}, schema=dict.fromkeys("aby", pl.Float64))
        (arrays,) = Table("a", frame, schema).sums(query.blocks)
        rows.append(np.concatenate(arrays) / 2**40 / scales)
    found = np.array(rows)
    if neighbours == "add-remove":
        return np.linalg.norm(found, axis=1).max(), query.sensitivity
    return max(np.linalg.norm(found - each, axis=1).max() for each in found), query.sensitivity


@pytest.mark.one_in(6, seconds=0.2)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("many", [1, 2, 3])
@pytest.mark.parametrize("size", [0.1, 1.0, 50.0])
def test_no_row_moves_the_sum_further_than_is_claimed_and_some_row_as_far(neighbours, many, size):
    rng = np.random.default_rng(many)
    cells = [tuple(row) for row in rng.choice([-1.0, -0.5, 0.0, 0.3, 1.0], (60, 3))]
    cells += [tuple(row) for row in rng.uniform(-1, 1, (60, 3))] + [(None, 1.0, 1.0)]
    furthest, claimed = moved(size * rng.normal(size=(many, 3)), neighbours, cells)
    assert furthest <= claimed
    assert claimed == pytest.approx(math.sqrt(2) if many > 1 and neighbours == "replace-one" else 1.0)
    if size == 50.0:
        assert furthest >= 0.97 * claimed


def test_without_noise_errors_are_those_of_the_sandwich_and_one_stage_is_enough():
    schema, names = numeric(2)
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (2000, 2))
    y = 0.3 * x[:, 0] + 0.4 * np.abs(x[:, 1]) * rng.uniform(-1, 1, 2000)
    asked = []
    result = conducted(
        LinearRegression("y", names),
        schema,
        {"x0": x[:, 0], "x1": x[:, 1], "y": y},
        rng,
        epsilon=math.inf,
        asked=asked,
    )
    u = np.column_stack([np.ones(2000), x])
    inverse = np.linalg.inv(u.T @ u)
    residuals = y - u @ inverse @ u.T @ y
    wanted = inverse @ ((u * residuals[:, None] ** 2).T @ u) @ inverse * 2000 / 1997
    assert [e.sampling for e in result.estimates] == pytest.approx(np.sqrt(np.diag(wanted)), rel=1e-3)
    assert all(e.at is None for e in result.estimates)
    classical = residuals @ residuals / 1997 * np.diag(inverse)
    assert abs(wanted[2, 2] / classical[2] - 1) > 0.3  # the residuals spread with x1
    assert len(asked) == 2


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_a_target_that_features_determine_has_no_sampling_error(epsilon):
    schema, names = numeric(2)
    rng = np.random.default_rng(9)
    x = rng.uniform(-1, 1, (50_000, 2))
    table = {"x0": x[:, 0], "x1": x[:, 1], "y": 0.3 * x[:, 0] - 0.2 * x[:, 1]}
    found = conducted(LinearRegression("y", names), schema, table, rng, epsilon=epsilon).estimates
    for estimate, true in zip(found, [0.0, 0.3, -0.2], strict=True):
        assert estimate.value == pytest.approx(true, abs=4 * estimate.privacy + 1e-5)
        assert estimate.sampling <= max(estimate.privacy, 1e-5)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_without_an_intercept_too(neighbours):
    schema, _ = numeric(1)
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, 20_000)
    y = 0.3 * x + 0.4 * np.abs(x) * rng.uniform(-1, 1, 20_000)
    analysis = LinearRegression("y", ["x0"], intercept=False)
    (found,) = conducted(
        analysis, schema, {"x0": x, "y": y}, rng, epsilon=3.0, neighbours=neighbours
    ).estimates
    wanted = math.sqrt(((x * (y - 0.3 * x)) ** 2).sum()) / (x @ x)
    assert found.sampling == pytest.approx(wanted, rel=0.3)
    assert found.interval()[0] <= 0.3 <= found.interval()[1]


def cover(analysis, rows, epsilon, runs, seed):
    """The share of intervals of the slope that cover, on the most skewed columns there are."""
    known = population()
    slope = np.polyfit(known["inpatient"], known["emergency"], 1)[0]
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(runs):
        table = {name: sample_cells for name, sample_cells in sample(rows, rng).items() if name in COLUMNS}
        low, high = conducted(analysis, SCHEMA, table, rng, epsilon=epsilon).estimates[1].interval()
        hits += low <= slope <= high
    return hits / runs


COLUMNS = ("inpatient", "emergency")


@pytest.mark.slow(8)
def test_robust_intervals_cover_where_classical_ones_do_not():
    """The target has a kurtosis of 400, and its spread grows with the feature: the meat is what matters."""
    assert cover(SKEWED, 100_000, 10.0, 60, 1) >= 0.88
    assert cover(CLASSICAL, 100_000, 10.0, 60, 1) <= 0.75


def test_noise_is_at_most_5_percent_more_than_without_robust_errors():
    table = sample(50_000, np.random.default_rng(3))
    robust, classical = (
        conducted(analysis, SCHEMA, table, np.random.default_rng(4), epsilon=3.0).estimates[1].privacy
        for analysis in (SKEWED, CLASSICAL)
    )
    assert 1.0 < robust / classical <= 1.055


def test_a_plan_counts_with_the_share_of_the_second_moments():
    table = pl.DataFrame({name: population()[name][:900] for name in COLUMNS})
    sites = {f"s{i}": table.gather_every(3, i) for i in range(3)}
    schema = Schema({name: SCHEMA[name] for name in COLUMNS})
    robust, classical = (
        Consortium(sites, schema, Budget(10.0, 1e-6), colluding=1).plan(analysis, 1.0).noise["intercept"]
        for analysis in (SKEWED.changed(method="moments"), CLASSICAL)
    )
    assert robust["pooled"] / classical["pooled"] == pytest.approx(1 / math.sqrt(0.91), rel=0.02)


def test_nothing_more_is_asked_or_paid_for_where_no_coefficient_is_known():
    table = pl.DataFrame({name: population()[name][:60] for name in COLUMNS})
    sites = {f"s{i}": table.gather_every(3, i) for i in range(3)}
    schema, hidden = Schema({name: SCHEMA[name] for name in COLUMNS}), 0
    for key in range(8):
        stream = SecureStream(key.to_bytes(32, "big"))
        consortium = Consortium(sites, schema, Budget(0.1, 1e-6), colluding=1, stream=stream)
        with pytest.warns(TooNoisyWarning):
            release = consortium.release(SKEWED, 0.5)
        nothing = all(each.interval(0.1) == each.within for each in release.estimates)
        hidden += nothing
        if nothing:
            assert release.share == pytest.approx(0.5 * 0.91)
        else:
            assert 0.5 * 0.91 < release.share <= 0.5
    assert hidden >= 2


def test_the_sandwich_is_the_second_and_the_third_question():
    asked = []
    table = sample(10_000, np.random.default_rng(5))
    conducted(SKEWED, SCHEMA, table, np.random.default_rng(6), epsilon=3.0, asked=asked)
    assert [type(query.blocks[0]).__name__ for query in asked] == ["Tensors", "Sandwich", "Sandwich"]
    conducted(CLASSICAL, SCHEMA, table, np.random.default_rng(6), epsilon=3.0, asked=asked[:0])
    assert CLASSICAL.stages() == (1.0,)
    assert math.fsum(SKEWED.stages()) == pytest.approx(1.0)
