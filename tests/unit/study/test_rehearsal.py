from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cape.blocks import Table
from cape.core.errors import InvalidInput
from cape.data import Person, Schema
from cape.study import Study
from cape.study.rehearsal import made_up, rehearsed

STUDY = """
[study]
name = "planned"
where = "age >= 40"
[privacy]
epsilon = 1.0
delta = 1e-6
[person]
id = "patient"
rows = 2
[schema]
age = {low = 18, high = 90, expected = {mean = 61, sd = 12}}
marker = {low = 0, high = 0.5, missing = false}
admitted = {low = "2015-01-01", high = "2019-12-31"}
months = {low = 0, high = 120, missing = false}
died = {categories = ["no", "yes"], expected = {share = 0.2}, missing = false}
[derive]
old = {sql = "age >= 65"}
[sites]
a = {path = "nowhere/a.csv", rows = 400}
b = {path = "nowhere/b.csv", rows = 300}
c = {path = "nowhere/c.csv", rows = 300}
[[analysis]]
kind = "mean"
columns = ["age"]
"""


def test_rows_follow_the_schema_and_nothing_else():
    schema = Schema(
        age={"low": 18, "high": 90, "expected": {"mean": 61, "sd": 12}},
        dose={"low": 0, "high": 0.5, "missing": False},
        seen={"low": "2015-01-01", "high": "2019-12-31"},
        ill={"categories": ["no", "yes"], "expected": {"share": 0.2}},
        code={"categories": [3, 7], "missing": False},
        old={"sql": "age >= 65"},
    )
    rows = made_up(schema, 4000, 1)
    assert rows.columns == ["age", "dose", "seen", "ill", "code"]  # nothing that a site derives
    age = rows["age"].drop_nulls()
    assert age.mean() == pytest.approx(61, abs=0.8)
    assert age.std() == pytest.approx(12, abs=0.6)
    assert 0.03 < rows["age"].null_count() / 4000 < 0.07
    assert rows["dose"].null_count() == 0
    assert 0 <= rows["dose"].min() <= rows["dose"].max() <= 0.5
    assert rows["seen"].dtype == pl.Date
    assert rows["seen"].min() >= date(2015, 1, 1)
    assert (rows["ill"] == "yes").mean() == pytest.approx(0.2, abs=0.03)
    assert set(rows["code"]) == {3, 7}
    assert rows.equals(made_up(schema, 4000, 1))
    assert not rows.equals(made_up(schema, 4000, 2))
    table = Table("a", rows, schema)
    table.check()  # a run finds nothing wrong with them
    assert table.rows() == 4000


def test_persons_have_ids_and_several_rows():
    schema = Schema(age=(18, 90), visits=(0, 9), seen={"low": "2015-01-01", "high": "2016-01-01"})
    many = made_up(schema.of_persons(Person("patient", rows=2)), 500, 0)
    assert many["patient"].n_unique() == 500
    assert set(many.group_by("patient").len()["len"]) == {1, 2}
    one = {"take": "latest", "by": "seen", "visits": "count(*)"}
    made = made_up(schema.of_persons(Person("patient", row=one)), 500, 0)
    assert "visits" not in made.columns  # a site computes it
    assert made.height > 500


def test_a_rehearsed_study_needs_no_file(tmp_path):
    study = rehearsed(Study.parse(STUDY, tmp_path / "study.toml"))
    assert study.rehearsal
    assert "rehearsal" in study.warnings[0]
    assert study.sizes == {"a": 400, "b": 300, "c": 300}
    tables = {name: place.source() for name, place in study.sites.items()}
    assert not tables["b"].equals(tables["c"])  # sites hold different people
    release = study.consortium().release(study.analyses[0].analysis, 1.0)
    assert np.isfinite(release.value).all()
    assert rehearsed(study, 50).sizes == {"a": 50, "b": 50, "c": 50}


@pytest.mark.parametrize(("rows", "seed", "said"), [(0, 0, "rows"), (None, -1, "seed"), (1.5, 0, "rows")])
def test_bad_numbers_are_refused(rows, seed, said):
    study = Study.parse(STUDY, Path("study.toml"))
    with pytest.raises(InvalidInput, match=said):
        rehearsed(study, rows, seed)
