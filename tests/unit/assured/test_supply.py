from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from assurance import supply
from assurance.supply import kind_of, weigh


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("Apache-2.0", "free"),
        ("MIT License", "free"),
        ("Apache-2.0 OR BSD-3-Clause", "free"),
        ("BSD-3-Clause AND 0BSD AND Zlib", "free"),
        ("GPL-3.0-only OR MIT", "free"),
        ("MIT AND GPL-3.0-or-later", "copyleft"),
        ("GNU Affero General Public License v3", "copyleft"),
        ("GNU Lesser General Public License v3 (LGPLv3)", "library"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "library"),
        ("Proprietary", "unknown"),
        ("UNKNOWN", "unknown"),
    ],
)
def test_licences_and_how_they_go_with_ours(named: str, kind: str):
    assert kind_of(named) == kind


def test_every_installed_package_is_listed():
    names = {each.package.lower() for each in supply.licences()}
    assert {"numpy", "polars", "cryptography"} <= names
    assert "cape-dp" not in names


def test_a_vulnerability_fails_and_what_is_not_known_is_a_skip():
    flaw = {"id": "CVE-1", "fix_versions": ["2"]}
    bad = {"name": "x", "version": "1", "vulns": [flaw]}
    good = {"name": "y", "version": "1", "vulns": []}
    unknown = {"name": "z", "skip_reason": "not there"}
    ours = {"name": "cape-dp", "skip_reason": "not there"}
    assert weigh([good, ours]).verdict == "pass"
    assert weigh([good, bad, unknown]).verdict == "fail"
    assert weigh([good, unknown]).verdict == "skip"
    assert weigh([]).verdict == "skip"


def test_without_pip_audit_the_skip_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = supply.vulnerabilities()
    assert result.verdict == "skip"
    assert "cape-dp[audit]" in result.notes[0]


def test_the_other_environments_are_looked_at_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that is not there is a skip that says so; a licence in one that does not go with ours fails."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    about = tmp_path / ".venv-torch" / "lib" / "python3.12" / "site-packages" / "odd-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: odd\nVersion: 1.0\nLicense-Expression: GPL-3.0-only\n")
    found = {each.name: each for each in supply.supply(tmp_path)}
    assert set(found) == {
        f"{what}{where}"
        for what in ("known vulnerabilities", "licences")
        for where in ("", ": .venv-flare", ": .venv-torch")
    }
    flare, torch = found["licences: .venv-flare"], found["licences: .venv-torch"]
    assert (flare.verdict, flare.notes) == ("skip", ["Not checked: .venv-flare is not there"])
    assert (torch.verdict, torch.figures["packages"]) == ("fail", 1)
    assert torch.figures["table"] == [["odd", "1.0", "GPL-3.0-only", "copyleft"]]
    assert found["licences"].figures["packages"] > 10


def test_pip_audit_is_asked_for_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    asked = []

    def run(command: list[str], **_: object) -> object:
        asked.extend(command)
        done = {"dependencies": [{"name": "x", "version": "1", "vulns": []}]}
        return subprocess.CompletedProcess(command, 0, json.dumps(done), "")

    asking = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(supply, "subprocess", asking)  # alone: a result asks git for its commit
    result = supply.vulnerabilities(tmp_path, ".venv-torch")
    assert (result.name, result.verdict) == ("known vulnerabilities: .venv-torch", "pass")
    assert asked[asked.index("--path") + 1] == str(tmp_path)
    assert "--local" not in asked
