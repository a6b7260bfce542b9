"""The mutation harness: what is listed fits the code, and what it reports as killed was killed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from assurance.mutants import Mutant, load, names, sample
from assurance.mutants.edits import Misfit, apply, places
from assurance.mutants.harness import run
from assurance.results import ROOT

MUTANTS = load()

SOURCE = '''\
"""A package of its own."""


class Purse:
    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        if cost > self.left:
            raise ValueError("too little is left")
        self.left -= cost


def twice(number: int) -> int:
    return number + number
'''
TESTS = """\
import time

import pytest
from purses import Purse, twice


def test_spending():
    purse = Purse(2)
    purse.spend(2)
    assert purse.left == 0


def test_overdrawing():
    with pytest.raises(ValueError):
        Purse(2).spend(3)


def test_twice():
    assert twice(2) == 4


def test_that_fails():
    assert twice(2) == 5


def test_that_sleeps():
    if twice(3) != 6:
        time.sleep(60)
"""
LIMIT = Mutant(
    "a limit is not checked",
    "Purse.spend",
    "if cost > self.left:",
    "if False:",
    "test_it.py::test_overdrawing",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src" / "purses").mkdir(parents=True)
    (tmp_path / "src" / "purses" / "__init__.py").write_text("from purses.deep import Purse, twice\n")
    (tmp_path / "src" / "purses" / "deep.py").write_text(SOURCE)
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def test_there_are_at_least_sixty_over_five_packages():
    assert len(MUTANTS) >= 60
    assert {mutant.package for mutant in MUTANTS} >= {"privacy", "noise", "secagg", "engine", "site"}
    assert len(names(MUTANTS)) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_each_edit_fits_the_code_once_and_its_tests_are_there(mutant: Mutant):
    apply(mutant, ROOT / "src")
    for part in mutant.suite.split():
        path, _, test = part.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert path.startswith("tests/")
        assert not test or re.search(rf"^def {re.escape(test)}\(", text, re.MULTILINE), part


def test_a_wrong_edit_is_killed_and_the_source_stays_as_it_was(root: Path):
    (outcome,) = run([LIMIT], root)
    assert outcome.killed, outcome
    assert (root / "src" / "purses" / "deep.py").read_text() == SOURCE


@pytest.mark.slow(6.2)
def test_an_edit_that_its_suite_does_not_see_survives(root: Path):
    blind = replace(LIMIT, suite="test_it.py::test_spending")
    found = run([blind, LIMIT], root)
    assert [outcome.killed for outcome in found] == [False, True]
    assert found[0].said == "survived: `pytest test_it.py::test_spending` passes"


@pytest.mark.slow(6.6)
def test_a_suite_that_fails_without_an_edit_kills_nothing(root: Path):
    broken = replace(LIMIT, suite="test_it.py::test_that_fails")
    found = run([broken, LIMIT], root, workers=1)
    assert found[0].said == "nothing was edited, and `pytest test_it.py::test_that_fails` fails"
    assert found[1].killed


@pytest.mark.slow(2)
def test_a_suite_that_does_not_end_kills_nothing(root: Path):
    slow = Mutant("slow", "twice", "number + number", "3 * number", "test_it.py::test_that_sleeps")
    (outcome,) = run([slow], root, seconds=10)
    assert outcome.said == "survived: `pytest test_it.py::test_that_sleeps` took over 10 s"


@pytest.mark.slow(3)
def test_an_edit_that_cannot_be_imported_kills_nothing(root: Path):
    raising = Mutant("raises", "Purse", "class Purse:", "class Purse(nobody):", "test_it.py::test_twice")
    (outcome,) = run([raising], root)
    assert outcome.said == "survived: `pytest test_it.py::test_twice` cannot be collected"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"function": "Purse.earn"}, "Purse.earn is not defined"),
        ({"old": "if cost >= self.left:"}, "fits 0 times"),
        ({"old": "cost"}, "stands 3 times in Purse.spend"),
        ({"new": "if cost >"}, "does not compile"),
        ({"new": "if (cost > self.left):"}, "changes nothing"),
    ],
)
def test_an_edit_that_does_not_fit_is_named(root: Path, changes: dict[str, str], said: str):
    with pytest.raises(Misfit, match=re.escape(said)):
        apply(replace(LIMIT, **changes), root / "src")
    (outcome,) = run([replace(LIMIT, **changes)], root)
    assert said in outcome.said
    assert not outcome.killed


@pytest.mark.slow(2.7)
def test_a_function_is_found_wherever_it_stands(root: Path):
    (root / "src" / "purses" / "deep.py").rename(root / "src" / "purses" / "moved.py")
    (root / "src" / "purses" / "__init__.py").write_text("from purses.moved import Purse, twice\n")
    (outcome,) = run([LIMIT], root)
    assert outcome.killed


def test_decorators_belong_to_a_function_and_other_functions_do_not():
    source = "@one\n@two\ndef f():\n    pass\n\n\nclass C:\n    def f(self):\n        pass\n"
    assert places(source, "f") == [(0, 4)]
    assert places(source, "C.f") == [(7, 9)]
    assert places(source, "g") == []


def test_samples_of_consecutive_days_are_all_there_are():
    count = 12
    days = -(-len(MUTANTS) // count)
    seen = [mutant.name for day in range(days) for mutant in sample(MUTANTS, count, 700_000 + day)]
    assert len(sample(MUTANTS, count, 3)) == count
    assert sample(MUTANTS, count, 3) == sample(MUTANTS, count, 3)
    assert len(set(seen)) >= len(MUTANTS) - count, "but for what a turn that is not full leaves out"
    assert len(sample(MUTANTS, 10_000, 1)) == len(MUTANTS)
