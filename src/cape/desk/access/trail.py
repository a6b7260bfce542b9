"""The trail of decisions: who clicked what, and when, in lines that are chained by their hashes.

Claim. Every click that decides is on the disk, with its person, before it is carried out; a line that is
changed, removed or inserted later is found, except by whoever rewrites all lines after it or removes the last
ones: that shows against the head. Values of secrets are not there.
Reason. A line holds the hash of the line before it and is synced before the handler runs; if it cannot be
written, nothing is decided. The head is printed when the desk starts and stops, so that the system's journal
has it, and the daemon keeps a log of its own of the same decisions. A line that a killed process wrote in
part is cut off: its decision was not carried out. Long values are replaced by their lengths, addresses lose
their passwords.
Tested in tests/unit/desk/test_trail.py.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cape.core.errors import CapeError, InvalidInput
from cape.desk.access.people import Person
from cape.site.admin.hidden import scrub

__all__ = ["Checked", "Trail", "check"]

_FIRST = "0" * 64
_MOST_VALUE = 200
_MOST_FIELDS = 20
_FIRST_FIELDS = (
    "study",
    "coordinator",
    "how",
    "was",
    "reason",
    "question",
    "name",
    "key",
    "role",
    "hash",
    "do",
)
_UNTOLD = ("csrf", "password", "secret", "token")


@dataclass(frozen=True)
class Checked:
    """What is in a trail: its valid lines, the hash of the last, and the first wrong line, if any."""

    lines: int
    head: str
    wrong: int | None
    size: int  # bytes of the valid lines


class Trail:
    """A file to which lines are added.

    >>> trail = Trail(state / "trail.jsonl")
    >>> number = trail.write(person, "POST /inbox/approve", {"study": "heart"})
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        found = check(path)
        if found.wrong is not None:
            raise InvalidInput(
                f"the trail of decisions {path} is not what the desk wrote: line {found.wrong} is wrong; "
                "find out who changed it, keep a copy, and move it away to start a new one"
            )
        if path.exists():
            os.truncate(path, found.size)  # the part of a line that a killed process left
        self.lines, self.head, self._size = found.lines, found.head, found.size

    def __str__(self) -> str:
        return f"Trail of decisions: {self.lines} line{'' if self.lines == 1 else 's'}, head {self.head[:16]}"

    def write(self, person: Person, what: str, fields: Mapping[str, str] | None = None, **more: Any) -> int:
        """Add a line, on the disk when this returns; return its number."""
        with self._lock:
            number = self.lines + 1
            line = json.dumps(
                {
                    "number": number,
                    "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "person": person.name,
                    "role": person.role,
                    "what": what,
                    **({"fields": _told(fields)} if fields is not None else {}),
                    **more,
                    "before": self.head,
                }
            )
            try:
                handle = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(f"{line}\n".encode())
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                with suppress(OSError):  # the part of a line that a full disk left
                    os.truncate(self.path, self._size)
                raise CapeError(
                    f"the trail of decisions cannot be written ({error.strerror}), so nothing was decided"
                ) from None
            self.lines, self.head = number, _hash(line.encode())
            self._size += len(line.encode()) + 1
        return number


def check(path: Path) -> Checked:
    """Read a trail, and compare each line with the one before it."""
    head, size = _FIRST, 0
    if not path.exists():
        return Checked(0, head, None, 0)
    number = 0
    try:
        with open(path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if not _follows(line, number + 1, head):
                    return Checked(number, head, number + 1, size)
                head, number, size = _hash(line[:-1]), number + 1, size + len(line)
    except OSError as error:
        raise InvalidInput(f"the trail of decisions {path} cannot be read: {error.strerror}") from None
    return Checked(number, head, None, size)


def _follows(line: bytes, number: int, head: str) -> bool:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("number") == number and told.get("before") == head


def _hash(line: bytes) -> str:
    return sha256(line).hexdigest()


def _told(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields as they may be kept: those that say what is decided, short and without secrets.

    Of a long form, the others are told by the hash of all.
    """
    told = {name: value for name, value in fields.items() if name != "csrf"}
    named = sorted(told, key=lambda name: name not in _FIRST_FIELDS)[:_MOST_FIELDS]
    found = {name[:_MOST_VALUE]: _value(name, told[name]) for name in named}
    if len(named) < len(told):
        found[f"and {len(told) - len(named)} more"] = _hash(json.dumps(told, sort_keys=True).encode())
    return found


def _value(name: str, value: str) -> str:
    if len(value) > _MOST_VALUE or any(word in name.lower() for word in _UNTOLD):
        return f"({len(value)} characters)"
    return scrub(value)
