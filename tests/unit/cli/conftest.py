"""A small study on disk, and the command as a user types it, in this process."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer.main

from cape.cli import main

SECRET = 71.90625  # a cell that stands in every table once, and may stand nowhere else

STUDY = """
[study]
name = "lungs & <hearts>"
description = "three clinics"
[privacy]
epsilon = 2.0
delta = 1e-6
colluding = 1
min_sites = 2
[schema]
age = [18, 90]
weight = {low = 40, high = 140, missing = false}
sex = ["female", "male"]
ill = ["no", "yes"]
[sites]
a = {path = "data/a.csv", rows = 200}
b = {path = "data/b.csv", rows = 300}
c = {path = "data/c.csv", rows = 500}
[[analysis]]
kind = "mean"
columns = ["age", "weight"]
share = 0.25
[[analysis]]
kind = "table-one"
columns = ["age", "sex"]
by = "ill"
share = 0.5
[[analysis]]
kind = "histogram"
column = "age"
bins = 6
[[analysis]]
kind = "contingency-table"
columns = ["sex", "ill"]
"""

OTHERS = """
[[analysis]]
kind = "count"
where = {sex = "female"}
[[analysis]]
kind = "sum"
columns = ["weight"]
[[analysis]]
kind = "variance"
columns = ["age"]
[[analysis]]
kind = "standard-deviation"
columns = ["age"]
[[analysis]]
kind = "covariance"
columns = ["age", "weight"]
[[analysis]]
kind = "correlation"
columns = ["age", "weight"]
[[analysis]]
kind = "ecdf"
columns = ["age"]
bins = 16
[[analysis]]
kind = "quantiles"
columns = ["age"]
bins = 16
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cape = Callable[..., Done]
COMMAND = functools.cache(typer.main.get_command)  # made once, not for every call


@pytest.fixture
def cape(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cape:
    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["cape", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(int(left.value.code or 0), captured.out, captured.err)

    monkeypatch.setattr("typer.main.get_command", COMMAND)
    monkeypatch.setattr("warnings.showwarning", None)  # restored after the test; `main` sets its own
    return run


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The study file; its tables are there."""
    draw = np.random.default_rng(11)
    (tmp_path / "data").mkdir()
    for name, rows in {"a": 200, "b": 300, "c": 500}.items():
        ill = draw.random(rows) < 0.4
        age = np.clip(draw.normal(50, 10, rows) + 8 * ill, 20, 88).round(1)
        age[0] = SECRET
        weight = np.clip(draw.normal(75, 12, rows), 42, 138).round(1)
        sex = np.where(draw.random(rows) < 0.5, "female", "male")
        lines = [
            f"{'' if i % 50 == 1 else a},{w},{s},{'yes' if d else 'no'}"
            for i, (a, w, s, d) in enumerate(zip(age, weight, sex, ill, strict=True))
        ]
        (tmp_path / "data" / f"{name}.csv").write_text("\n".join(["age,weight,sex,ill", *lines]) + "\n")
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def change(study: Path) -> Callable[[str, str], Path]:
    """Replace a piece of the study file."""

    def replaced(old: str, new: str) -> Path:
        text = study.read_text()
        assert old in text
        study.write_text(text.replace(old, new))
        return study

    return replaced
