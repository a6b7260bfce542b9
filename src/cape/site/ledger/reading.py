"""Reads a ledger's file: chain values, totals and heads by number of lines."""

from __future__ import annotations

import sqlite3

from cape.privacy.accounting import Amount, Basis
from cape.site.ledger.heads import Head, before, of_json, start

__all__ = ["chain_at", "earlier", "head_of", "totals_at"]


def chain_at(db: sqlite3.Connection, ledger: bytes, lines: int) -> bytes | None:
    """Return the chain value after so many lines, None if there are fewer."""
    if lines == 0:
        return start(ledger)
    row = db.execute("SELECT chain FROM releases WHERE id = ?", (lines,)).fetchone()
    return None if row is None else bytes.fromhex(row[0])


def totals_at(db: sqlite3.Connection, lines: int) -> dict[Basis, Amount]:
    """Return the sum of the first lines, as the last of them states it."""
    row = db.execute("SELECT totals FROM releases WHERE id = ?", (lines,)).fetchone()
    return {} if row is None else {each.basis: each.amount for each in of_json(row[0])}


def head_of(db: sqlite3.Connection, ledger: bytes, lines: int) -> Head:
    """Return the head after so many lines, at least one, as it was signed."""
    row = db.execute("SELECT chain, totals, key, signature FROM releases WHERE id = ?", (lines,)).fetchone()
    totals = of_json(row[1])
    chain, key, signature = (bytes.fromhex(row[column]) for column in (0, 2, 3))
    return Head(ledger, lines, chain, earlier(db, ledger, lines), totals, key, signature)


def earlier(db: sqlite3.Connection, ledger: bytes, lines: int) -> tuple[bytes, ...]:
    """Return the chain values that a head after so many lines states beside its own."""
    found = [chain_at(db, ledger, each) for each in before(lines)]
    return tuple(each for each in found if each is not None)
