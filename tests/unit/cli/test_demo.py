from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer

from cape.cli.demo.data import at_sites
from cape.cli.demo.hospitals import SITES


@pytest.mark.slow(6)
def test_demo_shows_a_table_the_truth_other_schemes_and_a_picture(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "cape", "demo", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for word in ("radius mean", "truth", "conventional", "local", "pooled", "80% is spent, 20% is left"):
        assert word in done.stdout
    report = tmp_path / "results" / "report.html"
    assert str(report) in done.stdout
    assert "Main findings" in report.read_text()
    again = subprocess.run(
        [sys.executable, "-m", "cape", "plan", str(tmp_path / "study.toml")], capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    drawn = (tmp_path / "schemes.html").read_text()
    assert drawn.startswith("<!doctype html>")
    assert drawn.count("<svg") == 3 * 2  # for wide and for narrow pages
    assert drawn.count('class="dot"') == drawn.count('class="truth"') == 3 * 2 * 3 * 2
    assert "http" not in drawn  # it opens without a network
    assert not done.stderr


def test_the_rows_are_those_that_scikit_learn_has():
    data = load_breast_cancer()
    rows = pl.concat(at_sites(SITES).values())
    for name in ("radius", "texture", "perimeter"):
        column = list(data.feature_names).index(f"mean {name}")
        assert rows[name].to_list() == data.data[:, column].tolist()
    assert rows["diagnosis"].to_list() == [str(data.target_names[code]) for code in data.target]


@pytest.mark.slow(2)
def test_demo_as_json(cape, tmp_path):
    done = cape("demo", "--json", "--epsilon", "3", "--out", tmp_path)
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert sum(answer["sites"].values()) == sum(SITES.values()) == 569
    assert answer["left"] == pytest.approx(0.2)
    planned = {row["scheme"]: row["over_pooled"] ** 2 for row in answer["schemes"]}
    wanted = {
        "pooled": 1,
        "cape": 5 / 4,
        "cape-gaussian": 15 / 8,
        "conventional": 5,
        "local": (569 / 209) ** 2,
    }
    assert planned == pytest.approx(wanted, rel=0.02)
    errors = {row["scheme"]: row["error"] for row in answer["schemes"]}
    # in theory cape is at 0.56 of conventional; with 72 errors each, 1.0 is five standard errors away
    assert errors["cape"] < errors["conventional"]
    means = [row for row in answer["table"] if " mean | " in row["label"]]
    covered = sum(row["interval"][0] <= row["truth"] <= row["interval"][1] for row in means)
    assert len(means) == 9
    assert covered >= 4  # at 95% each, six misses happen once in a million runs


@pytest.mark.slow(2.2)
def test_the_picture_goes_to_a_folder_of_its_own_if_none_is_named(cape, monkeypatch, tmp_path):
    here, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    picture = json.loads(cape("demo", "--json").out)["picture"]
    assert picture.startswith(str(elsewhere))
    assert not list(here.iterdir()), "where it was started, it leaves nothing"


def test_the_guarantee_beside_theorem_1(cape):
    done = cape("demo", "--guarantee", "--json", "--epsilon", "1")
    claims = json.loads(done.out)["theorem1"]
    assert [claim["sites"] for claim in claims] == [5, 10, 30, 100]
    for claim in claims:
        if claim["sites"] >= 10:
            assert claim["exact_delta"] > claim["paper_delta"]
    assert "Theorem 1" in cape("demo", "--guarantee").out


@pytest.mark.slow_cases("arguments3-cape: --out: /dev/null/x cannot be written", seconds=2.1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--epsilon", "nan"], "cape: epsilon must be a finite number above 0, not nan"),
        (["demo", "--delta", "1"], "cape: delta must lie strictly between 0 and 1, not 1.0"),
        (["demo", "--colluding", "5"], "cape: colluding must be an integer at least 0 and at most 4, not 5"),
        (["demo", "--out", "/dev/null/x"], "cape: --out: /dev/null/x cannot be written"),
        (["dmeo"], "Did you mean 'demo'"),
        (["demo", "--epsilon", "one"], "Invalid value for '--epsilon'"),
    ],
)
def test_wrong_use_exits_with_2_and_says_why(cape, arguments, message):
    done = cape(*arguments)
    assert done.code == 2
    assert message in done.err


def test_version_and_help(cape):
    assert cape("--version").out.startswith("cape 0.")
    assert "Example" in cape("demo", "--help").out
