"""Takes over the ledger of an earlier version: every line of it is charged in a new one, or nothing is.

Claim. After an upgrade each total of the new ledger (overall, of a coordinator, a study or a year) is at
least what the old one stated, under any adjacency that its releases may have had; and nothing can be written
into the old one any more. Whenever the process is killed, the ledger in place is the old one or the new one,
whole.
Reason. Format 1 holds mu² and what is added to delta, not the adjacency, and policies of its time allowed
both. Unless the steward states the only adjacency that was ever answered, a line is charged as a release
under add-remove is under replace-one: four times its mu² (`amount`), which is more than a release under
replace-one cost. A run over samples has no such factor, so it needs the steward's statement. The old file is
read under its write lock and sealed by a trigger in the same transaction, so that a process which still has
it open can add nothing. The new file is complete and synced before it takes the old one's name.
Tested in tests/unit/site/test_upgrade.py, on a folder that version 0.1.0 made, killed at every step.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from cape.core.errors import CapeError, InvalidInput
from cape.privacy.accounting import Amount, Basis, under
from cape.secagg.keys import Identity
from cape.site.ledger.ledger import Ledger
from cape.site.ledger.ledger_file import APPLICATION, FORMAT
from cape.site.ledger.lines import Entry

__all__ = ["Upgraded", "upgrade"]

_OLD = 1
_PATIENCE = 5.0  # seconds to wait for others who write
_BESIDE = ".upgrade"
_COLUMNS = (
    "at, year, coordinator, study, study_hash, number, kind, description, scheme, run, stage, plan, "
    "mu_squared, extra"
)
_SAMPLED = ("gradient-descent", "neural-network")  # what could be asked over samples of rows
_SEAL = """
CREATE TRIGGER IF NOT EXISTS {table}_sealed BEFORE INSERT ON {table}
BEGIN SELECT RAISE(ABORT, 'this ledger was upgraded: another one is in its place'); END;
"""


@dataclass(frozen=True)
class Upgraded:
    """What an upgrade did: how many lines it took over, what they add up to, and where the old file is."""

    lines: int
    before: Amount
    after: Amount
    kept: Path


def upgrade(path: Path, identity: Callable[[], Identity], adjacency: str | None = None) -> Upgraded | None:
    """Put a ledger of this version in the place of an earlier one; None if it is of this version.

    Args:
        path: the ledger.
        identity: returns the site's key, which signs the new lines.
        adjacency: the only one under which the site ever answered; None if both are possible.

    Raises:
        InvalidInput: it is no ledger of an earlier version, or a line needs the adjacency to be stated.
        CapeError: it was changed by hand, or is in use.
    """
    if not path.is_file():
        raise InvalidInput(f"no ledger {str(path)!r}; find the lost file: see docs/stewards.md")
    beside = path.parent / _BESIDE
    shutil.rmtree(beside, ignore_errors=True)  # left by a process that was killed
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE)) as db:
            return _upgrade(db, path, beside / path.name, identity, adjacency)
    except CapeError:
        raise
    except (sqlite3.Error, ValueError, TypeError, ArithmeticError) as error:
        raise CapeError(f"the ledger {path} cannot be read ({type(error).__name__}): is it in use?") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _upgrade(
    db: sqlite3.Connection, path: Path, new: Path, identity: Callable[[], Identity], adjacency: str | None
) -> Upgraded | None:
    marks = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if marks == [APPLICATION, FORMAT]:
        return None
    if marks != [APPLICATION, _OLD]:
        raise InvalidInput(f"{path} is not a ledger, or was written by a later version of cape")
    kept = path.with_name(f"{path.stem}.format-{_OLD}{path.suffix}")
    if kept.exists() and not kept.samefile(path):
        raise InvalidInput(f"{kept} already exists; nothing is overwritten: move it away")
    db.execute("BEGIN EXCLUSIVE")
    lines = list(_lines(db, path, adjacency))
    after = _make(new, identity, lines, db.execute("SELECT run, at FROM runs").fetchall())
    for table in ("releases", "runs"):
        db.execute(_SEAL.format(table=table))
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    if path.with_name(f"{path.name}-wal").exists():  # it would be read into the new file
        raise CapeError(f"the ledger {path} is in use by another process: stop the site's daemon first")
    if not kept.exists():
        os.link(path, kept)
    os.replace(new, path)
    _sync(path.parent)
    return Upgraded(len(lines), sum((each.stated for each in lines), Amount()), after, kept)


@dataclass(frozen=True)
class _Line:
    entry: Entry
    at: datetime
    stated: Amount


def _lines(db: sqlite3.Connection, path: Path, adjacency: str | None) -> Iterator[_Line]:
    """Yield the lines as they are charged, after checking that none was changed."""
    last = ""
    for number, chain, *values in db.execute(f"SELECT id, chain, {_COLUMNS} FROM releases ORDER BY id"):
        if chain != sha256(json.dumps([last, *values]).encode()).hexdigest():
            raise CapeError(f"line {number} of {path} was changed by hand; keep a copy and investigate")
        last = chain
        yield _line(number, values, adjacency)


def _line(number: int, values: Sequence[str], adjacency: str | None) -> _Line:
    at, _, coordinator, *study, place, kind, text, scheme, run, stage, plan, mu_squared, extra = values
    stated = Amount(Fraction(mu_squared), Fraction(extra))
    if adjacency is None and kind in _SAMPLED:
        raise InvalidInput(
            f"line {number} of the ledger may be a run over samples ({kind}), whose cost is known for one "
            "adjacency only, and the line does not say for which; if the site's policy only ever allowed "
            "one, give it: --adjacency replace-one or --adjacency add-remove"
        )
    asked = adjacency or "add-remove"
    basis = Basis(adjacency or "replace-one", sampled=asked == "add-remove" and kind in _SAMPLED)
    name, hashed = study
    release = (bytes.fromhex(coordinator), name, hashed, int(place), kind, text, scheme)
    charged = under(basis.adjacency, Basis(asked), stated)
    stages = (bytes.fromhex(run), int(stage), bytes.fromhex(plan))
    return _Line(
        Entry(*release, *stages, charged, basis=basis, asked=asked), datetime.fromisoformat(at), stated
    )


def _make(
    path: Path, identity: Callable[[], Identity], lines: Sequence[_Line], runs: Sequence[tuple[str, str]]
) -> Amount:
    """Make the new ledger, on the disk, and return what it adds up to."""
    path.parent.mkdir(mode=0o700)
    ledger = Ledger.create(path, identity)
    ledger.carry_over([(each.entry, each.at) for each in lines], runs)
    if len(ledger.entries()) != len(lines):
        raise CapeError("the new ledger does not hold every line of the old one")
    _sync(path)
    return ledger.spent()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
