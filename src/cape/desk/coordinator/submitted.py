"""One submission: a folder with the study, the process that submits it, and what came of it.

Claim. The desk submits nothing that `cape submit` would not, and a desk that is stopped, killed or started
again loses no submission and repeats none.
Reason. The desk has no rule of its own: it starts `cape submit` with the study, the kit and a results folder,
as a process in a session of its own. All that is shown is read again from the folder each time: the record,
the results and the progress that this process writes. Whether it runs is whether it holds a lock, which
the kernel frees when it ends, however it ends; the same lock admits one such process at a time.
Tested in tests/unit/desk/test_submitted.py, with processes that are killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from cape.app.folder import RECORD
from cape.app.progress import PROGRESS, Progress, read_progress
from cape.coordinator import Record
from cape.core.check import plain
from cape.core.errors import CapeError, InvalidInput
from cape.desk.child import EXIT, RUNNING
from cape.desk.coordinator.kept import Kept, read_kept
from cape.study import Study
from cape.study.document import document, read

__all__ = ["RESULTS", "STUDY", "About", "State", "Submitted", "changes"]

STUDY, RESULTS = "study.toml", "results"
_ABOUT, _OUTPUT = "submission.json", "output.txt"
_TAIL = 20_000  # bytes of the output that are shown
_LINES = 60
_LONGEST = 300  # characters of a name
_INTERRUPTED = 130
_LOOK = threading.Lock()  # whoever looks whether a process runs would keep one from starting

State = Literal["running", "waiting", "finished", "cancelled", "failed", "stopped"]
"""`waiting`: it runs, and a steward has to approve the study. `stopped`: its process was killed."""


class About(msgspec.Struct, frozen=True):
    """What is known of a submission from the start: who submitted which study when."""

    name: str
    by: str
    submitted: datetime
    sites: tuple[str, ...]
    analyses: tuple[str, ...]
    wait: float = 0.0


class Submitted:
    """A submission in its folder.

    >>> submission = Submitted(folder, kit)
    >>> submission.start()
    >>> submission.state
    'running'
    """

    def __init__(self, folder: Path, kit: Path) -> None:
        self.folder, self._kit = folder, kit
        try:
            self.about = msgspec.json.decode((folder / _ABOUT).read_bytes(), type=About)
        except (OSError, ValueError):
            raise InvalidInput(f"there is no submission {plain(folder.name)!r}") from None

    @classmethod
    def create(cls, folder: Path, kit: Path, study: Study, text: str, by: str, wait: float) -> Submitted:
        """Make the folder of a new submission, whole or not at all."""
        beside = folder.with_name(f".{folder.name}")
        beside.mkdir(mode=0o700)
        analyses = tuple(plain(entry.analysis.sentence, _LONGEST) for entry in study.analyses)
        about = About(plain(study.name, _LONGEST), by, datetime.now(UTC), tuple(study.sites), analyses, wait)
        (beside / STUDY).write_text(text, encoding="utf-8")
        (beside / _ABOUT).write_bytes(msgspec.json.encode(about))
        os.rename(beside, folder)
        return cls(folder, kit)

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def text(self) -> str:
        """The study as it was submitted."""
        return (self.folder / STUDY).read_text(encoding="utf-8")

    def start(self) -> None:
        """Start `cape submit`, or resume after what was asked before.

        Raises:
            CapeError: it runs already.
        """
        options = ["--resume"] * self.record.begun + ["--wait", f"{self.about.wait:g}"]
        with _LOOK:
            lock = os.open(self.folder / RUNNING, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (self.folder / EXIT).unlink(missing_ok=True)
                os.truncate(lock, 0)
                self._spawn(lock, "submit", STUDY, "--kit", str(self._kit), "--out", RESULTS, *options)
            except BlockingIOError:
                raise CapeError("this study is being submitted already") from None
            finally:
                os.close(lock)  # the process has it too, and keeps it locked

    def _spawn(self, lock: int, *arguments: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "CAPE_TRACEBACK"}
        with open(self.folder / _OUTPUT, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cape.desk.child", *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment | {"PYTHONUNBUFFERED": "1"},
                pass_fds=(lock,),
                start_new_session=True,
            )
        threading.Thread(target=process.wait, daemon=True).start()

    def cancel(self) -> None:
        """Interrupt the process, as Ctrl-C would: it ends the job and keeps what was released.

        Raises:
            CapeError: it is not running.
        """
        if not self.running:
            raise CapeError("this submission is not running; there is nothing to cancel")
        try:
            os.kill(int((self.folder / RUNNING).read_text()), signal.SIGINT)
        except (ValueError, ProcessLookupError):  # it has just started, or just ended
            raise CapeError("this submission is just starting or ending; try again in a moment") from None

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        with _LOOK:
            try:
                lock = os.open(self.folder / RUNNING, os.O_RDONLY)
            except OSError:
                return False
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(lock)
            return False

    @property
    def code(self) -> int | None:
        """The exit status of the process; None while it runs, or if it was killed."""
        try:
            return int((self.folder / EXIT).read_text())
        except (OSError, ValueError):
            return None

    @property
    def state(self) -> State:
        """What it does, or how it ended."""
        if self.running:
            seen = self.progress
            waits = seen is not None and not seen.number and any(site.what == "waits" for site in seen.sites)
            return "waiting" if waits else "running"
        states: dict[int | None, State] = {None: "stopped", 0: "finished", _INTERRUPTED: "cancelled"}
        return states.get(self.code, "failed")

    @property
    def mark(self) -> tuple[object, ...]:
        """Something that is another one once anything has changed."""
        return self.running, *changes(self.folder)

    @property
    def progress(self) -> Progress | None:
        """What its process last said of sites and rounds."""
        return read_progress(self.folder / RESULTS)

    @property
    def record(self) -> Record:
        """What was asked and answered, to be looked at only; nothing if that is damaged."""
        return self._record[0]

    @property
    def damaged(self) -> bool:
        """Whether the record cannot be read."""
        return self._record[1]

    @property
    def _record(self) -> tuple[Record, bool]:
        path = self.folder / RESULTS / RECORD
        return _look(path, changed(path))

    @property
    def done(self) -> int:
        """How many analyses have their answer."""
        return len({attempt.number for attempt in self.record.attempts if attempt.finished})

    @property
    def kept(self) -> Kept | None:
        """The results so far; None if there are none."""
        return read_kept(self.folder / RESULTS)

    @property
    def spent(self) -> Fraction:
        """The share of the study's budget that is spent, attempts that broke off included."""
        return _spent(self.text, tuple((attempt.number, attempt.spent) for attempt in self.record.attempts))

    @property
    def output(self) -> list[str]:
        """Return the last lines that the process wrote; the path of the kit is left out."""
        try:
            with open(self.folder / _OUTPUT, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                text = file.read(_TAIL).decode("utf-8", "replace")
        except OSError:
            return []
        for path, name in (
            (str(self._kit), "KIT"),
            (str(self._kit.resolve()), "KIT"),
            (str(self.folder), "."),
        ):
            text = text.replace(path, name)
        return [plain(line, 500) for line in text.splitlines()[-_LINES:]]


def changes(folder: Path) -> list[tuple[int, int]]:
    """Return when the files of a submission changed, and their sizes."""
    names = (EXIT, RUNNING, f"{RESULTS}/{PROGRESS}", f"{RESULTS}/{RECORD}", f"{RESULTS}/results.json")
    return [changed(folder / name) for name in names]


def changed(path: Path) -> tuple[int, int]:
    """Return when a file changed, and its size; zeros if it is not there."""
    try:
        seen = os.stat(path)
    except OSError:
        return 0, 0
    return seen.st_mtime_ns, seen.st_size


@lru_cache(maxsize=512)
def _look(path: Path, mark: tuple[int, int]) -> tuple[Record, bool]:
    """Return a record that was changed last at this time, and whether it is damaged."""
    try:
        return Record.look(path), False
    except InvalidInput:
        return Record.look(path.with_name("nothing")), True


@lru_cache(maxsize=64)
def _spent(text: str, attempts: tuple[tuple[int, int], ...]) -> Fraction:
    """Return the share of a study's budget that attempts with so many stages each have spent."""
    if not attempts:
        return Fraction(0)
    told = document(Study.parse(text, Path(STUDY)))
    sessions = {number: read(told, number).session() for number, _ in attempts}
    return sum((sessions[number].price(stages) for number, stages in attempts), Fraction(0))
