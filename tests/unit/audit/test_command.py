"""`cape audit` as a user types it, with few rows."""

from __future__ import annotations

import json
import math

import pytest
import typer
from typer.testing import CliRunner

import cape.audit.run as whole
import cape.cli.audit as command
from cape.audit import SEED, amount, audit, cases
from cape.audit.cases import Case
from cape.audit.rounding import BOUNDS
from cape.cli import main
from cape.core.errors import InvalidInput

FEW = [
    Case("pooled/mean", "mean", "pooled", 60, powered=False),
    Case("none/mean", "mean", "none", 60, flag="likelihood ratio"),
]


@pytest.fixture
def few(monkeypatch):
    """A table of two rows, in this process."""
    monkeypatch.setattr(
        whole, "chosen", lambda fast, only: [c for c in FEW if only is None or only in c.name]
    )
    monkeypatch.setattr(whole, "in_order", lambda jobs, watch, workers: [_one(job, watch) for job in jobs])
    monkeypatch.setattr(whole, "parts", lambda seed: [])


def _one(job, watch):
    watch(0)
    return job()


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(command.audit)
    return lambda *typed: CliRunner().invoke(app, [str(word) for word in typed], env={"COLUMNS": "200"})


def test_a_table_and_files(few, run, tmp_path):
    done = run("--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "All checks passed." in done.output
    assert {file.name for file in tmp_path.iterdir()} == {
        "audit.json",
        "audit.png",
        "audit.svg",
        "assurance-privacy.md",
    }
    told = json.loads((tmp_path / "audit.json").read_text())
    assert [row["name"] for row in told["rows"]] == [case.name for case in FEW]
    assert told["ok"]
    page = (tmp_path / "assurance-privacy.md").read_text()
    assert "Made on 20" in page
    assert "`cape audit --out DIR`" in page
    assert str(tmp_path) not in page
    assert "flagged by likelihood ratio" in page
    assert "plant fifteen bugs" in page


@pytest.mark.slow(3.9)
def test_a_machine_can_read_it_and_it_repeats(few, run):
    one, two = (json.loads(run("--json", "--seed", 3).stdout) for _ in range(2))
    for told in (one, two):
        told.pop("seconds")
        for row in told["rows"]:
            row.pop("seconds")
    assert one == two
    assert one["family_wise_error"] == 0.05
    assert one["tests"] == 3 + 2
    assert [row["tests"] for row in one["rows"]] == [3, 2]


@pytest.mark.slow(1.9)
def test_it_says_how_many_tests_were_made(few, run, tmp_path):
    said = "5 tests on 2 rows, one to three on each, with equal parts of the error"
    assert said in run("--out", tmp_path).output
    assert said in (tmp_path / "assurance-privacy.md").read_text()


def test_a_place_that_cannot_be_written_is_told_before_anything_is_played(monkeypatch, capsys, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setattr("cape.audit.audit", lambda **how: pytest.fail("it was played"))
    monkeypatch.setattr("warnings.showwarning", None)  # restored after the test; `main` sets its own
    monkeypatch.setattr("sys.argv", ["cape", "audit", "--out", str(file)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert f"--out: {file} cannot be written" in capsys.readouterr().err
    assert file.read_text() == "not a folder"


def test_status_1_when_what_must_be_flagged_is_not(few, run, monkeypatch):
    honest = Case("none/mean", "mean", "pooled", 60, flag="likelihood ratio")
    monkeypatch.setattr(whole, "chosen", lambda fast, only: [honest])
    done = run()
    assert done.exit_code == 1
    assert "NOT FLAGGED" in done.output
    assert "Failed: none/mean" in done.output


@pytest.mark.slow(3)
def test_rounding_alone(run, monkeypatch):
    monkeypatch.setattr("cape.audit.rounding.BOUNDS", ((0.0, 1.0),))
    done = run("--only", "rounding")
    assert done.exit_code == 0, done.output
    assert done.output.count("holds") == 3


def test_a_wrong_name_is_one_line_that_names_the_rows():
    with pytest.raises(
        InvalidInput,
        match=r"--only must be a part of a row's name, or .* not 'capo'; rows .* cape/count",
    ):
        audit(only="capo")


def test_the_whole_table_has_every_scheme_and_what_must_be_flagged():
    full, fast = cases(fast=False), cases(fast=True)
    for scheme in ("cape", "cape-gaussian", "conventional", "local", "pooled"):
        asked = {case.analysis for case in full if case.scheme == scheme and not case.flag}
        assert asked >= {
            "count",
            "mean",
            "histogram",
            "covariance",
            "linear-regression",
            "pca",
            "logistic-regression",
            "k-means",
            "neural-network",
        }
        assert any(case.scheme == scheme for case in fast)
    for table in (full, fast):
        assert len({case.name for case in table}) == len(table)
        assert sum(bool(case.flag) for case in table) == 2
        assert all(case.runs % 2 == 0 for case in table)
    assert amount(True, None) > len(fast)
    assert amount(True, "rounding") == 1 + len(BOUNDS)
    assert command._SEED == SEED
    assert math.isclose(sum(case.mu for case in full if case.name == "cape/mean"), 3.0)
