"""The example of the four heart-disease hospitals: planned without files, run on made-up raw ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checkout import ROOT

HEART = ROOT / "examples" / "heart"
ROWS = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}


def raw(folder: Path) -> None:
    """Write files of the raw form: codes, no header, '?' for missing, 0 for an unknown cholesterol."""
    draw = np.random.default_rng(3)
    for name, rows in ROWS.items():
        lines = []
        for i in range(rows):
            ill = int(draw.random() < 0.5)
            age, rate = draw.normal(50 + 6 * ill, 9), draw.normal(150 - 20 * ill, 20)
            chol = "0" if name == "switzerland" else "?" if i % 30 == 0 else f"{draw.normal(245, 50):.0f}"
            cells = [f"{age:.0f}", f"{draw.integers(2)}.0", str(draw.integers(1, 5)), "130", chol, "0", "?"]
            lines.append(
                ",".join([*cells, f"{rate:.0f}", "1" if ill else "0", "1.5", "?", "?", "?", str(ill * 2)])
            )
        (folder / f"processed.{name}.data").write_text("\n".join(lines) + "\n")


def test_the_plan_needs_no_files(cape):
    plan = json.loads(cape("plan", HEART / "study.toml", "--json").out)
    assert plan["analyses"][0]["analysis"]["kind"] == "table-one"
    assert plan["analyses"][0]["rows"] == sum(ROWS.values())


@pytest.mark.slow(2)
def test_prepared_files_run(cape, tmp_path):
    here = tmp_path / "heart"
    shutil.copytree(HEART, here, ignore=shutil.ignore_patterns("data", "results"))
    raw(tmp_path)
    prepared = subprocess.run(
        [sys.executable, str(here / "prepare.py"), str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert prepared.returncode == 0, prepared.stderr
    done = cape("run", here / "study.toml", "--json")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    estimates = {e["label"]: e for each in results["analyses"] for e in each["estimates"]}
    assert estimates["chol"]["value"] == np.clip(estimates["chol"]["value"], 225, 265)  # not near 0
    assert results["budget"]["left"] == 0


@pytest.mark.slow(10)
def test_the_regressions_are_drawn(tmp_path):
    raw(tmp_path)
    script = HEART / "regression.py"
    done = subprocess.run(
        [
            sys.executable,
            str(script),
            str(tmp_path),
            "--out",
            str(tmp_path / "out"),
            "--seeds",
            "1",
            "--times",
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "hungary: 294 rows, 294 complete" in done.stdout
    assert "| epsilon | pooled | cape | conventional | local |" in done.stdout
    assert done.stdout.count("log-odds of disease = yes") == 2  # without noise, and with
    drawn = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert set(drawn) == {"heart-logistic.png", "heart-linear.png", "heart-epsilon.png"}
    assert all(5_000 < size < 200_000 for size in drawn.values())


def test_prepare_says_what_is_missing(tmp_path):
    shutil.copy(HEART / "prepare.py", tmp_path)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "prepare.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no file" in done.stderr
    assert "examples/heart/README.md" in done.stderr
