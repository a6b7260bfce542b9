"""Ask first: studies that wait for the steward, and those that were approved, as files in two folders.

What is approved is one coordinator's whole study, by its hash: every column, analysis and share in it. A
study that differs in anything has another hash and waits again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from cape.errors import InvalidInput
from cape.steward.keyring import public_text, read_public
from cape.steward.request import Request, hash_of

__all__ = ["Approvals", "Held", "write_whole"]

_MOST_HELD = 100  # a coordinator cannot fill the disk


@dataclass(frozen=True)
class Held:
    """A study that waits, or was approved."""

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
    """The folders `held` and `approved` of a site."""

    def __init__(self, folder: Path) -> None:
        self._held, self._approved = folder / "held", folder / "approved"

    def approved(self, request: Request) -> bool:
        """Return whether the steward has approved this study of this coordinator."""
        path = self._approved / _file(request.coordinator, request.study_hash)
        if not path.is_file():
            return False
        held = _load(path)
        return (held.coordinator, held.study_hash) == (request.coordinator, request.study_hash)

    def hold(self, request: Request) -> None:
        """Keep a study for the steward to look at."""
        self._held.mkdir(mode=0o700, exist_ok=True)
        path = self._held / _file(request.coordinator, request.study_hash)
        if path.exists() or len(list(self._held.iterdir())) >= _MOST_HELD:
            return
        told = {"coordinator": public_text(request.coordinator), "study": request.study}
        write_whole(path, json.dumps(told, indent=2) + "\n")

    def waiting(self) -> list[Held]:
        """Return the studies that wait."""
        return [_load(path) for path in sorted(self._held.glob("*.json"))]

    def find(self, study: str) -> Held:
        """Return the one that waits under this name, or under a hash that starts so."""
        waiting = self.waiting()
        found = [held for held in waiting if held.name == study or held.study_hash.startswith(study.lower())]
        if len(found) == 1:
            return found[0]
        if found:
            hashes = ", ".join(held.study_hash[:12] for held in found)
            raise InvalidInput(
                f"{len(found)} studies are called {study!r}; give the start of a hash: {hashes}"
            )
        names = ", ".join(f"{held.name!r} ({held.study_hash[:12]})" for held in waiting)
        raise InvalidInput(
            f"no study {study!r} waits for approval; " + (f"there are {names}" if names else "none does")
        )

    def approve(self, held: Held) -> None:
        """Let a study be answered from now on, as far as the policy and the budgets allow."""
        self._approved.mkdir(mode=0o700, exist_ok=True)
        os.replace(held.path, self._approved / held.path.name)


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _file(coordinator: bytes, study_hash: str) -> str:
    return f"{sha256(coordinator + bytes.fromhex(study_hash)).hexdigest()[:32]}.json"


def _load(path: Path) -> Held:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return Held(path, read_public("coordinator", told["coordinator"]), dict(told["study"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InvalidInput(f"{path} is not a study that cape holds; remove it")
