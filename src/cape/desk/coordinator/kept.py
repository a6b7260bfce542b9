"""What a submission has released so far, out of its `results.json`."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from cape.app import words
from cape.app.folder import RESULTS
from cape.app.sites import SiteOutcome
from cape.show import Table
from cape.site.wire import Refused

__all__ = ["Kept", "Released", "read_kept"]


class Released(msgspec.Struct, frozen=True):
    """One analysis with its answer."""

    number: int
    description: str
    share: float
    participants: tuple[str, ...]
    findings: tuple[str, ...]
    tables: tuple[Table, ...]
    records: list[dict[str, Any]]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    lost: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its number and what it is about."""
        return f"{self.number}. {words.capital(self.description)}"

    @property
    def opened(self) -> list[Table]:
        """The tables that a terminal would show, or all if it would show none."""
        return [table for table in self.tables if not table.folded] or list(self.tables)


class _Refusal(msgspec.Struct, frozen=True):
    analysis: int
    code: str
    sentence: str


class _Loss(msgspec.Struct, frozen=True):
    analysis: int
    round: str


class _Site(msgspec.Struct, frozen=True):
    name: str
    connected: bool | None
    took_part: tuple[int, ...]
    refusals: tuple[_Refusal, ...]
    lost: tuple[_Loss, ...]

    @property
    def outcome(self) -> SiteOutcome:
        """What became of the site, as the command says it."""
        return SiteOutcome(
            self.name,
            self.connected,
            self.took_part,
            {each.analysis: Refused(0, each.code, each.sentence) for each in self.refusals},
            {each.analysis: each.round for each in self.lost},
        )


class _Guarantee(msgspec.Struct, frozen=True):
    statement: str


class Kept(msgspec.Struct, frozen=True):
    """The part of `results.json` that the desk shows."""

    finished: str
    analyses: tuple[Released, ...]
    sites: tuple[_Site, ...]
    warnings: tuple[str, ...] = ()
    guarantee: _Guarantee | None = None
    error: str | None = None


def read_kept(folder: Path) -> Kept | None:
    """Return the results in a folder; None if there are none of this version of cape."""
    path = folder / RESULTS
    try:
        seen = os.stat(path)
        return _read(path, seen.st_mtime_ns, seen.st_size)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=16)
def _read(path: Path, changed: int, size: int) -> Kept:
    return msgspec.json.decode(path.read_bytes(), type=Kept)
