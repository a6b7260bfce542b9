"""The rows of a query in a database: read in batches, or asked for sums in one snapshot.

What a database says when it fails may quote a cell or a password: of its errors only the type is told, and
what people at the site can do about it (`Unanswered`).
"""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import polars as pl
from sqlglot import exp

from cape.data.databases.dialects import Dialect, Kind, Sql, Statement
from cape.data.databases.one_select import require_select, trimmed
from cape.data.faults import Unanswered
from cape.data.notation import Notation
from cape.data.readers import from_values

__all__ = ["Row", "Session", "SqlReader", "framed", "interrupted", "reasons"]

Row = tuple[Any, ...]

_REASONS = {
    "timeout": "it did not answer in time; give it longer with timeout = SECONDS, or make the query cheaper",
    "table": "no such table, schema or function; correct the query",
    "column": "no such column; correct the query",
    "syntax": "it does not understand the query; a query is one SELECT",
    "denied": "access is denied; check the user, the password and what the user may read",
    "files": "it may read no other file than the database; load the rows into it",
    "away": "no connection; check that the database runs and that the address is right",
    "cell": "it stopped at a cell that it cannot convert; select plain columns, without casts",
}


def reasons(error: BaseException, known: Mapping[str, str]) -> Unanswered:
    """Return what may be told of a driver's error: its type, and the reason that the type stands for."""
    kind = type(error).__name__
    reason = _REASONS.get(known.get(kind, ""))
    return Unanswered(f"{kind}: {reason}" if reason else kind)


class Session(ABC):
    """A connection that answers from one state of the database."""

    @abstractmethod
    def all(self, statement: Statement) -> list[Row]:
        """Return all rows that a statement gives."""

    @abstractmethod
    def frames(self, statement: Statement, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield the rows that a statement gives, with columns of these names, about so many at a time."""


def framed(columns: Sequence[str], cells: Sequence[Row]) -> pl.DataFrame:
    """Return rows of Python values as a frame."""
    return pl.DataFrame([from_values(name, [row[i] for row in cells]) for i, name in enumerate(columns)])


class SqlReader(ABC):
    """A query whose sums the database itself can compute; a `Reader` like any other, besides."""

    what: str = "the database query"
    advice: str = "check that it runs on its own on this connection"
    text: bool = False
    notation: Notation | None = None
    dialect: Dialect

    def __init__(self, query: str) -> None:
        self._query = trimmed(query)
        require_select(self._query, self.dialect.name)
        # What statements call the rows. Names and texts of a study are in them too, and must not be that.
        self._rows = f"cape_{secrets.token_hex(8)}"

    @abstractmethod
    def session(self) -> AbstractContextManager[Session]:
        """Open a session: read-only, and of one state of the database, where it offers that."""

    @abstractmethod
    def described(self, session: Session) -> list[tuple[str, Kind]]:
        """Return the names of the query's columns, and what their cells are."""

    @cached_property
    def kinds(self) -> list[tuple[str, Kind]]:
        """The names of the query's columns, and what their cells are."""
        with self.session() as session:
            return self.described(session)

    def names(self) -> list[str]:
        return [name for name, _ in self.kinds]

    def rows(self) -> int:
        ((row,),) = self.ask([exp.select(exp.Count(this=exp.Star())).from_(self.table())])
        return int(row[0])

    def ask(self, statements: Sequence[Sql]) -> list[list[Row]]:
        """Return the rows of each statement, all from one state of the database."""
        with self.session() as session:
            return [session.all(self.written(statement)) for statement in statements]

    def batches(
        self, columns: Sequence[str], rows: int, told: Collection[str] = ()
    ) -> Iterator[pl.DataFrame]:
        """Yield columns; those that are `told` say whose a row is."""
        kinds, dialect = dict(self.kinds), self.dialect
        chosen = [
            exp.alias_(
                (dialect.told if name in told else dialect.fetched)(dialect.name_of(name), kinds[name]),
                name,
                quoted=True,
            )
            for name in columns
        ]
        statement = self.written(exp.select(*chosen).from_(self.table()))
        with self.session() as session:
            yield from session.frames(statement, columns, rows)

    def table(self) -> Sql:
        """Return what stands for the query's rows after FROM."""
        return exp.Table(this=exp.to_identifier(self._rows, quoted=True))

    def written(self, statement: Sql) -> Statement:
        """Return a statement over `table()` as text."""
        text, values = self.dialect.write(statement)
        name = exp.to_identifier(self._rows, quoted=True).sql(dialect=self.dialect.name)
        # The line's end closes a comment that the query may end with.
        return text.replace(name, f"({self._query}\n) AS {name}"), values


@contextmanager
def interrupted(stop: Callable[[], Any], seconds: float | None) -> Iterator[None]:
    """Call `stop` if what is done inside takes longer than so many seconds."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
