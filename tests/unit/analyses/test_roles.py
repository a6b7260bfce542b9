"""Names of files in a family of analyses: `x.py` asks, `x_estimate.py` reads answers, `x_model.py` shows."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import cape.analyses
from cape.engine.query import Analysis
from cape.show import Shown

ROOT = Path(cape.analyses.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py")
ESTIMATES = [path for path in FILES if path.stem.endswith("_estimate")]
MODELS = [path for path in FILES if path.stem.endswith("_model")]
SHOWN_ELSEWHERE = {
    "regression/portable.py": "no result by itself: what models with coefficients inherit",
}
ALONE = {
    "tables/crosstab_model.py": "one table of those that `tables.py` asks for",
}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def classes(path):
    """The classes that a file defines."""
    name = ".".join(("cape.analyses", *path.relative_to(ROOT).with_suffix("").parts))
    found = inspect.getmembers(importlib.import_module(name), inspect.isclass)
    return [each for _, each in found if each.__module__ == name]


def imports(path):
    """The modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_there_are_files_of_each_role():
    assert len(ESTIMATES) >= 5
    assert len(MODELS) >= 20


def test_what_is_shown_is_in_models():
    elsewhere = {
        name_of(path)
        for path in FILES
        if path not in MODELS and any(Shown in each.__bases__ for each in classes(path))
    }
    assert elsewhere == {*SHOWN_ELSEWHERE}


@pytest.mark.parametrize("path", [*ESTIMATES, *MODELS], ids=name_of)
def test_estimates_and_models_ask_nothing(path):
    assert [each.__name__ for each in classes(path) if issubclass(each, Analysis)] == []


@pytest.mark.parametrize("path", ESTIMATES, ids=name_of)
def test_estimates_know_no_model(path):
    of_ours = {each for each in imports(path) if each.startswith("cape.")}
    assert {each for each in of_ours if any(part.endswith("_model") for part in each.split("."))} == set()


def test_the_question_stands_beside_what_is_made_of_it():
    alone = {
        name_of(path)
        for path in (*ESTIMATES, *MODELS)
        if not path.with_name(f"{path.stem.rpartition('_')[0]}.py").exists()
    }
    assert alone == {*ALONE}
