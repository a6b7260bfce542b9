from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cape.blocks import Axis, Merged, Table
from cape.core.errors import InvalidInput
from cape.data import Number, Schema

SCHEMA = Schema(age=(0, 40), sex=["female", "male"], stage=Number(0, 3, missing=False))
AXES = (Axis("age", (0.0, 10.0, 20.0, 40.0)), Axis("sex"), Axis("stage", (0.0, 1.0, 2.0, 3.0)))
ROWS = pl.DataFrame(
    {
        "age": [5.0, 15.0, None, 39.0, 99.0, None],
        "sex": ["male", "female", "male", None, "male", None],
        "stage": [0.0, 1.5, 3.0, 2.0, 0.5, 1.0],
    }
)


def test_every_row_is_in_one_cell_of_every_table():
    block = Merged(AXES, ((0, 0, 1, 2), (0, 1, 1), (0, 1, 1)), ((0,), (0, 1), (2,), (1, 2, 0)))
    (sums,) = Table("a", ROWS, SCHEMA).sums([block])
    assert [each.sum() for each in sums] == [6, 6, 6, 6]
    assert sums[0].tolist() == [2, 2, 2]  # under 20, over, missing
    assert sums[1].tolist() == [[1, 1], [0, 2], [0, 2]]  # "male" and missing are one group
    assert sums[2].tolist() == [2, 4]
    assert [array.shape for array in block.arrays(SCHEMA)] == [(3,), (3, 2), (2,), (2, 2, 3)]
    assert block.reads == ("age", "sex", "stage")


def test_a_condition_leaves_rows_out_of_all_tables():
    block = Merged(AXES, ((0, 1, 2, 3), (0, 1, 2), (0, 1, 2)), ((0, 1), (2,)))
    (sums,) = Table("a", ROWS, SCHEMA.only("sex = 'male'")).sums([block])
    assert [each.sum() for each in sums] == [3, 3]


@pytest.mark.parametrize(
    "groups",
    [
        ((0, 1), (0, 1, 2), (0, 1, 2)),
        ((0, 1, 2, 4), (0, 1, 2), (0, 1, 2)),
        ((1, 1, 1, 1), (0, 1, 2), (0, 1, 2)),
    ],
)
def test_groups_must_fit_the_levels(groups):
    with pytest.raises(InvalidInput, match="column 'age' must have a group for each"):
        Merged(AXES, groups, ((0,),)).arrays(SCHEMA)


def test_typical_rows_are_merged_too():
    block = Merged(AXES, ((0, 0, 1, 1), (0, 1, 1), (0, 1, 1)), ((0, 1),))
    (table,) = block.typical(SCHEMA, 1000)
    assert table.sum() == pytest.approx(1000)
    assert np.allclose(table.sum(axis=0), [500, 500])
