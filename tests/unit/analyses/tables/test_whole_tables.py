"""Tables without delta: whole tables with Laplace noise, from which all others are made."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest

from cape import Budget, Category, Consortium, Schema, Tables
from cape.analyses.tables.whole_tables import ask_whole, measured_whole
from cape.blocks import Axis
from cape.blocks.residuals import WholeTables
from cape.engine.query import Answer
from cape.stats.law import Law

SCHEMA = Schema(
    a=Category(("x", "y"), missing=False),
    b=Category(("p", "q", "r")),
    c=Category(("u", "v", "w"), missing=False),
)
AXES = tuple(Axis(name) for name in SCHEMA)
PAIRS = {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 4.0}
ROWS = pl.DataFrame(
    {
        "a": list("xyxyxxyy") * 20,
        "b": ["p", "q", None, "r", "p", "p", "q", "r"] * 20,
        "c": list("uvwuuvwu") * 20,
    }
)


def counts(frame, table):
    """The cells of a table, with "missing" as the last value, counted one by one."""
    values = [(*SCHEMA[name].values, *([None] if SCHEMA[name].missing else [])) for name in SCHEMA]
    names = list(SCHEMA)
    rows = list(zip(*(frame[names[i]].to_list() for i in table), strict=True))
    shape = [len(values[i]) for i in table]
    found = [rows.count(cell) for cell in itertools.product(*(values[i] for i in table))]
    return np.array(found, float).reshape(shape)


@pytest.mark.parametrize(("neighbours", "moved"), [("replace-one", 2), ("add-remove", 1)])
def test_no_two_rows_move_whole_tables_by_more_and_some_by_as_much(neighbours, moved):
    query = ask_whole(AXES, SCHEMA, neighbours, PAIRS)
    scales = query.scales[0]
    worst = 0.0
    cells = list(itertools.product("xy", ["p", "q", "r", None], "uvw"))
    for one, other in itertools.product(cells, [*cells, None]):
        if (other is None) != (neighbours == "add-remove"):
            continue
        change = 0.0
        for table, scale in zip(query.blocks[0].sets, scales, strict=True):
            same = other is not None and all(one[i] == other[i] for i in table)
            change += 0.0 if same else (1 if other is None else 2) / scale
        worst = max(worst, change)
    assert worst == pytest.approx(query.l1, rel=1e-9)
    assert worst <= query.l1
    assert query.l1 == pytest.approx(moved * sum(1 / scale for scale in scales))


def test_scales_are_the_best_there_are():
    scales = np.array(ask_whole(AXES, SCHEMA, "replace-one", PAIRS).scales[0])
    tables = WholeTables(AXES, ((0, 1), (0, 2), (1, 2)))
    cells = [math.prod(array.shape) for array in tables.arrays(SCHEMA)]
    weights = np.array([1.0, 1.0, 4.0]) * cells

    def total(each):
        return float(weights @ each**2) * float(np.sum(1 / each)) ** 2

    for place, factor in itertools.product(range(3), (0.9, 1.1)):
        other = scales.copy()
        other[place] *= factor
        assert total(other) > total(scales)


def test_without_noise_every_table_is_that_of_the_rows():
    sums = tuple(counts(ROWS, table) for table in PAIRS)
    measured = measured_whole(Answer((sums,), ((0.0,) * 3,), ROWS.height, SCHEMA), AXES, tuple(PAIRS))
    for table in [*PAIRS, (0,), (1,), (2,)]:
        found = measured.marginal([list(SCHEMA)[i] for i in table])
        np.testing.assert_allclose(found.values, counts(ROWS, table), atol=1e-9)


@pytest.mark.slow(1.5)
@pytest.mark.parametrize("rows", [160, None], ids=["public", "private"])
def test_the_stated_noise_of_every_cell_is_that_of_made_up_answers(rows):
    rng, stds, runs = np.random.default_rng(4), (3.0, 5.0, 2.0), 3000
    exact = [counts(ROWS, table) for table in PAIRS]
    drawn = []
    for _ in range(runs):
        noisy = tuple(
            each + std / math.sqrt(2) * rng.laplace(size=each.shape)
            for each, std in zip(exact, stds, strict=True)
        )
        answer = Answer((noisy,), (stds,), rows, SCHEMA, law=Law(1.0))
        drawn.append(measured_whole(answer, AXES, tuple(PAIRS)))
    for names in (["a"], ["b", "c"], ["a", "b"]):
        found = np.array([each.marginal(names).values for each in drawn])
        stated = drawn[0].marginal(names).noise
        truth = counts(ROWS, tuple(list(SCHEMA).index(name) for name in names))
        assert np.abs(found.mean(0) - truth).max() < 5 * stated.max() / math.sqrt(runs)
        np.testing.assert_allclose(found.std(0), stated, rtol=0.08)
        reach = float(drawn[0].law.quantile(0.975))
        covered = (np.abs(found - truth) <= reach * stated).mean()
        assert 0.94 <= covered <= 0.975


def test_a_release_without_delta_has_all_tables():
    sites = {name: ROWS.clone() for name in "abcde"}
    consortium = Consortium(sites, SCHEMA, Budget(epsilon=20.0), colluding=1)
    release = consortium.release(Tables(list(SCHEMA)), 1.0)
    table = release.table("a", "c")
    assert table.values.sum() == pytest.approx(5 * ROWS.height)
    low, high = table.interval()
    truth = 5 * counts(ROWS, (0, 2))
    assert np.abs(table.values - truth).max() < 8 * table.standard_error.max()
    assert (high - low > 2 * 1.96 * table.standard_error).all()  # Laplace's tails are longer
    planned = consortium.plan(Tables(list(SCHEMA)), 1.0).noise["a=x"]["cape"]
    assert planned == pytest.approx(release.table("a").standard_error[0], rel=2e-3)
