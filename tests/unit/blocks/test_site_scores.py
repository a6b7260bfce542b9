"""Scores by site are those of single rows, and no number that a block comes with makes a row add more."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
import pytest

from cape.blocks import Design, SiteScores, Table
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from tests.unit.blocks.test_scores import clipped as truncated

SCHEMA = Schema(y=(-2, 2), a=Number(0, 10), b=Category(("no", "yes")), clinic=Category(("p", "q", "r")))
DESIGN = Design(("a", "b"), "y")


def rows(many: int = 60) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "y": rng.normal(size=many),
            "a": rng.uniform(0, 10, many),
            "b": rng.choice(["no", "yes"], many),
            "clinic": rng.choice(["p", "q"], many),
        }
    )
    gone = pl.Series(rng.random(many) < 0.1)
    return frame.with_columns(
        pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in ("y", "clinic")
    )


def scores(own: int = 1, seed: int = 2) -> SiteScores:
    rng = np.random.default_rng(seed)
    turns = (np.eye(3) + 0.5 * rng.normal(size=(3, 3, 3))).tolist()
    return SiteScores(
        DESIGN,
        "clinic",
        tuple(map(tuple, (0.3 * rng.normal(size=(3, 3))).tolist())),
        tuple(tuple(map(tuple, turn)) for turn in turns),
        own,
        0.3,
        1.5,
        (0.1, 0.2, 0.4, 0.8),
        0.2,
        (-0.5, 0.6),
    )


def clipped(row: list[float], bound: float) -> list[int]:
    """A row in steps, rounded to the nearest, and shortened where it is too long then."""
    steps = [round(entry / max(bound, *map(abs, row)) * 2**20) for entry in row]
    return steps if sum(k * k for k in steps) <= 2**40 else truncated([float(k) for k in steps], 2.0**20)


def one_row(v: list[float], y: float, block: SiteScores, group: int) -> dict[str, list[int]]:
    """What a row adds, written again, in Python's floats and integers."""
    low, high = block.cap or (-1.0, 1.0)
    residual = min(max(y, low), high) - sum(w * k for w, k in zip(block.weights[group], v, strict=True))
    u = [sum(t * k for t, k in zip(row, v, strict=True)) for row in block.turns[group]]
    length = abs(residual) * math.sqrt(sum(k * k for k in u))
    return {
        "score": clipped([residual * k for k in u], block.bound),
        "root": clipped(u, math.sqrt(block.curve)),
        "bin": [sum(edge <= length for edge in block.lengths)],
        "squares": [round(min(residual**2 / block.square, 1.0) * 2**20)],
    }


@pytest.mark.parametrize("own", [1, 2, 3])
def test_sums_are_those_of_single_rows_in_python(own):
    frame, block = rows(), scores(own)
    complete = frame.drop_nulls()
    x, y = Table("t", complete, SCHEMA).vectors(DESIGN)
    sums = {array.name: np.zeros(array.shape) for array in block.arrays(SCHEMA)}
    for row, target, clinic in zip(x, y, complete["clinic"], strict=True):
        group = "pqr".index(clinic)
        found = one_row([1.0, *(row / 2**20)], target / 2**20, block, group)
        sums["count"][group] += 1
        sums["own score"][group] += found["score"][:own]
        sums["lengths"][found["bin"][0]] += 1
        sums["squares"] += found["squares"]
        if own < 3:
            sums["score"] += found["score"][own:]
        for what, of in (("curvature", found["root"]), ("spread", found["score"])):
            products = {(i, j): of[i] * of[j] for i, j in combinations(range(3), 2)}
            sums[f"own {what} square"][group] += [k * k for k in of[:own]]
            sums[f"own {what} cross"][group] += [k for (i, _), k in products.items() if i < own]
            if own < 3:
                sums[f"{what} square"] += [k * k for k in of[own:]]
            if own < 2:
                sums[f"{what} cross"] += [k for (i, _), k in products.items() if i >= own]
    (result,) = Table("t", frame, SCHEMA).sums([block])
    for name, array in zip(sums, result, strict=True):
        unit = 2**20 if any(word in name for word in ("square", "cross")) and name != "squares" else 1
        # where two ways to add floats round to different steps
        near = 0 if name in ("count", "lengths") else 4 * len(complete) * unit
        assert array.shape == sums[name].shape
        assert np.abs(array - sums[name]).max() <= near
        assert name in ("count", "lengths") or "cross" in name or np.abs(array).max() > 25 * near


def test_scores_are_those_of_a_regression_with_coefficients_of_each_group():
    """Entry by entry, those of one long vector with own entries at the place of the row's group."""
    frame, block, own = rows(300), scores(2), 2
    (found,) = Table("t", frame, SCHEMA).sums([block])
    held = dict(zip((array.name for array in block.arrays(SCHEMA)), found, strict=True))
    x, y = Table("t", frame.drop_nulls(), SCHEMA).vectors(DESIGN)
    long = np.zeros((len(x), 3 * own + 1))
    for place, clinic in enumerate(frame.drop_nulls()["clinic"]):
        group = "pqr".index(clinic)
        v = np.append(1.0, x[place] / 2**20)[:, None]
        score, _, length, _ = block.scored(group, v, np.array([y[place] / 2**20]))
        score = score[:, 0] * min(1.0, block.bound / length[0]) / block.bound
        long[place, group * own : (group + 1) * own], long[place, -1] = score[:own], score[own:][0]
    assert held["own score"].ravel() * 2.0**-20 == pytest.approx(long.sum(axis=0)[:-1], abs=1e-3)
    products = long.T @ long
    assert held["spread square"][0] * 2.0**-40 == pytest.approx(products[-1, -1], abs=1e-3)
    for group in range(3):
        first, second = group * own, group * own + 1
        wanted = products[first, second], products[first, -1], products[second, -1]
        assert held["own spread cross"][group] * 2.0**-40 == pytest.approx(wanted, abs=1e-3)


def test_no_row_has_a_longer_score_than_is_said():
    frame, block = rows(3000), replace(scores(), lengths=(), bound=1e6)
    longest = block.longest(SCHEMA)
    x, y = Table("t", frame.drop_nulls(), SCHEMA).vectors(DESIGN)
    v = np.vstack([np.ones(len(x)), x.T / 2**20])
    found = max(float(block.scored(group, v, y / 2**20)[2].max()) for group in range(3))
    assert found <= longest < 2.5 * found


def test_rows_in_another_order_and_other_parts_give_the_same_integers():
    frame, block = rows(9000), scores()
    turned = frame.sample(fraction=1.0, shuffle=True, seed=2)
    one, other = (Table("t", each, SCHEMA).sums([block])[0] for each in (frame, turned))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert one[0][:, 0].tolist() == [
        frame.drop_nulls().filter(pl.col("clinic") == name).height for name in "pqr"
    ]


FORGED = {
    "far": {"weights": ((1e30,) * 3,) * 3},
    "long": {"turns": (((1e30,) * 3,) * 3,) * 3},
    "flat": {"turns": (((0.0,) * 3,) * 3,) * 3},
    "denormal": {"turns": (((5e-324, -5e-324, 1e-310),) * 3,) * 3, "weights": ((5e-324,) * 3,) * 3},
    "narrow": {"bound": 1e-200, "curve": 1e-200, "square": 1e-300},
    "wide": {"bound": 1e100, "curve": 1e100, "square": 1e100},
    "mixed": {"turns": (((1e30, 1e-30, 1.0),) * 3,) * 3, "curve": 1e-30, "bound": 1e30},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_row_adds_vectors_of_length_1_whatever_the_block_came_with(name):
    """The score, the matrices of curvature and spread, one bin, and a number from 0 to 1."""
    block = replace(scores(2), **FORGED[name])
    complete = rows().drop_nulls()
    for place in range(0, 12):
        (sums,) = Table("t", complete[place : place + 1], SCHEMA).sums([block])
        held = dict(zip((array.name for array in block.arrays(SCHEMA)), sums, strict=True))
        score = np.concatenate([held["own score"].ravel(), held["score"]]).astype(object)
        assert sum(score**2) <= 2**40
        assert held["lengths"].sum() == 1
        assert 0 <= int(held["squares"][0]) <= 2**20
        for what in ("curvature", "spread"):
            total = 0
            for part, times in (("square", 1), ("cross", 2)):
                for whose in ("own ", ""):
                    entries = held.get(f"{whose}{what} {part}", np.zeros(0)).ravel()
                    total += times * sum(int(k) ** 2 for k in entries)
            assert total <= 2**80


@pytest.mark.parametrize(
    "forged",
    [
        {"weights": ((math.nan, 0.0, 0.0),) * 3},
        {"weights": ((1e31, 0.0, 0.0),) * 3},
        {"weights": ((0.0, 0.0),) * 3},
        {"weights": ((0.0, 0.0, 0.0),) * 2},
        {"turns": (((math.inf, 0.0, 0.0),) * 3,) * 3},
        {"turns": (((0.0, 0.0, 0.0),) * 2,) * 3},
        {"bound": math.nan},
        {"bound": 0.0},
        {"curve": 5e-324},
        {"square": math.inf},
        {"square": -1.0},
        {"lengths": (0.2, 0.1)},
        {"cap": (-1.5, 0.5)},
        {"own": 0},
        {"own": 4},
        {"design": Design(("a",), None)},
        {"design": Design(("a", "b"), "y", intercept=1.0)},
    ],
)
def test_numbers_that_are_none_and_shapes_that_do_not_fit_are_refused(forged):
    with pytest.raises(InvalidInput):
        replace(scores(), **forged).arrays(SCHEMA)


def test_typical_sums_have_the_shapes_of_arrays_and_the_shares_of_groups():
    block = scores(2)
    found = block.typical(SCHEMA, 900)
    assert [each.shape for each in found] == [array.shape for array in block.arrays(SCHEMA)]
    assert found[0][:, 0] == pytest.approx([300, 300, 300])
