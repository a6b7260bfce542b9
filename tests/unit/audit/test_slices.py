"""Slices of the audit: together they are all of it, and a row stays where it is."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

import cape.audit.run as whole
import cape.cli.audit as command
from cape.audit import Slice, cases
from cape.audit.cases import Case
from cape.core.errors import InvalidInput

DAYS = 5
ROWS = [Case(f"pooled/mean {number}", "mean", "pooled", 60, powered=False) for number in range(4)]


def names(fast, part):
    """Return what a slice plays: names of rows, and of the checks of rounding."""
    plan = whole._Plan.of(fast, None, part)
    return [*(case.name for case in plan.table), *([whole.ROUNDING] if plan.rounding else [])]


@pytest.fixture
def run(monkeypatch):
    """The command, with a table of four rows and without checks of rounding, in this process."""
    app = typer.Typer()
    app.command()(command.audit)
    monkeypatch.setattr(whole, "chosen", lambda fast, only: ROWS)
    monkeypatch.setattr(whole, "in_order", lambda jobs, watch, workers: [job() for job in jobs])
    monkeypatch.setattr(whole, "parts", lambda seed: [])
    return lambda *typed: CliRunner().invoke(app, list(typed), env={"COLUMNS": "200"})


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("first", [0, 20_775])
def test_five_days_play_every_row_once_and_check_rounding(fast, first):
    days = [names(fast, Slice(day, DAYS)) for day in range(first, first + DAYS)]
    everything = [*(case.name for case in cases(fast)), whole.ROUNDING]
    assert sorted(name for day in days for name in day) == sorted(everything)
    assert min(map(len, days)) > 2


def test_no_row_moves_to_another_slice_when_rows_are_added(monkeypatch):
    before = [names(True, Slice(day, DAYS)) for day in range(DAYS)]
    table = [*(Case(f"new {number}", "mean", "cape", 60) for number in range(50)), *cases(True)]
    monkeypatch.setattr(whole, "chosen", lambda fast, only: table)
    after = [names(True, Slice(day, DAYS)) for day in range(DAYS)]
    assert [[name for name in day if not name.startswith("new")] for day in after] == before
    assert sum(map(len, after)) == sum(map(len, before)) + 50


@pytest.mark.parametrize("text", ["", "2", "2/0", "/5", "2/", "-1/5", "1/5/5", "one/5", "2/5 ", "1.5/5"])
def test_what_names_no_slice_is_refused(text):
    with pytest.raises(InvalidInput, match="--slice must be two whole numbers K/N, such as 2/5, not"):
        Slice.read(text)


def test_a_slice_reads_as_it_is_written_and_counts_modulo():
    assert str(Slice.read("20775/5")) == "20775/5"
    assert names(True, Slice.read("7/5")) == names(True, Slice.read("2/5"))
    assert names(True, Slice.read("1/5")) != names(True, Slice.read("2/5"))


def test_only_and_slice_are_not_given_together():
    with pytest.raises(InvalidInput, match="--only and --slice each choose rows: give one of them"):
        whole.amount(True, "mean", Slice(1, 5))


def test_a_slice_without_rows_is_refused():
    empty = next(turn for turn in range(5000) if not any(name in Slice(turn, 5000) for name in everything()))
    with pytest.raises(InvalidInput, match=f"--slice {empty}/5000 has none of the .* take fewer slices"):
        whole.amount(True, None, Slice(empty, 5000))


def everything():
    return [*(case.name for case in cases(True)), whole.ROUNDING]


def test_a_row_has_the_same_outcome_in_its_slice_as_in_the_whole_table(run):
    table = {row["name"]: row for row in json.loads(run("--json").stdout)["rows"]}
    played = []
    for turn in range(2):
        told = json.loads(run("--json", "--slice", f"{turn}/2").stdout)
        assert told["tests"] < told["among"] == 3 * len(ROWS)
        played += told["rows"]
    assert len(played) == len(table) == len(ROWS)
    for row in played:
        assert {**row, "seconds": 0} == {**table[row["name"]], "seconds": 0}


def test_it_says_which_part_of_the_tests_a_slice_has(run, tmp_path):
    done = run("--slice", "1/2", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert f" tests of {3 * len(ROWS)} on " in done.output
    assert "`cape audit --slice 1/2 --out DIR`" in (tmp_path / "assurance-privacy.md").read_text()


def test_a_slice_with_a_row_that_fails_is_status_1(run, monkeypatch):
    honest = Case("none/mean", "mean", "pooled", 60, flag="likelihood ratio")
    monkeypatch.setattr(whole, "chosen", lambda fast, only: [honest])
    assert run("--slice", "0/1").exit_code == 1
