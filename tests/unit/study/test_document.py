"""What a document says is refused with its place and with what to write instead, in a file or on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from cape.core import documents
from cape.core.documents import Count, Text
from cape.core.errors import InvalidInput
from cape.study.document import hash_of, read
from tests.world import document


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    size: Count | None = None
    way: Literal["in", "out"] = "in"
    tags: list[str] = []
    level: Annotated[int, Meta(ge=0, le=9, description="must be a digit")] = 0

    def __post_init__(self) -> None:
        if self.size == 13:
            raise InvalidInput("thirteen is refused")


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inner: Inner
    beside: dict[str, Any] = {}


WRONG: dict[str, tuple[Any, str]] = {
    "unknown section": ({"inner": {"name": "x"}, "besides": {}}, "unknown section [besides]; did you mean"),
    "missing section": ({}, "the section [inner] is missing"),
    "no section": ({"inner": ["x"]}, "[inner] must be a table with keys, not a list"),
    "unknown key": ({"inner": {"name": "x", "sise": 1}}, "[inner]: unknown key 'sise'; did you mean 'size'?"),
    "missing key": ({"inner": {"size": 1}}, "[inner]: the key 'name' is missing"),
    "empty": ({"inner": {"name": " "}}, "[inner]: name must be a text, not ' '"),
    "a float": (
        {"inner": {"name": "x", "size": 1.0}},
        "[inner]: size must be an integer at least 1",
    ),
    "a bool": (
        {"inner": {"name": "x", "size": True}},
        "[inner]: size must be an integer at least 1",
    ),
    "described": ({"inner": {"name": "x", "level": 10}}, "[inner]: level must be a digit, not 10"),
    "a choice": ({"inner": {"name": "x", "way": "up"}}, '[inner]: way must be "in" or "out", not \'up\''),
    "an entry": (
        {"inner": {"name": "x", "tags": ["a", 5]}},
        "[inner]: entry 2 of tags must be a text",
    ),
    "our own": ({"inner": {"name": "x", "size": 13}}, "[inner]: thirteen is refused"),
    "no document": ([], "the document must be a table with keys, not a list"),
    "like a path": ({"x - at `$.inner`": 1}, "unknown section [x - at `$.inner`]; choose from inner, beside"),
    "within": ({"inner": {"name": {"a": "secret"}}}, "[inner]: name must be a text, not a table"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_its_place(what: str):
    given, says = WRONG[what]
    with pytest.raises(InvalidInput) as caught:
        documents.decode(given, Outer, file=True)
    assert str(caught.value).startswith(says)


WIRE: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"surprise": 1}, "unknown key 'surprise'; choose from epsilon, delta,"),
    "scheme": ({"scheme": "capes"}, "unknown scheme 'capes'; did you mean 'cape'?"),
    "delta": ({"delta": 1}, "delta must lie between 0 and 1; leave it out for a budget without delta, not 1"),
    "sites": ({"sites": ["a", 5, "c"]}, "entry 2 of sites must be a text, not 5"),
    "parties": ({"min_sites": 4}, "min_sites is 4, but there are only 3 sites"),
    "no share": ({"analyses": [{"kind": "count"}]}, "analysis 1 must be a table with a share"),
    "formula": (
        {"analyses": [{"kind": "linear-regression", "formula": "chol ~ age", "share": 0.1}]},
        "formula must be left out: a request says target and features",
    ),
    "argument": (
        {"analyses": [{"kind": "mean", "colums": ["age"], "share": 0.1}]},
        "an analysis of kind 'mean' has no key 'colums'; did you mean 'columns'?",
    ),
}


@pytest.mark.parametrize("what", WIRE)
def test_a_study_on_the_wire_is_checked_as_one_in_a_file(what: str):
    changes, says = WIRE[what]
    with pytest.raises(InvalidInput) as caught:
        read(document(**changes), 1)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        ({"formula": "disease ~ age"}, "formula must be left out"),
        ({"target": "disease", "features": ["age"], "checkpoint": "x"}, "checkpoint must be left out"),
    ],
)
def test_nor_may_the_analysis_that_another_one_follows_name_a_file_or_a_formula(
    beside: dict[str, Any], says: str
):
    analyses = [
        {"kind": "logistic-regression", "share": 0.1, **beside},
        {"kind": "evaluate", "model": 1, "share": 0.1},
    ]
    with pytest.raises(InvalidInput, match=says):
        read(document(analyses=analyses), 2)


@pytest.mark.parametrize("name", document())
def test_nothing_in_a_study_on_the_wire_is_left_to_a_default(name: str):
    study = document()
    del study[name]
    with pytest.raises(InvalidInput, match=f"^the key '{name}' is missing"):
        read(study, 1)


@pytest.mark.parametrize("name", document())
def test_every_field_of_a_study_is_in_its_hash(name: str):
    other = document(**{name: "another"})
    assert hash_of(other) != hash_of(document()) == hash_of(document())
