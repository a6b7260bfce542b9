"""[person] of a study: what it may say, and what is refused with a sentence."""

from __future__ import annotations

import pytest

from cape.core.errors import InvalidInput
from cape.data import Person, Schema
from cape.data.person import Aggregate, OneRow

COLUMNS = {
    "age": (18, 90),
    "hba1c": (3, 15),
    "admitted": ("2010-01-01", "2030-01-01"),
    "sex": ["female", "male"],
    "n_visits": (0, 40),
    "max_hba1c": (3, 15),
}
SCHEMA = Schema({name: {"bounds": v} if name == "admitted" else v for name, v in COLUMNS.items()})


def test_a_study_file_says_it_and_to_dict_says_it_again():
    given = {"id": "patient_id", "rows": 4, "sites": 2, "take": "latest", "by": "admitted"}
    person = Person.of(given)
    assert person == Person("patient_id", rows=4, sites=2, take="latest", by="admitted")
    assert person.to_dict() == given
    assert person.open
    assert person.reads == ("admitted",)
    row = {"take": "latest", "by": "admitted", "n_visits": "count(*)", "max_hba1c": "MAX(hba1c)"}
    made = Person.of({"id": "patient_id", "row": row})
    assert not made.open
    assert made.reads == ("admitted", "hba1c")
    assert made.to_dict()["row"] == row | {"max_hba1c": "max(hba1c)"}
    assert Person.of(made.to_dict()) == made
    assert Person.of(None) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the key 'id' is missing"),
        ({"id": ""}, "id must name the column"),
        ({"id": 7}, "id must name the column"),
        ({"id": "p", "rows": 0}, "rows must be an integer at least 1"),
        ({"id": "p", "rows": 2.0}, "rows must be an integer"),
        ({"id": "p", "sites": 0}, "sites must be an integer at least 1"),
        ({"id": "p", "take": "first"}, "take must be one of random, latest, earliest"),
        ({"id": "p", "take": "latest"}, "needs by"),
        ({"id": "p", "by": "admitted"}, "needs by"),
        ({"id": "p", "row": {"take": "latest", "by": "admitted"}, "rows": 2}, "leave out rows"),
        ({"id": "p", "rwos": 2}, "unknown key 'rwos'"),
        ({"id": "admitted", "take": "latest", "by": "admitted"}, "must not be a column"),
        ({"id": "p", "row": "latest"}, "row must be a table"),
        ({"id": "p", "row": {"a": "count(*)", "b": "max(a)"}}, "is an aggregate too"),
        ("[]", None),
        ([], "person must be a table"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    if said is None:
        assert Person.of(given).id == given
        return
    with pytest.raises(InvalidInput) as caught:
        Person.of(given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "max(hba1c + 1)",
        "max(hba1c, age)",
        "count(distinct hba1c)",
        "sum(distinct hba1c)",
        "max(hba1c) filter (where age > 3)",
        "max(hba1c) over ()",
        "max(t.hba1c)",
        "stddev(hba1c)",
        "hba1c",
        "*",
        "count()",
        "max(*)",
        "(select max(hba1c) from x)",
        "max(hba1c); drop table x",
        "max(hba1c) -- x\n + 1",
        "first(hba1c)",
        "",
        "max(" * 200,
        7,
        None,
    ],
)
def test_only_one_aggregate_over_one_column_is_taken(text):
    with pytest.raises(InvalidInput, match="must be one of count, min, max, sum, avg over one column"):
        Aggregate.parse(text)


def test_aggregates_are_written_as_they_are_read():
    for text in ("count(*)", "count(age)", "min(age)", "max(age)", "sum(age)", "avg(age)", 'avg("a ""b")'):
        assert str(Aggregate.parse(text)) == text


@pytest.mark.parametrize(
    ("person", "said"),
    [
        (Person("age"), "must not be a column of the schema"),
        (Person("p", take="latest", by="seen"), "no column 'seen'"),
        (Person("p", take="latest", by="sex"), "by must name a column of numbers or dates"),
        (Person("p", row={"visits": "count(*)"}), "needs public bounds"),
        (Person("p", row={"n_visits": "max(sex)"}), "must be over a column of numbers"),
        (Person("p", row={"n_visits": "max(bmi)"}), "no column 'bmi'"),
    ],
)
def test_it_must_fit_the_columns(person, said):
    with pytest.raises(InvalidInput) as caught:
        SCHEMA.of_persons(person)
    assert said in str(caught.value)


def test_numbers_of_rows_are_private_where_a_person_may_have_several():
    strict = Schema(age={"bounds": [18, 90], "missing": False})
    assert not strict.of_persons(Person("p")).open
    assert not strict.of_persons(Person("p", row=OneRow()))["age"].missing
    for person in (Person("p", rows=2), Person("p", sites=2)):
        schema = strict.of_persons(person)
        assert schema.open
        assert schema["age"].missing
        assert schema.key != strict.key
