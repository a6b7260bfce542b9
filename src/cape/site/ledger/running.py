"""Running totals of a ledger: what a coordinator spent in a year, and on a study, without reading all lines.

Claim. `sums` returns what adding up the lines would, in time that does not grow with their number.
Reason. A row for each coordinator and year, and for each study, is raised in the transaction that writes a
line. The rows are derived, not signed: they count only while they state the last line's number and chain
value, and while they add up to the totals that the site has signed in that line. Otherwise they are made
again from the lines before anything is written, and reading adds up the lines. `cape site verify` compares
every row with the lines.
Tested in tests/unit/site/test_running.py; measured in benchmarks/ledger.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from cape.privacy.accounting import Amount, Basis
from cape.site.ledger.reading import totals_at

__all__ = ["TABLES", "add", "problems", "refresh", "sums"]

_BASIS = "adjacency, unit, unit_rows, unit_sites, sampled"
_EVERY = ""  # in place of a study: all of them
TABLES = f"""
CREATE TABLE IF NOT EXISTS running (
    study_hash TEXT NOT NULL, coordinator TEXT NOT NULL, year INTEGER NOT NULL,
    adjacency TEXT NOT NULL, unit TEXT NOT NULL, unit_rows INTEGER NOT NULL, unit_sites INTEGER NOT NULL,
    sampled INTEGER NOT NULL, mu_squared TEXT NOT NULL, extra TEXT NOT NULL, pure TEXT NOT NULL,
    PRIMARY KEY (study_hash, coordinator, year, {_BASIS})
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS running_to (
    id INTEGER PRIMARY KEY CHECK (id = 1), lines INTEGER NOT NULL, chain TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS keys ON releases (key);
"""
_Key = tuple[str, str, int]
"""The hash of a study or "", the coordinator, and the year."""
_Parts = dict[Basis, Amount]


def refresh(db: sqlite3.Connection) -> None:
    """Make sure that the rows are those of all lines, within a transaction that may write."""
    if _is_current(db):
        return
    for statement in TABLES.split(";"):
        db.execute(statement)
    db.execute("DELETE FROM running")
    _write(db, _of_lines(db))


def add(
    db: sqlite3.Connection, study_hash: str, coordinator: str, year: int, basis: Basis, charged: Amount
) -> None:
    """Count a line that was just written; the rows were refreshed before it."""
    raised: dict[_Key, _Parts] = {}
    for study in (_EVERY, study_hash):
        key = study, coordinator, year
        rows = _rows(db, "study_hash = ? AND coordinator = ? AND year = ?", key)
        raised[key] = {basis: dict(rows).get(basis, Amount()) + charged}
    _write(db, raised)


def sums(
    db: sqlite3.Connection, coordinator: bytes | None, year: int | None, study: str | None = None
) -> _Parts:
    """Return what was spent: by a coordinator, in a year, on a study, for each basis.

    Settled amounts count for every coordinator, because their coordinator is unknown, and for no study: they
    would block all studies that state less. The steward refuses those that were running (docs/stewards.md).
    """
    who = None if coordinator is None else coordinator.hex()
    if not _is_current(db):
        found: _Parts = {}
        for (study_hash, theirs, when), parts in _of_lines(db).items():
            asked = who is None or theirs in (who, "")
            if asked and study_hash == (study or _EVERY) and year in (None, when):
                _count(found, parts.items())
        return found
    where = "study_hash = ?1 AND (?2 IS NULL OR coordinator IN (?2, '')) AND (?3 IS NULL OR year = ?3)"
    return _count({}, _rows(db, where, (study or _EVERY, who, year)))


def problems(db: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the rows, in sentences; rows that do not count yet are not wrong."""
    if not _is_marked(db):
        return []
    held: dict[_Key, _Parts] = {}
    rows = db.execute(f"SELECT study_hash, coordinator, year, {_ROW} FROM running")
    for study, coordinator, year, *row in rows:
        basis, amount = _read(row)
        held.setdefault((study, coordinator, year), {})[basis] = amount
    return [] if held == _of_lines(db) else ["the running totals are not what the lines add up to"]


_ROW = f"{_BASIS}, mu_squared, extra, pure"


def _is_marked(db: sqlite3.Connection) -> bool:
    """Return whether the rows say that they are those of all lines."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'running_to'").fetchone() is None:
        return False
    return bool(db.execute("SELECT lines, chain FROM running_to").fetchone() == _last(db))


def _is_current(db: sqlite3.Connection) -> bool:
    if not _is_marked(db):
        return False
    signed = totals_at(db, _last(db)[0])
    return _count({}, _rows(db, "study_hash = ?", (_EVERY,))) == signed


def _last(db: sqlite3.Connection) -> tuple[int, str]:
    last = db.execute("SELECT id, chain FROM releases ORDER BY id DESC LIMIT 1").fetchone()
    return (0, "") if last is None else last


def _rows(db: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> list[tuple[Basis, Amount]]:
    return [_read(row) for row in db.execute(f"SELECT {_ROW} FROM running WHERE {where}", values)]


def _read(row: Iterable[Any]) -> tuple[Basis, Amount]:
    adjacency, unit, rows, sites, sampled, *amount = row
    return Basis(adjacency, unit, rows, sites, bool(sampled)), Amount(*map(Fraction, amount))


def _count(found: _Parts, parts: Iterable[tuple[Basis, Amount]]) -> _Parts:
    for basis, amount in parts:
        found[basis] = found.get(basis, Amount()) + amount
    return found


def _of_lines(db: sqlite3.Connection) -> dict[_Key, _Parts]:
    """Add up all lines; SQLite counts equal amounts, so that long runs are cheap."""
    columns = f"study_hash, coordinator, year, {_BASIS}, loss, amount, extra"
    found: dict[_Key, _Parts] = {}
    lines = db.execute(f"SELECT {columns}, count(*) FROM releases GROUP BY {columns}")
    for study, coordinator, year, adjacency, unit, rows, sites, sampled, loss, amount, extra, times in lines:
        if loss not in ("mu", "epsilon"):
            raise ValueError("unknown loss")
        basis = Basis(adjacency, unit, rows, sites, bool(sampled))
        kind = "mu_squared" if loss == "mu" else "pure"
        each = Amount(**{kind: Fraction(amount)}, extra=Fraction(extra)).times(times)
        for of_study in (_EVERY, study):
            _count(found.setdefault((of_study, coordinator, year), {}), [(basis, each)])
    return found


def _write(db: sqlite3.Connection, parts: dict[_Key, _Parts]) -> None:
    """Put rows in place of those there, and say that they are those of all lines."""
    rows = [
        (*key, b.adjacency, b.unit, b.rows, b.sites, b.sampled, *map(str, (a.mu_squared, a.extra, a.pure)))
        for key, amounts in parts.items()
        for b, a in amounts.items()
    ]
    db.executemany(f"INSERT OR REPLACE INTO running VALUES ({', '.join('?' * 11)})", rows)
    db.execute("INSERT OR REPLACE INTO running_to VALUES (1, ?, ?)", _last(db))
