"""Two analyses that make the same comparison are named, with the one to quote; kinds by other names."""

from __future__ import annotations

import pytest

from cape.analyses import build
from cape.core.errors import InvalidInput
from cape.study import Study

HEAD = """
[study]
name = "twice"
[privacy]
epsilon = 1
delta = 1e-6
[schema]
sbp = [80, 220]
age = [18, 90]
smoker = ["no", "yes"]
sex = ["female", "male"]
[sites]
a = "a.csv"
b = "b.csv"
c = "c.csv"
d = "d.csv"
"""
TABLE = '[[analysis]]\nkind = "table-one"\ncolumns = ["age", "sbp"]\nby = "smoker"\n'
TEST = '[[analysis]]\nkind = "difference"\ncolumns = ["sbp"]\nby = "{}"\n'


@pytest.mark.parametrize(("first", "second"), [(TABLE, TEST), (TEST, TABLE)])
def test_the_one_that_spends_its_share_on_it_alone_is_to_be_quoted(tmp_path, first, second):
    path = tmp_path / "study.toml"
    path.write_text(HEAD + (first + second).format("smoker"))
    (said,) = Study.load(path).asked_twice
    number = 2 if first is TABLE else 1
    assert "both compare sbp by smoker" in said
    assert f"Quote analysis {number}" in said


def test_other_comparisons_are_not_the_same(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(HEAD + TABLE + TEST.format("sex"))
    assert Study.load(path).asked_twice == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("median", "probs = [0.5]"),
        ("T test", 'kind = "difference"'),
        ("ttest", 'kind = "difference"'),
        ("maen", "did you mean 'mean'"),
    ],
)
def test_a_kind_by_another_name_is_answered_with_how_it_is_written(kind, said):
    with pytest.raises(InvalidInput, match="no analysis of kind") as told:
        build({"kind": kind})
    assert said in str(told.value)
