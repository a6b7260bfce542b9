from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.synthetic.synthetic import SyntheticData
from cape.analyses.synthetic.synthetic_model import cells
from cape.analyses.tables.marginals import Levels
from cape.analyses.tables.tables import Tables, cut
from cape.core.errors import InvalidInput
from cape.data import Number, Schema, troubles
from cape.data.files import Csv
from cape.data.survey import survey

WHOLE = {"low": 18, "high": 90, "integer": True, "missing": False}
SCHEMA = Schema(
    {
        "age": WHOLE,
        "visits": {"bounds": [0, 1000], "integer": True},
        "amount": (0, 500),
        "change": (-5, 5),
        "sex": ["female", "male"],
    }
)


def levels(axis, schema=SCHEMA):
    return Levels.of(axis, schema)


def test_a_schema_without_the_key_is_written_as_before():
    assert "integer" not in str(Schema(age=(18, 90)).to_dict())
    told = SCHEMA.to_dict()
    assert told["age"]["integer"] is True
    assert Schema(told)["age"].integer
    assert "whole numbers" in repr(SCHEMA)
    assert Number(18, 90) == Number(18, 90, integer=True), "a site's own column need not say it"


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"low": 0.5, "high": 9, "integer": True}, "must be whole"),
        ({"low": 0, "high": 2.0**60, "integer": True}, "within ±2"),
        ({"low": 0, "high": 9, "integer": "yes"}, "true or false"),
        ({"low": "2015-01-01", "high": "2016-01-01", "integer": True}, "whole days"),
        ({"categories": [0, 1], "integer": True}, "columns with bounds"),
    ],
)
def test_what_cannot_be_whole_numbers_is_refused(column, said):
    with pytest.raises(InvalidInput, match=said):
        Schema({"x": column})


def test_whole_numbers_are_cut_between_them():
    (axis,) = cut(SCHEMA, ["age"], {}, 5)
    found = levels(axis)
    assert found.names == ("18 to 32", "33 to 46", "47 to 61", "62 to 75", "76 to 90")
    assert found.middles.tolist() == [25.0, 39.5, 54.0, 68.5, 83.0]
    (axis,) = cut(SCHEMA, ["age"], {}, 500)
    found = levels(axis)
    assert len(found) == 73
    assert found.names[0] == "18"
    assert found.label(72) == "age=90"
    (axis,) = cut(SCHEMA, ["age"], {"age": [18, 40, 65, 90]}, None)
    assert levels(axis).names == ("18 to 39", "40 to 64", "65 to 90")
    assert levels(axis).label(1) == "age in 40 to 64"
    with pytest.raises(InvalidInput, match="no whole number"):
        cut(SCHEMA, ["age"], {"age": [18, 40.2, 40.4, 90]}, None)


def test_a_condition_may_divide_whole_numbers_anywhere_between_them():
    rows = pl.DataFrame({"age": np.arange(18, 90), "sex": ["female", "male"] * 36})
    sites = {"a": rows, "b": rows.clone()}
    schema = Schema(age=WHOLE, sex={"categories": ["female", "male"], "missing": False})
    with pytest.warns(cape.PrivacyLeakWarning):
        release = cape.Consortium(sites, schema, cape.Budget(1.0, 1e-6), colluding=0).release(
            Tables(["age", "sex"], edges={"age": [18, 40, 90]}), 1.0, scheme="none"
        )
    assert release.table("sex", where="age > 39").values == pytest.approx([50, 50])
    assert release.table("sex", where="age >= 40").values == pytest.approx([50, 50])
    with pytest.raises(InvalidInput, match="divides the bin"):
        release.table("sex", where="age > 40")
    again = type(release.model).from_dict(release.model.to_dict(), schema)
    assert again.table("sex", where="age > 39.5").values == pytest.approx([50, 50])


def test_zero_and_bounds_have_bins_of_their_own():
    asked = SyntheticData(["amount", "change", "age", "visits"], bins={"amount": 4, "change": 2, "visits": 8})
    amount, change, age, visits = map(levels, asked.axes(SCHEMA))
    assert amount.names == ("0", "(0, 125)", "[125, 250)", "[250, 375)", "[375, 500)", "500", "missing")
    assert change.names == ("-5", "(-5, 0)", "0", "(0, 5)", "5", "missing")
    assert len(age) == 73, "few whole numbers have a bin each"
    assert len(visits) == 9
    stated = SyntheticData(["age", "amount"], edges={"amount": [10, 100, 500], "age": [18, 50, 90]})
    age, amount = map(levels, stated.axes(SCHEMA))
    assert len(age) == 2
    assert amount.names == ("[10, 100)", "[100, 500)", "500", "missing")


@pytest.mark.parametrize("column", ["age", "visits", "amount", "change"])
def test_a_drawn_cell_is_in_the_bin_that_it_was_drawn_from(column):
    (axis, _) = SyntheticData([column, "sex"], bins=7).axes(SCHEMA)
    found, rng = levels(axis), np.random.default_rng(0)
    places = rng.integers(0, len(found), 5000)
    drawn = cells(found, places, rng.random(5000))
    numbers = drawn.cast(pl.Float64).fill_null(np.nan).to_numpy()
    back = axis.cut.find(numbers)
    assert np.where(back < 0, axis.cut.count, back).tolist() == places.tolist()
    assert drawn.dtype == (pl.Int64 if SCHEMA[column].integer else pl.Float64)
    assert drawn.drop_nulls().is_between(SCHEMA[column].low, SCHEMA[column].high).all()
    within = cells(found, places, np.full(5000, 1 - 1e-6)), cells(found, places, np.zeros(5000))
    for ends in within:
        numbers = ends.cast(pl.Float64).fill_null(np.nan).to_numpy()
        assert (axis.cut.find(numbers) == back).all()


def test_a_fact_about_numbers_counts_the_bounds_that_it_names():
    schema = Schema(amount={"low": 0, "high": 500, "missing": False}, sex=["female", "male"])
    fact = SyntheticData(
        ["amount", "sex"], bins={"amount": 4}, impossible=[{"amount": [375, 500], "sex": "male"}]
    )
    axes = fact.axes(schema)
    (possible,) = fact._facts(schema, axes).possible.values()
    assert possible[:, 1].tolist() == [True, True, True, True, False, False]


def test_cells_that_are_not_whole_are_named_and_stop_nothing(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text("age\n20\n20.5\n\n31\n20.5\n7.25\n")
    schema = Schema(age={"low": 18, "high": 90, "integer": True})
    found = survey("site", Csv(path), schema)
    (column,) = found.columns
    assert (column.fractions.count, column.fractions.cells) == (3, {"20.5": 2, "7.25": 1})
    assert not found.fails()
    (said,) = [str(each) for each in troubles.warnings(found) if "not whole" in str(each)]
    assert "3 cells not whole (lines 3, 6, 7): '20.5' (2), '7.25'" in said
    assert "they count as the whole number below" in said
    assert "20.5" not in str(found.shown())
    assert survey("site", Csv(path), Schema(age=(18, 90))).columns[0].fractions.count == 0
