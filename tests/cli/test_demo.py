from __future__ import annotations

import json
import subprocess
import sys

import pytest


def cape(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cape", *arguments], capture_output=True, text=True, timeout=60
    )


def test_demo_shows_the_schemes_and_the_theorem():
    done = cape("demo")
    assert done.returncode == 0, done.stderr
    for word in ("pooled", "cape-gaussian", "conventional", "local", "Theorem 1"):
        assert word in done.stdout


def test_demo_as_json_is_planned_and_measured_alike():
    answer = json.loads(cape("demo", "--json", "--epsilon", "0.5", "--colluding", "2").stdout)
    schemes = {row["scheme"]: row for row in answer["schemes"]}
    assert schemes["cape"]["over_pooled"] == pytest.approx(5 / 3)
    assert schemes["conventional"]["over_pooled"] == pytest.approx(5)
    for row in schemes.values():
        assert row["measured"] == pytest.approx(row["planned"], rel=0.03)  # 6 standard errors
    for claim in answer["theorem1"]:
        if claim["sites"] >= 10:
            assert claim["exact_delta"] > claim["paper_delta"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--epsilon", "nan"], "cape: epsilon must be a finite number above 0, not nan"),
        (["demo", "--delta", "1"], "cape: delta must lie strictly between 0 and 1, not 1.0"),
        (["demo", "--colluding", "5"], "cape: colluding must be an integer at least 0 and at most 4, not 5"),
        (["dmeo"], "Did you mean 'demo'"),
        (["demo", "--epsilon", "one"], "Invalid value for '--epsilon'"),
    ],
)
def test_wrong_use_exits_with_2_and_says_why(arguments, message):
    done = cape(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help():
    assert cape("--version").stdout.startswith("cape 0.")
    assert "Example" in cape("demo", "--help").stdout
