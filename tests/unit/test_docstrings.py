"""The examples in docstrings of everything public run, as someone types them after `from cape import *`."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import cape
import cape.sklearn
import cape.synthetic
from cape.analyses import KINDS

FINDER = doctest.DocTestFinder(exclude_empty=True)
STUDY = """
[study]
name = "heart"
[privacy]
epsilon = 5
delta = 1e-6
[schema]
age = [0, 100]
[sites]
aspen = "aspen.csv"
birch = "birch.csv"
cedar = "cedar.csv"
elm = "elm.csv"
[[analysis]]
kind = "mean"
columns = ["age"]
"""
SITES = ("aspen", "birch", "cedar", "elm", "fir")


def public() -> Iterator[tuple[str, Any]]:
    """What someone gets by name from the package, `cape.sklearn` or `cape.synthetic`."""
    for module in (cape, cape.sklearn, cape.synthetic):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def examples(name: str, thing: Any) -> list[doctest.DocTest]:
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return []
    return [test for test in FINDER.find(thing, name, globs={}) if test.examples]


FOUND = {test.name: test for name, thing in public() for test in examples(name, thing)}


def rows(count: int, seed: int) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    age, sex = draw.uniform(20, 80, count), draw.choice(["female", "male"], count)
    return pl.DataFrame(
        {
            "age": age,
            "sex": sex,
            "chol": draw.normal(200, 30, count),
            "ill": draw.choice(["no", "yes"], count),
        }
    )


def follow_up(names: dict[str, Any]) -> dict[str, Any]:
    draw = np.random.default_rng(3)
    return {"y": np.column_stack([draw.uniform(0.1, 10, 1000), draw.random(1000) < 0.6])}


def synthetic(names: dict[str, Any]) -> dict[str, Any]:
    asked = cape.SyntheticData(["age", "sex"], 200, bins=4)
    return {"release": names["consortium"].release(asked, share=0.3)}


MORE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "cape.sklearn.CoxRegression": follow_up,
    "cape.sklearn.LinearRegression": lambda names: {"y": names["X"][:, 0]},
    "cape.synthetic.combine": synthetic,
}


@pytest.fixture
def names(tmp_path, monkeypatch) -> dict[str, Any]:
    """What examples take for granted: sites with rows, a release of each kind that they look into."""
    monkeypatch.chdir(tmp_path)
    sites = {name: rows(200, seed) for seed, name in enumerate(SITES)}
    for name, frame in sites.items():
        frame.write_csv(f"{name}.csv")
    schema = cape.Schema(age=(0, 100), sex=["female", "male"], chol=(100, 600), ill=["no", "yes"])
    consortium = cape.Consortium(sites, schema, cape.Budget(epsilon=50.0, delta=1e-6))
    whole = pl.concat(sites.values())
    Path("study.toml").write_text(STUDY)
    fitted = consortium.release(cape.LogisticRegression("ill", ["age", "sex"]), share=0.1).model
    Path("model.json").write_text(fitted.to_json())
    return {
        "cape": cape,
        "np": np,
        "pl": pl,
        "sites": sites,
        "schema": schema,
        "consortium": consortium,
        "table": whole,
        "model": fitted,
        "X": whole.select("age", "chol").to_numpy(),
        "y": (whole["ill"] == "yes").to_numpy(),
    }


@pytest.mark.one_in(10, seconds=0.3)
@pytest.mark.parametrize("name", FOUND)
def test_an_example_runs(name: str, names: dict[str, Any]):
    """What it prints is compared where the docstring shows it."""
    names.update(vars(sys.modules[name.rpartition(".")[0]]))
    if name in MORE:
        names.update(MORE[name](names))
    for example in FOUND[name].examples:
        code = compile(example.source, name, "single" if example.want else "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cape.TooNoisyWarning)
            warnings.simplefilter("ignore", cape.PrivacyLeakWarning)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)
        if example.want:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(example.want, printed.getvalue(), flags)


def test_every_analysis_and_every_estimator_has_an_example():
    for thing in (*KINDS.values(), *(getattr(cape.sklearn, name) for name in cape.sklearn.__all__)):
        if inspect.isclass(thing) and not issubclass(thing, Exception | Warning):
            assert ">>> " in (thing.__doc__ or ""), f"{thing.__name__} shows no example"
