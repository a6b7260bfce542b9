"""Rows to predict from are read as sites read theirs, and what does not fit is refused and not shown."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema

SCHEMA = Schema(
    age=Number(0, 100), smokes=Category((0, 1)), old=Category((False, True)), sex=Category(("f", "m"))
)
FEATURES = ("age", "smokes", "old", "sex")
UNITS = Units(Design(FEATURES), SCHEMA)
TABLE = {
    "age": np.array([0.0, 50.0, 100.0]),
    "smokes": np.array([0, 1, 0]),
    "old": np.array([False, True, True]),
    "sex": np.array(["f", "m", "m"]),
}
EXPECTED = np.array([[-1, 0, 0, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 2


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"smokes": np.array([0.0, 1.0, 0.0])},
        {"smokes": np.array([False, True, False])},
        {"smokes": ["0", "1.0", 0]},
        {"old": np.array([0, 1, 1])},
        {"old": np.array(["false", "True", "TRUE"])},
        {"age": np.array([0, 50, 100])},
        {"age": [0, Decimal(50), np.float32(100)]},
        {"age": pd.array([0, 50, 100], dtype="Int64")},
        {"sex": pd.Categorical(["f", "m", "m"])},
    ],
)
def test_a_cell_is_the_same_value_as_at_a_site(other):
    assert UNITS.rows(TABLE | other) == pytest.approx(EXPECTED)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_are_tables(frame):
    assert UNITS.rows(frame(TABLE)) == pytest.approx(EXPECTED)


@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA, pd.NaT, np.float64("nan"), Decimal("nan")])
@pytest.mark.parametrize("name", FEATURES)
def test_a_missing_cell_is_nan(name, nothing):
    holed = np.array(list(TABLE[name]), dtype=object)
    holed[1] = nothing
    found = UNITS.rows(TABLE | {name: holed})
    place = FEATURES.index(name)
    assert np.isnan(found[1, place])
    assert found[[0, 2], place] == pytest.approx(EXPECTED[[0, 2], place])


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"age": np.array(["1", "secret", "2"])}, "'age'.*numbers"),
        ({"age": np.array([1.0, "secret", 2.0], dtype=object)}, "'age'.*numbers; row 1"),
        ({"age": np.array(["2020-01-01"] * 3, dtype="datetime64[D]")}, "'age'.*numbers"),
        ({"sex": np.array(["f", "secret", "m"])}, "'sex'.*must be one of"),
        ({"sex": np.array([0, 1, 1])}, "'sex'.*must be one of"),
        ({"smokes": np.array([0.0, 0.5, 1.0])}, "'smokes'.*must be one of"),
        ({"smokes": np.array([0, 2, 1])}, "'smokes'.*must be one of"),
        ({"sex": np.array(["f", "m"])}, "'sex' has 2"),
        ({"age": 50.0, "smokes": 1, "old": True, "sex": "m"}, "'age'.*list of cells"),
        ({"age": np.zeros((3, 2))}, "'age'.*list of cells"),
        ({"age": [[1], [2, 3], [4]]}, "'age'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_not_shown(other, told):
    with pytest.raises(InvalidInput, match=told) as refused:
        UNITS.rows(TABLE | other)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_an_array_must_hold_numbers():
    units = Units(Design(("age",)), SCHEMA)
    assert units.rows(np.array([[25], [75]])) == pytest.approx(np.array([[-0.5], [0.5]]))
    with pytest.raises(InvalidInput, match="numbers"):
        units.rows(np.array([["a"]]))
