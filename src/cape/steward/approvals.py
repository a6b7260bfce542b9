"""Studies that wait for the steward, were approved, or refused, as files in three folders.

The steward approves one coordinator's whole study, by its hash: every column, analysis and budget share in
it. A study that differs in anything has another hash and waits again. Approvals and refusals can be reversed
at any time: a file is in one folder only. Unrecognised files are reported (`unreadable`) and ignored; in
`refused` a file's name alone refuses.
Tested in tests/steward/test_approvals.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from cape import check
from cape.errors import InvalidInput
from cape.steward.keyring import public_text, read_public, write_whole
from cape.steward.request import Request
from cape.study import places
from cape.study.document import Document, hash_of

__all__ = ["Approvals", "Held", "State"]

State = Literal["waiting", "approved", "refused"]

_MOST_HELD = 100  # of each coordinator, so that none can fill the disk
_MOST_NAMED = 6
_MOST_BYTES = 1 << 24  # of a study


@dataclass(frozen=True)
class Held:
    """A study that waits, was approved, or was refused."""

    path: Path
    coordinator: bytes
    study: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The study's name."""
        return str(self.study.get("name"))

    @property
    def study_hash(self) -> str:
        """The study's hash."""
        return hash_of(self.study)


class Approvals:
    """The folders `held`, `approved` and `refused` of a site."""

    def __init__(self, folder: Path) -> None:
        self._folders: dict[State, Path] = {
            "waiting": folder / "held",
            "approved": folder / "approved",
            "refused": folder / "refused",
        }

    def approved(self, request: Request) -> bool:
        """Return whether the steward has approved this study of this coordinator."""
        path = self._folders["approved"] / _file(request.coordinator, request.study_hash)
        if not path.is_file():
            return False
        held = _load(path)
        if held is None:
            raise InvalidInput(_unrecognised(path))
        return (held.coordinator, held.study_hash) == (request.coordinator, request.study_hash)

    def refused(self, request: Request) -> bool:
        """Return whether the steward has refused it: the file's name decides, whatever its content."""
        return (self._folders["refused"] / _file(request.coordinator, request.study_hash)).is_file()

    def hold(self, request: Request) -> bool:
        """Keep a study for the steward; return False if too many wait, or it could not be read again."""
        waiting = self._folders["waiting"]
        waiting.mkdir(mode=0o700, exist_ok=True)
        path = waiting / _file(request.coordinator, request.study_hash)
        if any((folder / path.name).exists() for folder in self._folders.values()):
            return True  # it waits, or was just decided on
        if sum(held.coordinator == request.coordinator for held in self.studies("waiting")) >= _MOST_HELD:
            return False
        told = {"coordinator": public_text(request.coordinator), "study": request.study}
        text = json.dumps(told, indent=2) + "\n"
        if _parse(path, text) is None:
            return False
        write_whole(path, text)
        return True

    def unreadable(self) -> list[str]:
        """Return a sentence for each unrecognised file, saying what to do."""
        return [
            _unrecognised(path, refuses=state == "refused")
            for state, folder in self._folders.items()
            for path in _files(folder)
            if _load(path) is None
        ]

    def studies(self, state: State) -> list[Held]:
        """Return the studies that wait, were approved, or were refused."""
        paths = _files(self._folders[state])
        return [held for path in paths if (held := _load(path)) is not None]

    def find(
        self, study: str, *, to: Literal["approve", "refuse"] = "approve", coordinator: bytes | None = None
    ) -> Held:
        """Return a study that waits, or was decided the other way, by its name or the start of its hash."""
        known = self.studies("waiting") + self.studies("refused" if to == "approve" else "approved")
        found = {
            held.path.name: held
            for held in known
            if study
            and (held.name == study or held.study_hash.startswith(study.lower()))
            and coordinator in (None, held.coordinator)
        }
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            hashes = _some([held.study_hash[:12] for held in found.values()])
            raise InvalidInput(
                f"{len(found)} studies are called {check.show(study)}; give the start of a hash ({hashes}), "
                "or say who asks with --coordinator"
            )
        names = _some([f"{check.show(held.name)} ({held.study_hash[:12]})" for held in known])
        there = f"there are {names}" if names else "there are none"
        raise InvalidInput(f"there is no study {check.show(study)} to {to}; {there}")

    def approve(self, held: Held) -> Held:
        """Allow answers to a study from now on, within the policy and the budgets."""
        return self._move(held, self._folders["approved"])

    def refuse(self, held: Held) -> Held:
        """Refuse every part of a study from now on, whatever the policy allows."""
        return self._move(held, self._folders["refused"])

    def _move(self, held: Held, to: Path) -> Held:
        try:
            to.mkdir(mode=0o700, exist_ok=True)
            os.replace(held.path, to / held.path.name)
            for folder in self._folders.values():  # it may have been held again meanwhile
                if folder != to:
                    (folder / held.path.name).unlink(missing_ok=True)
        except OSError as error:
            raise InvalidInput(f"{held.path} cannot be moved to {to}: {error.strerror}") from None
        return replace(held, path=to / held.path.name)


def _some(names: list[str]) -> str:
    """Return the first few names, for an error."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _unrecognised(path: Path, *, refuses: bool = False) -> str:
    kept = "; the refusal remains in force until you do" if refuses else ""
    return f"{check.plain(str(path), 300)} is an unrecognised file; remove it{kept}"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _file(coordinator: bytes, study_hash: str) -> str:
    return f"{sha256(coordinator + bytes.fromhex(study_hash)).hexdigest()[:32]}.json"


def _load(path: Path) -> Held | None:
    """Return the study in a file; None if the file is unrecognised."""
    try:
        return _parse(path, places.read(path, "study", most=_MOST_BYTES)) if path.is_file() else None
    except InvalidInput:
        return None


def _parse(path: Path, text: str) -> Held | None:
    """Return a study that can be shown, hashed and decided on; None if the text is not one.

    Its analyses may be invalid: a request uses its own only, and the steward sees what is wrong with others.
    """
    if len(text) > _MOST_BYTES:
        return None
    try:
        told = json.loads(text)
        held = Held(path, read_public("coordinator", told["coordinator"]), told["study"])
        places.decode(held.study, Document)
        _ = held.study_hash  # raises for lone surrogates and numbers beyond 64 bits
        return held
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, InvalidInput):
        return None
