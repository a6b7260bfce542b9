"""Scores of laws of time: slopes and curvature of the likelihood, never longer than their bounds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, LawScores, Table, Times
from cape.blocks.law_scores import LEAST, Followed
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from tests.slices import examples
from tests.unit.blocks import reference
from tests.unit.blocks.vectors import (
    SCHEMA,
    any_rows,
    assert_that_order_and_parts_do_not_matter,
    frame,
    large,
)

LIMIT = 2**40
DESIGN = Design(("z", "g"))
TIMES = {"at once": Times("y", "b", (0.0, 3.0)), "late": Times("y", "b", (0.0, 3.0), "x")}
KINDS = list(itertools.product(TIMES, (True, False)))


def scores(
    late: str = "at once", shaped: bool = True, seed: int = 1, size: float = 1.0, **changed: Any
) -> LawScores:
    generator, many = np.random.default_rng(seed), 4 + shaped
    weights = generator.normal(0, size, many)
    if shaped:
        weights[-1] = generator.uniform(0.3, 3.0)
    turn = np.eye(many) + generator.normal(0, 1, (many, many))
    bound = changed.pop("bound", 0.4)
    given = (DESIGN, TIMES[late], tuple(weights.tolist()), tuple(map(tuple, turn.tolist())))
    return LawScores(*given, bound, 2 * bound**2, shaped, **{"lengths": (0.1, 0.5, 2.0), **changed})


def likelihood(block: LawScores, w: np.ndarray, x: np.ndarray, row: tuple[float, float, int]) -> float:
    """Of one row that is at risk from u0 until u, parts of the span, and has the event or not."""
    begun, until, event = row
    k = w[-1] if block.shaped else 1.0
    log = w[0] + w[1:4] @ x
    passed = math.exp(log) * (until**k - begun**k)
    return event * (math.log(k) + log + (k - 1) * math.log(until)) - passed


@pytest.mark.parametrize(("late", "shaped"), KINDS)
def test_scores_are_slopes_of_the_likelihood_and_roots_its_curvature(late: str, shaped: bool) -> None:
    """With late entry the curvature is that on average, which events less what is expected would add to."""
    block, step = scores(late, shaped, 3, 0.5), 1e-4
    w, turn = np.array(block.weights), np.array(block.turn)
    moves = step * np.eye(len(w))
    for x in np.random.default_rng(4).uniform(-0.5, 0.5, (5, 3)):
        for until, event in itertools.product((1e-6, 0.2, 0.9), (0, 1)):
            begun = until * 0.7 if late == "late" else 0.0
            entered = math.log(begun) if begun else -math.inf
            at_risk = Followed(np.array([math.log(until)]), np.array([entered]), np.array([float(event)]))
            score, roots = block.at(x[:, None], at_risk, 1.0)

            def at(move: np.ndarray, x: np.ndarray = x, row: Any = (begun, until, event)) -> float:
                return likelihood(block, w + move, x, row)

            slopes = np.array([(at(e) - at(-e)) / (2 * step) for e in moves])
            assert score[0] == pytest.approx(turn @ slopes, abs=1e-4)
            bent = [[at(a + b) - at(a - b) - at(b - a) + at(-a - b) for a in moves] for b in moves]
            wanted = -np.array(bent) / (4 * step**2)
            if late == "late" and shaped:
                k = w[-1]
                passed = math.exp(w[0] + w[1:4] @ x) * (until**k - begun**k)
                wanted[-1, -1] += (passed - event) / k**2
            assert roots[0].T @ roots[0] == pytest.approx(turn @ wanted @ turn.T, abs=2e-3, rel=2e-3)


@pytest.mark.parametrize(("late", "shaped"), KINDS)
def test_a_site_adds_up_scores_curvature_spread_and_lengths(late: str, shaped: bool) -> None:
    block, table = scores(late, shaped, 5, 0.3, bound=200.0), large(400)
    kept = table.drop_nulls(["z", "g", "y", "b", *(["x"] if late == "late" else [])])
    x, _ = Table("a", kept, SCHEMA).vectors(DESIGN)
    span = np.clip(kept["y"].to_numpy(), 0, 3)
    entry = np.clip(kept["x"].to_numpy(), 0.1, 0.7) if late == "late" else None
    rows = block.followed(SCHEMA, span, entry, (kept["b"] == "yes").to_numpy().astype(float))
    score_rows, roots = block.at(np.ascontiguousarray(x.T), rows)
    count, score, square, cross, spread, _, lengths = Table("a", table, SCHEMA).sums([block])[0]
    above = np.triu_indices(block.size, 1)
    curvature = np.einsum("rli,rlj->ij", roots, roots)
    assert count == len(kept)
    assert 200 * score / 2**20 == pytest.approx(score_rows.sum(axis=0), abs=2e-2)
    assert 80_000 * square / LIMIT == pytest.approx(np.diag(curvature), rel=1e-2, abs=0.1)
    assert 80_000 * cross / LIMIT == pytest.approx(curvature[above], rel=1e-2, abs=0.5)
    assert 40_000 * spread / LIMIT == pytest.approx((score_rows**2).sum(axis=0), rel=1e-2, abs=0.1)
    edges = [-1, *block.lengths, math.inf]
    assert lengths.tolist() == np.histogram(np.linalg.norm(score_rows, axis=1), edges)[0].tolist()


def test_rows_that_are_never_at_risk_count_and_say_nothing() -> None:
    block = scores("late", bound=5.0)
    row = {"x": 0.6, "z": 1.0, "g": "green", "i": 1, "y": 0.5, "b": "yes"}
    sums = Table("a", frame([row]), SCHEMA).sums([block])[0]
    assert sums[0] == 1
    assert not any(each.any() for each in sums[1:6])


def norms(block: LawScores, row: dict[str, Any]) -> tuple[int, int, np.ndarray]:
    """The squared length of a row's score, that of its curvature, and its lengths, from what a site sums."""
    _, score, square, cross, *_, lengths = Table("a", frame([row]), SCHEMA).sums([block])[0]
    whole = [*map(int, square), *map(int, cross)]
    squared = sum(k * k for k in whole) + sum(k * k for k in map(int, cross))
    return sum(int(k) ** 2 for k in score), squared, lengths


@pytest.mark.parametrize(("late", "shaped"), KINDS)
@given(
    rows=any_rows,
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0.0, 1.0, 30.0, 1e4, 1e99]),
    bound=st.sampled_from([1e-6, 0.4, 50.0]),
)
@examples(40)
def test_no_row_adds_more_than_its_bounds(
    late: str, shaped: bool, rows: list[dict[str, Any]], seed: int, size: float, bound: float
) -> None:
    block = scores(late, shaped, seed, size, bound=bound)
    for row in rows:
        score, curvature, lengths = norms(block, row)
        assert score <= LIMIT
        assert curvature <= LIMIT**2 * (1 + 2**-43)
        assert lengths.sum() <= 1


@pytest.mark.parametrize(("late", "shaped"), KINDS)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([0.0, 0.5, 5.0]), rows=any_rows)
@examples(40)
def test_no_score_is_longer_than_is_possible_and_some_are_nearly_as_long(
    late: str, shaped: bool, seed: int, size: float, rows: list[dict[str, Any]]
) -> None:
    block = scores(late, shaped, seed, size)
    longest = block.longest(SCHEMA)
    near = longest / (60 if late == "late" and shaped else 10)  # late rows are bounded part by part
    at = replace(block, lengths=(near, longest))
    corners = [
        {"x": x, "z": z, "g": g, "i": 0, "y": y, "b": b}
        for x, z, g, y, b in itertools.product(
            (0.1, 0.7), (-250.0, 1000.0), SCHEMA["g"].values, (0.0, 1e-9, 0.5, 3.0), ("no", "yes")
        )
    ]
    lengths = Table("site", frame([*rows, *corners]), SCHEMA).sums([at])[0][6]
    assert lengths[-1] == 0
    if size < 5:
        assert lengths[1] > 0


def test_what_is_too_long_becomes_as_long_as_its_bound() -> None:
    block = scores(seed=2, bound=1e-6)
    score, curvature, _ = norms(block, {"x": 0.6, "z": 1.0, "g": "green", "i": 1, "y": 1.0, "b": "yes"})
    assert math.sqrt(score / LIMIT) == pytest.approx(1, abs=1e-4)
    assert math.sqrt(curvature) / LIMIT == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("late", "shaped"), KINDS)
def test_order_and_batches_do_not_matter(late: str, shaped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_that_order_and_parts_do_not_matter([scores(late, shaped, 3)], monkeypatch)


def test_many_rows_are_added_up_in_parts_whose_arrays_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = large(500)
    wanted = Table("a", rows, SCHEMA).sums([scores()])
    monkeypatch.setattr("cape.blocks.law_scores._ENTRIES", 100)
    assert reference.same(Table("a", rows, SCHEMA).sums([scores()]), wanted)


@pytest.mark.parametrize("late", list(TIMES))
def test_typical_sums_are_those_of_rows_as_are_expected(late: str) -> None:
    schema = Schema(
        z=Number(-1, 1, missing=False),
        g=Category((0, 1, 2), missing=False),
        y=Number(0, 3, missing=False),
        b=Category(("no", "yes"), missing=False, expected=[0.3, 0.7]),
        x=Number(0, 1, missing=False),
    )
    block = scores(late, bound=20.0)
    planned = block.typical(schema, 1000)
    rng = np.random.default_rng(1)
    z, y, x = (rng.beta(4, 4, 20_000) for _ in range(3))
    table = pl.DataFrame(
        {"z": 2 * z - 1, "g": rng.integers(0, 3, 20_000), "y": 3 * y, "x": x}
        | {"b": np.where(rng.random(20_000) < 0.7, "yes", "no")}
    )
    (found,) = Table("a", table, schema).sums([block])
    for place in (1, 2, 4):
        unit = 2.0 ** block.arrays(schema)[place].bits
        wanted = np.asarray(found[place], float) / unit / 20
        assert planned[place] == pytest.approx(wanted, rel=0.3, abs=0.3 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"design": Design(("x",), "b")}, "neither a target"),
        ({"design": Design(("x",), intercept=1.0)}, "neither a target"),
        ({"weights": (1.0,)}, "5 weights"),
        ({"turn": ((1.0,),)}, "5 by 5"),
        ({"weights": (math.nan,) * 5}, "weights"),
        ({"weights": (1e101,) * 5}, "weights"),
        ({"weights": (0.0, 0.0, 0.0, 0.0, 1e-3)}, "shape"),
        ({"weights": (0.0, 0.0, 0.0, 0.0, 1e3)}, "shape"),
        ({"turn": ((math.inf,) * 5,) * 5}, "turn"),
        ({"bound": 0.0}, "bound"),
        ({"curve": math.inf}, "curve"),
        ({"least": LEAST / 2}, "least"),
        ({"most": 1.5}, "least|most"),
        ({"lengths": (2.0, 1.0)}, "rise"),
        ({"times": Times("g", "b", (0.0, 3.0))}, "g"),
        ({"times": Times("y", "x", (0.0, 3.0))}, "x"),
    ],
)
def test_blocks_that_cannot_be_right(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        replace(scores(), **changed).arrays(SCHEMA)
