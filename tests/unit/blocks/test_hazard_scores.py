from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, FollowUp, HazardScores, Leaving, Table, Times
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
) -> HazardScores:
    generator, cells = np.random.default_rng(seed), 8 if strata else 4
    return HazardScores(
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
        0.7,
        (0, 0, 1, 1, 2, 2, 3, 3)[:cells],
        tuple(generator.uniform(-1, 1, cells).tolist()),
        (0.05, 0.2, 0.8),
    )


def one_row(row: dict[str, Any], block: HazardScores) -> tuple[Any, ...] | None:
    """Score, roots of the curvature, residuals by cell, what an event adds to means, and trend."""
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
    expected, leaves = np.zeros(len(rates)), None
    for cell in range(4):
        low, high = edges[cell], edges[cell + 1]
        expected[first + cell] = (
            max(min(stop, high) - max(start, low), 0.0) / (high - low) * rates[first + cell]
        )
        if low < stop <= high or (stop <= 0 and cell == 0):
            leaves = first + cell
    residual = -r * expected
    means = np.zeros((block.many, 2))
    if event and leaves is not None:
        residual[leaves] += 1
        means[block.groups[leaves]] = u / max(1.0, float(np.linalg.norm(u)) / block.far)
    total = float(expected.sum())
    offset = expected @ offsets / total if total > 0 else np.zeros(2)
    root = math.sqrt(r * total) * (u - offset)
    score = residual @ (u - offsets)
    trend = (residual * np.array(block.trend)) @ (u - offsets)
    return score, root, residual, means, trend, stratum


def shortened(vector: np.ndarray, bound: float) -> np.ndarray:
    return vector / max(bound, float(np.linalg.norm(vector)))


@WAYS
@given(
    rows=st.lists(rows_of, min_size=1, max_size=8),
    seed=st.integers(0, 999),
    size=st.sampled_from([0.1, 3.0]),
    bound=st.sampled_from([0.2, 0.9, 30.0]),
)
@examples(12)
def test_sums_are_those_of_martingale_residuals_cell_by_cell(
    entry: str | None, strata: str | None, rows: list[dict[str, Any]], seed: int, size: float, bound: float
) -> None:
    block = scores(entry, strata, seed=seed, size=size, bound=bound)
    arrays = block.arrays(SCHEMA)
    (sums,) = Table("s", pl.DataFrame(rows, schema=KINDS), SCHEMA).sums([block])
    found = {a.name: np.asarray(each, float) / 2.0**a.bits for each, a in zip(sums, arrays, strict=True)}
    alone = [each for row in rows if (each := one_row(row, block)) is not None]
    assert found["count"] == [len(alone)]
    wanted = {a.name: np.zeros(a.shape) for a in arrays}
    for score, root, residual, means, trend, stratum in alone:
        s, z = shortened(score, bound), shortened(root, math.sqrt(block.curve))
        wanted["score"] += s
        wanted["curvature square"] += z**2
        wanted["curvature cross"] += z[0] * z[1]
        wanted["spread square"] += s**2
        wanted["spread cross"] += s[0] * s[1]
        wanted["level"][stratum] += np.clip(residual.sum() / block.reach, -1, 1)
        wanted["cells"] += shortened(residual, block.reach)
        wanted["means"] += means.reshape(-1) / block.far
        wanted["trend"] += shortened(trend, bound)
    for name, each in wanted.items():
        if name not in ("count", "lengths"):
            assert np.allclose(found[name], each, atol=1e-5 * max(len(alone), 1)), name
    lengths = np.array([float(np.linalg.norm(each[0])) for each in alone])
    clear = not len(lengths) or np.abs(lengths[:, None] - np.array(block.lengths)).min() > 1e-4
    if clear:  # x is rounded, so that a length at an edge may fall on either side
        places = np.searchsorted(block.lengths, lengths, side="right")
        assert (found["lengths"] == np.bincount(places, minlength=4)).all()


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    at, design = FollowUp(Times.of(HELD, "y", "b", bins=6), ("g",)), Design(("x", "z"))
    block = HazardScores(
        design, at, (1.0, -0.5), (0.1, 0.0), ((2.0, 0.1), (0.1, 3.0)),
        tuple(range(1, 18 * 50_000, 50_000)), 0.4, ((0.05, -0.1),) * 18, 0.8, 1.5, 1.25, 2.0,
        tuple(i // 3 for i in range(18)), (0.5,) * 18, (0.1, 0.5, 1.0),
    )  # fmt: skip
    assert_that_order_and_parts_do_not_matter([block, Leaving(design, at)], monkeypatch)


def test_a_huge_log_hazard_stays_a_number() -> None:
    block = scores(size=1e6)
    table = pl.DataFrame({"x": [1.0, -1.0], "z": [4.0, 0.0], "years": [5.0, 0.0], "died": ["yes", "no"]})
    for each in Table("s", table, SCHEMA).sums([block])[0]:
        assert np.isfinite(np.asarray(each, float)).all()


def test_a_sum_of_whole_scores_is_the_partial_score_and_the_product_of_what_is_wrong() -> None:
    """Whatever the baseline and the offsets are, and whether the model is true or not."""
    generator, many = np.random.default_rng(3), 300
    block = HazardScores(**(vars(scores(seed=4)) | {"bound": 1e3, "curve": 1e6, "reach": 50.0}))
    rows = [
        {"x": x, "z": z, "years": years, "died": died, "from": 0.0, "arm": "a"}
        for x, z, years, died in zip(
            generator.uniform(-1, 1, many), generator.uniform(0, 4, many),
            generator.uniform(0, 9, many), generator.choice(["no", "yes"], many), strict=True,
        )
    ]  # fmt: skip
    arrays = block.arrays(SCHEMA)
    (sums,) = Table("s", pl.DataFrame(rows, schema=KINDS), SCHEMA).sums([block])
    found = {a.name: np.asarray(each, float) / 2.0**a.bits for each, a in zip(sums, arrays, strict=True)}
    # who passes each cell for how long, with what hazard: Breslow's partial likelihood on the cells
    edges = np.array([0.0, *EDGES])
    u = np.array([(np.array(block.turn) @ _x(row, block)).tolist() for row in rows])
    r = np.exp([float(_x(row, block) @ np.array(block.weights)) for row in rows])
    years = np.array([row["years"] for row in rows])
    parts = np.clip((years[:, None] - edges[:-1]) / np.diff(edges), 0.0, 1.0)
    at_risk = (r[:, None] * parts).sum(axis=0)
    means = np.einsum("i,ij,ik->jk", r, parts, u) / at_risk[:, None]
    had = np.array([row["died"] == "yes" and row["years"] <= EDGES[-1] for row in rows])
    cell = np.minimum(np.searchsorted(edges[1:], years, side="left"), 3)
    partial = (u[had] - means[cell[had]]).sum(axis=0)
    wrong = found["cells"] * block.reach
    expected = partial + wrong @ (means - np.array(block.offsets))
    assert np.abs(wrong).max() > 1  # the baseline is wrong
    assert found["score"] * block.bound == pytest.approx(expected, abs=1e-3)


def _x(row: dict[str, Any], block: HazardScores) -> np.ndarray:
    found = reference.vector(row, DESIGN, SCHEMA)
    assert found is not None
    return np.array(found[0]) / 2**20 - np.array(block.centre)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"weights": (1.0,)}, "2 weights, and hazards of 4 cells"),
        ({"hazards": (1, 2, 3)}, "hazards of 4 cells"),
        ({"hazards": (0, 2, 3, 4)}, "hazards"),
        ({"hazards": (1, 2, 3, 2**20 + 1)}, "hazards"),
        ({"trend": (0.0,)}, "trend of 4 cells"),
        ({"trend": (0.0, 0.0, 1.5, 0.0)}, "trend"),
        ({"groups": (0, 1)}, "groups of 4 cells"),
        ({"groups": (0, 1, 2, 4)}, "groups"),
        ({"reach": 0.5}, "reach"),
        ({"unit": math.inf}, "unit"),
        ({"unit": 1e70}, "unit"),
        ({"bound": 5e-324}, "bound"),
        ({"curve": 1e-310}, "curve"),
        ({"far": 0.0}, "far"),
        ({"centre": (1e60, 0.0)}, "turn"),
        ({"lengths": (2.0, 1.0)}, "edges that rise"),
        ({"lengths": (1.0, math.nan)}, "lengths"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], said: str) -> None:
    block = HazardScores(**(vars(scores()) | changed))
    with pytest.raises(InvalidInput, match=said):
        block.arrays(SCHEMA)


@WAYS
@given(rows=st.lists(rows_of, min_size=1, max_size=8))
@examples(12)
def test_leaving_counts_single_rows(
    entry: str | None, strata: str | None, rows: list[dict[str, Any]]
) -> None:
    block = Leaving(DESIGN, follow_up(entry, strata))
    arrays = {array.name: array for array in block.arrays(SCHEMA)}
    (sums,) = Table("s", pl.DataFrame(rows, schema=KINDS), SCHEMA).sums([block])
    found = dict(zip(arrays, sums, strict=True))
    wanted = {name: np.zeros(array.shape) for name, array in arrays.items()}
    edges = np.array([0.0, *EDGES])
    for row in rows:
        at = stretch(row, block)
        if at is None or reference.vector(row, DESIGN, SCHEMA) is None:
            continue
        start, stop, event, stratum = at
        cell = 4 * stratum + max(int(np.searchsorted(edges, stop, side="left")) - 1, 0)
        if event:
            wanted["events"][cell] += 1
            wanted["totals"][stratum] += 1
        elif start < stop and row["years"] > 8:
            wanted["staying"][stratum] += 1
        elif start < stop:
            wanted["censored"][cell] += 1
        if start > 0 and start < stop:
            wanted["entering"][4 * stratum + int(np.searchsorted(edges, start, side="right")) - 1] += 1
    for name, each in wanted.items():
        assert (found[name] == each).all(), name
