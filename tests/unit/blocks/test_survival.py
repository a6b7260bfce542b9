from __future__ import annotations

from fractions import Fraction

import duckdb
import numpy as np
import polars as pl
import pytest

from cape.blocks import Table
from cape.blocks.survival import BITS, Exits, _made, woven
from cape.blocks.times import Times
from cape.data import Database, Schema

SCHEMA = Schema(years=(0, 10), died=["no", "yes", "other"], arm=["a", "b"], sex=["f", "m"])


@pytest.mark.parametrize("cells", [2, 3, 4, 21])
def test_the_claimed_norm_holds_for_the_integers_of_the_matrix(cells):
    found = woven(cells)
    columns = [[Fraction(int(each), 2**BITS) for each in column] for column in found.whole.T]
    longest = max(sum(each**2 for each in column) for column in columns)
    assert longest <= Fraction(found.norm) ** 2 * (1 + Fraction(1, 2**50)) <= 1 + Fraction(1, 2**40)
    worst = max(
        sum((a - b) ** 2 for a, b in zip(one, two, strict=True)) for one in columns for two in columns
    )
    assert worst <= 2 * longest


@pytest.mark.parametrize(("cells", "least"), [(5, 1.382), (20, 1.797), (64, 2.161)])
def test_sums_over_bins_have_little_more_noise_than_the_best_matrix_leaves(cells, least):
    """`least` solves the convex problem of which `cape.blocks.survival` says the near solution."""
    matrix = woven(cells).matrix
    below = np.tril(np.ones((cells, cells)))
    asked = np.vstack([below, below.T])
    noise = asked @ np.linalg.inv(matrix.T @ matrix) @ asked.T
    assert np.sqrt(np.trace(noise) / len(asked)) * woven(cells).norm < 1.008 * least
    flat = np.sqrt((asked**2).sum() / len(asked))
    assert np.sqrt(np.trace(noise) / len(asked)) < flat


def test_columns_that_point_away_from_each_other_are_refused():
    with pytest.raises(ValueError, match="negative product"):
        _made(np.array([[2**BITS, -1], [0, 2**BITS]]))


FRAME = pl.DataFrame(
    {
        "years": [1.0, 2.0, 5.0, 5.0, 7.0, 7.0, None, 4.0, 3.0],
        "died": ["yes", "no", "yes", "no", "yes", "no", "yes", None, "other"],
        "arm": ["a", "a", "b", "b", "a", "b", "a", "a", "b"],
        "sex": ["f"] * 9,
    }
)
WANTED = {  # by arm, died and cell: bins to 2, to 5, and those who stay
    ("a", "yes"): [1, 0, 0],
    ("a", "no"): [1, 0, 1],  # one with an event after the last edge
    ("b", "yes"): [0, 1, 0],  # at the last edge
    ("b", "no"): [0, 0, 2],  # censored at the last edge or later
    ("b", "other"): [0, 1, 0],
}


def test_a_row_counts_in_one_cell_and_stays_if_nothing_happened_by_the_last_edge():
    block = Exits(Times.of(SCHEMA, "years", "died", edges=[2, 5]), ("arm",))
    assert block.reads == ("arm", "years", "died")
    connection = duckdb.connect()
    connection.register("people", FRAME)
    for source in (FRAME, Database("SELECT * FROM people", connection)):
        ((sums,),) = Table("a", source, SCHEMA).sums([block])
        counts = np.linalg.solve(woven(3).matrix, sums.reshape(-1, 3).T * 2.0**-BITS).T.reshape(2, 3, 3)
        for i, arm in enumerate("ab"):
            for j, kind in enumerate(("no", "yes", "other")):
                assert counts[i, j] == pytest.approx(WANTED.get((arm, kind), [0, 0, 0]), abs=1e-9)


def test_edges_up_to_the_upper_bound_tell_an_event_from_censoring_there():
    block = Exits(Times.of(SCHEMA, "years", "died", bins=2))
    frame = pl.DataFrame({"years": [10.0, 10.0, 11.0], "died": ["yes", "no", "no"], "arm": ["a"] * 3})
    ((sums,),) = Table("a", frame, Schema(years=(0, 10), died=["no", "yes"], arm=["a"])).sums([block])
    counts = np.linalg.solve(woven(3).matrix, sums[0].T * 2.0**-BITS).T
    assert counts == pytest.approx(np.array([[0, 0, 2], [0, 1, 0]]), abs=1e-9)


def test_two_columns_divide_rows_into_all_their_combinations():
    block = Exits(Times.of(SCHEMA, "years", "died", edges=[5]), ("arm", "sex"))
    assert [array.shape for array in block.arrays(SCHEMA)] == [(4, 3, 2)]
    (typical,) = block.typical(SCHEMA, 1200)
    assert np.linalg.solve(woven(2).matrix, typical.reshape(-1, 2).T).sum() == pytest.approx(1200)
