"""Scores of several categories: slopes and curvature of the likelihood, never longer than their bounds."""

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
from scipy.special import expit

from cape.blocks import Choices, Design, Table, typical
from cape.blocks.choices import LEAST_GAP, Model
from cape.blocks.clip import clip_products
from cape.blocks.parts import Pass
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
DESIGNS: dict[Model, Design] = {
    "multinomial": Design(("x", "i"), "g", intercept=0.5, labels=True),
    "ordinal": Design(("x", "i", "b"), "g", labels=True),
}
MODELS = list(DESIGNS)


def choices(
    model: Model,
    seed: int = 1,
    size: float = 1.0,
    bound: float = 0.4,
    schema: Schema = SCHEMA,
    **changed: Any,
) -> Choices:
    generator, design = np.random.default_rng(seed), changed.pop("design", DESIGNS[model])
    width, levels = design.width(schema), len(schema.category(design.target).values)
    many = (levels - 1) * width if model == "multinomial" else levels - 1 + width
    weights = generator.normal(0, size, many)
    if model == "ordinal":
        weights[: levels - 1] = np.cumsum(LEAST_GAP * 2 + np.abs(weights[: levels - 1]))
    turn = np.eye(many) + generator.normal(0, 1, (many, many))
    given = (design, tuple(weights.tolist()), tuple(map(tuple, turn.tolist())), bound, 2 * bound**2)
    return Choices(*given, model, levels, **{"lengths": (0.1, 0.5, 2.0), "deviance": 8.0, **changed})


def likelihood(block: Choices, weights: np.ndarray, x: np.ndarray, code: int) -> float:
    free = block.levels - 1
    if block.model == "multinomial":
        eta = np.concatenate([[0.0], weights.reshape(free, -1) @ x])
        return float(eta[code] - np.logaddexp.reduce(eta))
    upto = np.concatenate([[0.0], expit(weights[:free] - weights[free:] @ x), [1.0]])
    return math.log(upto[code + 1] - upto[code])


@pytest.mark.parametrize("model", MODELS)
def test_scores_are_slopes_of_the_likelihood_and_roots_its_curvature(model: Model) -> None:
    block, step = choices(model, 3), 1e-4
    width, w, turn = block.design.width(SCHEMA), np.array(block.weights), np.array(block.turn)
    moves = step * np.eye(len(w))
    for x in np.random.default_rng(4).uniform(-1, 1, (5, width)):
        for code in range(block.levels):
            found = block.at(x[:, None], np.array([code]), None, 1.0)

            def at(move: np.ndarray, x: np.ndarray = x, code: int = code) -> float:
                return likelihood(block, w + move, x, code)

            slopes = np.array([(at(e) - at(-e)) / (2 * step) for e in moves])
            bent = [[at(a + b) - at(a - b) - at(b - a) + at(-a - b) for a in moves] for b in moves]
            assert found.scores[0] == pytest.approx(turn @ slopes, abs=1e-5)
            curvature = found.roots[0].T @ found.roots[0]
            assert curvature == pytest.approx(-turn @ (np.array(bent) / (4 * step**2)) @ turn.T, abs=1e-4)
            assert found.deviance[0] == pytest.approx(-2 * at(0 * w))
            halved = block.at(x[:, None], np.array([code]), np.array([0.5]), 1.0)
            assert halved.scores == pytest.approx(found.scores / 2)
            assert halved.roots == pytest.approx(found.roots * math.sqrt(0.5))


@pytest.mark.parametrize("model", MODELS)
def test_a_site_adds_up_scores_curvature_spread_lengths_and_deviances(model: Model) -> None:
    block, rows = choices(model, 5, bound=50.0), large(300)
    x, y = Table("a", rows, SCHEMA).vectors(block.design)
    assert y is not None
    found = block.at(np.ascontiguousarray(x.T), y.astype(np.int64), None)
    count, score, square, cross, spread, beside, lengths, deviance = Table("a", rows, SCHEMA).sums([block])[0]
    above = np.triu_indices(block.size, 1)
    curvature = np.einsum("rli,rlj->ij", found.roots, found.roots)
    assert count == len(x)
    assert 50 * score / 2**20 == pytest.approx(found.scores.sum(axis=0), abs=1e-2)
    assert 5000 * square / LIMIT == pytest.approx(np.diag(curvature), rel=1e-3, abs=1e-2)
    assert 5000 * cross / LIMIT == pytest.approx(curvature[above], rel=1e-2, abs=0.1)
    products = found.scores.T @ found.scores
    assert 2500 * spread / LIMIT == pytest.approx(np.diag(products), rel=1e-3, abs=1e-2)
    assert 2500 * beside / LIMIT == pytest.approx(products[above], rel=1e-2, abs=0.1)
    edges = [-1, *block.lengths, math.inf]
    assert lengths.tolist() == np.histogram(np.linalg.norm(found.scores, axis=1), edges)[0].tolist()
    assert 8 * deviance / 2**20 == pytest.approx(np.minimum(found.deviance, 8).sum(), abs=1e-2)


def norms(block: Choices, row: dict[str, Any]) -> tuple[int, int, np.ndarray]:
    """The squared length of a row's score, that of its curvature, and its lengths, from what a site sums."""
    _, score, square, cross, *_, lengths, _ = Table("a", frame([row]), SCHEMA).sums([block])[0]
    whole = [*map(int, square), *map(int, cross)]
    squared = sum(k * k for k in whole) + sum(k * k for k in map(int, cross))
    return sum(int(k) ** 2 for k in score), squared, lengths


@pytest.mark.parametrize("model", MODELS)
@given(
    rows=any_rows,
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0.0, 1.0, 30.0, 1e4, 1e99]),
    bound=st.sampled_from([1e-6, 0.4, 50.0]),
)
@examples(60)
def test_no_row_adds_more_than_its_bounds(
    model: Model, rows: list[dict[str, Any]], seed: int, size: float, bound: float
) -> None:
    block = choices(model, seed, size, bound)
    for row in rows:
        score, curvature, lengths = norms(block, row)
        assert score <= LIMIT
        assert curvature <= LIMIT**2 * (1 + 2**-43)
        assert lengths.sum() <= 1


@pytest.mark.parametrize("model", MODELS)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([0.0, 0.5, 5.0]), rows=any_rows)
@examples(60)
def test_no_score_is_longer_than_is_possible_and_some_are_nearly_as_long(
    model: Model, seed: int, size: float, rows: list[dict[str, Any]]
) -> None:
    block = choices(model, seed, size)
    longest = block.longest(SCHEMA)
    at = replace(block, lengths=(longest / 20, longest))
    corners = [
        {"x": x, "z": 0.0, "g": g, "i": i, "y": 1.0, "b": b}
        for x, g, i, b in itertools.product((0.1, 0.7), SCHEMA["g"].values, (0, 1), ("no", "yes"))
    ]
    lengths = Table("site", frame([*rows, *corners]), SCHEMA).sums([at])[0][6]
    assert lengths[-1] == 0
    if size == 0 and model == "multinomial":
        assert lengths[1] > 0


@pytest.mark.parametrize("model", MODELS)
def test_what_is_too_long_becomes_as_long_as_its_bound(model: Model) -> None:
    block = choices(model, 2, bound=1e-6)
    row = {"x": 0.6, "z": 1.0, "g": "green", "i": 1, "y": 1.0, "b": "yes"}
    score, curvature, _ = norms(block, row)
    assert math.sqrt(score / LIMIT) == pytest.approx(1, abs=1e-4)
    assert math.sqrt(curvature) / LIMIT == pytest.approx(1, abs=1e-4)


@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1e-160, 1e-82, 1e-3, 1.0, 1e9, 1e200]),
    bound=st.sampled_from([1e-190, 1e-165, 3.0]),
    several=st.integers(1, 6),
)
@examples(200)
def test_products_are_clipped_to_their_norm_and_keep_their_direction(
    seed: int, size: float, bound: float, several: int
) -> None:
    roots = np.random.default_rng(seed).normal(0, size, (20, several, 4))
    roots[0, 0, 0], roots[1, 0, 0] = np.nan, np.inf
    steps = clip_products(roots, bound)
    assert not steps[:2].any()  # what is not finite is left out
    for row, found in zip(roots[2:], steps[2:], strict=True):
        largest = np.abs(row).max()
        norm = math.sqrt(float(np.linalg.norm((row / largest).T @ (row / largest)))) * largest
        short = row / max(norm, math.sqrt(bound))
        assert np.abs(found / 2**20 - short).max() < 1e-5
        whole = [[sum(int(a) * int(b) for a, b in zip(i, j, strict=True)) for j in found.T] for i in found.T]
        assert sum(k * k for line in whole for k in line) <= LIMIT**2 * (1 + 2**-43)


@pytest.mark.parametrize("model", MODELS)
def test_order_and_batches_do_not_matter(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_that_order_and_parts_do_not_matter([choices(model, 3)], monkeypatch)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("bound", [0.05, 5.0])
def test_typical_sums_are_those_of_typical_rows(
    model: Model, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three rows with the same features one has each category, where it does not follow them."""
    monkeypatch.setattr(typical, "FOLLOWED", 0.0)
    schema = Schema(
        x=Number(0, 1, missing=False),
        z=Number(-1, 1, missing=False),
        g=Category((0, 1, 2), missing=False),
    )
    t = typical.rows(Design(("x", "z"), cube=True), schema, 256)
    rows = pl.DataFrame({"x": (1 + t[:, 0]) / 2, "z": t[:, 1]})
    three = pl.concat([rows.with_columns(g=pl.lit(value)) for value in (0, 1, 2)])
    design = Design(("x", "z"), "g", intercept=0.5 * (model == "multinomial"), labels=True)
    block = choices(model, 7, 1.0, bound, schema, design=design)
    (found,) = Table("a", three, schema).sums([block])
    for exact, planned, array in zip(found, block.typical(schema, 768), block.arrays(schema), strict=True):
        assert np.allclose(exact / 2**array.bits, planned, atol=768 * 2**-16)


def test_rows_count_as_much_as_their_weights_say() -> None:
    rows = large(200).with_columns(y=pl.lit(1.5))  # half of the upper bound
    for model, design in DESIGNS.items():
        whole = choices(model, 3, bound=50.0, deviance=40.0)
        half = replace(whole, design=replace(design, beside=("y",)), weighted=True)
        one, other = (Table("a", rows, SCHEMA).sums([block])[0] for block in (whole, half))
        assert other[0] == one[0]
        assert 2 * other[1] == pytest.approx(one[1], abs=400)
        assert 2 * other[2] == pytest.approx(one[2], rel=1e-3, abs=1e8)
        assert 4 * other[4] == pytest.approx(one[4], rel=1e-3, abs=1e8)
        assert 2 * other[-1] == pytest.approx(one[-1], rel=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_no_complete_row(model: Model) -> None:
    table = frame([{"x": 0.5, "z": 1.0, "g": None, "i": 0, "y": 1.0, "b": "no"}])
    assert not any(array.any() for array in Table("a", table, SCHEMA).sums([choices(model)])[0])


@pytest.mark.parametrize("place", ["_score", "_curvature", "_spread"])
def test_a_total_beyond_64_bits_is_exact(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = choices("ordinal")
    sums = block.summer(Pass("a", SCHEMA))
    getattr(sums, place).add(np.int64(-(2**63)))
    getattr(sums, place).add(np.int64(-(2**63)))
    monkeypatch.setattr(Choices, "summer", lambda *_: sums)
    (found,) = Table("a", large(10), SCHEMA).sums([block])
    assert any(part.dtype == object and min(part.flat) < -(2**63) for part in found)


def test_many_rows_are_added_up_in_parts_whose_arrays_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = large(500)
    wanted = [Table("a", rows, SCHEMA).sums([choices(model)]) for model in MODELS]
    monkeypatch.setattr("cape.blocks.choices._ENTRIES", 100)
    for model, each in zip(MODELS, wanted, strict=True):
        assert reference.same(Table("a", rows, SCHEMA).sums([choices(model)]), each)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"design": Design(("x",), labels=True)}, "need a target"),
        ({"weights": (1.0,)}, "6 weights"),
        ({"turn": ((1.0,),)}, "6 by 6"),
        ({"levels": 4}, "9 weights|as many"),
        ({"weighted": True}, "beside the target"),
        ({"weights": (math.nan,) * 6}, "weights"),
        ({"weights": (1e101,) * 6}, "weights"),
        ({"turn": ((math.inf,) * 6,) * 6}, "turn"),
        ({"bound": 0.0}, "bound"),
        ({"curve": math.inf}, "curve"),
        ({"deviance": -1.0}, "deviance"),
        ({"lengths": (2.0, 1.0)}, "rise"),
    ],
)
def test_blocks_that_cannot_be_right(changed: dict[str, Any], problem: str) -> None:
    block = replace(choices("multinomial"), **changed)
    with pytest.raises(InvalidInput, match=problem):
        block.arrays(SCHEMA)


def test_thresholds_rise() -> None:
    block = choices("ordinal")
    for gap, refused in ((0.0, True), (-1.0, True), (LEAST_GAP / 2, True), (2 * LEAST_GAP, False)):
        made = replace(block, weights=(0.0, gap, *block.weights[2:]))
        if refused:
            with pytest.raises(InvalidInput, match="thresholds must rise"):
                made.arrays(SCHEMA)
        else:
            assert made.arrays(SCHEMA)
