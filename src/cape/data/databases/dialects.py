"""What databases write differently: exact literals, truncation, the text of a cell, days.

Claim. A number, a text or a code means the same in every database that has a dialect here.
Reason. Doubles are written as the shortest decimal that reads back as the same double, in a literal that the
database reads as a double (a plain decimal is a DECIMAL in most of them); SQLite, which does not round
decimals correctly, gets them as parameters. Texts are compared byte by byte, whatever the collation of a
column: MariaDB's default one ignores case, accents and blanks at the end.
Tested in tests/unit/data/databases/.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from sqlglot import exp

__all__ = ["DIALECTS", "Dialect", "Kind", "Sql", "Statement", "case", "combined", "integer", "missing"]

Sql = exp.Expression
Kind = Literal["float", "integer", "decimal", "wide", "boolean", "text", "date", "moment", "cells", "other"]
"""What the cells of a column are: "wide" numbers have more digits than a double, and are read at the site;
a "moment" is a date with a time of day; "cells" may each have a type of their own."""

Statement = tuple[str, dict[str, Any]]
"""A text of SQL, and the values of its parameters."""

_REAL, _TEXT = "r_", "t_"  # what names of parameters start with; the value follows in hexadecimal
_UTF8 = "CHAR CHARACTER SET utf8mb4"
_DAYS = ("0002-01-01", "9998-01-01")  # between which every driver has a value for a date
_LARGEST, _LEAST = 1.7976931348623157e308, 5e-324


def combined(kind: Any, left: Sql, right: Sql) -> Sql:
    """Return two operands with an operator between them, in brackets: sqlglot sets none."""
    return exp.Paren(this=kind(this=left.copy(), expression=right.copy()))


def case(pairs: Sequence[tuple[Sql, Sql]], otherwise: Sql | None = None) -> Sql:
    """Return the result of the first condition that is true."""
    ifs = [exp.If(this=condition.copy(), true=result.copy()) for condition, result in pairs]
    return exp.Paren(this=exp.Case(ifs=ifs, default=None if otherwise is None else otherwise.copy()))


def integer(value: int) -> Sql:
    """Return a whole number of at most 64 bits."""
    number: Sql = exp.Literal.number(abs(value))
    if value == -(2**63):  # its magnitude alone is too large for a literal
        return combined(exp.Sub, integer(value + 1), integer(1))
    return exp.Paren(this=exp.Neg(this=number)) if value < 0 else number


def missing(x: Sql) -> Sql:
    """Return whether a cell is null."""
    return exp.Paren(this=exp.Is(this=x.copy(), expression=exp.Null()))


def _call(name: str, *arguments: Sql) -> Sql:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate: no database holds one
        return None


class Dialect:
    """How one database writes what is asked of all of them."""

    name: ClassVar[str]
    """What sqlglot calls it."""

    nan: ClassVar[bool] = True
    """Whether a float may be NaN; it is then larger than every number."""

    wide: ClassVar[bool] = True
    """Whether a sum of integers of 64 bits is exact however large it grows."""

    raises: ClassVar[bool] = False
    """Whether a quotient too small for a double is an error."""

    ordered: ClassVar[bool] = False
    """Whether rows come in an order that their numbers make sense in."""

    fence: ClassVar[bool] = False
    """Whether a subquery is computed anew for each mention of its columns, unless OFFSET 0 stands there."""

    def real(self, value: float) -> Sql:
        """Return a literal of exactly this double."""
        text = repr(abs(value))
        number: Sql = exp.Literal.number(text if "e" in text else f"{text}e0")
        return exp.Paren(this=exp.Neg(this=number)) if math.copysign(1.0, value) < 0 else number

    def whole(self, x: Sql) -> Sql:
        """Return a double, which fits 64 bits, as an integer, rounded toward zero."""
        return self.cast(_call("TRUNC", x), "bigint")

    def cast(self, x: Sql, to: str) -> Sql:
        return exp.cast(x.copy(), to)

    def is_nan(self, x: Sql) -> Sql:
        return _call("ISNAN", x)

    def number(self, x: Sql, kind: Kind) -> Sql:
        """Return a column of numbers as doubles."""
        return self.cast(x, "double")

    def odd(self, x: Sql) -> Sql | None:
        """Return whether a cell must be looked at by the site itself; None if no cell must."""
        return None

    def days(self, x: Sql) -> Sql:
        """Return a column of dates as days since 1970-01-01, null for what is no day."""
        return self.cast(_call("DATEDIFF", x, exp.Literal.string("1970-01-01")), "double")

    def is_text(self, x: Sql, text: str) -> Sql | None:
        """Return whether a cell is this text, byte by byte; None if no cell can be."""
        raise NotImplementedError

    def fetched(self, x: Sql, kind: Kind) -> Sql:
        """Return what is selected to read a column at the site, so that it is what is summed here."""
        if kind == "decimal":
            return self.cast(x, "double")
        return x

    def told(self, x: Sql, kind: Kind) -> Sql:
        """Return what is selected to tell rows apart by a column: a double would make one of two decimals."""
        return self.cast(x, "text") if kind == "decimal" else self.fetched(x, kind)

    def write(self, statement: Sql) -> Statement:
        """Return a statement as text."""
        return statement.sql(dialect=self.name, identify=True, comments=False, copy=False), {}

    def name_of(self, column: str) -> Sql:
        return exp.column(exp.to_identifier(column, quoted=True))


class DuckDb(Dialect):
    """DuckDB: NaN is larger than all numbers, and sums of integers have 128 bits."""

    name = "duckdb"

    def fetched(self, x: Sql, kind: Kind) -> Sql:
        if kind == "date":
            return case([(_call("ISFINITE", x), x)])
        return super().fetched(x, kind)

    def days(self, x: Sql) -> Sql:
        epoch = self.cast(exp.Literal.string("1970-01-01"), "date")
        there = self.cast(combined(exp.Sub, x, epoch), "double")
        return case([(_call("ISFINITE", x), there)])

    def is_text(self, x: Sql, text: str) -> Sql | None:
        data = _utf8(text)
        if data is None:
            return None
        if "\0" in text:
            return combined(exp.EQ, _call("ENCODE", x), _call("FROM_HEX", exp.Literal.string(data.hex())))
        exact = exp.Collate(this=self.cast(x, "text"), expression=exp.Var(this="C"))
        return combined(exp.EQ, exact, exp.Literal.string(text))


class Sqlite(Dialect):
    """SQLite: every cell has a type of its own, and no cell is NaN."""

    name, nan, wide, ordered = "sqlite", False, False, True

    def real(self, value: float) -> Sql:
        return exp.Placeholder(this=_REAL + struct.pack(">d", value).hex())

    def whole(self, x: Sql) -> Sql:
        return self.cast(x, "bigint")

    def is_nan(self, x: Sql) -> Sql:
        return exp.Boolean(this=False)

    def number(self, x: Sql, kind: Kind) -> Sql:
        return case([(self._of(x, "integer", "real"), self.cast(x, "double"))])

    def odd(self, x: Sql) -> Sql | None:
        return self._of(x, "text", "blob")

    def numeral(self, x: Sql) -> Sql:
        """Return whether a cell is a number."""
        return self._of(x, "integer", "real")

    def is_text(self, x: Sql, text: str) -> Sql | None:
        data = _utf8(text)
        if data is None:
            return None
        exact = exp.Collate(this=x.copy(), expression=exp.Var(this="BINARY"))
        same = exp.EQ(this=exact, expression=exp.Placeholder(this=_TEXT + data.hex()))
        return exp.Paren(this=exp.And(this=self._of(x, "text"), expression=same))

    def write(self, statement: Sql) -> Statement:
        values: dict[str, Any] = {}
        for each in statement.find_all(exp.Placeholder):
            name = str(each.this)
            if name.startswith(_TEXT):
                values[name] = bytes.fromhex(name[len(_TEXT) :]).decode()
            else:
                (values[name],) = struct.unpack(">d", bytes.fromhex(name[len(_REAL) :]))
        return super().write(statement)[0], values

    @staticmethod
    def _of(x: Sql, *kinds: str) -> Sql:
        return exp.Paren(
            this=exp.In(this=_call("TYPEOF", x), expressions=[exp.Literal.string(kind) for kind in kinds])
        )


class Postgres(Dialect):
    """PostgreSQL: a double that overflows or vanishes is an error, and a numeric may be anything."""

    name, raises, fence = "postgres", True, True

    def real(self, value: float) -> Sql:
        return self.cast(exp.Literal.string(repr(value)), "double")

    def is_nan(self, x: Sql) -> Sql:
        return combined(exp.EQ, x, self.real(math.nan))

    def number(self, x: Sql, kind: Kind) -> Sql:
        if kind == "boolean":
            return self.cast(self.cast(x, "int"), "double")
        if kind != "decimal":
            return self.cast(x, "double")
        ends = [self.cast(exp.Literal.string(repr(end)), "decimal") for end in (_LARGEST, _LEAST)]
        large, small = ends
        return case(
            [  # what no double holds is an error when it is cast
                (combined(exp.EQ, x, self.cast(exp.Literal.string("NaN"), "decimal")), exp.Null()),
                (combined(exp.GT, x, large), self.real(math.inf)),
                (combined(exp.LT, x, exp.Neg(this=large)), self.real(-math.inf)),
                (combined(exp.LT, _call("ABS", x), small), self.real(0.0)),
            ],
            self.cast(x, "double"),
        )

    def days(self, x: Sql) -> Sql:
        epoch = self.cast(exp.Literal.string("1970-01-01"), "date")
        there = self.cast(combined(exp.Sub, x, epoch), "double")
        return case([(_call("ISFINITE", x), there)])

    def is_text(self, x: Sql, text: str) -> Sql | None:
        if _utf8(text) is None or "\0" in text:
            return None
        # As text a char(n) has no blanks at its end: they only fill it up.
        exact = exp.Collate(this=self.cast(x, "text"), expression=exp.to_identifier("C", quoted=True))
        return combined(exp.EQ, exact, exp.Literal.string(text))

    def fetched(self, x: Sql, kind: Kind) -> Sql:
        """Return a column so that its driver has a value for every cell: it has no date 'infinity', say."""
        if kind == "decimal":
            return self.number(x, kind)
        if kind in ("date", "moment"):
            first, last = (self._day(day) for day in _DAYS)
            kept = [(combined(exp.LT, x, first), first), (combined(exp.GT, x, last), last)]
            if kind == "moment":  # near the ends, a time zone may leave no day for it
                kept = [(condition, exp.Null()) for condition, _ in kept]
            return case([(exp.Not(this=_call("ISFINITE", x)), exp.Null()), *kept], x)
        return self.cast(x, "text") if kind in ("text", "other") else x

    def _day(self, text: str) -> Sql:
        return self.cast(exp.Literal.string(text), "date")


class MariaDb(Dialect):
    """MariaDB, and MySQL: a decimal literal is a DECIMAL unless it has an exponent; no double is NaN."""

    name, nan = "mysql", False

    def whole(self, x: Sql) -> Sql:
        return self.cast(_call("TRUNCATE", x, integer(0)), "bigint")

    def is_nan(self, x: Sql) -> Sql:
        return exp.Boolean(this=False)

    def is_text(self, x: Sql, text: str) -> Sql | None:
        data = _utf8(text)
        if data is None:
            return None
        utf8 = exp.Cast(this=x.copy(), to=exp.DataType.build(_UTF8, dialect="mysql"))
        return combined(exp.EQ, self.cast(utf8, "binary"), exp.HexString(this=data.hex()))

    def fetched(self, x: Sql, kind: Kind) -> Sql:
        if kind == "integer":  # a BIT is bytes otherwise
            return combined(exp.Add, x, integer(0))
        return self.cast(x, "double") if kind in ("decimal", "float") else x


class Spark(Dialect):
    """Spark: integers of 64 bits wrap or fail, so that products are added in halves."""

    name, wide = "spark", False

    def real(self, value: float) -> Sql:
        text = repr(abs(value))
        number: Sql = exp.Literal.number(f"{text}D")
        return exp.Paren(this=exp.Neg(this=number)) if math.copysign(1.0, value) < 0 else number

    def whole(self, x: Sql) -> Sql:
        return self.cast(x, "bigint")

    def is_text(self, x: Sql, text: str) -> Sql | None:
        data = _utf8(text)
        if data is None:
            return None
        return combined(exp.EQ, self.cast(x, "binary"), exp.HexString(this=data.hex()))


DIALECTS: dict[str, Dialect] = {
    each.name: each for each in (DuckDb(), Sqlite(), Postgres(), MariaDb(), Spark())
}
