"""The form of a study: it says what the text says, and changes nothing else in it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.registry import KINDS
from cape.core.errors import InvalidInput
from cape.data.troubles import toml
from cape.desk.coordinator.fields import Fields, fields_of
from cape.desk.coordinator.form import applied, start
from cape.desk.coordinator.inputs import kinds, options
from cape.desk.coordinator.study import parse
from cape.desk.page import Form
from tests.slices import examples

TEXT = """\
# A study of hearts.
[study]
name = "hearts & <lungs>"
where = "age >= 40"  # adults
[privacy]
epsilon = 1.0
delta = 1e-6
colluding = 1
[person]
id = "patient"
rows = 1
[schema]
age = {low = 18, high = 90, unit = "years", per = 10, label = "Age", missing = false}
chol = {low = 100, high = 600, expected = {mean = 220, sd = 45}}  # mg/dl
born = {low = 1930-01-01, high = 2000-12-31}
sex = ["female", "male"]
grade = {categories = [0, 1, 2]}
place = ["town, large", "village"]
[derive]
high = {sql = "chol >= 240", categories = ["no", "yes"]}
[sites]
a = {rows = 400}
b = {}
[[analysis]]
kind = "mean"
columns = ["chol", "age"]  # in this order
by = "sex"
share = 0.25
[[analysis]]
kind = "histogram"
column = "age"
edges = [18.0, 40.5, 90.0]
[[analysis]]
kind = "count"
where = {sex = "female"}
"""


def sent(fields: Fields, **changes: Any) -> Form:
    """What a browser sends of the form, with changes; None leaves a field out."""
    told: list[tuple[str, str]] = list(fields.about.items())
    told += [(f"privacy.{key}", value) for key, value in fields.privacy.items()]
    for i, column in enumerate(fields.columns):
        row = {
            "was": column.name,
            "name": column.name,
            "kind": column.kind,
            "missing": "yes" * column.missing,
        }
        row |= {key: getattr(column, key) for key in ("low", "high", "values", "unit", "label", "mean", "sd")}
        told += [(f"column.{i}.{key}", value) for key, value in row.items()]
    for i, site in enumerate(fields.sites):
        told += [(f"site.{i}.name", site.name), (f"site.{i}.rows", site.rows)]
        told += [(f"site.{i}.asked", "yes")] * site.asked
    for i, analysis in enumerate(fields.analyses):
        told += [(f"analysis.{i}.was", str(i)), (f"analysis.{i}.kind", analysis.kind)]
        told += [(f"analysis.{i}.share", analysis.share)]
        for key, value in analysis.values.items():
            values = value if isinstance(value, list) else [value]
            told += [(f"analysis.{i}.{key}", each) for each in values if each]
    keyed = {name.replace("__", "."): value for name, value in changes.items()}
    told = [(name, value) for name, value in told if name not in keyed]
    for name, value in keyed.items():
        told += [(name, each) for each in (value if isinstance(value, list) else [value]) if each is not None]
    return Form(told)


def test_a_form_that_nobody_changed_leaves_the_text_as_it_is():
    assert applied(TEXT, sent(fields_of(TEXT))) == TEXT


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_analysis_has_a_form_that_keeps_its_arguments(kind: str):
    given = "".join(f"{key} = {toml(value)}\n" for key, value in KINDS[kind].example.items())
    text = f'[study]\nname = "x"\n[[analysis]]\nkind = "{kind}"\n{given}'
    assert applied(text, sent(fields_of(text))) == text
    bare = applied('[study]\nname = "x"\n', Form([("analysis.0.kind", kind), *_of(fields_of(text))]))
    assert tomllib.loads(bare)["analysis"] == tomllib.loads(text)["analysis"], "the form alone says it too"
    assert kinds()[kind].endswith((".", ":", "<="))
    assert {option.name for option in options(kind) if option.required} <= set(KINDS[kind].example)


def _of(fields: Fields) -> list[tuple[str, str]]:
    form = sent(fields, analysis__0__was=None, analysis__0__kind=None, name="x")
    return [(name, value) for name in form for value in form.all(name)]


def test_only_what_was_changed_is_written():
    fields = fields_of(TEXT)
    new = applied(
        TEXT,
        sent(
            fields,
            privacy__epsilon="2",
            column__0__high="95",
            column__4__values="0, 1, 2, 3",
            analysis__0__share="0.5",
            analysis__1__edges=None,
            analysis__1__bins="6",
            site__1__rows="300",
        ),
    )
    expected = TEXT
    for old, changed in (
        ("epsilon = 1.0", "epsilon = 2"),
        (
            '{low = 18, high = 90, unit = "years", per = 10, label = "Age", missing = false}',
            '{low = 18, high = 95, unit = "years", label = "Age", missing = false, per = 10}',
        ),
        ("[0, 1, 2]", "[0, 1, 2, 3]"),
        ("share = 0.25", "share = 0.5"),
        ("edges = [18.0, 40.5, 90.0]\n", "bins = 6\n"),
        ("b = {}", "b = {rows = 300}"),
    ):
        expected = expected.replace(old, changed)
    assert new == expected


def test_columns_are_added_renamed_and_removed():
    fields = fields_of(TEXT)
    new = applied(
        TEXT,
        sent(
            fields,
            column__1__name="cholesterol",
            column__2__name="",
            column__6__was="",
            column__6__name="died",
            column__6__kind="category",
            column__6__values="no, yes",
            column__6__missing="yes",
        ),
    )
    schema = tomllib.loads(new)["schema"]
    assert list(schema) == ["age", "cholesterol", "sex", "grade", "place", "died"]
    assert schema["cholesterol"] == {"low": 100, "high": 600, "expected": {"mean": 220, "sd": 45}}
    assert (schema["died"], schema["age"]["per"]) == (["no", "yes"], 10)
    assert tomllib.loads(new)["derive"] == tomllib.loads(TEXT)["derive"]
    with pytest.raises(InvalidInput, match="'age' is there twice"):
        applied(TEXT, sent(fields, column__1__name="age"))


def test_analyses_are_added_and_removed():
    fields = fields_of(TEXT)
    form = sent(fields, **{f"analysis__0__{key}": None for key in ("was", "kind", "share", "columns", "by")})
    new = tomllib.loads(applied(TEXT, form))["analysis"]
    assert new == tomllib.loads(TEXT)["analysis"][1:]
    form = sent(
        fields,
        analysis__3__was="",
        analysis__3__kind="linear-regression",
        analysis__3__target="chol",
        analysis__3__features=["age", "sex"],
        analysis__3__norm="1.5",
        analysis__3__share="0.2",
    )
    added = tomllib.loads(applied(TEXT, form))["analysis"][3]
    assert added == {
        "kind": "linear-regression",
        "target": "chol",
        "features": ["age", "sex"],
        "intercept": False,
        "norm": 1.5,
        "share": 0.2,
    }, "a box that is not ticked says no where the default is yes"


def test_a_new_study_is_complete_once_the_form_is_filled_in():
    text = start(["a", "b", "c"])
    with pytest.raises(InvalidInput, match="name"):
        parse(text)
    new = applied(
        text,
        sent(
            fields_of(text, ["a", "b", "c"]),
            name="hearts",
            column__0__name="age",
            column__0__low="18",
            column__0__high="90",
            column__0__missing="yes",
            analysis__0__kind="mean",
            analysis__0__columns=["age"],
            site__2__asked=None,
        ),
    )
    study = parse(new)
    assert (study.name, list(study.sites), study.budget.epsilon) == ("hearts", ["a", "b"], 1.0)
    assert study.analyses[0].analysis.columns == ("age",)


def test_a_site_without_a_key_is_shown_as_such():
    sites = {site.name: (site.asked, site.pinned) for site in fields_of(TEXT, ["a", "c"]).sites}
    assert sites == {"a": (True, True), "c": (False, True), "b": (True, False)}


NAMES = st.sampled_from(
    [
        *("name", "description", "where", "privacy.epsilon", "privacy.delta", "privacy.noise"),
        *(
            f"column.{i}.{key}"
            for i in (0, 1, 3, 6, 7)
            for key in ("was", "name", "kind", "low", "values", "mean")
        ),
        *(f"site.{i}.{key}" for i in (0, 2) for key in ("name", "asked", "rows")),
        *(
            f"analysis.{i}.{key}"
            for i in (0, 1, 3)
            for key in ("was", "kind", "share", "columns", "by", "where")
        ),
        *("analysis.0.edges", "analysis.1.bins", "column.9999.name", "site.0.x", "other"),
    ]
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "age", "sex", "yes", "1", "0.5", "mean", "category", "[1, 2]", "{a = 1}", "[[", "a.b", "a, b"]
    ),
    st.text(max_size=12),
)


@pytest.mark.slow(2)
@examples(100)
@given(st.lists(st.tuples(NAMES, TEXTS), max_size=12))
def test_whatever_is_sent_the_text_is_toml_that_the_form_shows_again(changes: list[tuple[str, str]]):
    first = sent(fields_of(TEXT))
    form = Form([*((name, value) for name in first for value in first.all(name)), *changes])
    try:
        text = applied(TEXT, form)
    except InvalidInput:
        return
    fields = fields_of(text)
    assert applied(text, sent(fields)) == text
