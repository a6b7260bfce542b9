"""Lines that a site has signed and its ledger lacks: found, kept, and charged when the steward settles them.

Claim. After `settle` the ledger's totals are at least the sum of all lines: those that a head states and this
ledger does not hold, and those that it holds and the head does not.
Reason. Where a chain value in the head is in the ledger, all lines up to it are the same in both
(`cape.site.ledger.heads`). What the head states beyond the last common line was released, is missing here,
and is charged; nothing that is written here is subtracted. Without a common line the head's totals are
charged in full. A head that is known to be part of another, settled head is not charged again; all others
are. The amounts count for every coordinator and for this year, because their coordinators and years are lost.
Tested in tests/unit/site/test_heads.py.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from cape.core.errors import CapeError
from cape.privacy.accounting import Amount, Basis
from cape.site.ledger.heads import Head
from cape.site.ledger.lines import SETTLED
from cape.site.ledger.reading import chain_at, totals_at

__all__ = ["Gap", "Unsettled", "gap_of", "is_known", "note", "open_gaps"]


class Unsettled(CapeError):
    """The ledger lacks lines that its site has signed."""

    def __init__(self) -> None:
        super().__init__(
            "this site's ledger lacks lines that it has signed (was a backup restored?); it answers nothing "
            "until its steward runs `cape site settle`"
        )


@dataclass(frozen=True)
class Gap:
    """A head that the ledger does not hold, the number of common lines, and what is missing beyond them."""

    head: Head
    common: int
    missing: dict[Basis, Amount]


def is_known(db: sqlite3.Connection, ledger: bytes, head: Head) -> bool:
    """Return whether the ledger accounts for a head: it holds it, or a settled one that came after it."""
    if head.ledger == ledger and chain_at(db, ledger, head.lines) == head.chain:
        return True
    settled = f"SELECT head FROM gaps WHERE digest IN (SELECT plan FROM releases WHERE kind = '{SETTLED}')"
    for (data,) in db.execute(settled):
        other = Head.unpack(data)
        if other.ledger == head.ledger and other.known.get(head.lines) == head.chain:
            return True
    return False


def note(db: sqlite3.Connection, head: Head, now: datetime) -> None:
    """Keep a head that the ledger does not hold."""
    db.execute(
        "INSERT OR IGNORE INTO gaps VALUES (?, ?, ?)", (head.digest.hex(), head.pack(), now.isoformat())
    )


def open_gaps(db: sqlite3.Connection) -> list[Head]:
    """Return the heads that are not settled, the longest first."""
    settled = f"SELECT plan FROM releases WHERE kind = '{SETTLED}'"  # as the index has it
    rows = db.execute(f"SELECT head FROM gaps WHERE digest NOT IN ({settled})")
    return sorted((Head.unpack(data) for (data,) in rows), key=lambda head: -head.lines)


def gap_of(db: sqlite3.Connection, ledger: bytes, head: Head) -> Gap:
    """Return what a head states and the ledger does not hold."""
    if is_known(db, ledger, head):
        return Gap(head, head.lines, {})
    common = 0
    if head.ledger == ledger:
        same = [lines for lines, chain in head.known.items() if chain_at(db, ledger, lines) == chain]
        common = max(same, default=0)
    here = totals_at(db, common)
    beyond = {basis: amount.beyond(here.get(basis, Amount())) for basis, amount in head.spent.items()}
    return Gap(head, common, {basis: amount for basis, amount in beyond.items() if amount != Amount()})
