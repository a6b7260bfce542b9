"""Databases as a site's rows: SQLite and DuckDB files with their pages, headers and schemas bent."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from assurance.inputs.bend import bend_bytes, pick
from assurance.inputs.surface import Surface
from assurance.inputs.tables import CANARIES, SCHEMA, WORD, question
from cape.blocks import Table
from cape.core.errors import CapeError
from cape.data import Database

__all__ = ["Databases"]

_COLUMNS = "x REAL, g TEXT, i INTEGER, b BOOLEAN, n REAL, note TEXT"
_ROWS = [(1.5 + row, "ab"[row % 2], row % 2, bool(row % 3), 0.5, WORD) for row in range(200)]
_CELLS: list[Any] = [None, "", WORD, 1e308, -1, 2**63 - 1, float("inf"), WORD.encode(), "1", "1.5"]
_QUERIES = (
    "SELECT * FROM rows",
    "SELECT * FROM rows",
    "SELECT * FROM rows",
    "SELECT * FROM nothing",
    "SELECT x, g FROM rows",
    "SELECT x AS g, g AS x, i, b, n FROM rows",
    f"SELECT '{WORD}' AS x, * FROM rows",
    "SELEKT",
    "DELETE FROM rows",
    "SELECT 1; SELECT 2",
)


class _Unopened(CapeError):
    """The database's own library did not open it."""


class Databases(Surface):
    """A table of a bent file, asked all that it can be asked."""

    secrets = CANARIES

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sqlite = self._make_sqlite()
        self._duckdb = self._make_duckdb() if find_spec("duckdb") else b""
        self._fed = 0

    def _make_sqlite(self) -> bytes:
        path = self.folder / "right.sqlite"
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"CREATE TABLE rows ({_COLUMNS})")
            db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", _ROWS)
        return path.read_bytes()

    def _make_duckdb(self) -> bytes:
        import duckdb

        path = self.folder / "right.duckdb"
        with duckdb.connect(str(path)) as db:
            db.execute(f"CREATE TABLE rows ({_COLUMNS})")
            db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", _ROWS)
        return path.read_bytes()

    def make(self, random: np.random.Generator) -> tuple[str, int, str]:
        """Return which kind, a seed of mischief, and the question; a file of DuckDB differs each time."""
        kind = "duckdb" if self._duckdb and random.random() < 0.25 else "sqlite"
        return kind, int(random.integers(2**31)), pick(random, _QUERIES)

    def _bent(self, right: bytes, random: np.random.Generator) -> bytes:
        way = random.random()
        if way < 0.1:
            return right
        if way < 0.2:
            return right[: int(random.integers(len(right)))]
        if way < 0.4:
            return bend_bytes(right[:100], random) + right[100:]
        if way < 0.6:
            at, to = (4096 * int(random.integers(max(1, len(right) // 4096))) for _ in range(2))
            return right[:to] + right[at : at + 4096] + right[to + 4096 :]
        return bend_bytes(right, random, other=right, most=10)

    def feed(self, given: tuple[str, int, str]) -> None:
        """Write it, open it, ask it."""
        kind, seed, query = given
        random = np.random.default_rng(seed)
        for old in self.folder.glob("rows-*"):
            old.unlink()
        self._fed += 1  # each a path of its own: DuckDB waits for ever where one that failed is opened again
        path = self.folder / f"rows-{self._fed}.{kind}"
        path.write_bytes(self._bent(self._duckdb if kind == "duckdb" else self._sqlite, random))
        if kind == "duckdb":
            self._ask_duckdb(path, query)
            return
        if random.random() < 0.3:
            self._by_hand(path, random)
        question(Table("alpha", Database(query, f"sqlite:///{path}"), SCHEMA))

    def _ask_duckdb(self, path: Path, query: str) -> None:
        import duckdb

        try:
            db = duckdb.connect(str(path), read_only=True)
        except Exception:  # the user opens it: not ours
            raise _Unopened("not opened") from None
        with db:
            question(Table("alpha", Database(query, db), SCHEMA))

    def _by_hand(self, path: Path, random: np.random.Generator) -> None:
        try:
            with closing(sqlite3.connect(path)) as db, db:
                name, cell = pick(random, ["x", "g", "i", "b", "n"]), pick(random, _CELLS)
                db.execute(
                    f"UPDATE rows SET {name} = ? WHERE rowid = ?", (cell, int(random.integers(1, 200)))
                )
        except sqlite3.Error:
            pass
