"""`cape bench`: the measurements of a checkout, as people and as machines read them."""

from __future__ import annotations

import json

import pytest

from cape.cli.bench import _said


@pytest.mark.slow(3.6)
def test_one_measurement(cape):
    done = cape("bench", "privacy.accountant", "--json")
    (found,) = json.loads(done.out)["measurements"]
    assert found["name"] == "privacy.accountant"
    assert done.code == (0 if found["holds"] else 1)  # how fast this machine is, is not tested here


def test_what_people_read():
    line = {"name": "a.b", "value": 0.5, "bar": 1.0, "better": "lower", "holds": True, "unit": "s"}
    assert _said(line) == "a.b: 0.5 s, at most 1: holds"
    assert _said(line | {"better": "higher", "holds": False, "unit": "ratio"}) == (
        "a.b: 0.5, at least 1: DOES NOT HOLD"
    )
    assert _said({"name": "a.b", "skipped": "no torch"}) == "a.b: skipped, no torch"


def test_without_a_checkout_it_says_where_they_are(cape, tmp_path, monkeypatch):
    monkeypatch.setattr("cape.cli.bench._ROOT", tmp_path)
    done = cape("bench")
    assert done.code == 2
    assert "in a checkout" in done.err
