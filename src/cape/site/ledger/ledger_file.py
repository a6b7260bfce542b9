"""The SQLite file of a ledger: its format, and connections to it. What is written into it is `ledger`'s.

Claim. Once a transaction of `_writing` has ended, what it wrote is on the disk; nothing changes or removes
a line of it.
Reason. The journal is a log that SQLite syncs at the end of each transaction (WAL, synchronous = FULL).
`_writing` holds the write lock from its start (BEGIN IMMEDIATE), so that no other transaction can read the
same totals. Triggers forbid changes and removals, also those by REPLACE.
Tested in tests/unit/site/test_ledger.py.

Format 2; `lines` defines what a line holds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from cape.core import check
from cape.core.errors import CapeError, InvalidInput
from cape.site.ledger import running
from cape.site.ledger.heads import ID_BYTES
from cape.site.ledger.lines import COLUMNS, SETTLED

__all__ = ["APPLICATION", "FORMAT", "LedgerFile", "make"]

APPLICATION = 0x43415045  # "CAPE", in the file's header
FORMAT = 2
_PATIENCE = 60.0  # seconds to wait for others who write
_TABLES = f"""
CREATE TABLE ledger (id TEXT PRIMARY KEY, at TEXT NOT NULL);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    {", ".join(f"{name} {kind} NOT NULL" for name, kind in COLUMNS.items())},
    chain TEXT NOT NULL, signature TEXT NOT NULL,
    UNIQUE (coordinator, run, stage)
);
CREATE INDEX answers ON releases (coordinator, study_hash, number);
CREATE INDEX settled ON releases (plan) WHERE kind = '{SETTLED}';
CREATE TABLE runs (run TEXT PRIMARY KEY, at TEXT NOT NULL);
CREATE TABLE gaps (digest TEXT PRIMARY KEY, head BLOB NOT NULL, at TEXT NOT NULL);
{running.TABLES}
"""
_TRIGGER = """
CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'a line of the ledger never changes'); END;
"""
_TRIGGERS = "".join(
    _TRIGGER.format(table=table, verb=verb)
    for table in ("ledger", "releases", "runs", "gaps")
    for verb in ("UPDATE", "DELETE")
)
_MARKS = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"


class LedgerFile:
    """A ledger's file. Processes and threads may share it; each connection is for one call."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InvalidInput(
                f"no ledger {str(self.path)!r}; it says what was spent, so nothing is answered without it. "
                "Find the lost file; do not create a new one: see docs/stewards.md"
            )
        with self._connected() as db:
            marks = [
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            ]
            if marks != [APPLICATION, FORMAT]:
                raise InvalidInput(f"{self.path} {_unusable(*marks)}")
            ((name,),) = db.execute("SELECT id FROM ledger").fetchall()
            self.id = bytes.fromhex(name)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one call: none is shared between threads or kept over a fork."""
        uri = f"file:{quote(str(self.path))}?mode=rw"
        try:
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PATIENCE)) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA recursive_triggers = ON")  # so that REPLACE is a DELETE
                yield db
        except CapeError:
            raise
        except sqlite3.Error as error:
            problem = check.plain(str(error), 200)  # SQLite quotes what is in the file
        except (ValueError, TypeError, ArithmeticError) as error:  # a cell that cape did not write
            problem = f"a line in it cannot be read ({type(error).__name__})"
        else:
            return
        raise CapeError(f"the ledger {self.path} cannot be used: {problem}")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as db, db:  # commits, or rolls back if anything is raised
            db.execute("BEGIN IMMEDIATE")
            running.refresh(db)
            yield db


def make(path: str | Path, at: datetime) -> None:
    """Make the file of an empty ledger, readable by its owner only; never overwrite one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise InvalidInput(f"{path} already exists; a ledger is never overwritten") from None
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        named = f"INSERT INTO ledger VALUES ('{os.urandom(ID_BYTES).hex()}', '{at.isoformat()}');"
        db.executescript(f"BEGIN; {_TABLES} {named} {_TRIGGERS} {_MARKS} COMMIT;")


def _unusable(application: int, form: int) -> str:
    """Return why a file is not a ledger of this version, and what to do."""
    if application != APPLICATION:
        return "is not a ledger"
    if form > FORMAT:
        return "was written by a later version of cape; install that version again"
    return (
        "was written by an earlier version of cape. Nothing is answered until its lines are taken over: stop "
        "the daemon, back up the folder, and run `cape site upgrade`"
    )
