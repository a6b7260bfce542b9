"""Derived columns, `where` and the column of sites, as sums see them."""

import numpy as np
import polars as pl
import pytest

from cape import Budget, Consortium, Count, Mean, Schema, TableOne
from cape.blocks import Axis, Counts, Moments, Table
from cape.core.errors import DataError, InvalidInput

SCHEMA = Schema(
    age=(18, 90),
    bmi=(10, 60),
    sex=["f", "m"],
    obese={"sql": "bmi >= 30"},
    band={"sql": "cut(age, 40, 65)"},
    heavy={"sql": "obese = 'yes' and age > 30", "categories": ["light", "heavy"]},
)
ROWS = pl.DataFrame(
    {
        "age": [20.0, 50.0, 70.0, None, 100.0],
        "bmi": [25.0, 35.0, None, 40.0, 31.0],
        "sex": ["f", "m", "m", "f", None],
    }
)


def table(schema=SCHEMA, rows=ROWS, **options):
    return Table("a", rows, schema, **options)


def counts(of, *columns):
    (found,) = of.sums([Counts(tuple(Axis(name) for name in columns))])
    return found[0].tolist()


def test_derived_columns_are_added_up_as_columns_of_the_table_are():
    assert counts(table(), "obese") == [1, 3]
    assert counts(table(), "band") == [1, 1, 2]
    assert counts(table(), "heavy") == [1, 2]  # of a missing age: obese, so it is unknown


def test_a_cell_beyond_a_bound_counts_as_the_bound_in_expressions():
    schema = Schema(age=(18, 90), old={"sql": "age > 95"})
    assert counts(table(schema), "old") == [4, 0]


def test_where_keeps_the_rows_for_which_it_is_true():
    view = table().of(SCHEMA.only("age >= 50"))
    (found,) = view.sums([Moments(("age",))])
    assert found[0].tolist() == [3]
    assert counts(view, "sex") == [0, 2]
    assert view.rows() == 5  # of the table, which stays public


def test_conditions_add_up_and_the_same_one_counts_once():
    narrowed = SCHEMA.only("age >= 50").only("sex = 'm'")
    assert counts(table().of(narrowed)) == 2
    assert narrowed.only("age >= 50") is narrowed


def test_rows_may_be_absent_where_there_is_a_condition():
    schema = Schema(age={"bounds": [18, 90], "missing": False})
    assert not schema.open
    assert not schema["age"].missing
    assert schema.only("age > 20").open
    assert schema.only("age > 20")["age"].missing
    assert not schema.only("age > 20").stated["age"].missing


def test_vectors_are_kept_for_each_condition():
    from cape.blocks.design import Design

    rows = table(rows=ROWS.drop_nulls())
    old, young = rows.of(SCHEMA.only("age >= 60")), rows.of(SCHEMA.only("age < 60"))
    assert [each.vectors(Design(("bmi",), "age"))[0].shape[0] for each in (old, young, old)] == [0, 2, 0]


def test_every_site_has_a_column_with_its_name():
    schema = SCHEMA.at(["a", "b"])
    assert counts(table(schema), "site") == [5, 0]
    assert "site" in schema
    assert "site" not in list(schema)
    assert "site" not in schema.to_dict()
    with pytest.raises(DataError, match="not in the study's list of sites"):
        counts(table(SCHEMA.at(["b", "c"])), "site")


def test_a_column_called_site_in_the_schema_is_refused():
    with pytest.raises(InvalidInput, match="a study makes the column 'site' itself"):
        Schema(site=["x", "y"]).at(["a", "b"])
    again = SCHEMA.at(["a", "b"])
    assert again.at(["c"]) is again


def test_only_the_columns_that_are_needed_have_to_be_there():
    rows = ROWS.drop("bmi")
    assert counts(table(rows=rows), "band") == [1, 1, 2]
    with pytest.raises(DataError, match="bmi"):
        counts(table(rows=rows), "heavy")


def test_sums_under_a_condition_are_those_of_the_rows_alone():
    rng = np.random.default_rng(5)
    rows = pl.DataFrame({"age": rng.uniform(0, 100, 20_000), "bmi": rng.normal(30, 10, 20_000)})
    schema = Schema(age=(18, 90), bmi=(10, 60), young={"sql": "age < 40"})
    block = Moments(("bmi",), by="young")
    alone = Table("a", rows.filter(pl.col("bmi") * 2 > pl.col("age")), schema).sums([block])
    where = table(schema, rows).of(schema.only("bmi * 2 > age")).sums([block])  # both clamped
    clamped = rows.filter(pl.col("bmi").clip(10, 60) * 2 > pl.col("age").clip(18, 90))
    same = Table("a", clamped, schema).sums([block])
    assert [part.tolist() for part in where[0]] == [part.tolist() for part in same[0]]
    assert [part.tolist() for part in where[0]] != [part.tolist() for part in alone[0]]


def consortium(**options):
    sites = dict.fromkeys("abc", ROWS)
    return Consortium(sites, SCHEMA, Budget(1000, 1e-6), colluding=0, **options)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_release_under_a_condition_has_a_private_number_of_rows(neighbours):
    release = consortium(neighbours=neighbours).release(Count(where="age >= 50"), 0.5)
    assert release.rows is None
    assert release.share == 0.5
    assert release.value == pytest.approx(9, abs=1)
    table_one = consortium(neighbours=neighbours).release(TableOne("age", "sex", where="age >= 50"), 1.0)
    assert next(e for e in table_one.estimates if e.label == "n").value == pytest.approx(9, abs=2)


def test_a_condition_is_part_of_an_analysis():
    some = Mean("age", where="sex = 'f'")
    assert some != Mean("age")
    assert some.to_dict()["where"] == "sex = 'f'"
    assert some.sentence == "mean of age, where sex = 'f'"
    with pytest.raises(InvalidInput, match="where must be a condition"):
        Mean("age", where=3)
    with pytest.raises(InvalidInput, match="where must be a condition, as in"):
        consortium().release(Mean("age", where="age + 1"), 0.1)


def test_categories_and_a_condition_make_one_condition():
    both = Count(where="age > 50", sex="m")
    assert both.where == "\"sex\" = 'm' and (age > 50)"
    assert consortium().release(both, 0.5).value == pytest.approx(3, abs=1)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"sql": "bmi >= 30", "categories": ["a", "b", "c"]}, "categories are two"),
        ({"sql": "bmi + 1", "categories": ["a"]}, "sql gives numbers"),
        ({"sql": "bmi >= 30", "low": 0, "high": 1}, "sql gives categories"),
        ({"sql": "bmi >= 30", "missing": False}, "leave missing out"),
        ({"sql": "3 + 4"}, "read at least one column"),
        ({"sql": 5}, "sql must be an expression"),
        ({"sql": "case when bmi > 30 then 'x' else 'y' end", "categories": ["x", "z"]}, "must list 'y'"),
        ({"sql": "later > 3"}, "later"),
    ],
)
def test_a_derived_column_that_cannot_be_is_refused_with_its_name(column, said):
    with pytest.raises(InvalidInput, match=said) as error:
        Schema(bmi=(10, 60), it=column)
    assert "'it'" in str(error.value)


def test_derived_columns_survive_the_way_to_a_site():
    again = Schema(SCHEMA.to_dict())
    assert again.key == SCHEMA.key
    assert again["band"] == SCHEMA["band"]


def test_dates_are_bounds_and_are_not_added_up_themselves():
    schema = Schema(day={"low": "2020-01-01", "high": "2020-12-31"}, year={"sql": "month(day)"})
    assert schema.to_dict()["day"]["low"] == "2020-01-01"
    with pytest.raises(InvalidInput, match="holds dates; derive a number"):
        Mean("day").query(schema, "replace-one")
    with pytest.raises(InvalidInput, match="two numbers, or two dates"):
        Schema(day={"low": "2020-01-01", "high": 5})


def test_a_derived_column_may_read_which_site_holds_a_row():
    described = {"age": [18, 90], "north": {"sql": "site = 'a'"}}
    schema = Schema.of_study(described, ["a", "b"])
    assert counts(table(schema), "north") == [0, 5]
    assert Schema.of_study(schema.to_dict(), ["a", "b"]).key == schema.key
    assert schema.by_site(["north"])
    assert not schema.by_site(["age"])
