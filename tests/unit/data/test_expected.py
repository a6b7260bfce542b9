"""What people expect of a column: read, checked, part of a study and its hash, and of no comparison."""

from __future__ import annotations

import math

import pytest

from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from cape.data.expected import Expected
from cape.study.document import hash_of, read
from tests.world import document

TWO, THREE = ["no", "yes"], ["a", "b", "c"]


def test_mean_and_sd_of_a_number_and_shares_of_categories_are_read_and_written_again() -> None:
    schema = Schema(
        age={"low": 18, "high": 100, "expected": {"mean": 61, "sd": 12}},
        ill={"categories": TWO, "expected": {"share": 0.1}},
        stage={"categories": THREE, "expected": {"b": 0.2, "a": 0.5, "c": 0.3}},
        score=(0, 1),
    )
    assert schema.number("age").expected == Expected(61, 12)
    assert schema.category("ill").shares == (0.9, 0.1)
    assert schema.category("stage").shares == (0.5, 0.2, 0.3)
    assert schema.number("score").expected is None
    again = Schema(schema.to_dict())
    assert [again[name].expected for name in schema] == [schema[name].expected for name in schema]
    assert schema.to_dict()["stage"]["expected"] == {"a": 0.5, "b": 0.2, "c": 0.3}
    assert "expected" not in schema.to_dict()["score"]


def test_a_category_that_is_called_share_has_a_share_of_its_own() -> None:
    assert Category(("share", "bond"), expected={"share": 0.3, "bond": 0.7}).shares == (0.3, 0.7)


def test_without_expectations_categories_are_equally_common() -> None:
    assert Category(("a", "b", "c", "d")).shares == (0.25,) * 4


def test_expectations_play_no_part_where_a_site_compares_columns() -> None:
    assert Number(0, 1, expected={"mean": 0.5, "sd": 0.1}) == Number(0, 1)
    assert Category(("no", "yes"), expected={"share": 0.5}) == Category(("no", "yes"))


def test_the_largest_sd_between_bounds_is_that_of_cells_at_both() -> None:
    most = math.sqrt((61 - 18) * (100 - 61))
    assert Number(18, 100, expected={"mean": 61, "sd": most * (1 - 1e-12)}).expected
    with pytest.raises(
        InvalidInput, match=r"expected sd must be at most 40\.95, .* with a mean of 61, not 41"
    ):
        Number(18, 100, expected={"mean": 61, "sd": 41})


@pytest.mark.parametrize(
    ("column", "expected", "problem"),
    [
        ({"low": 0, "high": 10}, {"mean": 10, "sd": 1}, "must lie between the bounds 0 and 10, not at 10"),
        ({"low": 0, "high": 10}, {"mean": 5, "sd": 0}, "expected sd must be a finite number above 0"),
        ({"low": 0, "high": 10}, {"mean": "5", "sd": 1}, "expected mean must be a finite number"),
        ({"low": 0, "high": 10}, {"mean": 5}, r"must have mean and sd, as in .*, not \['mean'\]"),
        ({"low": 0, "high": 10}, {"share": 0.1}, "must have mean and sd"),
        ({"low": 0, "high": 10}, 5, "expected must be a mean and an sd"),
        ({"categories": TWO}, {"share": 1.2}, "expected share must be a finite number at least 0.0 and"),
        ({"categories": TWO}, {"share": 0}, "must be above 0; for a value that hardly occurs write 0.001"),
        ({"categories": TWO}, {"mean": 5, "sd": 1}, r"yes = 0.5\}, or \{share = 0.1\} for that of 'yes'"),
        ({"categories": THREE}, {"share": 0.1}, r"share of every category, as in \{a = 0.33, b = 0.33, c"),
        ({"categories": THREE}, {"a": 0.5, "b": 0.5}, "the share of every category"),
        ({"categories": THREE}, {"a": 0.5, "b": 0.3, "c": 0.3}, "must add up to 1, not 1.1"),
        ({"categories": THREE}, {"a": 0.5, "b": 0.5, "c": 0}, "must be above 0"),
        ({"categories": THREE}, "abc", "the share of every category"),
    ],
)  # fmt: skip
def test_expectations_that_cannot_be_right(column: dict, expected: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Schema({"x": {**column, "expected": expected}})


def test_a_request_carries_them_under_the_hash_and_a_site_checks_them() -> None:
    plain, stated = document(), document()
    stated["schema"]["age"]["expected"] = {"mean": 61.0, "sd": 12.0}
    assert hash_of(plain) != hash_of(stated)
    assert read(stated, 1).setting.schema.number("age").expected == Expected(61, 12)
    stated["schema"]["age"]["expected"] = {"mean": 91.0, "sd": 12.0}
    with pytest.raises(InvalidInput, match="column 'age': expected mean must lie between"):
        read(stated, 1)
