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
        (0.5, 1.0, 0.8),
        0.3,
        0.9,
        1.5,
        0.8,
    )


def clipped(row: list[float], bound: float) -> list[int]:
    """A row in steps, rounded to the nearest, and shortened where it is too long then."""
    steps = [round(entry / max(bound, *map(abs, row)) * 2**20) for entry in row]
    return steps if sum(k * k for k in steps) <= 2**40 else truncated([float(k) for k in steps], 2.0**20)


def one_row(v: list[float], y: float, block: SiteScores, group: int) -> dict[str, list[int]]:
    """What a row adds, written again, in Python's floats and integers."""
    residual = y - sum(w * k for w, k in zip(block.weights[group], v, strict=True))
    z = [sum(t * k for t, k in zip(row, v, strict=True)) for row in block.turns[group]]
    sized = [a * k for a, k in zip(block.sizes, z, strict=True)]
    square = sum(k * k for k in z)
    weight = min(1.0, block.longest / math.sqrt(sum(k * k for k in sized)), block.square / square)
    g = weight * max(-block.cut, min(block.cut, residual))
    kept = math.sqrt(weight) if abs(residual) <= block.cut else 0.0
    return {
        "score": clipped([g * k for k in sized], block.longest * block.cut),
        "root": clipped([kept * k for k in z], math.sqrt(block.square)),
        "place": clipped(z, math.sqrt(block.square)),
        "level": clipped([residual], block.level),
        "inside": [int(abs(residual) <= block.cut)],
    }


@pytest.mark.parametrize("own", [1, 2, 3])
def test_sums_are_those_of_single_rows_in_python(own):
    frame, block = rows(), scores(own)
    complete = frame.drop_nulls()
    x, y = Table("t", complete, SCHEMA).vectors(DESIGN)
    sums = {array.name: np.zeros(array.shape) for array in block.arrays(SCHEMA)}
    near = dict.fromkeys(sums, 1.0)
    for row, target, clinic in zip(x, y, complete["clinic"], strict=True):
        group = "pqr".index(clinic)
        found = one_row([1.0, *(row / 2**20)], target / 2**20, block, group)
        s, z = found["score"], found["root"]
        sums["count"][group] += 1
        sums["own score"][group] += s[:own]
        sums["place"][group] += found["place"]
        sums["level"] += found["level"]
        sums["inside"] += found["inside"]
        sums["own square"][group] += [k * k for k in z[:own]]
        sums["spread square"] += [k * k for k in s]
        sums["spread cross"] += [s[i] * s[j] for i, j in combinations(range(3), 2)]
        if own > 1:
            sums["own cross"][group] += [z[i] * z[j] for i, j in combinations(range(own), 2)]
        if own < 3:
            sums["score"] += s[own:]
            sums["square"] += [k * k for k in z[own:]]
            sums["cross"] += [z[i] * z[j] for i, j in combinations(range(3), 2) if j >= own]
    (result,) = Table("t", frame, SCHEMA).sums([block])
    for name, array in zip(sums, result, strict=True):
        unit = 2**20 if any(word in name for word in ("square", "cross")) else 1
        near[name] = 4 * len(complete) * unit  # where two ways to add floats round to different steps
        if name in ("count", "inside"):
            near[name] = 0
        assert array.shape == sums[name].shape
        assert np.abs(array - sums[name]).max() <= near[name]
        few = ("count", "inside", "own cross", "cross", "level")
        assert name in few or np.abs(array).max() > 100 * near[name] / 4


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
    "narrow": {"cut": 1e-30, "longest": 1e-30, "square": 1e-30, "level": 1e-30, "sizes": (1e-30,) * 3},
    "wide": {"cut": 1e30, "longest": 1e30, "square": 1e30, "level": 1e30, "sizes": (1e30,) * 3},
    "mixed": {"turns": (((1e30, 1e-30, 1.0),) * 3,) * 3, "square": 1e-30, "longest": 1e30, "cut": 1e30},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_row_adds_vectors_of_length_1_whatever_the_block_came_with(name):
    """Scores, places and level, and the matrices of curvature and spread."""
    block = replace(scores(2), **FORGED[name])
    complete = rows().drop_nulls()
    for place in range(0, 12):
        (sums,) = Table("t", complete[place : place + 1], SCHEMA).sums([block])
        held = dict(zip((array.name for array in block.arrays(SCHEMA)), sums, strict=True))
        score = np.concatenate([held["own score"].ravel(), held["score"]]).astype(object)
        assert sum(score**2) <= 2**40
        assert sum(held["place"].ravel().astype(object) ** 2) <= 2**40
        assert abs(int(held["level"][0])) <= 2**20
        assert int(held["inside"][0]) in (0, 1)
        for square, cross in (
            (("own square", "square"), ("own cross", "cross")),
            (("spread square",), ("spread cross",)),
        ):
            total = sum(int(k) ** 2 for part in square for k in held[part].ravel())
            total += 2 * sum(int(k) ** 2 for part in cross for k in held[part].ravel())
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
        {"cut": math.nan},
        {"cut": 0.0},
        {"longest": 5e-324},
        {"square": math.inf},
        {"level": -1.0},
        {"sizes": (math.nan, 1.0, 1.0)},
        {"sizes": (1.0, 1.0)},
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
