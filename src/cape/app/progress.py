"""The progress of a submission as a file beside its results, for whoever watches it from another process.

It says what the live table of `cape submit` says: which site did what last, which analysis and which stage
run, what is spent. Nothing in it is needed to resume a submission: the record is.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from cape.privacy import Budget

__all__ = ["PROGRESS", "Progress", "ProgressFile", "SiteSeen", "Spent", "read_progress"]

PROGRESS = "progress.json"
_EVERY = 0.25  # seconds between two writes
_MOST = 1 << 20  # bytes


class SiteSeen(msgspec.Struct, frozen=True):
    """What was last heard of a site; `at` is in seconds since 1970, 0 if nothing was heard."""

    name: str
    what: str
    round: str = ""
    at: float = 0.0
    why: str = ""


class Spent(msgspec.Struct, frozen=True):
    """The budget of a study, and which share of it is spent."""

    epsilon: float
    delta: float
    share: float

    @classmethod
    def of(cls, budget: Budget) -> Spent:
        """Return a budget as plain data."""
        return cls(budget.epsilon, budget.delta, float(budget.spent))


class Progress(msgspec.Struct, frozen=True):
    """The progress of one submission.

    Attributes:
        total: how many analyses the study has.
        done: how many have their answer.
        number: the analysis that runs; 0 if none does.
        step: the stage that runs, in words.
        lines: what was said last.
    """

    sites: tuple[SiteSeen, ...]
    total: int
    done: int = 0
    number: int = 0
    step: str = ""
    budget: Spent | None = None
    lines: tuple[str, ...] = ()


class ProgressFile:
    """A file that follows a state: it is written soon after `changed`, and when the file is closed.

    >>> with ProgressFile(folder / PROGRESS, lambda: Progress(...)) as file:
    ...     file.changed()
    """

    def __init__(self, path: Path, state: Callable[[], Progress]) -> None:
        self._path, self._state = path, state
        self._new, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> ProgressFile:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._new.set()
        self._thread.join()
        self._write()

    def changed(self) -> None:
        """Note that the state is another one."""
        self._new.set()

    def _follow(self) -> None:
        while not self._over.wait(_EVERY):
            self._new.wait()
            self._new.clear()
            self._write()

    def _write(self) -> None:
        """Replace the file. A watcher that sees an old one loses nothing, so a full disk is no error here."""
        beside = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(OSError):
            beside.write_bytes(msgspec.json.encode(self._state()))
            os.replace(beside, self._path)


def read_progress(folder: Path) -> Progress | None:
    """Return the progress of the submission in a folder; None if there is none that can be read."""
    try:
        with open(folder / PROGRESS, "rb") as file:
            return msgspec.json.decode(file.read(_MOST), type=Progress)
    except (OSError, ValueError):
        return None
