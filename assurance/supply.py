"""What this is built on: known vulnerabilities, and licences, of every package that is installed here.

"Here" is the environment that runs this, and those for NVFLARE and torch beside it, where they are there.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from assurance.results import ROOT, Result

__all__ = ["OTHERS", "Licence", "licences", "supply", "vulnerabilities"]

OTHERS = (".venv-flare", ".venv-torch")

_COMMAND = "python -m assurance supply"
_SECONDS = 300

# What may be combined with a work under Apache-2.0 and shipped with it.
_FREE = (
    "apache", "mit", "bsd", "isc", "psf", "python software foundation", "python-2.0", "cnri", "zlib", "0bsd",
    "unlicense", "public domain", "cc0", "hpnd", "boost", "bsl-1.0", "mit-cmu", "libpng", "ofl",
)  # fmt: skip
# May be used as a library, not copied into ours: its own terms stay with it.
_LIBRARY = ("mpl", "mozilla", "lgpl", "lesser general public", "epl")
_COPYLEFT = ("agpl", "affero", "gpl", "general public license", "sspl", "busl", "business source", "cc-by-nc")


@dataclass(frozen=True)
class Licence:
    """A package, the licence that it names, and how that goes with ours: free, library, copyleft, unknown."""

    package: str
    version: str
    named: str
    kind: str


def supply(root: Path = ROOT) -> list[Result]:
    """Return both results for each environment; one that is not there is a skip that says so."""
    found = [vulnerabilities(), _licences()]
    for name in OTHERS:
        packages = next((root / name).glob("lib/python*/site-packages"), None)
        if packages is None:
            why = [f"Not checked: {name} is not there"]
            found += [
                Result(f"{what}: {name}", "skip", _COMMAND, {}, why)
                for what in ("known vulnerabilities", "licences")
            ]
        else:
            found += [vulnerabilities(packages, name), _licences(packages, name)]
    return found


def vulnerabilities(packages: Path | None = None, name: str = "") -> Result:
    """Ask pip-audit; where it is not there or reaches no database, that is a skip with its reason.

    `packages` is a folder of installed packages, else those of this environment are meant.
    """
    if importlib.util.find_spec("pip_audit") is None:
        return _skip("pip-audit is not installed: pip install 'cape-dp[audit]'", name=name)
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    command += ["--local"] if packages is None else ["--path", str(packages)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return _skip(f"pip-audit did not reach its database within {_SECONDS} s", name=name)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return _skip(f"pip-audit could not reach its database: {last[:300]}", name=name)
    return weigh(found, name)


def weigh(found: list[dict[str, Any]], name: str = "") -> Result:
    """Return what pip-audit's list of dependencies amounts to."""
    audited = [each for each in found if "skip_reason" not in each and not _ours(each["name"])]
    left_out = [each for each in found if "skip_reason" in each and not _ours(each["name"])]
    bad = [
        f"{each['name']} {each['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or '-'}"
        for each in audited
        for flaw in each["vulns"]
    ]
    figures = {"audited": len(audited), "not_audited": len(left_out), "vulnerabilities": len(bad)}
    if bad:
        return Result(_of("known vulnerabilities", name), "fail", _COMMAND, figures, bad)
    if left_out or not audited:
        why = left_out[0]["skip_reason"] if left_out else "no package was found"
        return _skip(
            f"the database did not know {len(left_out)} of {len(found)} packages: {why}", figures, name
        )
    return Result(_of("known vulnerabilities", name), "pass", _COMMAND, figures)


def _skip(why: str, figures: dict[str, Any] | None = None, name: str = "") -> Result:
    what = _of("known vulnerabilities", name)
    return Result(what, "skip", _COMMAND, figures or {}, [f"Not checked: {why}"])


def _of(what: str, name: str) -> str:
    return f"{what}: {name}" if name else what


def _ours(name: str) -> bool:
    return name.lower().replace("_", "-") == "cape-dp"


def licences(packages: Path | None = None) -> list[Licence]:
    """Return the licence of every package installed in a folder, or here, by name."""
    found = {}
    for package in (
        metadata.distributions() if packages is None else metadata.distributions(path=[str(packages)])
    ):
        name = package.metadata["Name"]
        if name and not _ours(name):
            named = _named(package.metadata)
            found[name.lower()] = Licence(name, package.version, named, kind_of(named))
    return [found[name] for name in sorted(found)]


def _named(about: Any) -> str:
    """Return what a package says: an SPDX expression, else classifiers, else the first line of its text."""
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    classified = [
        each.rsplit(" :: ", 1)[-1]
        for each in about.get_all("Classifier") or ()
        if each.startswith("License :: ") and not each.endswith("OSI Approved")
    ]
    if classified:
        return " AND ".join(classified)
    lines = [line.strip() for line in str(about.get("License") or "").splitlines() if line.strip()]
    return lines[0][:80] if lines else "UNKNOWN"


def kind_of(named: str) -> str:
    """Return how a licence goes with Apache-2.0; of alternatives the best, of several together the worst."""
    order = ("free", "library", "unknown", "copyleft")
    together = []
    for part in re.split(r"\s+AND\s+", named.replace("(", " ").replace(")", " ")):
        choices = [_one(choice) for choice in re.split(r"\s+OR\s+", part)]
        together.append(min(choices, key=order.index))
    return max(together, key=order.index)


def _one(name: str) -> str:
    text = name.strip().lower()
    for kind, words in (("library", _LIBRARY), ("copyleft", _COPYLEFT), ("free", _FREE)):
        if any(re.search(rf"(?<![a-z]){re.escape(word)}", text) for word in words):
            return kind
    return "unknown"


def _licences(packages: Path | None = None, name: str = "") -> Result:
    listed = licences(packages)
    bad = [each for each in listed if each.kind in ("unknown", "copyleft")]
    kinds = {
        kind: sum(each.kind == kind for each in listed) for kind in ("free", "library", "unknown", "copyleft")
    }
    here = set() if packages is None else set(licences())
    table = [[e.package, e.version, e.named, e.kind] for e in listed if e not in here]
    return Result(
        _of("licences", name),
        "fail" if bad else "pass",
        _COMMAND,
        {"packages": len(listed), **kinds, "table": table},
        [f"{each.package} {each.version}: {each.named} ({each.kind})" for each in bad],
    )
