"""A new study file proposes the kind of noise that suits what it asks, and says why."""

from __future__ import annotations

import tomllib

import pytest

from cape.study import draft
from cape.study.draft import Draft

KINDS = {"age": "number", "sex": "text", "admitted": "date"}


def line_of(**changes):
    given = {
        "name": "x",
        "source": "x.csv",
        "epsilon": 1.0,
        "delta": 1e-6,
        "kinds": KINDS,
        "ids": (),
        "sites": {},
    }
    text = Draft(**given | changes).text("study.toml")
    (line,) = [line for line in text.splitlines() if line.startswith("noise = ")]
    assert tomllib.loads(line)["noise"] == line.split('"')[1]
    return line


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("table-one", 'noise = "gaussian"  # proposed: the table below has no other'),
        ("mean", 'noise = "laplace"  # proposed: the table below would have 3 times as much with gaussian'),
    ],
)
def test_the_kind_is_that_of_the_better_plan(monkeypatch, kind, line):
    monkeypatch.setattr(draft, "_KIND", kind)
    assert line_of(kinds={"age": "number"}) == line


def test_for_many_numbers_gaussian_noise_is_proposed_with_how_much_better_it_is(monkeypatch):
    monkeypatch.setattr(draft, "_KIND", "mean")
    line = line_of(kinds={f"x{i}": "number" for i in range(60)})
    assert line.startswith('noise = "gaussian"  # proposed: the table below would have ')
    assert line.endswith(" times as much with laplace")


def test_without_columns_nothing_is_compared():
    assert line_of(kinds={"admitted": "date"}) == 'noise = "gaussian"  # proposed: the default'
