"""`python -m reproduction` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import reproduction
from reproduction import FIRST_SEED
from tests.unit.reproduction.conftest import files

SECTION = {
    "name": "figure-6",
    "title": "x",
    "fast": True,
    "seeds": [1],
    "cells": 1,
    "pictures": [],
    "claims": [],
}


@pytest.mark.slow(8.3)
def test_figures_are_drawn_and_a_second_run_is_the_same(draw, tmp_path):
    done = draw("figure-5", "figure-6", "--fast", "--out", tmp_path)
    assert done.status == 0, done.err
    assert f"seed {FIRST_SEED}" in done.out
    assert "does not hold" in done.out
    first = files(tmp_path)
    for name in ("figure-5", "figure-6"):
        for kind in ("published.png", "published.svg", "equal.png", "equal.svg"):
            assert f"{name}-{kind}" in first
    assert first["REPRODUCTION.md"].decode().count("## figure-") == 2
    assert draw("figure-5", "--fast", "--out", tmp_path).status == 0
    assert files(tmp_path) == first  # the page keeps the other figure


@pytest.mark.slow(2.9)
def test_a_machine_can_read_the_verdicts(draw, tmp_path):
    done = draw("figure-6", "--out", tmp_path, "--json")
    told = json.loads(done.out)["figures"]
    assert told[0]["figure"] == "figure-6"
    assert told[0]["seeds"] == [FIRST_SEED]
    assert {claim["verdict"] for claim in told[0]["claims"]} == {"holds", "does not hold"}


def test_wrong_use_is_one_line(draw, tmp_path):
    done = draw("figure-55", "--out", tmp_path)
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "figure-5" in done.err
    (tmp_path / "file").write_text("")
    done = draw("figure-5", "--out", tmp_path / "file")
    assert (done.status, "--out" in done.err) == (2, True)
    done = draw("figure-5", "--out", tmp_path, "--reference", tmp_path / "nowhere.csv")
    assert (done.status, "--reference" in done.err) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "5",
        "[" * 100_000,
        '{"name": "figure-6"}',
        json.dumps(SECTION | {"title": 5}),
        json.dumps(SECTION | {"seeds": 1}),
        json.dumps(SECTION | {"claims": 5}),
        json.dumps(SECTION | {"title": "\ud800"}),
        json.dumps(SECTION | {"name": "figure-5"}),
    ],
)
def test_a_broken_section_is_told_before_anything_is_computed(draw, tmp_path, monkeypatch, text):
    (tmp_path / "sections").mkdir()
    (tmp_path / "sections" / "figure-6.json").write_text(text)
    monkeypatch.setattr("reproduction.runner.compute", lambda *_: pytest.fail("it was computed"))
    done = draw("figure-5", "--fast", "--out", tmp_path)
    assert (done.status, done.err.count("\n")) == (2, 1), done.err
    assert "figure-6.json" in done.err


def test_a_folder_whose_name_is_too_long(draw, tmp_path):
    done = draw("figure-6", "--fast", "--out", tmp_path / ("x" * 300))
    assert (done.status, done.err.count("\n")) == (2, 1), done.err


def test_without_data_and_network_one_line_says_what_to_do(draw, tmp_path, monkeypatch):
    def no_network(*_args, **_more):
        raise OSError("no network")

    monkeypatch.setenv("CAPE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("urllib.request.urlopen", no_network)
    done = draw("figure-4", "--fast", "--out", tmp_path)
    assert done.status == 1
    assert done.err.count("\n") == 1
    for part in (str(tmp_path / "data" / "crime"), "no network", "put communities.data into that folder"):
        assert part in done.err
    assert not (tmp_path / "figure-4.csv").exists()


def test_the_printed_default_is_the_seed_of_the_figures(draw):
    assert f"default: {FIRST_SEED}" in draw("--help").out


@pytest.mark.slow(4.7)
def test_as_a_module_in_a_checkout(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "reproduction", "figure-6", "--fast", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(reproduction.__file__).parents[1],
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "`python -m reproduction figure-6 --fast`" in (tmp_path / "REPRODUCTION.md").read_text()
