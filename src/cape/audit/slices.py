"""A slice of the audit: one of several parts of its rows, so that a long audit can be run in turns.

Every row is in one slice, which follows from its name alone: rows that are added or left out do not move it.
So a row that stays in the table is played once in as many turns as there are slices, whatever happens to
other rows.
Tested in tests/unit/audit/test_slices.py.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["Slice"]


@dataclass(frozen=True)
class Slice:
    """One of `count` slices; `turn` counts modulo their number, so that the number of a day will do."""

    turn: int
    count: int

    @classmethod
    def read(cls, text: str) -> Slice:
        """Return the slice that "K/N" names."""
        if not re.fullmatch("[0-9]{1,9}/[1-9][0-9]{0,8}", text):
            raise InvalidInput(f"--slice must be two whole numbers K/N, such as 2/5, not {check.show(text)}")
        turn, count = map(int, text.split("/"))
        return cls(turn, count)

    def __str__(self) -> str:
        return f"{self.turn}/{self.count}"

    def __contains__(self, name: str) -> bool:
        digest = hashlib.sha256(f"slice {name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.turn % self.count
