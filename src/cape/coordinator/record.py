"""What a coordinator has asked and been answered: a file of lines, synced before and after each stage.

Claim. Whenever a coordinator is killed, the record names every stage that may have been asked: no site is
asked before the stage's line is on the disk.
Reason. Lines are only appended, each with a checksum over itself and the line before, and synced. A crash can
tear the last line only, which is then dropped: a stage whose answer is torn counts as asked and not answered.
A complete line with a wrong checksum is damage, and is an error. (SQLite would not detect a changed byte or
a removed line by itself; a chain of lines does.) Another study takes the record over only while no stage of
the one before counts as spent, so its attempts may be forgotten; the lines stay.
Tested in tests/unit/coordinator/test_record.py, cut at every byte.

It holds released numbers only: it is as public as the results.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from cape.core.errors import CapeError, InvalidInput
from cape.engine.schemes import Cost

__all__ = ["Answered", "Attempt", "Record"]

_FORMAT = 2
_DIGITS = 16  # of a checksum


@dataclass(frozen=True)
class Answered:
    """A stage's answer: total (int64, little-endian), participants, their rows where public, and its cost.

    `late` are the participants whose surplus noise is still in the total.
    """

    total: bytes
    participants: tuple[str, ...]
    rows: int | None
    cost: Cost
    late: tuple[str, ...] = ()


@dataclass
class Attempt:
    """One run of one analysis.

    Attributes:
        asked: how many stages were asked, or were about to be.
        answers: of the first stages; all that were asked, or one fewer.
        finished: whether every stage was answered.
        failed: how many stages count as spent, once the run was given up; None before.
        refusals: code and sentence of each site that refused a stage.
    """

    number: int
    run: bytes
    asked: int = 0
    answers: list[Answered] = field(default_factory=list)
    finished: bool = False
    failed: int | None = None
    why: str = ""
    refusals: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether its outcome is unknown."""
        return not self.finished and self.failed is None

    @property
    def spent(self) -> int:
        """How many stages count as spent, including those with an unknown outcome."""
        return self.asked if self.failed is None else self.failed


class Record:
    """The record of one study. One process holds it at a time.

    >>> with Record("results/record.jsonl") as record:
    ...     submission = Submission(study, folder, link, record)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.study_hash: str | None = None
        self.attempts: list[Attempt] = []
        self._chain = ""
        try:
            self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        except OSError as error:
            raise InvalidInput(f"{self.path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load()
        except BlockingIOError:
            self.close()
            raise InvalidInput(f"{self.path} is in use: is another `cape submit` running?") from None
        except BaseException:
            self.close()
            raise

    @classmethod
    def look(cls, path: str | Path) -> Record:
        """Return what a record says now, closed: another process may be writing to it.

        A last line that is being written, or was torn by a crash, is left out; nothing is changed.
        """
        found = object.__new__(cls)
        found.path, found.study_hash, found.attempts = Path(path), None, []
        found._chain, found._file = "", -1
        try:
            content = found.path.read_bytes()
        except FileNotFoundError:
            return found
        except OSError as error:
            raise InvalidInput(f"{found.path} cannot be read: {error.strerror}") from None
        found._take_all(content)
        return found

    def of(self, study_hash: str, name: str) -> None:
        """Make it the record of a study, or raise if it belongs to another that may have spent something."""
        if self.study_hash == study_hash:
            return
        if not self.unspent:
            raise InvalidInput(
                f"{self.path} is the record of another study, or of this one before it was changed, and "
                "sites may have answered it. Give another folder with --out; or resume the unchanged study "
                "with --resume, which asks the sites whether anything was spent"
            )
        self._write(kind="study", format=_FORMAT, hash=study_hash, name=name)
        self.study_hash, self.attempts = study_hash, []

    @property
    def unspent(self) -> bool:
        """Whether no stage that was asked counts as spent."""
        return not any(attempt.spent for attempt in self.attempts)

    @property
    def begun(self) -> bool:
        """Whether anything was asked."""
        return bool(self.attempts)

    def begin(self, number: int, run: bytes) -> Attempt:
        """Record that an analysis is about to be asked."""
        return self._told(kind="begun", number=number, run=run.hex())

    def asked(self, attempt: Attempt) -> None:
        """Record, synced, that the next stage is about to be asked."""
        self._told(kind="asked", run=attempt.run.hex(), stage=attempt.asked)

    def answered(self, attempt: Attempt, answered: Answered) -> None:
        """Record the answer of the stage."""
        cost = answered.cost
        self._told(
            kind="answered",
            run=attempt.run.hex(),
            stage=len(attempt.answers),
            total=base64.b64encode(answered.total).decode(),
            participants=list(answered.participants),
            late=list(answered.late),
            rows=answered.rows,
            cost=[cost.rounds, cost.bytes, cost.bytes_per_site, cost.seconds],
        )

    def refused(self, attempt: Attempt, site: str, code: str, sentence: str) -> None:
        """Record that a site refused the stage; once for each reason."""
        if attempt.refusals.get(site) != (code, sentence):
            self._told(kind="refused", run=attempt.run.hex(), site=site, code=code, sentence=sentence)

    def finished(self, attempt: Attempt) -> None:
        """Record that the analysis has its answer."""
        self._told(kind="finished", run=attempt.run.hex())

    def failed(self, attempt: Attempt, spent: int, why: str) -> None:
        """Record that a run is given up, and how many of its stages count as spent."""
        self._told(kind="failed", run=attempt.run.hex(), spent=spent, why=why)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _told(self, **line: Any) -> Attempt:
        self._write(**line)
        return self._apply(line)

    def _write(self, **line: Any) -> None:
        """Append a line; it is on the disk when this returns."""
        text = json.dumps(line)
        chain = _checksum(self._chain, text)
        data = memoryview(f"{chain} {text}\n".encode())
        size = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            raise CapeError(f"{self.path} cannot be written: {error.strerror}") from None
        self._chain = chain

    def _load(self) -> None:
        content = self.path.read_bytes()
        good = self._take_all(content)
        if good < len(content):
            os.ftruncate(self._file, good)
        os.fsync(self._file)
        _sync_folder(self.path.parent)

    def _take_all(self, content: bytes) -> int:
        """Apply the lines of a file but for a last one that is torn; return how many bytes these are."""
        good = 0
        for data in content.splitlines(keepends=True):
            line = self._read(data)
            if line is None:
                break
            self._take(line)
            good += len(data)
        rest = content[good:]
        # Lines are synced one by one, so a crash tears the last one only: it is cut off, or has zeros in it.
        if b"\n" in rest[:-1] or (rest.endswith(b"\n") and b"\0" not in rest):
            raise self._damaged(f"after {good} bytes")
        return good

    def _read(self, data: bytes) -> dict[str, Any] | None:
        """Return a line, and advance the chain; None if the line is torn or damaged."""
        try:
            text = data.decode()
            chain, text = text[:_DIGITS], text[_DIGITS + 1 : -1]
            if not data.endswith(b"\n") or chain != _checksum(self._chain, text):
                return None
            line = json.loads(text)
        except (ValueError, RecursionError):
            return None
        self._chain = chain
        return line if isinstance(line, dict) else None

    def _take(self, line: dict[str, Any]) -> None:
        """Apply a line that was read from the file."""
        try:
            if line["kind"] == "study" and line["format"] == _FORMAT and self.unspent:
                self.study_hash, self.attempts = str(line["hash"]), []
                return
            if self.study_hash is not None:
                self._apply(line)
                return
        except (ValueError, TypeError, LookupError):
            pass
        raise self._damaged(f"at a line of kind {line.get('kind')!r}")

    def _apply(self, line: dict[str, Any]) -> Attempt:
        run = bytes.fromhex(line["run"])
        if line["kind"] == "begun":
            if any(attempt.run == run for attempt in self.attempts):
                raise ValueError("a run begins once")
            self.attempts.append(Attempt(int(line["number"]), run))
            return self.attempts[-1]
        attempt = next((each for each in reversed(self.attempts) if each.run == run), None)
        if attempt is None or not attempt.open:
            raise ValueError("a run that did not begin, or is over, cannot go on")
        match line["kind"]:
            case "asked" if line["stage"] == attempt.asked == len(attempt.answers):
                attempt.asked += 1
            case "answered" if line["stage"] == len(attempt.answers) == attempt.asked - 1:
                attempt.answers.append(
                    Answered(
                        base64.b64decode(line["total"], validate=True),
                        tuple(line["participants"]),
                        line["rows"],
                        Cost(*line["cost"]),
                        tuple(line["late"]),
                    )
                )
            case "refused" if attempt.asked > len(attempt.answers):
                attempt.refusals[str(line["site"])] = (str(line["code"]), str(line["sentence"]))
            case "finished" if attempt.asked == len(attempt.answers):
                attempt.finished = True
            case "failed" if len(attempt.answers) <= line["spent"] <= attempt.asked:
                attempt.failed, attempt.why = int(line["spent"]), str(line["why"])
            case _:
                raise ValueError("a line that does not follow")
        return attempt

    def _damaged(self, where: str) -> InvalidInput:
        return InvalidInput(
            f"{self.path} is damaged {where}, so it is not known what was spent; keep a copy, and "
            "compare the sites' ledgers"
        )


def _checksum(before: str, text: str) -> str:
    return sha256(f"{before} {text}".encode()).hexdigest()[:_DIGITS]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
