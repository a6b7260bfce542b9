from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.checkout import ROOT
from tests.slices import THOROUGH, examples, read, slices

SECONDS = {f"test {number}": 1.0 + number % 7 for number in range(50)} | {"long": 40.0}


def test_every_test_has_its_turn_once_in_so_many_days():
    first = 739_000  # the number of a day
    days = [read(f"{first + day}/6") for day in range(6)]
    assert sorted(turn for turn, _ in days) == [0, 1, 2, 3, 4, 5]
    taken = [test for turn, count in days for test in slices(SECONDS, count)[turn]]
    assert sorted(taken) == sorted(SECONDS)


def test_slices_take_about_equally_long():
    loads = [sum(SECONDS[test] for test in part) for part in slices(SECONDS, 6)]
    assert max(loads) - min(loads) <= 7
    assert [len(part) for part in slices({"long": 40.0, "short": 1.0, "other": 2.0}, 2)] == [1, 2]


@pytest.mark.parametrize("text", ["", "1", "1/0", "/6", "a/6", "1/6/2", "-1/6", "1/+6"])
def test_what_is_no_slice_is_refused(text):
    with pytest.raises(ValueError, match="a slice is written K/N"):
        read(text)


def test_property_tests_have_all_their_examples_in_the_thorough_profile_alone():
    before = settings.get_current_profile_name()
    try:
        settings.load_profile(THOROUGH)
        assert [examples(most).max_examples for most in (5, 40, 300)] == [5, 40, 300]
        settings.load_profile("cape")
        assert [examples(most).max_examples for most in (5, 40, 300)] == [5, 10, 60]
    finally:
        settings.load_profile(before)


PROJECT = """
import pytest


@pytest.mark.one_in(5, seconds=2)
@pytest.mark.parametrize("case", range(40))
def test_of_many(case):
    assert case >= 0


@pytest.mark.slow(30)
def test_long():
    pass


@pytest.mark.slow(20)
def test_shorter():
    pass
"""


@pytest.fixture
def shuffled(tmp_path: Path):
    """A function that returns the names of the tests of a project, as they are run with a seed."""
    (tmp_path / "tests").mkdir()
    for name in ("__init__.py", "unit/conftest.py", "slices.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    (tmp_path / "tests" / "test_it.py").write_text(PROJECT)
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def names(seed: int, *options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "pytest_randomly", f"--randomly-seed={seed}", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]

    return names


def test_in_any_order_the_same_cases_are_quick(shuffled):
    first, second = (shuffled(seed, "-m", "not slow") for seed in (1, 2))
    assert set(first) == {f"test_of_many[{case}]" for case in range(0, 40, 5)}
    assert set(second) == set(first)
    assert second != first


@pytest.mark.slow(2)
def test_in_any_order_a_slice_has_the_same_tests_and_long_ones_come_first(shuffled):
    slices_of = {seed: [shuffled(seed, f"--slice={turn}/2") for turn in (0, 1)] for seed in (1, 2)}
    assert [set(part) for part in slices_of[1]] == [set(part) for part in slices_of[2]]
    assert slices_of[1] != slices_of[2]
    assert [part[0] for parts in slices_of.values() for part in parts] == ["test_long", "test_shorter"] * 2
