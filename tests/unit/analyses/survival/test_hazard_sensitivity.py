"""What a parametric regression of hazards asks for moves by no more than its proofs say."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.survival import hazard_sensitivity
from cape.analyses.survival.hazard_sensitivity import exposure_query, martingale_query
from cape.analyses.survival.parametric import SurvivalRegression
from cape.blocks import Design, Exposure, FollowUp, Martingale, Table, Times
from cape.blocks.martingale import STEEP
from cape.core.errors import TooNoisyWarning
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query
from tests.slices import examples

SCHEMA = Schema(
    {"x": [-1, 1], "z": [0, 4], "years": [0, 10], "died": ["no", "yes"], "from": [0, 10], "arm": ["a", "b"]}
)
DESIGN = Design(("x", "z"))
KINDS = {
    **{"x": pl.Float64, "z": pl.Float64, "years": pl.Float64, "died": pl.String},
    **{"from": pl.Float64, "arm": pl.String},
}
RELATION = pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
WAYS = pytest.mark.parametrize(
    ("entry", "strata"), [(None, None), ("from", None), (None, "arm"), ("from", "arm")]
)
Row = dict[str, Any]

ends = st.sampled_from([-1.0, 0.0, 1.0])
rows_of = st.fixed_dictionaries(
    {
        "x": ends | st.floats(-1, 1) | st.none(),
        "z": st.sampled_from([0.0, 4.0]) | st.floats(0, 4),
        "years": st.sampled_from([0.0, 2.0, 2.5, 10.0]) | st.floats(0, 10),
        "died": st.sampled_from(["no", "yes", "yes"]),
        "from": st.sampled_from([0.0, 2.0, 7.5]) | st.floats(0, 10),
        "arm": st.sampled_from(["a", "b"]),
    }
)


def follow_up(entry: str | None, strata: str | None) -> FollowUp:
    return FollowUp(Times.of(SCHEMA, "years", "died", bins=4, entry=entry), (strata,) if strata else ())


def sums(query: Query, rows: list[Row]) -> np.ndarray:
    """All sums of a table, each divided by its scale."""
    found = Table("s", pl.DataFrame(rows, schema=KINDS), SCHEMA).sums(query.blocks)
    flat = [each for block in found for each in block]
    parts = zip(flat, query.arrays(SCHEMA), query.flat_scales, strict=True)
    return np.concatenate(
        [np.asarray(each, float).reshape(-1) / 2.0**array.bits / scale for each, array, scale in parts]
    )


def largest(query: Query, rows: list[Row], neighbours: Neighbours) -> float:
    """The furthest that two of the tables with one of these rows are apart, or one from the empty one."""
    nothing = dict.fromkeys(KINDS)
    vectors = [sums(query, [row]) for row in rows]
    if neighbours == "add-remove":
        empty = sums(query, [nothing])
        return max(float(np.linalg.norm(each - empty)) for each in vectors)
    return max(float(np.linalg.norm(a - b)) for a, b in itertools.product(vectors, repeat=2))


@pytest.mark.one_in(4, seconds=0.4)
@RELATION
@WAYS
@given(rows=st.lists(rows_of, min_size=2, max_size=5))
@examples(8)
def test_no_row_moves_exposures_further(
    entry: str | None, strata: str | None, neighbours: Neighbours, rows: list[Row]
) -> None:
    query = exposure_query(Exposure(DESIGN, follow_up(entry, strata)), SCHEMA, neighbours)
    assert largest(query, rows, neighbours) <= query.sensitivity


def row(x: float, z: float, years: float, died: str, late: float = 0.0, arm: str = "a") -> Row:
    return {"x": x, "z": z, "years": years, "died": died, "from": late, "arm": arm}


@pytest.mark.one_in(2, seconds=0.6)
@WAYS
def test_some_rows_move_exposures_almost_as_far(entry: str | None, strata: str | None) -> None:
    query = exposure_query(Exposure(DESIGN, follow_up(entry, strata)), SCHEMA, "replace-one")
    pairs = [row(x, 2 + 2 * x, years, "yes", late, arm)
             for x in (-1.0, 1.0) for years in (0.0, 2.5, 9.0, 10.0) for late in (0.0, 2.6, 5.1, 7.6)
             for arm in "ab"]  # fmt: skip
    found = largest(query, pairs, "replace-one")
    assert 0.8 * query.sensitivity < found <= query.sensitivity


def scores(
    entry: str | None,
    strata: str | None,
    seed: int,
    size: float,
    bound: float,
    trend: bool,
    tilt: bool = True,
) -> Any:
    generator, cells = np.random.default_rng(seed), 8 if strata else 4
    return Martingale(
        DESIGN,
        follow_up(entry, strata),
        tuple(generator.normal(0, size, 2).tolist()),
        tuple(generator.uniform(-0.7, 0.7, 2).tolist()),
        tuple(map(tuple, generator.normal(0, 3, (2, 2)).tolist())),
        tuple(generator.integers(1, 2**20, cells, endpoint=True).tolist()),
        float(generator.choice([0.01, 1.0, 50.0])),
        tuple(map(tuple, generator.normal(0, 1, (cells, 2)).tolist())),
        bound,
        float(generator.choice([0.1, 1.0, 10.0])) * bound**2,
        1.25,
        tuple(generator.uniform(-STEEP, STEEP, cells).tolist()) if tilt else (),
        tuple(generator.uniform(-1, 1, cells).tolist()) if trend else (),
        tuple(generator.normal(0, 1, 2).tolist()) if trend and tilt else (),
    )


@pytest.mark.one_in(4, seconds=0.4)
@RELATION
@WAYS
@given(
    rows=st.lists(rows_of, min_size=2, max_size=5),
    seed=st.integers(0, 9999),
    size=st.sampled_from([0.1, 3.0, 1e3]),
    bound=st.sampled_from([0.01, 1.0, 100.0]),
    trend=st.booleans(),
    tilt=st.booleans(),
)
@examples(8)
def test_no_row_moves_scores_further(
    entry: str | None,
    strata: str | None,
    neighbours: Neighbours,
    rows: list[Row],
    seed: int,
    size: float,
    bound: float,
    trend: bool,
    tilt: bool,
) -> None:
    query = martingale_query(scores(entry, strata, seed, size, bound, trend, tilt), neighbours)
    assert largest(query, rows, neighbours) <= query.sensitivity


EXTREME = [
    {"weights": (1e60, 0.0), "unit": 1e60},
    {"weights": (1e3, -1e3), "unit": 1e60, "offsets": ((1e30, -1e30), (0.0, 0.0), (1e30, 1e30), (0.0, 0.0))},
    {"weights": (1e3, 0.0), "unit": 1e60, "turn": ((1e30, 1e30), (0.0, 1e30)), "centre": (1e30, -1e30)},
    {"unit": 1e-60, "weights": (-1e3, 0.0)},
    {"bound": 1e-60, "curve": 1e-60},
    {"bound": 1e60, "curve": 1e60, "reach": 1e60, "weights": (1e3, 0.0), "unit": 1e60},
    {"bound": 1e-60, "curve": 1e60, "weights": (1e3, 0.0), "unit": 1e60, "turn": ((1e30, 0.0), (0.0, -1e30))},
    {"tilt": (5e-324, -5e-324, STEEP, 0.0), "drift": (1e30, -1e30), "unit": 1e60, "bound": 1e-60},
    {"drift": (5e-324, 1e30), "weights": (1e3, -1e60), "curve": 1e-60, "turn": ((5e-324, 0.0), (0.0, 1e30))},
]


@pytest.mark.one_in(5, seconds=0.5)
@pytest.mark.parametrize("extreme", EXTREME, ids=str)
@pytest.mark.parametrize("entry", [None, "from"])
def test_no_row_moves_scores_further_at_the_limits_of_what_may_be_asked(
    entry: str | None, extreme: dict[str, Any]
) -> None:
    """Whoever makes up earlier answers makes up the point at which scores are asked for."""
    given: dict[str, Any] = {
        "weights": (0.0, 0.0),
        "centre": (0.0, 0.0),
        "turn": ((1.0, 0.0), (0.0, 1.0)),
        "hazards": (1000, 2**20, 1, 2**19),
        "unit": 1.0,
        "offsets": ((0.0, 0.0),) * 4,
        "bound": 1.0,
        "curve": 1.0,
        "reach": 1.25,
        "tilt": (-STEEP, STEEP, STEEP, -STEEP),
        "trend": (1.0, -1.0, 0.5, -0.5),
    }
    block = Martingale(DESIGN, follow_up(entry, None), **(given | extreme))
    query = martingale_query(block, "replace-one")
    rows = [
        row(x, 2.0 + x, years, died, late)
        for x in (-1.0, 0.0, 1.0)
        for years in (0.0, 5e-324, 1e-9, 2.5, 6.0, 10.0)
        for died in ("no", "yes")
        for late in ((0.0, 2.4, 5.0) if entry else (0.0,))
    ]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert largest(query, rows, "replace-one") <= query.sensitivity


def test_an_event_and_an_expected_one_move_scores_almost_as_far_as_any() -> None:
    """A row that has the event at once, and one of the same features that expected it and has none."""
    block = Martingale(
        DESIGN, follow_up(None, None), (0.0, 0.0), (0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)),
        (2**20,) * 4, 10.0, ((0.0, 0.0),) * 4, 1.0, 1.0, 1.0,
    )  # fmt: skip
    query = martingale_query(block, "replace-one")
    found = largest(query, [row(0, 2, 0.0, "yes"), row(0, 2, 0.25, "no")], "replace-one")
    without_curvature = math.sqrt(4 + 4 * hazard_sensitivity.BASELINE + hazard_sensitivity.CURVE)
    assert 0.97 * without_curvature < found <= query.sensitivity


def lengths(tries: int, seed: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    r, other = (
        np.where(generator.random(tries) < 0.6, generator.choice([0.0, 1.0], tries), generator.random(tries))
        for _ in range(2)
    )
    k = np.where(
        generator.random(tries) < 0.6, generator.choice([-1, 0, 1], tries), generator.uniform(-1, 1, tries)
    )
    return r, other, k


def test_the_weights_are_within_what_the_proofs_allow_and_larger_ones_are_found_out() -> None:
    r, other, k = lengths(300_000, 1)
    whole = hazard_sensitivity.SUM

    def features(square: float) -> float:
        return float(
            (
                whole * (r**2 + other**2 + 2 * r * other * np.abs(k))
                + square * (r**4 + other**4 - 2 * r**2 * other**2 * k**2)
            ).max()
        )

    def scored(spread: float) -> float:
        return float(
            (
                r**2 + other**2 + 2 * r * other * k
                + spread * (r**4 + other**4 - 2 * r**2 * other**2 * k**2)
            ).max()
        )  # fmt: skip

    assert features(hazard_sensitivity.SQUARE) <= 4 * whole + 1e-9
    assert features(2.5 * hazard_sensitivity.SQUARE) > 4 * whole + 0.1
    assert scored(hazard_sensitivity.SPREAD) <= 4 + 1e-9
    assert scored(0.8) > 4.02
    assert whole / 2 >= hazard_sensitivity.SQUARE
    assert hazard_sensitivity.EVENTS + 2.5 * whole >= hazard_sensitivity.TOTAL


@RELATION
def test_the_scales_are_those_of_the_proofs(neighbours: Neighbours) -> None:
    query = martingale_query(scores(None, None, 1, 1.0, 1.0, True), neighbours)
    count, *weights = (scale**-2 for scale in query.flat_scales)
    assert weights == pytest.approx([1, 0.5, 1, 0.3, 0.6, 0.25, 0.25])
    alone = 1 + 0.5 + 0.3 + 0.25 + 0.25 + count
    assert query.sensitivity**2 == pytest.approx(7 if neighbours == "replace-one" else alone, rel=1e-4)
    assert alone <= 7 + 1e-12
    first = exposure_query(Exposure(DESIGN, follow_up(None, None)), SCHEMA, neighbours)
    count, *weights = (scale**-2 for scale in first.flat_scales)
    assert weights == pytest.approx([0.12, 0.12, 0.12, 1, 1, 1, 0.5, 1])
    alone = 0.12 + 0.12 + 1 + 1 + 1 + 0.5 + count
    both = 0.24 + 1 + 0.24 + 4
    assert first.sensitivity**2 == pytest.approx(both if neighbours == "replace-one" else alone, rel=1e-4)


@pytest.mark.one_in(8, seconds=0.8)
@RELATION
@pytest.mark.parametrize("distribution", ["weibull", "exponential"])
@pytest.mark.parametrize("entry", [None, "from"])
def test_no_row_moves_what_a_survival_regression_asks_for_further(
    entry: str | None, distribution: str, neighbours: Neighbours
) -> None:
    """In every stage of a run, over rows at all ends, whatever shape earlier answers made up."""
    analysis = SurvivalRegression("years", "died", ["x", "z"], distribution, entry=entry, rounds=3)
    generator = np.random.default_rng(3)
    rows = [
        row(x, 2 + 2 * z, years, died, late)
        for x, z in ((-1, -1), (-1, 1), (1, 1), (0, 0))
        for years in (0.0, 1e-9, 0.4, 10.0)
        for died in ("no", "yes")
        for late in ((0.0, 0.3) if entry else (0.0,))
    ]
    talk = analysis.conduct(SCHEMA, neighbours)
    query = next(talk)
    for _ in analysis.stages():
        assert largest(query, rows, neighbours) <= query.sensitivity
        told = [
            10.0 ** generator.uniform(0, 4) * generator.normal(size=a.shape) for a in query.arrays(SCHEMA)
        ]
        noise = tuple(1.0 for _ in told)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TooNoisyWarning)
                query = talk.send(Answer((tuple(told),), (noise,), 1000, SCHEMA))
        except StopIteration:
            return
    raise AssertionError("an analysis asks as often as it has stages")
