"""Short versions of what `python -m assurance load`, `soak` and `kills` do for longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assurance import load
from assurance.kills import kills
from assurance.soak import soak
from cape.analyses import Histogram, Mean


@pytest.mark.slow(8.3)
def test_releases_in_a_row_keep_memory_constant():
    result = load.many_releases(releases=60, sites=4, warm=30)
    assert result.verdict == "pass", result.line()


@pytest.mark.slow(1.1)
def test_sums_of_many_sites_are_exact():
    result = load.many_sites(sites=55, steps=2, length=50, dropping=3)
    assert result.verdict == "pass", result.line()
    assert result.figures["sums"] == 2


def test_sums_of_long_vectors_are_exact():
    result = load.long_vectors(length=200_000, sites=4, sums=2)
    assert result.verdict == "pass", result.line()


@pytest.mark.slow(1.9)
def test_a_wrong_sum_would_be_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cape.secagg.masks.sign", lambda site, peer: 1)
    assert load.long_vectors(length=10, sites=4, sums=1).verdict == "fail"
    assert soak(0.02).verdict == "fail"


@pytest.mark.quick_cases("Histogram", seconds=3.4)
@pytest.mark.parametrize("kind", [Mean, Histogram])
def test_a_wrong_answer_would_be_seen(kind: Any, monkeypatch: pytest.MonkeyPatch):
    def run() -> str:
        if kind is Mean:
            return load.many_releases(releases=3, sites=8, warm=1).verdict
        return load.long_release(categories=500).verdict

    assert run() == "pass"
    real = kind.finish
    monkeypatch.setattr(kind, "finish", lambda *given: [replace(each, value=0.0) for each in real(*given)])
    assert run() == "fail"


@pytest.mark.slow(3.1)
def test_a_short_soak():
    result = soak(0.05, seed=3)
    assert result.verdict == "pass", result.line()
    assert result.figures["right_sums"] >= 1  # how many there is time for depends on the machine


@pytest.mark.slow(3.2)
def test_a_few_kills():
    result = kills(6, seed=5)
    assert result.verdict == "pass", result.line()
    assert result.figures["arrived"] >= 1  # how many depends on the machine


@pytest.mark.slow(30)
def test_two_hundred_kills():
    result = kills(200)
    assert result.verdict == "pass", result.line()
    assert result.figures["before_the_ledger"]
    assert result.figures["ledger_but_not_sent"]
