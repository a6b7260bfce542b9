"""What a check found: a verdict with its figures, when, and by which command; one JSON file for each part."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["OUT", "ROOT", "Result", "commit", "load", "save", "worst"]

OUT = Path("assurance-out")
ROOT = Path(__file__).resolve().parent.parent
_ORDER = ("pass", "skip", "fail")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit(root: Path = ROOT) -> str:
    """Return which commit is checked out, with "+ changes" if files differ from it; "unknown" without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != root.resolve():
            return "unknown"  # files of ours inside somebody else's repository
        name = git("rev-parse", "--short", "HEAD")
        return f"{name} + changes" if git("status", "--porcelain") else name
    except (OSError, subprocess.SubprocessError):
        return "unknown"


_commit = functools.cache(commit)  # of the code that runs: as it was when the first result was made


@dataclass(frozen=True)
class Result:
    """One check. `verdict` is "pass", "fail" or "skip"; a skip says why in `notes`."""

    name: str
    verdict: str
    command: str
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    date: str = field(default_factory=_now)
    commit: str = field(default_factory=lambda: _commit())
    machine: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    python: str = field(default_factory=platform.python_version)

    def line(self) -> str:
        """Return it as one line for the terminal."""
        told = ", ".join(
            f"{key} {value}" for key, value in self.figures.items() if not isinstance(value, list)
        )
        return f"{self.verdict:4}  {self.name}: {told}" + "".join(f"\n      {note}" for note in self.notes)


def save(part: str, results: list[Result], out: Path = OUT) -> Path:
    """Write a part's results; a name in them replaces the one that was there."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{part}.json"
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> list[dict[str, Any]]:
    """Read a part's results."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, list) else [found]


def worst(results: list[Result]) -> str:
    """Return the worst verdict among them."""
    return max((result.verdict for result in results), key=_ORDER.index, default="skip")
