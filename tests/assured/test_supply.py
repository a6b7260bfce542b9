from __future__ import annotations

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
