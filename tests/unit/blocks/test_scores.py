from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from cape.blocks import Design, Scores, Table, batches, typical
from cape.blocks.families import Family, Gamma, Gaussian, NegativeBinomial, Poisson
from cape.blocks.parts import Pass
from cape.blocks.scores import furthest_corner
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from tests.slices import examples
from tests.unit.blocks import reference
from tests.unit.blocks.vectors import (
    DESIGNS,
    SCHEMA,
    any_rows,
    assert_that_order_and_parts_do_not_matter,
    frame,
    large,
)

TO_CLASSES = [design for design in DESIGNS if design.target == "b"]


def scores(
    design: Design, seed: int, size: float = 3.0, schema: Schema = SCHEMA, bound: float = 0.4
) -> Scores:
    generator, width = np.random.default_rng(seed), design.width(schema)
    turn = np.eye(width) + generator.normal(0, 1, (width, width))
    w = generator.normal(0, size, width)
    return Scores(
        design,
        tuple(w.tolist()),
        tuple(map(tuple, turn.tolist())),
        bound,
        2 * bound**2,
        lengths=(0.01, 0.3, 0.5, 2.0),
    )


def clipped(row: list[float], bound: float) -> list[int]:
    largest = max(bound, *map(abs, row))
    steps = [round(entry / largest * 2**20) for entry in row]
    square = sum(k * k for k in steps)
    if square <= 2**40:
        return steps
    steps = [math.trunc(k * (2**20 / math.sqrt(float(square)))) for k in steps]
    while sum(k * k for k in steps) > 2**40:
        steps = [k - (k > 0) + (k < 0) for k in steps]
    return steps


def along(weights: Any, x: list[int]) -> float:
    total = 0.0
    for k, weight in zip(x, weights, strict=True):
        total += k * (weight / 2**20)
    return total


def one_row(x: list[int], y: int, block: Scores) -> tuple[list[int], list[int]]:
    """The score of a row and the root of its curvature, in steps."""
    eta = along(block.weights, x)
    p, q = float(expit(eta)), float(expit(-eta))
    u = [along(row, x) for row in block.turn]
    g, root = (q if y > 0 else -p), math.sqrt(p * q)
    return clipped([g * k for k in u], block.bound), clipped([root * k for k in u], math.sqrt(block.curve))


def length_of(x: list[int], y: int, block: Scores) -> float:
    """The length of a score before it is clipped."""
    eta, square = along(block.weights, x), 0.0
    for row in block.turn:
        square += along(row, x) ** 2
    return (float(expit(-eta)) if y > 0 else float(expit(eta))) * math.sqrt(square)


def slow(rows: list[dict[str, Any]], block: Scores, schema: Schema = SCHEMA) -> tuple[np.ndarray, ...]:
    out = [np.zeros(array.shape, object) for array in block.arrays(schema)]
    for x, y in reference.vectors(rows, block.design, schema):
        assert y is not None
        s, z = one_row(x, y, block)
        assert sum(k * k for k in s) <= 2**40
        assert sum(k * k for k in z) <= 2**40
        out[0][0] += 1
        above = [(i, j) for i in range(len(x)) for j in range(i + 1, len(x))]
        for i in range(len(x)):
            out[1][i] += s[i]
        for at, vector in ((2, z), (4, s)):
            for i in range(len(x)):
                out[at][i] += vector[i] * vector[i]
            for n, (i, j) in enumerate(above):
                out[at + 1][n] += vector[i] * vector[j]
        if block.lengths:
            out[6][sum(length_of(x, y, block) >= edge for edge in block.lengths)] += 1
    return tuple(out)


@pytest.mark.parametrize("design", TO_CLASSES, ids=str)
@given(
    rows=any_rows,
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0.0, 0.1, 10.0, 1e4, 1e99]),
    bound=st.sampled_from([1e-3, 0.4, 50.0]),
)
@examples(60)
def test_sums_are_those_of_single_rows_in_python(
    design: Design, rows: list[dict[str, Any]], seed: int, size: float, bound: float
) -> None:
    block = scores(design, seed, size, bound=bound)
    found = Table("a", frame(rows), SCHEMA).sums([block])
    assert reference.same(found, [slow(rows, block)])
    assert [array.shape for array in found[0]] == [array.shape for array in block.arrays(SCHEMA)]


def test_where_nothing_is_clipped_it_is_gradient_and_hessian_of_the_logistic_loss() -> None:
    rows, design = large(500), TO_CLASSES[2]
    block = scores(design, 1, bound=20.0)
    w, turn = np.array(block.weights), np.array(block.turn)
    x, y = (array / 2**20 for array in Table("a", rows, SCHEMA).vectors(design))  # type: ignore[operator]
    _, score, square, cross, spread, _, _ = Table("a", rows, SCHEMA).sums([block])[0]

    def loss(v: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * (x @ v)).sum())

    step = 1e-5
    slopes = np.array([(loss(w + step * e) - loss(w - step * e)) / (2 * step) for e in np.eye(len(w))])
    assert np.allclose(20 * score / 2**20, -turn @ slopes, atol=20 * len(x) * 2**-19)
    p = 1 / (1 + np.exp(-x @ w))
    u = x @ turn.T
    hessian = (u.T * (p * (1 - p))) @ u
    assert np.allclose(800 * square / 2**40, np.diag(hessian), atol=len(x) * 1e-3)
    assert np.allclose(800 * cross / 2**40, hessian[np.triu_indices(len(w), 1)], atol=len(x) * 1e-3)
    residual = (p - (1 + y) / 2)[:, None] * u
    assert np.allclose(400 * spread / 2**40, (residual**2).sum(axis=0), atol=len(x) * 1e-3)


def test_a_longer_score_is_shortened_and_keeps_its_direction() -> None:
    schema = Schema(a=(-1, 1), c=(-1, 1), b=["no", "yes"])
    block = scores(Design(("a", "c"), "b"), 4, 4.0, schema, bound=0.05)
    cut = 0
    for a, c in np.random.default_rng(0).uniform(-1, 1, (50, 2)):
        x = [math.trunc(v / math.sqrt(2) * 2**20) for v in (a, c)]
        for y in (-(2**20), 2**20):
            found, length = np.array(one_row(x, y, block)[0]), length_of(x, y, block)
            whole = np.array(one_row(x, y, replace(block, bound=100.0))[0]) * 2000.0
            assert math.hypot(*found) == pytest.approx(min(length / 0.05, 1) * 2**20, abs=4)
            if length > 0.05:
                cut += 1
                cosine = found @ whole / math.hypot(*found) / math.hypot(*whole)
                assert cosine == pytest.approx(1, abs=1e-2)
    assert cut > 20


@pytest.mark.parametrize("design", [design for design in DESIGNS if design.target == "y"], ids=str)
@pytest.mark.parametrize("family", [Gaussian(), Poisson(), NegativeBinomial(0.5), Gamma()])
@given(seed=st.integers(0, 2**32), size=st.sampled_from([0.0, 0.3, 2.0]), rows=any_rows)
@examples(30)
def test_no_score_is_longer_than_is_possible_and_some_are_nearly_as_long(
    design: Design, family: Family, seed: int, size: float, rows: list[dict[str, Any]]
) -> None:
    schema = Schema({**SCHEMA, "y": (0.5, 3)})
    block = replace(scores(design, seed, size, schema), family=family, cap=(0.75, 2.5))
    longest = block.longest(schema)
    at = replace(block, lengths=(longest / 6, longest))
    corners = [
        {"x": x, "z": z, "g": g, "i": i, "y": y, "b": "no"}
        for x, z, g, i, y in itertools.product((0.1, 0.7), (-250, 1000), SCHEMA["g"].values, (0, 1), (0.5, 3))
    ]
    lengths = Table("site", frame([*rows, *corners]), schema).sums([at])[0][6]
    assert lengths[-1] == 0
    if size == 0:
        assert lengths[1] > 0


@given(seed=st.integers(0, 2**32), rows=any_rows)
@examples(60)
def test_of_two_categories_no_score_is_longer_than_is_possible(seed: int, rows: list[dict[str, Any]]) -> None:
    for design in TO_CLASSES:
        block = scores(design, seed)
        at = replace(block, lengths=(block.longest(SCHEMA),))
        assert Table("site", frame(rows), SCHEMA).sums([at])[0][6][-1] == 0


def test_what_bounds_many_columns_is_no_shorter_than_their_furthest_corner() -> None:
    generator = np.random.default_rng(2)
    middle, sides = generator.normal(size=3), generator.normal(size=(3, 12))
    exact = furthest_corner(middle, sides)
    corners = np.array(list(itertools.product((-1, 1), repeat=12))) @ sides.T + middle
    assert exact == pytest.approx(np.linalg.norm(corners, axis=1).max())
    assert furthest_corner(middle, np.column_stack([sides, np.full(3, 1e-12)])) >= exact


def test_a_target_is_cut_at_its_cap() -> None:
    schema = Schema(a=Number(-1, 1, missing=False), y=Number(0, 100, missing=False))
    rows = pl.DataFrame({"a": [0.5, -0.5, 1.0], "y": [3.0, 90.0, 100.0]})
    block = Scores(Design(("a",), "y"), (0.0,), ((1.0,),), 50.0, 1.0, Gaussian(), cap=(5.0, 20.0))
    _, score, *_ = Table("a", rows, schema).sums([block])[0]
    x = np.array(rows["a"])
    assert score[0] * 50 / 2**20 == pytest.approx(x @ [5.0, 20.0, 20.0], abs=1e-3)


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_that_order_and_parts_do_not_matter([scores(design, 3) for design in TO_CLASSES], monkeypatch)


@pytest.mark.slow(1)
def test_many_columns_are_added_in_one_order_whatever_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    # Huge weights that cancel: w·x is 0 but for rounding, which depends on the order of the columns alone
    names = tuple(f"x{i}" for i in range(40))
    generator = np.random.default_rng(5)
    schema = Schema({**dict.fromkeys(names, (-1, 1)), "b": ["no", "yes"]})
    order = generator.permutation(20)
    half, large_weights = generator.uniform(-1, 1, (300, 20)), generator.normal(0, 1e16, 20)
    table = pl.DataFrame(np.hstack([half, half[:, order]]), schema=list(names)).with_columns(
        b=pl.Series(generator.choice(["no", "yes"], 300))
    )
    block = replace(
        scores(Design(names, "b"), 1, 1.0, schema),
        weights=(*large_weights.tolist(), *(-large_weights[order]).tolist()),
    )
    wanted = Table("a", table, schema).sums([block])
    assert reference.same(wanted, [slow(table.to_dicts(), block, schema)])
    x = Table("a", table, schema).vectors(block.design)[0] / 2**20
    assert np.ptp(x @ np.array(block.weights)) > 0  # rounding is there to be seen
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    assert reference.same(Table("a", table, schema).sums([block]), wanted)


def test_no_complete_row() -> None:
    table = frame([{"x": 0.5, "z": 1.0, "g": "red", "i": 0, "y": 1.0, "b": None}])
    for design in TO_CLASSES:
        found = Table("a", table, SCHEMA).sums([scores(design, 1)])[0]
        assert not any(array.any() for array in found)


@pytest.mark.parametrize("bound", [0.05, 5.0])
def test_typical_sums_are_those_of_typical_rows(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows with the same features one has the second category, where it does not follow them."""
    monkeypatch.setattr(typical, "FOLLOWED", 0.0)
    columns = {"x": Number(0, 1, missing=False), "z": Number(-1, 1, missing=False)}
    schema = Schema({**columns, "b": Category(("no", "yes"), missing=False, expected={"share": 0.25})})
    t = typical.rows(Design(("x", "z"), cube=True), schema, 1024)
    rows = pl.DataFrame({"x": (1 + t[:, 0]) / 2, "z": t[:, 1]})
    four = pl.concat([rows.with_columns(b=pl.lit(value)) for value in ("no", "no", "no", "yes")])
    block = scores(Design(("x", "z"), "b", intercept=0.5), 7, 1.0, schema, bound)
    (found,) = Table("a", four, schema).sums([block])
    for exact, planned, array in zip(found, block.typical(schema, 4096), block.arrays(schema), strict=True):
        assert np.allclose(exact / 2**array.bits, planned, atol=4096 * 2**-18)


@pytest.mark.parametrize("place", ["_score", "_curvature", "_spread"])
def test_a_total_beyond_64_bits_is_exact(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = scores(TO_CLASSES[0], 1)
    sums = block.summer(Pass("a", SCHEMA))
    getattr(sums, place).add(np.int64(-(2**63)))
    getattr(sums, place).add(np.int64(-(2**63)))
    monkeypatch.setattr(Scores, "summer", lambda *_: sums)
    (found,) = Table("a", large(10), SCHEMA).sums([block])
    assert any(part.dtype == object and min(part.flat) < -(2**63) for part in found)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (Scores(Design(("x",)), (1.0,), ((1.0,),), 1.0, 1.0), "need a target"),
        (Scores(Design(("x",), "b"), (1.0, 2.0), ((1.0,),), 1.0, 1.0), "1 weights"),
        (Scores(Design(("x",), "b"), (1.0,), ((1.0, 2.0),), 1.0, 1.0), "turn of 1 by 1"),
        (Scores(Design(("x",), "y"), (1.0,), ((1.0,),), 1.0, 1.0), "must have categories"),
        (Scores(Design(("x",), "b"), (float("nan"),), ((1.0,),), 1.0, 1.0), "weights"),
        (Scores(Design(("x",), "b"), (1e101,), ((1.0,),), 1.0, 1.0), "weights"),
        (Scores(Design(("x",), "b"), (1.0,), ((1e31,),), 1.0, 1.0), "turn"),
        (Scores(Design(("x",), "b"), (1.0,), ((1.0,),), 0.0, 1.0), "bound"),
        (Scores(Design(("x",), "b"), (1.0,), ((1.0,),), 1.0, float("inf")), "curve"),
        (Scores(Design(("x",), "b"), (1.0,), ((1.0,),), 1.0, 1.0, lengths=(2.0, 1.0)), "edges that rise"),
        (Scores(Design(("x",), "b"), (1.0,), ((1.0,),), 1.0, 1.0, lengths=(math.inf,)), "lengths"),
        (Scores(Design(("x",), "y"), (1.0,), ((1.0,),), 1.0, 1.0, Poisson(), cap=(0.0, math.nan)), "cap"),
    ],
)
def test_blocks_that_cannot_be_right(block: Scores, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Table("a", large(10), SCHEMA).sums([block])


@dataclass(frozen=True)
class Odd(Family):
    """A family with mistakes: nothing that it says of some rows is a number."""

    def at(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        wrong = np.array([np.nan, np.inf, -np.inf, 0.3])[np.arange(len(y)) % 4]
        return wrong, np.abs(wrong)

    def mean(self, eta: Floats) -> Floats:
        return eta

    def link(self, mean: float) -> float:
        return mean

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        return np.array([np.nan, np.inf, -np.inf, 1.0])[np.arange(len(y)) % 4]


def test_what_is_not_a_number_never_becomes_an_integer() -> None:
    """As an int64 it would be -2^63, which is further than any row may move a sum."""
    schema = Schema(a=Number(-1, 1, missing=False), y=Number(0, 1, missing=False))
    block = Scores(Design(("a",), "y"), (0.0,), ((1.0,),), 1.0, 1.0, Odd(), (0.1, 0.5), 2.0)
    rows = pl.DataFrame({"a": [1.0] * 4, "y": [0.5] * 4})
    with np.errstate(invalid="ignore"):
        count, score, square, _, _, _, lengths, deviance = Table("a", rows, schema).sums([block])[0]
    assert count.tolist() == [4]
    assert lengths.tolist() == [0, 1, 3]  # each row once
    assert score.tolist() == [round(0.3 * 2**20)]
    assert square[0] == pytest.approx(0.3 * 2**40, rel=1e-5)
    assert deviance.tolist() == [2**20 + 2**20 + 0 + 2**19]


@pytest.mark.parametrize("family", [Gamma(), NegativeBinomial(1e6), Poisson(), Gaussian()])
def test_bounds_at_which_floats_overflow_are_refused(family: Family) -> None:
    """With 1e300 / 1e-13 a deviance would be infinity less infinity."""
    for low, high, offset in ((1e-5, 1e300, 1.0), (1.0, 2.0, 1e300)):
        schema = Schema(a=(-1, 1), o=(0, offset), y=(low, high))
        block = Scores(
            Design(("a",), "y", beside=("o",)), (0.0,), ((1.0,),), 1.0, 1.0, family, deviance=1.0, offset=True
        )
        with pytest.raises(InvalidInput, match="bounds between -1e"):
            block.arrays(schema)


def test_what_rows_are_clipped_at_is_not_too_small_to_be_divided() -> None:
    schema = Schema(a=(-1, 1), b=["no", "yes"])
    block = Scores(Design(("a",), "b"), (0.0,), ((1.0,),), 1.0, 1.0)
    with pytest.raises(InvalidInput, match="bound"):
        replace(block, bound=5e-324).arrays(schema)
    with pytest.raises(InvalidInput, match="curve"):
        replace(block, curve=5e-324).arrays(schema)
