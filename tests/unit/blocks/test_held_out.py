"""Persons that are held out: by a public rule over ids that stay at the site."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cape.blocks import Axis, Counts, Table
from cape.core.errors import InvalidInput
from cape.data import Person, Schema

SCHEMA = Schema(age=(0, 100), visit=(0, 50), sex=["female", "male"])


def frame(persons=400, rows=3, kind=str):
    ids = [kind(i) for i in range(persons) for _ in range(rows)]
    rng = np.random.default_rng(0)
    sex = rng.choice(["female", "male"], len(ids))
    return pl.DataFrame(
        {
            "id": ids,
            "age": rng.uniform(0, 100, len(ids)),
            "visit": [i % rows for i in range(len(ids))],
            "sex": sex,
        }
    )


def counted(data, where, person, schema=SCHEMA):
    study = schema.of_persons(person).only(where)
    return int(Table("a", data, schema.of_persons(person)).of(study).sums([Counts(())])[0][0])


def test_each_person_is_on_one_side_with_all_rows():
    person, data = Person("id", rows=3, keep_apart=0.3), frame()
    held = [i for i in range(400) if person.holds_out(str(i))]
    assert 90 < len(held) < 150
    assert counted(data, "held_out", person) == 3 * len(held)
    assert counted(data, "not held_out", person) == 3 * (400 - len(held))
    assert counted(data, "held_out and visit < 1", person) == len(held)


def test_the_rule_depends_on_the_id_and_the_salt_only():
    one, other = Person("id", keep_apart=0.3), Person("id", keep_apart=0.3, salt="again")
    sides = [[person.holds_out(str(i)) for i in range(1000)] for person in (one, other)]
    assert sides[0] == [Person("id", rows=4, sites=2, keep_apart=0.3).holds_out(str(i)) for i in range(1000)]
    both = np.mean(np.logical_and(*sides))
    assert 0.05 < both < 0.13, "another salt holds out others"
    wider = [Person("id", keep_apart=0.6).holds_out(str(i)) for i in range(1000)]
    assert all(wide or not held for wide, held in zip(wider, sides[0], strict=True)), (
        "a larger share adds persons"
    )
    assert [i for i in range(40) if one.holds_out(str(i))] == [
        0,
        1,
        2,
        6,
        8,
        18,
        22,
        24,
        27,
        28,
        32,
        33,
        36,
    ], "a model that is in use was fitted by this rule"


@pytest.mark.parametrize("kind", [str, int, float])
def test_ids_of_any_type_are_on_the_same_side(kind):
    person = Person("id", rows=3, keep_apart=0.3)
    assert counted(frame(kind=kind), "held_out", person) == counted(frame(), "held_out", person)


def test_one_row_made_of_a_persons_is_on_their_side():
    person = Person("id", row={"take": "latest", "by": "visit", "visits": "count(*)"}, keep_apart=0.3)
    schema = Schema(age=(0, 100), visit=(0, 50), visits=(0, 40), sex=["female", "male"])
    held = sum(person.holds_out(str(i)) for i in range(400))
    assert counted(frame(), "held_out", person, schema) == held
    assert counted(frame(), "not held_out and visits = 3", person, schema) == 400 - held


def test_a_row_without_an_id_is_on_neither_side():
    data = frame(10).with_columns(pl.when(pl.col("id") == "3").then(None).otherwise(pl.col("id")).alias("id"))
    person = Person("id", rows=3, keep_apart=0.5)
    assert counted(data, "held_out", person) + counted(data, "not held_out", person) == 27


def test_it_can_be_counted_by_and_its_expected_share_is_public():
    person = Person("id", rows=3, keep_apart=0.3)
    schema = SCHEMA.of_persons(person)
    (counts,) = Table("a", frame(), schema).sums([Counts((Axis("held_out"),))])[0]
    held = sum(person.holds_out(str(i)) for i in range(400))
    assert counts.tolist() == [3 * (400 - held), 3 * held]
    assert schema.category("held_out").shares == pytest.approx((0.7, 0.3))
    assert list(schema) == ["age", "visit", "sex"], "it is no column of a file"
    assert "held_out" not in schema.to_dict()


def test_another_persons_rows_change_nobodys_side():
    person, data = Person("id", rows=3, keep_apart=0.3), frame()
    held = counted(data, "held_out", person)
    new = frame(1).with_columns(pl.lit("new").alias("id"))
    more = counted(pl.concat([new, data]), "held_out", person)
    assert more - held == 3 * person.holds_out("new")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"id": "id", "keep_apart": 0}, "keep_apart must be"),
        ({"id": "id", "keep_apart": 1}, "keep_apart must be"),
        ({"id": "id", "salt": "a"}, "give keep_apart too"),
        ({"id": "id", "keep_apart": 0.2, "salt": 3}, "salt must be text"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(given, said):
    with pytest.raises(InvalidInput, match=said):
        Person.of(given)


def test_without_an_id_nobody_can_be_held_out():
    with pytest.raises(InvalidInput, match=r"keep_apart = 0.2 in \[person\]"):
        SCHEMA.only("held_out")
    with pytest.raises(InvalidInput, match=r"keep_apart = 0.2 in \[person\]"):
        SCHEMA.of_persons(Person("id")).only("not held_out")
    with pytest.raises(InvalidInput, match="rename the one"):
        Schema(held_out=["no", "yes"]).of_persons(Person("id", keep_apart=0.2))
