from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, Exposure, FollowUp, Martingale, Table, Times
from cape.blocks.martingale import STEEP
from cape.core.errors import InvalidInput
from tests.slices import examples
from tests.unit.blocks import reference
from tests.unit.blocks.stretches import DESIGN, EDGES, KINDS, SCHEMA, WAYS, follow_up, rows_of, stretch
from tests.unit.blocks.vectors import SCHEMA as HELD
from tests.unit.blocks.vectors import assert_that_order_and_parts_do_not_matter


def scores(
    entry: str | None = None,
    strata: str | None = None,
    *,
    seed: int = 1,
    size: float = 1.0,
    bound: float = 0.9,
    trend: bool = True,
    tilt: bool = True,
) -> Martingale:
    generator, cells = np.random.default_rng(seed), 8 if strata else 4
    return Martingale(
        DESIGN,
        follow_up(entry, strata),
        tuple(generator.normal(0, size, 2).tolist()),
        tuple(generator.uniform(-0.3, 0.3, 2).tolist()),
        tuple(map(tuple, (np.eye(2) + generator.normal(0, 0.4, (2, 2))).tolist())),
        tuple(generator.integers(1, 2**20, cells, endpoint=True).tolist()),
        0.6,
        tuple(map(tuple, generator.normal(0, 0.1, (cells, 2)).tolist())),
        bound,
        2 * bound**2,
        1.25,
        tuple(generator.uniform(-STEEP, STEEP, cells).tolist()) if tilt else (),
        tuple(generator.uniform(-1, 1, cells).tolist()) if trend else (),
        tuple(generator.normal(0, 0.3, 2).tolist()) if trend and tilt else (),
    )


def one_row(row: dict[str, Any], block: Martingale) -> tuple[np.ndarray, ...] | None:
    """Score, curvature, what it adds to the baseline, and trend, cell by cell."""
    at = stretch(row, block)
    found = reference.vector(row, DESIGN, SCHEMA)
    if at is None or found is None:
        return None
    start, stop, event, stratum = at
    x = np.array(found[0]) / 2**20 - np.array(block.centre)
    r = math.exp(float(x @ np.array(block.weights)))
    u, offsets = np.array(block.turn) @ x, np.array(block.offsets)
    edges, first = (0.0, *EDGES), 4 * stratum
    rates = np.array(block.hazards) * block.unit / 2**20
    length = math.sqrt(1 + bool(block.tilt) + float(u @ u)) + 2 * float(np.linalg.norm(offsets, axis=1).max())
    most = max(1.0, block.bound / length)
    v = min(1.0, block.bound / length, block.curve / (most * length**2))
    expected, left, leaves = np.zeros(len(rates)), most / r, None
    for cell in range(4):
        low, high = edges[cell], edges[cell + 1]
        part = max(min(stop, high) - max(start, low), 0.0) / (high - low)
        amount = part * rates[first + cell]
        if amount > left:
            expected[first + cell], event, leaves = left, False, cell
            break
        expected[first + cell], left = amount, left - amount
        if low < stop <= high or (stop <= 0 and cell == 0):
            leaves = cell
    residual = -v * r * expected
    if event and leaves is not None:
        residual[first + leaves] += v
    tilt = np.array(block.tilt or [0.0] * len(rates))
    columns = np.column_stack([np.ones(len(rates)), *([tilt] if block.tilt else []), u - offsets])
    total = float(expected.sum())
    mean = expected @ columns / total if total > 0 else np.zeros(columns.shape[1])
    curvature = v * r * total * np.outer(mean, mean)
    if block.tilt:
        curvature[1, 1] = v * r * float(expected @ tilt**2)
    away = u - offsets - np.outer(tilt, block.drift or [0.0, 0.0])
    trend = -(residual * np.array(block.trend or [0.0] * len(rates))) @ away
    return -residual @ columns, curvature, residual, trend


@WAYS
@given(
    rows=st.lists(rows_of, min_size=1, max_size=8),
    seed=st.integers(0, 999),
    size=st.sampled_from([0.1, 3.0]),
    bound=st.sampled_from([0.2, 0.9, 30.0]),
    tilt=st.booleans(),
)
@examples(12)
def test_sums_are_those_of_martingale_residuals_cell_by_cell(
    entry: str | None,
    strata: str | None,
    rows: list[dict[str, Any]],
    seed: int,
    size: float,
    bound: float,
    tilt: bool,
) -> None:
    block = scores(entry, strata, seed=seed, size=size, bound=bound, tilt=tilt)
    arrays = block.arrays(SCHEMA)
    (found,) = Table("s", pl.DataFrame(rows, schema=KINDS), SCHEMA).sums([block])
    found = [np.asarray(each, float) / 2.0**array.bits for each, array in zip(found, arrays, strict=True)]
    alone = [each for row in rows if (each := one_row(row, block)) is not None]
    assert found[0] == [len(alone)]
    width, cells = 3 + tilt, len(block.hazards)
    score, curvature = np.zeros(width), np.zeros((width, width))
    baseline, trend = np.zeros(cells), np.zeros(2)
    for s, z, a, g in alone:
        assert np.linalg.norm(s) <= block.bound * (1 + 1e-9)
        assert np.trace(z) <= block.curve * (1 + 1e-9)
        score += s / block.bound
        curvature += z / block.curve
        baseline += a / max(block.reach, float(np.linalg.norm(a)))
        trend += g / max(block.bound, float(np.linalg.norm(g)))
    near = 1e-5 * max(len(alone), 1)
    assert np.allclose(found[1], score, atol=near)
    assert np.allclose(found[2], np.diag(curvature), atol=near)
    assert np.allclose(found[3], curvature[np.triu_indices(width, 1)], atol=near)
    assert np.allclose(found[6], baseline, atol=near)
    assert np.allclose(found[7], trend, atol=near)


@WAYS
def test_scores_have_mean_0_where_the_hazard_is_true(entry: str | None, strata: str | None) -> None:
    """Whatever is clipped: over rows that leave at the times which the hazard itself makes."""
    block = scores(entry, strata, seed=5, size=2.0, bound=0.3)
    generator, many = np.random.default_rng(2), 40_000
    x, z = generator.uniform(-1, 1, many), generator.uniform(0, 4, many)
    arm = generator.integers(0, 2, many) if strata else np.zeros(many, int)
    late = generator.uniform(0, 4, many) if entry else np.zeros(many)
    vectors = np.column_stack([x, (z - 2) / 2]) / math.sqrt(2)
    r = np.exp((vectors - np.array(block.centre)) @ np.array(block.weights))
    edges = np.array([0.0, *EDGES])
    rates = np.array(block.hazards).reshape(-1, 4) * block.unit / 2**20
    until = np.concatenate([np.zeros((len(rates), 1)), np.cumsum(rates, axis=1)], axis=1)
    years = np.empty(many)
    for stratum in range(len(rates)):
        of = arm == stratum
        amount = np.interp(late[of], edges, until[stratum]) + generator.exponential(size=of.sum()) / r[of]
        years[of] = np.interp(amount, until[stratum], edges, right=10.0)
    table = pl.DataFrame(
        {"x": x, "z": z, "years": years, "died": ["yes"] * many, "from": late}
        | {"arm": np.array(["a", "b"])[arm]}
    )
    (found,) = Table("s", table, SCHEMA).sums([block])
    score, spread = np.asarray(found[1], float) / 2**30, np.asarray(found[4], float) / 2**40
    assert (np.abs(score) < 4 * np.sqrt(spread)).all()
    assert np.sqrt(spread).max() < 0.02 * many  # so that a bias of 10% would be found


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times.of(HELD, "y", "b", bins=6)
    at = FollowUp(times, ("g",))
    design = Design(("x", "z"))
    block = Martingale(
        design, at, (1.0, -0.5), (0.1, 0.0), ((2.0, 0.1), (0.1, 3.0)),
        tuple(range(1, 18 * 50_000, 50_000)), 0.4, ((0.05, -0.1),) * 18, 0.8, 1.5, 1.25,
        tuple(np.linspace(-0.7, 0.7, 18).tolist()), (0.5,) * 18, (0.2, -0.3),
    )  # fmt: skip
    assert_that_order_and_parts_do_not_matter([block, Exposure(design, at)], monkeypatch)


def test_a_huge_log_hazard_stays_a_number() -> None:
    block = scores(size=1e6)
    table = pl.DataFrame({"x": [1.0, -1.0], "z": [4.0, 0.0], "years": [5.0, 0.0], "died": ["yes", "no"]})
    for each in Table("s", table, SCHEMA).sums([block])[0]:
        assert np.isfinite(np.asarray(each, float)).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"weights": (1.0,)}, "2 weights, and hazards of 4 cells"),
        ({"hazards": (1, 2, 3)}, "hazards of 4 cells"),
        ({"hazards": (0, 2, 3, 4)}, "hazards"),
        ({"hazards": (1, 2, 3, 2**20 + 1)}, "hazards"),
        ({"trend": (0.0,)}, "a trend of 4 cells"),
        ({"trend": (0.0, 0.0, 1.5, 0.0)}, "trend"),
        ({"tilt": (0.0,)}, "a tilt of 4 cells"),
        ({"tilt": (0.0, 0.0, 0.8, 0.0)}, "tilt"),
        ({"tilt": (0.0, 0.0, math.nan, 0.0)}, "tilt"),
        ({"drift": (0.0,)}, "a drift of 2 numbers"),
        ({"drift": (0.0, 0.0), "tilt": ()}, "along a tilt"),
        ({"drift": (0.0, math.inf)}, "turn"),
        ({"reach": 0.5}, "reach"),
        ({"unit": math.inf}, "unit"),
        ({"unit": 1e70}, "unit"),
        ({"unit": 1e-70}, "unit"),
        ({"bound": 5e-324}, "bound"),
        ({"curve": 1e-310}, "curve"),
        ({"centre": (1e60, 0.0)}, "turn"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], said: str) -> None:
    block = Martingale(**(vars(scores()) | changed))
    with pytest.raises(InvalidInput, match=said):
        block.arrays(SCHEMA)


@WAYS
@given(rows=st.lists(rows_of, min_size=1, max_size=8))
@examples(12)
def test_exposures_are_those_of_single_rows(
    entry: str | None, strata: str | None, rows: list[dict[str, Any]]
) -> None:
    block = Exposure(DESIGN, follow_up(entry, strata))
    arrays = {array.name: array for array in block.arrays(SCHEMA)}
    (sums,) = Table("s", pl.DataFrame(rows, schema=KINDS), SCHEMA).sums([block])
    found = {
        name: np.asarray(each, float) / 2.0**array.bits
        for (name, array), each in zip(arrays.items(), sums, strict=True)
    }
    wanted = {name: np.zeros(array.shape) for name, array in arrays.items()}
    edges = np.array([0.0, *EDGES])
    for row in rows:
        at, vector = stretch(row, block), reference.vector(row, DESIGN, SCHEMA)
        if at is None or vector is None:
            continue
        start, stop, event, stratum = at
        wanted["count"] += 1
        spent = [max(min(stop, b) - max(start, a), 0) / (b - a) for a, b in pairwise(edges)]
        wanted["time"][stratum] += sum(spent) / 4
        cell = 4 * stratum + max(int(np.searchsorted(edges, stop, side="left")) - 1, 0)
        if start < stop:
            if row["years"] > 8:
                wanted["staying"][stratum] += 1
            else:
                wanted["exits"][cell] += 1
            if start > 0:
                wanted["exits"][4 * stratum + int(np.searchsorted(edges, start, side="left")) - 1] -= 1
        if event:
            x = np.array(vector[0]) / 2**20
            wanted["events"][cell] += 1
            wanted["total"][stratum] += 1
            wanted["sum"].reshape(-1, 2)[stratum] += x
            wanted["square"] += x**2
            wanted["cross"] += x[0] * x[1]
    for name, each in wanted.items():
        assert np.allclose(found[name], each, atol=2e-5), name
