from __future__ import annotations

import numpy as np
import pytest

from cape.blocks import Axis, Counts, Custom, Gram, Moments
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema

SCHEMA = Schema(
    age=(18, 90), sex=["female", "male"], stage=Category((0, 1, 2)), bmi=Number(10, 60, missing=False)
)


def test_a_study_file_says_the_same() -> None:
    assert dict(Schema(SCHEMA.to_dict())) == dict(SCHEMA)
    assert "age=18 to 90, sex=female | male" in repr(SCHEMA)
    assert "bmi=10 to 60, never missing" in repr(SCHEMA)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({}, "at least one column"),
        ({"a": (90, 18)}, "column 'a': bounds must rise"),
        ({"a": "text"}, "must be bounds such as"),
        ({"a": {"low": 1}}, "keys must be low and high"),
        ({"a": {"low": 1, "high": 2, "missing": 3}}, "missing must be true or false"),
        ({"a": []}, "at least one"),
        ({"a": [1, 2, 2]}, "must be different"),
        ({"a": [18]}, "bounds are two numbers, as in"),
        ({"a": [18, "90"]}, "bounds are two numbers, as in"),
        ({"a": [None, "x"]}, "must be text, integers or booleans"),
        ({"": (0, 1)}, "name must be text"),
    ],
)
def test_descriptions_that_cannot_be_right(columns: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Schema(columns)


def test_names_are_guessed() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'stage'"):
        SCHEMA["stge"]
    with pytest.raises(InvalidInput, match="choose from age, sex, stage, bmi"):
        SCHEMA["qqq"]
    with pytest.raises(InvalidInput, match="and others"):
        Schema({f"x{i}": (0, 1) for i in range(30)})["q"]


def test_blocks_know_their_shapes_and_refuse_the_wrong_kind_of_column() -> None:
    def shapes(block: Moments | Gram | Counts | Custom) -> list[tuple[int, ...]]:
        return [array.shape for array in block.arrays(SCHEMA)]

    assert shapes(Moments(("age", "bmi"), by="sex")) == [(2, 2)] * 3
    assert shapes(Gram(("age", "stage"))) == [(1,), (3,), (3,), (3,)]
    assert shapes(Counts((Axis("stage"), Axis("age", (0, 1, 2))))) == [(3, 2)]
    assert shapes(Custom(np.sin, ("age",), 4, 1.0)) == [(4,)]
    for block in (
        Moments(("sex",)),
        Moments(("age",), by="bmi"),
        Counts((Axis("age"),)),
        Custom(np.sin, (), 0, 1),
    ):
        with pytest.raises(InvalidInput):
            block.arrays(SCHEMA)
    for edges in ((1.0,), (2.0, 1.0), (0.0, float("nan"))):
        with pytest.raises(InvalidInput):
            Axis("age", edges)


def test_a_column_says_how_it_is_shown() -> None:
    schema = Schema(
        age={"bounds": [18, 90], "missing": False, "label": "Age", "unit": "years", "per": 10},
        sex={"categories": ["female", "male"], "label": "Sex"},
        bmi={"low": 10, "high": 60, "unit": "kg/m²"},
        age_at_entry=(18, 90),
    )
    assert schema["age"] == Number(18, 90, missing=False)  # what is shown is no part of what is compared
    assert {name: schema.title(name) for name in schema} == {
        "age": "Age (years)", "sex": "Sex", "bmi": "bmi (kg/m²)", "age_at_entry": "age_at_entry",
    }  # fmt: skip
    assert schema.title("sex=male") == "Sex: male"
    assert schema.title("age mean") == "Age mean"
    assert schema.title("ages") == "ages"
    assert schema.to_dict()["age"] == {
        "low": 18, "high": 90, "missing": False, "label": "Age", "unit": "years", "per": 10,
    }  # fmt: skip
    again = Schema(schema.to_dict())
    assert again.to_dict() == schema.to_dict()


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({"bounds": [18, 90], "per": 0}, "per must be a finite number above 0"),
        ({"bounds": [18, 90, 100]}, "bounds must be two numbers, as in"),
        ({"bounds": [18, 90], "label": "two\nlines"}, "label must be a line of text"),
        ({"bounds": [18, 90], "unit": "y" * 81}, "unit must be a line of text with at most 80"),
        ({"bounds": [18, 90], "label": 3}, "label must be a line of text"),
        ({"categories": ["a", "b"], "unit": "kg"}, "keys must be"),
        ({"bounds": [18, 90], "low": 18}, "keys must be"),
    ],
)
def test_a_column_that_cannot_be_shown_so(column: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Schema(a=column)


def test_a_derived_cell_may_be_missing_whatever_its_column_says():
    """A mean of x would count on the public number of rows, and one row move it 9% further than that."""
    derived = Number(0, 1, missing=False, sql="case when age > 50 then 1 end")
    schema = Schema(age=(18, 90), x=derived, y=Category(("no", "yes"), missing=False, sql="x > 0"))
    assert schema["x"].missing
    assert schema["y"].missing
