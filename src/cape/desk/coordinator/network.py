"""Who is connected: `cape status`, asked as a process of its own, so that NVFLARE stays out of the desk."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from cape.app.words import sentence
from cape.core.check import plain

__all__ = ["connected"]

_PATIENCE = 45.0  # seconds
_FRESH = 5.0  # seconds for which an answer is kept
_ONE = threading.Lock()
_last: dict[Path, tuple[float, tuple[dict[str, str], str]]] = {}


class _Site(msgspec.Struct):
    name: str
    connected: bool


class _Status(msgspec.Struct):
    sites: list[_Site]
    jobs: list[str]


def connected(kit: Path) -> tuple[dict[str, str], str]:
    """Return "yes" or "no" by site, and a sentence; no sites if the aggregator could not be asked."""
    with _ONE:
        if kit not in _last or time.monotonic() - _last[kit][0] > _FRESH:
            _last[kit] = time.monotonic(), _ask(kit)
        return _last[kit][1]


def _ask(kit: Path) -> tuple[dict[str, str], str]:
    command = [sys.executable, "-m", "cape", "status", str(kit), "--json"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return {}, "The aggregator did not answer in time."
    try:
        told = msgspec.json.decode(done.stdout, type=_Status)
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.startswith("cape: ")]
        why = lines[-1].removeprefix("cape: ") if lines else "`cape status` failed"
        return {}, sentence(plain(why.replace(str(kit), "KIT"), 300))
    said = f"The aggregator is up; running studies: {len(told.jobs)}."
    return {site.name: "yes" if site.connected else "no" for site in told.sites}, said
