"""The study that ships with the package runs in a fresh clone, as the README has it: without any extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.unit.cli.conftest import Cape

CLINIC = ROOT / "examples" / "clinic" / "study.toml"
EXTRAS = ("formulaic", "pandas", "sklearn", "matplotlib", "mbi", "dp_accounting")


def test_the_study_that_ships_needs_no_extra(cape: Cape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)
    done = cape("run", CLINIC, "--out", tmp_path / "clinic")
    assert done.code == 0, done.stderr
    assert (tmp_path / "clinic" / "report.html").is_file()
