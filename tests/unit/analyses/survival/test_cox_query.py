"""What a Cox regression asks for moves by no more than its proofs say, and rows that come near are known."""

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

from cape.analyses.survival import cox_query, cox_steps
from cape.analyses.survival.cox import Cox
from cape.analyses.survival.cox_query import Parts, hazard_query, leaving_query
from cape.blocks import Design, FollowUp, HazardScores, Leaving, Table, Times
from cape.core.errors import InvalidInput, TooNoisyWarning
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
PARTS = Parts(0.1, 1.0, 0.5, 0.5, 0.2, 0.2, 0.2, 0.25)
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
    """What rows add to all arrays, each divided by its scale."""
    found = []
    table = Table("s", pl.DataFrame(rows, schema=KINDS), SCHEMA).sums(query.blocks)
    for block, arrays, scales in zip(query.blocks, table, query.scales, strict=True):
        for array, each, scale in zip(block.arrays(SCHEMA), arrays, scales, strict=True):
            found.append(np.asarray(each, float) / 2.0**array.bits / scale)
    return np.concatenate(found)


def largest(query: Query, rows: list[Row], neighbours: Neighbours) -> float:
    """How far the sums move at most, as one of these rows is another, or is left out."""
    nothing = dict(rows[0], x=None, z=None, years=None, died=None, arm=None, **{"from": None})
    vectors = [sums(query, [row]) for row in rows]
    if neighbours == "add-remove":
        empty = sums(query, [nothing])
        return max(float(np.linalg.norm(each - empty)) for each in vectors)
    return max(float(np.linalg.norm(a - b)) for a, b in itertools.product(vectors, repeat=2))


def row(x: float, z: float, years: float, died: str, late: float = 0.0, arm: str = "a") -> Row:
    return {"x": x, "z": z, "years": years, "died": died, "from": late, "arm": arm}


@pytest.mark.one_in(4, seconds=0.4)
@RELATION
@WAYS
@given(rows=st.lists(rows_of, min_size=2, max_size=5))
@examples(8)
def test_no_row_moves_who_leaves_further(
    entry: str | None, strata: str | None, neighbours: Neighbours, rows: list[Row]
) -> None:
    query = leaving_query(("x", "z"), Leaving(DESIGN, follow_up(entry, strata)), SCHEMA, neighbours)
    assert largest(query, rows, neighbours) <= query.sensitivity


@WAYS
def test_some_rows_move_who_leaves_as_far_as_any(entry: str | None, strata: str | None) -> None:
    query = leaving_query(("x", "z"), Leaving(DESIGN, follow_up(entry, strata)), SCHEMA, "replace-one")
    pairs = [row(-1, 0, 4, "yes", 1.0, "a"), row(1, 4, 9, "yes", 6.0, "b"), row(1, 4, 9, "no", 6.0)]
    found = largest(query, pairs, "replace-one")
    # totals of two rows with an event differ between strata only
    least = math.sqrt(query.sensitivity**2 - (0 if strata else cox_query.TOTALS))
    assert least * (1 - 1e-9) <= found <= query.sensitivity


def scores(
    entry: str | None, strata: str | None, seed: int, size: float, bound: float, whole: bool
) -> HazardScores:
    generator, cells = np.random.default_rng(seed), 8 if strata else 4
    return HazardScores(
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
        float(generator.choice([0.01, 1.0])),
        tuple(range(cells)) if whole else (),
        tuple(generator.uniform(-1, 1, cells).tolist()) if whole else (),
        (0.1, 1.0, 3.0) if whole else (),
    )


@pytest.mark.one_in(4, seconds=0.4)
@RELATION
@WAYS
@given(
    rows=st.lists(rows_of, min_size=2, max_size=5),
    seed=st.integers(0, 9999),
    size=st.sampled_from([0.1, 3.0, 1e3]),
    bound=st.sampled_from([0.01, 1.0, 100.0]),
    whole=st.booleans(),
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
    whole: bool,
) -> None:
    query = hazard_query(scores(entry, strata, seed, size, bound, whole), PARTS, neighbours)
    assert largest(query, rows, neighbours) <= query.sensitivity


PLAIN: dict[str, Any] = {
    "weights": (0.0, 0.0),
    "centre": (0.0, 0.0),
    "turn": ((1.0, 0.0), (0.0, 1.0)),
    "hazards": (2**20,) * 4,
    "unit": 1.0,
    "offsets": ((0.0, 0.0),) * 4,
    "bound": 0.1,
    "curve": 0.01,
    "reach": 1.0,
    "far": 0.1,
    "groups": (0, 0, 0, 0),
    "trend": (1.0,) * 4,
    "lengths": (0.5,),
}


def test_opposite_rows_move_scores_almost_as_far_as_any() -> None:
    """Two rows with an event at opposite ends move all but levels and cells by as much as is said."""
    block = HazardScores(DESIGN, follow_up(None, None), **PLAIN | {"lengths": (0.99,), "unit": 1e-9})
    query = hazard_query(block, PARTS, "replace-one")
    found = largest(query, [row(1, 4, 1.0, "yes"), row(-1, 0, 1.0, "yes")], "replace-one")
    # curvatures are not orthogonal, both scores are in one bin, and levels and cells go the same way
    without = 4 + 4 * (PARTS.means + PARTS.trend)
    assert found <= query.sensitivity
    assert found == pytest.approx(math.sqrt(without), rel=1e-3)
    late = largest(query, [row(1, 4, 1.0, "yes"), row(-1, 0, 9.0, "yes")], "replace-one")
    assert late == pytest.approx(math.sqrt(without + 2 * PARTS.cells), rel=1e-3)


def test_an_event_and_an_expected_one_move_scores_almost_as_far_as_any() -> None:
    """A row that has the event at once, and one of the same features that expected it and has none."""
    block = HazardScores(DESIGN, follow_up(None, None), **PLAIN | {"groups": (), "unit": 1.0})
    query = hazard_query(block, PARTS, "replace-one")
    found = largest(query, [row(1, 4, 0.0, "yes"), row(1, 4, 2.5, "no")], "replace-one")
    least = 4 + PARTS.curvature + 4 * (PARTS.level + PARTS.cells + PARTS.trend)
    assert math.sqrt(0.99 * least) < found <= query.sensitivity


EXTREME = [
    {"weights": (1e60, 0.0), "unit": 1e60},
    {"weights": (1e3, -1e3), "unit": 1e60, "offsets": ((1e30, -1e30), (0.0, 0.0), (1e30, 1e30), (0.0, 0.0))},
    {"weights": (1e3, 0.0), "unit": 1e60, "turn": ((1e30, 1e30), (0.0, 1e30)), "centre": (1e30, -1e30)},
    {"unit": 1e-60, "weights": (-1e3, 0.0)},
    {"bound": 1e-60, "curve": 1e-60, "far": 1e-60},
    {"bound": 1e60, "curve": 1e60, "reach": 1e60, "weights": (1e3, 0.0), "unit": 1e60, "far": 1e60},
    {"bound": 1e-60, "curve": 1e60, "weights": (1e3, 0.0), "unit": 1e60, "turn": ((1e30, 0.0), (0.0, -1e30))},
    {"weights": (1e3, -1e60), "curve": 1e-60, "turn": ((5e-324, 0.0), (0.0, 1e30)), "lengths": (1e-60, 1e60)},
]


@pytest.mark.one_in(5, seconds=0.5)
@pytest.mark.parametrize("extreme", EXTREME, ids=str)
@pytest.mark.parametrize("entry", [None, "from"])
def test_no_row_moves_scores_further_at_the_limits_of_what_may_be_asked(
    entry: str | None, extreme: dict[str, Any]
) -> None:
    """Whoever makes up earlier answers makes up the point at which scores are asked for."""
    given: dict[str, Any] = PLAIN | {"hazards": (1000, 2**20, 1, 2**19), "trend": (1.0, -1.0, 0.5, -0.5)}
    query = hazard_query(
        HazardScores(DESIGN, follow_up(entry, None), **(given | extreme)), PARTS, "replace-one"
    )
    rows = [
        row(x, 2.0 + x, years, died, late)
        for x in (-1.0, 0.0, 1.0)
        for years in (0.0, 5e-324, 1e-9, 2.5, 6.0, 10.0)
        for died in ("no", "yes")
        for late in ((0.0, 2.4, 5.0) if entry else (0.0,))
    ]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert largest(query, rows, "replace-one") <= query.sensitivity


@pytest.mark.one_in(6, seconds=1.0)
@RELATION
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("entry", "strata"), [(None, ()), ("from", ("arm",))])
def test_no_row_moves_a_step_further_whatever_earlier_answers_made_up(
    entry: str | None, strata: tuple[str, ...], seed: int, neighbours: Neighbours
) -> None:
    """In every stage of a run, over rows at all ends; a point beyond the limits is refused."""
    analysis = Cox(
        "years", "died", ["x", "z"], bins=4, entry=entry, strata=strata, rounds=3, proportional=True
    )
    generator = np.random.default_rng(seed)
    rows = [
        row(x, 2 + 2 * z, years, died, late)
        for x, z in ((-1, -1), (-1, 1), (1, 1), (0, 0))
        for years in (0.0, 1e-9, 0.4, 10.0)
        for died in ("no", "yes")
        for late in ((0.0, 0.3) if entry else (0.0,))
    ]
    talk = analysis.conduct(SCHEMA, neighbours)
    query = next(talk)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        for _ in analysis.stages():
            assert largest(query, rows, neighbours) <= query.sensitivity
            answer = tuple(
                tuple(
                    10.0 ** generator.uniform(0, 4) * generator.normal(size=a.shape) for a in b.arrays(SCHEMA)
                )
                for b in query.blocks
            )
            noise = tuple(tuple(1.0 for _ in each) for each in answer)
            try:
                query = talk.send(Answer(answer, noise, 1000, SCHEMA))
                query.arrays(SCHEMA)
            except (StopIteration, InvalidInput):
                return
    raise AssertionError("an analysis asks as often as it has stages")


def test_the_weights_are_within_what_the_proofs_allow_and_larger_ones_are_found_out() -> None:
    generator = np.random.default_rng(1)
    r, other = generator.choice([0.0, 0.5, 1.0], (2, 100_000))
    k = generator.uniform(-1, 1, 100_000)

    def scored(spread: float) -> float:
        apart = r**2 + other**2 + 2 * r * other * k
        return float((apart + spread * (r**4 + other**4 - 2 * r**2 * other**2 * k**2)).max())

    for steps in (1, 2, 3, 6):
        for part in cox_steps.parts_of(steps):
            assert scored(part.spread) <= 4 + 1e-9
            assert part.spread <= 0.5
    assert scored(0.8) > 4.02


@RELATION
def test_the_scales_are_those_of_the_proofs(neighbours: Neighbours) -> None:
    query = hazard_query(scores(None, None, 1, 1.0, 1.0, True), PARTS, neighbours)
    count, *weights = (scale**-2 for scale in query.flat_scales)
    assert weights == pytest.approx([1, 1, 2, 0.5, 1, 0.2, 0.2, 0.2, 0.25, 0.5])
    alone = 1 + 1 + 0.5 + 0.5 + 0.85 + count
    both = 4 + 2 + 1 + 4 * 0.85
    assert query.sensitivity**2 == pytest.approx(both if neighbours == "replace-one" else alone, rel=1e-4)
    assert alone <= both + 1e-12
