"""Requests that a site has accepted: one SQLite file, so that none is accepted twice while it is valid.

Claim. Of all requests with the same coordinator and nonce at most one is accepted, by any process and thread,
however often the site is restarted or killed or its clock is set back.
Reason. `take` writes the nonce in one transaction that holds the write lock from its start, and returns once
it is synced. A nonce is deleted only after its request has expired, and the latest expiry of all deleted
nonces is kept: no request that expires before that time is accepted, whatever the clock says.
Tested in tests/unit/site/test_nonces.py.

A refused request is remembered too, once its key, signature and time were found valid: it must not be
answered later, when the policy has changed and its coordinator has given it up. The ledger prevents a second
release independently: a site that loses this file can be made to look at a request again, but not to answer a
stage twice. So a missing file is created. Trials are not remembered: nothing is computed from the table or
paid for a trial, and whoever repeats one within its day learns what the site would say now. Nor are
inquiries: the second does what the first did (the run is closed already), and gets the same answer.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cape.core import check
from cape.core.errors import CapeError, Refused

__all__ = ["Nonces"]

_PATIENCE = 60.0  # seconds to wait for others who write
_TABLES = """
CREATE TABLE IF NOT EXISTS taken (
    coordinator BLOB NOT NULL, nonce BLOB NOT NULL, expires INTEGER NOT NULL,
    PRIMARY KEY (coordinator, nonce)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS expiry ON taken (expires);
CREATE TABLE IF NOT EXISTS forgotten (expires INTEGER NOT NULL);
"""


class Nonces:
    """The nonces that a site has seen.

    >>> nonces = Nonces(folder / "nonces.sqlite")
    >>> nonces.take(request.coordinator, request.nonce, request.expires, now)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def take(self, coordinator: bytes, nonce: bytes, expires: int, now: int) -> None:
        """Remember a request, synced; raise `Refused` if it was taken before. Times are seconds since 1970.

        The caller checks whether it has expired; here it is refused if its nonce may have been deleted.
        """
        with self._writing() as db:
            latest = _forget(db, now)
            if expires <= latest:
                raise Refused(
                    "the request expires before others that this site has already deleted: the "
                    "coordinator's or this site's clock is wrong; sign a new request"
                )
            try:
                db.execute("INSERT INTO taken VALUES (?, ?, ?)", (coordinator, nonce, expires))
            except sqlite3.IntegrityError:
                raise Refused("this request was sent before; every request is accepted once") from None

    def __len__(self) -> int:
        with self._writing() as db:
            return int(db.execute("SELECT count(*) FROM taken").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a connection in a transaction: none is shared between threads or kept over a fork."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=_PATIENCE)) as db, db:
                # EXTRA syncs the folder too, once the rollback journal is deleted: that is the commit. A log
                # (WAL) would save a sync, but whoever first switches to it gets "database is locked" at once
                # if another thread does the same, whatever the timeout.
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("BEGIN IMMEDIATE")  # committed at the end, or rolled back if anything is raised
                if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'forgotten'").fetchone():
                    for statement in _TABLES.split(";"):
                        db.execute(statement)
                yield db
        except (sqlite3.Error, OSError) as error:
            problem = check.plain(str(error), 200)
        else:
            return
        raise CapeError(f"the list of accepted requests, {self.path}, cannot be used: {problem}")


def _forget(db: sqlite3.Connection, now: int) -> int:
    """Delete what has expired; return the latest expiry of all that was ever deleted."""
    (last,) = db.execute("SELECT max(expires) FROM taken WHERE expires < ?", (now,)).fetchone()
    if last is not None:
        db.execute("DELETE FROM taken WHERE expires < ?", (now,))
        (before,) = db.execute("SELECT max(expires) FROM forgotten").fetchone()
        db.execute("DELETE FROM forgotten")
        db.execute("INSERT INTO forgotten VALUES (?)", (max(last, before or 0),))
    (latest,) = db.execute("SELECT max(expires) FROM forgotten").fetchone()
    return int(latest or 0)
