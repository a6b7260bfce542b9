"""Names of runs that a ledger remembers: sessions of secure aggregation, and closed runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, MutableSet
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from hashlib import sha256

from cape.errors import Refused

__all__ = ["Runs", "closed", "insert_run", "is_run"]

_Open = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Runs(MutableSet[bytes]):
    """Names of runs: each can be added once, and none is ever removed."""

    def __init__(self, reading: _Open, writing: _Open, clock: Callable[[], datetime]) -> None:
        self._reading, self._writing, self._clock = reading, writing, clock

    def __contains__(self, run: object) -> bool:
        if not isinstance(run, bytes):
            return False
        with self._reading() as db:
            return is_run(db, run)

    def __iter__(self) -> Iterator[bytes]:
        with self._reading() as db:
            return iter([bytes.fromhex(run) for (run,) in db.execute("SELECT run FROM runs ORDER BY at")])

    def __len__(self) -> int:
        with self._reading() as db:
            return int(db.execute("SELECT count(*) FROM runs").fetchone()[0])

    def add(self, value: bytes) -> None:
        """Remember a run; a second use of the same name is refused."""
        with self._writing() as db:
            if is_run(db, value):
                raise Refused(f"run {value.hex()} was used before; every run needs a new name")
            insert_run(db, value, self._clock())

    def discard(self, value: bytes) -> None:
        """Runs are never forgotten."""
        raise Refused("the ledger forgets no run")


def is_run(db: sqlite3.Connection, run: bytes) -> bool:
    """Return whether a name is in use: for a session of secure aggregation, or a closed run."""
    return db.execute("SELECT 1 FROM runs WHERE run = ?", (run.hex(),)).fetchone() is not None


def closed(run: bytes, coordinator: bytes) -> bytes:
    """Return the name that records that a coordinator has closed a run."""
    return sha256(b"cape closed 1\0" + coordinator + run).digest()


def insert_run(db: sqlite3.Connection, run: bytes, now: datetime) -> None:
    """Remember a name."""
    db.execute("INSERT INTO runs VALUES (?, ?)", (run.hex(), now.astimezone(UTC).isoformat()))
