"""The coordinator's folder at the desk: studies that are being written, and submissions.

    WORK/drafts/heart.toml
    WORK/submissions/2026-03-01-heart/    see `cape.desk.coordinator.submitted`

One desk at a time: a second one on the same folder is refused.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import threading
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cape.coordinator import CoordinatorFolder
from cape.core import check, files
from cape.core.errors import CapeError, InvalidInput
from cape.desk.coordinator.planning import Planner
from cape.desk.coordinator.study import MOST_TEXT, parse
from cape.desk.coordinator.submitted import Submitted, changes
from cape.flare.kits import require_coordinator

__all__ = ["Draft", "Workspace"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}\Z")
_MOST_DRAFTS = 200
_LONGEST_WAIT = 7 * 86_400.0  # seconds


@dataclass(frozen=True)
class Draft:
    """A study that is being written: the name of its file, and when it was saved."""

    name: str
    saved: datetime


class Workspace:
    """Everything that the desk of a coordinator knows.

    Args:
        kit: the coordinator's kit, with its key and its sites' keys.
        work: where drafts and submissions are kept; it is made if it is not there.
    """

    def __init__(self, kit: Path, work: Path) -> None:
        require_coordinator(kit)
        self.kit, self.work = kit.resolve(), work.resolve()
        self.folder = CoordinatorFolder(self.kit)
        self._drafts, self._submissions = self.work / "drafts", self.work / "submissions"
        self._naming = threading.Lock()
        self.planner = Planner()
        try:
            for folder in (self.work, self._drafts, self._submissions):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.work, os.O_RDONLY)
        except OSError as error:
            raise InvalidInput(f"--work: {work} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InvalidInput(f"--work: {work} is in use by another desk") from None

    def close(self) -> None:
        """Let another desk use the folder."""
        self.planner.close()
        os.close(self._lock)

    @property
    def sites(self) -> list[str]:
        """The sites whose keys are pinned."""
        return sorted(self.folder.sites)

    def drafts(self) -> list[Draft]:
        """Return the studies that are being written, the last saved first."""
        found = []
        for path in self._drafts.glob("*.toml"):
            if _NAME.match(path.stem):
                found.append(Draft(path.stem, datetime.fromtimestamp(path.stat().st_mtime, UTC)))
        return sorted(found, key=lambda draft: draft.saved, reverse=True)[:_MOST_DRAFTS]

    def draft(self, name: str) -> str:
        """Return the text of a draft."""
        try:
            return self._draft(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(f"there is no draft {check.plain(name)!r}") from None

    def save(self, text: str, name: str = "", title: str = "") -> str:
        """Save a draft, new or in the place of the one of this name; return its name."""
        if len(text.encode()) > MOST_TEXT:
            raise InvalidInput(f"a study may have at most {MOST_TEXT >> 10} kB here")
        with self._naming:
            path = self._draft(name) if name else _free(self._drafts, _slug(title), ".toml")
            try:
                files.replace(path, text.encode())
            except OSError as error:
                raise CapeError(f"the draft cannot be written: {error.strerror}") from None
        return path.stem

    def discard(self, name: str) -> None:
        """Delete a draft."""
        self._draft(name).unlink(missing_ok=True)

    def submissions(self) -> list[Submitted]:
        """Return the submissions, the latest first; folders that are none are ignored."""
        found = []
        for path in self._submissions.iterdir():
            if _NAME.match(path.name):
                try:
                    found.append(Submitted(path, self.kit))
                except InvalidInput:
                    continue
        return sorted(found, key=lambda each: each.about.submitted, reverse=True)

    def mark(self) -> list[object]:
        """Return something that is another one once any submission has changed."""
        return [(path.name, changes(path)) for path in sorted(self._submissions.iterdir())]

    def submission(self, name: str) -> Submitted:
        """Return a submission."""
        if not _NAME.match(name):
            raise InvalidInput(f"there is no submission {check.plain(name)!r}")
        return Submitted(self._submissions / name, self.kit)

    def submit(self, text: str, by: str, wait: float = 0.0) -> Submitted:
        """Submit a study, and return its submission, whose process has started.

        Args:
            text: the study file.
            by: who submits it.
            wait: how many seconds to wait for stewards to approve it.
        """
        check.real("wait", wait, least=0.0, most=_LONGEST_WAIT)
        self.planner.plan(text)  # which also says that reading it takes no time
        study = parse(text)
        missing = [name for name in study.sites if name not in self.folder.sites]
        if missing:
            raise InvalidInput(
                f"no key of {', '.join(missing)} is pinned in this kit; `cape deploy trust FILE`"
            )
        with self._naming:
            start = f"{datetime.now(UTC):%Y-%m-%d}-{_slug(study.name)}"
            path = _free(self._submissions, start)
            made = Submitted.create(path, self.kit, study, text, by, wait)
        made.start()
        return made

    def _draft(self, name: str) -> Path:
        if not _NAME.match(name):
            raise InvalidInput(f"there is no draft {check.plain(name)!r}")
        return self._drafts / f"{name}.toml"


def _slug(title: str) -> str:
    """Return a name for a file: letters and digits of a title, with hyphens between words."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "study"


def _free(folder: Path, start: str, end: str = "") -> Path:
    """Return the first of START, START-2, ... that is not there."""
    for number in itertools.count(1):
        path = folder / f"{start}{'' if number == 1 else f'-{number}'}{end}"
        if not path.exists() and not path.with_name(f".{path.name}").exists():
            return path
    raise AssertionError("there is always another number")
