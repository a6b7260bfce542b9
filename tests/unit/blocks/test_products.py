"""Products by group are those of the group's rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cape.blocks import Design, GroupedProducts, Moments, Table
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema

SCHEMA = Schema(
    y=(-2, 2),
    a=Number(0, 10),
    b=Category(("no", "maybe", "yes")),
    clinic=Category(("p", "q", "r")),
    sex=["female", "male"],
)
DESIGN = Design(("a", "b"), "y")


def rows(many: int = 9000) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "y": rng.normal(size=many),
            "a": rng.uniform(0, 10, many),
            "b": rng.choice(["no", "maybe", "yes"], many),
            "clinic": rng.choice(["p", "q"], many),
            "sex": rng.choice(["female", "male"], many),
        }
    )
    gone = pl.Series(rng.random(many) < 0.05)
    return frame.with_columns(
        pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in ("y", "clinic")
    )


def direct(frame: pl.DataFrame) -> np.ndarray:
    """The products of (1, x, y) of one group's rows, in integers."""
    x, y = Table("t", frame, SCHEMA).vectors(DESIGN)
    v = np.column_stack([x, y]).astype(object)
    whole = np.empty((5, 5), object)
    whole[1:, 1:] = v.T @ v
    whole[0, 0], whole[0, 1:] = len(v), v.sum(axis=0)
    whole[1:, 0] = whole[0, 1:]
    return whole


def test_products_are_those_of_each_groups_rows():
    frame, block = rows(), GroupedProducts(DESIGN, "clinic")
    (found,) = Table("t", frame, SCHEMA).sums([block])
    known = frame.filter(pl.col("clinic").is_not_null())
    by_group = [direct(known.filter(pl.col("clinic") == name)) for name in "pq"] + [np.zeros((5, 5), object)]
    for products, sums, array in zip(block.products(SCHEMA), found, block.arrays(SCHEMA), strict=True):
        wanted = np.array([[int(each[i, j]) for i, j in products.places] for each in by_group])
        assert sums.shape == array.shape == wanted.shape
        assert (sums == wanted).all()
    everything = {(i, j) for i in range(5) for j in range(i, 5)}
    assert {place for each in block.products(SCHEMA) for place in each.places} == everything


def test_rows_in_another_order_give_the_same_products():
    frame, block = rows(), GroupedProducts(DESIGN, "clinic")
    turned = frame.sample(fraction=1.0, shuffle=True, seed=2)
    one, other = (Table("t", each, SCHEMA).sums([block])[0] for each in (frame, turned))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


def test_typical_sums_have_the_shares_of_groups():
    block = GroupedProducts(DESIGN, "clinic")
    found = block.typical(SCHEMA, 900)
    assert [each.shape for each in found] == [array.shape for array in block.arrays(SCHEMA)]
    assert found[0].ravel() == pytest.approx([300] * 3)


def test_a_design_that_does_not_fit_is_refused():
    with pytest.raises(InvalidInput, match="a target"):
        GroupedProducts(Design(("a",)), "clinic").arrays(SCHEMA)
    with pytest.raises(InvalidInput, match="must have categories"):
        GroupedProducts(Design(("b",), "y"), "a").arrays(SCHEMA)


def test_moments_by_two_columns_are_those_of_the_rows_of_both():
    frame = rows(500)
    (found,) = Table("t", frame, SCHEMA).sums([Moments(("y", "a"), by=("clinic", "sex"))])
    for i, clinic in enumerate("pqr"):
        for j, sex in enumerate(("female", "male")):
            part = frame.filter((pl.col("clinic") == clinic) & (pl.col("sex") == sex))
            (known,) = Table("t", part, SCHEMA).sums([Moments(("y", "a"))])
            assert all((sums[i, j] == each).all() for sums, each in zip(found, known, strict=True))
