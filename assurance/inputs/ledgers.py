"""Ledgers: SQLite files with their pages bent, cut, or with lines that somebody changed by hand."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np

from assurance.inputs.bend import bend_bytes, pick
from assurance.inputs.surface import Surface
from cape.core.errors import CapeError
from cape.secagg import Identity
from cape.site.ledger.heads import Head
from cape.site.ledger.ledger import Amount, Entry, Ledger, Limit
from cape.site.ledger.verify import verify

__all__ = ["Ledgers"]

_WHO = bytes(range(32))
_KEY = Identity(b"the key of a site".ljust(32, b"."))
_COLUMNS = (
    "at",
    "year",
    "coordinator",
    "study",
    "number",
    "run",
    "stage",
    "plan",
    "adjacency",
    "unit",
    "unit_rows",
    "sampled",
    "loss",
    "amount",
    "extra",
    "totals",
    "key",
    "chain",
    "signature",
)
_VALUES = (
    None,
    "",
    "abc",
    "1/0",
    "-1",
    "1e999999",
    "nan",
    "9" * 5000,
    "two\nlines",
    "\x1b[31m",
    2**62,
    -1,
    1.5,
    b"\xff\xfe",
    "2024-13-45",
    "zz",
)
_STATEMENTS = (
    "DROP TABLE runs",
    "DROP TABLE releases",
    "ALTER TABLE releases DROP COLUMN chain",
    "PRAGMA application_id = 7",
    "PRAGMA user_version = 99",
    "INSERT INTO runs VALUES ('zz', 'now')",
    "INSERT INTO gaps VALUES ('zz', x'00', 'now')",
    "INSERT INTO gaps VALUES ('', '', '')",
    "UPDATE ledger SET id = 'zz'",
    "DELETE FROM ledger",
    "DROP TABLE gaps",
    "CREATE TRIGGER t BEFORE INSERT ON releases BEGIN SELECT RAISE(ABORT, 'no'); END",
    "ALTER TABLE releases RENAME TO others",
    "DELETE FROM releases WHERE id > 3",
)


def _entry(number: int, cost: Fraction = Fraction(1, 100)) -> Entry:
    run = number.to_bytes(16, "big")
    return Entry(_WHO, "lungs", "ab" * 32, 1, "mean", "mean of age", "cape", run, 0, b"plan", Amount(cost))


def _clock() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


class Ledgers(Surface):
    """Open it, read it, add it up, reserve: each either works or is refused."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        path = folder / "right.sqlite"
        with mock.patch.object(os, "urandom", bytes):  # the same name each time, so the same file
            ledger = Ledger.create(path, lambda: _KEY, clock=_clock)
        for number in range(12):
            ledger.reserve(_entry(number))
        ledger.claim(bytes(16))
        head = ledger.head()
        assert isinstance(head, Head)
        self._head = head
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._right = path.read_bytes()

    def make(self, random: np.random.Generator) -> bytes:
        """Bend the file, or what stands in it."""
        way = random.random()
        if way < 0.35:
            return self._by_hand(random)
        if way < 0.45:
            return self._right[: int(random.integers(len(self._right)))]
        if way < 0.6:  # the header
            return bend_bytes(self._right[:100], random) + self._right[100:]
        if way < 0.7:  # a page of another place
            at, to = (4096 * int(random.integers(len(self._right) // 4096)) for _ in range(2))
            return self._right[:to] + self._right[at : at + 4096] + self._right[to + 4096 :]
        return bend_bytes(self._right, random, other=self._right, most=20)

    def _by_hand(self, random: np.random.Generator) -> bytes:
        path = self.folder / "bent.sqlite"
        path.write_bytes(self._right)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                db.execute(f"DROP TRIGGER {name}")
            if random.random() < 0.3:
                statement = pick(random, _STATEMENTS)
            else:
                statement = f"UPDATE OR IGNORE releases SET {pick(random, _COLUMNS)} = ?1 WHERE id = ?2"
            try:
                places = (pick(random, _VALUES), int(random.integers(1, 13)))
                db.execute(statement, places if "?" in statement else ())
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error:
                pass
        data = path.read_bytes()
        for beside in ("bent.sqlite", "bent.sqlite-wal", "bent.sqlite-shm"):
            (self.folder / beside).unlink(missing_ok=True)
        return data

    def feed(self, given: bytes) -> None:
        """Each call on its own, so that one refusal does not hide what the next would do."""
        path = self.folder / "ledger.sqlite"
        for beside in ("", "-wal", "-shm", "-journal"):
            (self.folder / f"ledger.sqlite{beside}").unlink(missing_ok=True)
        path.write_bytes(given)
        ledger = Ledger(path, lambda: _KEY, clock=_clock)
        limits = [Limit("of this site", Amount(Fraction(1)), True, True)]
        first: CapeError | None = None
        for call in (
            lambda: ledger.spent(_WHO, 2026),
            ledger.entries,
            lambda: ledger.spent().epsilon(1e-6),
            lambda: ledger.has(bytes(16), 0, bytes(32)),
            lambda: ledger.check(_WHO, Amount(Fraction(1, 100)), limits),
            lambda: ledger.reserve(_entry(99), limits),
            lambda: ledger.claim(b"x" * 16),
            ledger.head,
            ledger.gaps,
            lambda: ledger.show(self._head, _KEY.public),
            ledger.settle,
            lambda: verify(path, [_KEY.public], [self._head]),
        ):
            try:
                call()
            except CapeError as error:
                first = first or error
        if first is not None:
            raise first
