"""Sums by group are those of each group's own table, and a row counts in one of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cape.blocks import Axis, Counts, Custom, Design, Form, Gram, Grouped, Moments, Squares, Table
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.person import Person
from tests.unit.blocks import reference

SCHEMA = Schema(x=(-1, 1), y=(0, 8), g=["a", "b", "c"])
EACH = [
    Moments(("x", "y")),
    Gram(("x", "y")),
    Counts((Axis("y", (0.0, 2.0, 8.0)),)),
    Squares(Design(("x", "y"), cube=True), (0.1, -0.2), (Form(((0, 1, 1.0),), 1.5),)),
]


def people(rows: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "x": rng.normal(size=rows),
            "y": [None if i % 7 == 0 else float(v) for i, v in enumerate(rng.gamma(2, 1, rows))],
            "g": rng.choice(["a", "b", None], rows).tolist(),  # nobody in "c"
            "who": [f"p{i // 3}" for i in range(rows)],
        }
    )


@pytest.mark.parametrize("block", EACH, ids=lambda block: type(block).__name__)
@pytest.mark.parametrize("where", [None, "x > -0.5"])
def test_each_group_has_the_sums_of_its_own_table(block, where):
    frame = people(20_000)  # three parts
    schema = SCHEMA if where is None else SCHEMA.only(where)
    found = Table("t", frame, schema).sums([block, Grouped("g", (block,) * 3), block])
    own = [Table("t", frame.filter(pl.col("g") == g), schema).sums([block])[0] for g in "abc"]
    wanted = [array for arrays in own for array in arrays]
    assert reference.same([found[1]], [tuple(wanted)])
    assert reference.same([found[0], found[2]], Table("t", frame, schema).sums([block]) * 2)
    assert all((array == 0).all() for array in found[1][-len(own[0]) :])


def test_rows_of_a_person_are_divided_among_groups():
    frame = people(600)
    schema = SCHEMA.of_persons(Person.of({"id": "who", "rows": 2}))
    grouped, alone = Table("t", frame, schema).sums([Grouped("g", (Counts(()),) * 3), Counts((Axis("g"),))])
    assert [int(array) for array in grouped] == alone[0].tolist()
    assert 0 < sum(map(int, grouped)) <= 400


def test_typical_sums_follow_the_shares_of_groups():
    schema = Schema(x=(-1, 1), g={"categories": ["a", "b"], "expected": {"share": 0.25}})
    counts = Grouped("g", (Counts(()),) * 2).typical(schema, 1000)
    assert list(map(float, counts)) == [750.0, 250.0]


def test_a_function_that_came_with_a_request_is_not_hidden_in_groups():
    with pytest.raises(InvalidInput, match="Custom cannot be added up by group"):
        Grouped("g", (Custom(len, ("x",), 1.0, 1),) * 3)


def test_there_must_be_a_block_for_each_category():
    with pytest.raises(InvalidInput, match="column 'g' has 3 categories: give as many blocks"):
        Grouped("g", (Counts(()),) * 2).arrays(SCHEMA)
