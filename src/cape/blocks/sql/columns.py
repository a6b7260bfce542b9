"""The columns of a query as SQL: numbers in steps, codes and bins, by the same operations as in memory.

Claim. Every integer is that of `Steps`, `Bins` and `Codes` for the same cell, in every database.
Reason. A number becomes steps by the two float64 operations of `Steps`, whose results are truncated by what
the database has for that, and compared with the column's bounds first: as the formula never falls when its
argument rises, the ends are constants. The bins between the bounds' own bins are found as `Bins` finds them;
where floor((x - start) / width) alone is right at every edge and just below it, it is right everywhere,
because it never falls either. Nothing overflows or divides by zero, so that no cell is an error. A study
names its derived columns as it likes, and many databases take Age for age, or cut a long name short: so
statements number columns, and no name but those of the table's own columns stands in them.
Tested in tests/unit/data/databases/test_same.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from sqlglot import exp

from cape.blocks.bins import Bins
from cape.blocks.sql.values import Value
from cape.blocks.steps import ONE, Steps
from cape.data.columns import Category, Column, Number
from cape.data.databases.dialects import Dialect, Kind, Sql, Sqlite, case, combined, integer, missing
from cape.data.schema import Schema

__all__ = ["MOST_EDGES", "SqlColumns", "fits"]

MOST_EDGES = 1024  # uneven ones become a tree of comparisons
_COLUMN, _ODD = "x", "o"  # what a statement calls a column, and whether a cell must be looked at by the site
_NUMBERS = ("float", "integer", "decimal", "boolean")
_SMALLEST = 2.0**-1000


def fits(column: Column, kind: Kind) -> bool:
    """Return whether a database reads a column of this kind as the site would."""
    if isinstance(column, Category):
        return kind in ("text", "cells") or (kind in _NUMBERS and bool(column.codes.numerals))
    return kind == "date" if column.date else kind in (*_NUMBERS, "cells")


class SqlColumns:
    """What blocks say their sums in: numbers of each row, over `base`, a select of the columns as read.

    Args:
        site: the site's name, which the column of sites holds.
        schema: what cells are read by.
        dialect: the database's.
        kinds: what the cells of the query's columns are.
        fill: whether a cell that is missing, where none may be, is read as the middle of the bounds or the
            first category.
    """

    def __init__(
        self, site: str, schema: Schema, dialect: Dialect, kinds: Mapping[str, Kind], *, fill: bool
    ) -> None:
        self.schema, self._site = schema, site
        self._dialect, self._kinds, self._fill = dialect, kinds, fill
        self._numbers = {name: i for i, name in enumerate(schema.stated)}

    # --- for blocks -----------------------------------------------------------------------------------

    def steps(self, name: str, column: Number | None = None) -> Value:
        """Return a numeric column in whole steps of 2^-20; cut at other bounds if given."""
        number = column or self.schema.number(name)
        steps, x, real = Steps.of(number), self.column(name), self._dialect.real
        far = combined(exp.Sub, x, real(steps.middle)) if steps.middle else x
        scaled = Value(far, self._dialect) / steps.size
        least, most = (number.low - steps.middle) / steps.size, (number.high - steps.middle) / steps.size
        if least <= -ONE - 1 or most >= ONE + 1:  # bounds so close that the middle is not between them
            scaled = self._held(scaled)
        inside = self._dialect.whole(scaled.sql)
        if self._dialect.raises and abs(steps.middle) / steps.size < _SMALLEST and steps.size > 1:
            tiny = exp.Paren(
                this=exp.And(
                    this=combined(exp.LT, far, real(steps.size)),
                    expression=combined(exp.GT, far, real(-steps.size)),
                )
            )
            inside = case([(tiny, integer(0))], inside)
        found = case(
            [
                (combined(exp.GTE, x, real(number.high)), self._unless_nan(x, integer(int(steps.most)))),
                (combined(exp.LTE, x, real(number.low)), integer(int(steps.least))),
            ],
            inside,
        )
        if self._filled(name):
            stated = self.schema.stated[name]
            assert isinstance(stated, Number)
            middle = int(steps.count(np.array([stated.middle]))[0])
            found = exp.Coalesce(this=found, expressions=[integer(middle)])
        return Value(found, self._dialect, name)

    def whole(self, value: Value) -> Value:
        """Return a value cut at -2^20 and 2^20, in whole numbers toward 0."""
        return Value(self._dialect.whole(self._held(value).sql), self._dialect)

    def beyond(self, name: str) -> tuple[Value, Value]:
        """Return whether a number, as read or derived, lies below its bounds, and whether above: 1 or 0."""
        present, one = self.present(name), integer(1)
        found = []
        for outside in self._ends(name):
            flag = case([(outside, one.copy())], integer(0))
            flag = flag if present is None else case([(present.copy(), flag)])
            found.append(Value(flag, self._dialect, name))
        return found[0], found[1]

    def spread(self, name: str, cut: Number | None = None) -> list[Value]:
        """Return a column as `Gram` wants it: in steps, or one column per category but the first."""
        column = self.schema[name]
        if isinstance(column, Number):
            return [self.steps(name, cut)]
        code, one = self.column(name), self._dialect.cast(integer(int(ONE)), "bigint")
        return [
            Value(case([(combined(exp.EQ, code, integer(i)), one)], integer(0)), self._dialect)
            for i in range(1, len(column.values))
        ]

    # --- for statements -------------------------------------------------------------------------------

    def column(self, name: str) -> Sql:
        """Return a column of `base`: a double, which may be NaN, or a code, -1 if it is none."""
        return self._dialect.name_of(f"{_COLUMN}{self._numbers[name]}")

    def named(self, expressions: Iterable[Sql]) -> list[str]:
        """Return the columns of `base` that expressions mention."""
        names = list(self._numbers)
        found = (column.name[1:] for each in expressions for column in each.find_all(exp.Column))
        return list(dict.fromkeys(names[int(number)] for number in found))

    def base(self, names: Sequence[str], source: Sql, *, filtered: bool) -> exp.Select:
        """Return the select of these columns, as read and derived, from the rows of the query.

        Those that `where` leaves out are left out if it is `filtered`.
        """
        where = self.schema.where if filtered else None
        needed = self._needed([*names, *(where.columns if where is not None else ())])
        chosen = []
        for name in (each for each in needed if each not in self.schema.derived):
            chosen.append(exp.alias_(self._read(name), self.column(name).name, quoted=True))
            if (odd := self._odd(name)) is not None:
                flag = case([(odd, integer(1))], integer(0))
                chosen.append(exp.alias_(flag, self._flag(name).name, quoted=True))
        found = exp.select(*(chosen or [exp.alias_(integer(1), "one", quoted=True)])).from_(source)
        for i, name in enumerate(each for each in self.schema.derived if each in needed):
            made = exp.alias_(self._derived(name), self.column(name).name, quoted=True)
            found = exp.select(exp.Star(), made).from_(found.subquery(f"d{i}", copy=False))
        if where is not None:
            found = exp.select(exp.Star()).from_(found.subquery("w", copy=False))
            found = found.where(where.sql(self.lookup), copy=False)
        return found

    def _needed(self, names: Sequence[str]) -> dict[str, None]:
        """Return columns with all that they are derived from."""
        found = dict.fromkeys(names)
        for name in reversed(self.schema.derived):  # what it reads stands before it
            if name in found:
                found.update(dict.fromkeys(self.schema.derived[name].columns))
        return found

    def _derived(self, name: str) -> Sql:
        """Return a derived column, as one of the table would be."""
        expression, column = self.schema.derived[name], self.schema.stated[name]
        found = expression.sql(self.lookup)
        if isinstance(column, Number):
            return self._dialect.cast(found, "double")
        if expression.kind == "boolean":
            return case([(found, integer(1)), (exp.Not(this=exp.Paren(this=found)), integer(0))])
        known = {value: code for code, value in enumerate(column.values)}
        return case(
            [
                (combined(exp.EQ, found, integer(i)), integer(known[value]))
                for i, value in enumerate(expression.values)
            ]
        )

    def lookup(self, name: str) -> Sql:
        """Return a column as expressions see it: a double within its bounds, or a code; null if missing."""
        column, x = self.schema.stated[name], self.column(name)
        if isinstance(column, Category):
            found = case([(combined(exp.GTE, x, integer(0)), x)])
            return exp.Coalesce(this=found, expressions=[integer(0)]) if self._filled(name) else found
        real = self._dialect.real
        found = case(
            [
                (combined(exp.GT, x, real(column.high)), self._unless_nan(x, real(column.high))),
                (combined(exp.LT, x, real(column.low)), real(column.low)),
            ],
            x,
        )
        return exp.Coalesce(this=found, expressions=[real(column.middle)]) if self._filled(name) else found

    def present(self, name: str) -> Sql | None:
        """Return whether a cell is there; None if every one is, or is taken to be."""
        x = self.column(name)
        if self._filled(name):
            return None
        if isinstance(self.schema[name], Category):
            return combined(exp.GTE, x, integer(0))
        there: Sql = exp.Not(this=missing(x))
        if self._dialect.nan:
            there = exp.And(this=there, expression=exp.Not(this=self._dialect.is_nan(x)))
        return exp.Paren(this=there)

    def place(self, name: str, bins: Bins | None) -> Sql:
        """Return the bin of a number between its bounds, or the code; null if missing, not filled."""
        x = self.column(name)
        if bins is None:
            return x
        number = self.schema.number(name)
        first, last = (int(each) for each in bins.find(np.array([number.low, number.high])))
        if first == last:
            return case([(exp.Not(this=missing(x)), self._unless_nan(x, integer(first)))])
        real, edges = self._dialect.real, bins.edges.tolist()
        inner: Sql
        if last == first + 1:
            inner = exp.Null()
        elif bins.width is None:
            inner = case([(missing(x), exp.Null())], self._tree(x, edges, first + 1, last - 1))
        else:
            inner = self._even(x, bins, bins.width)
        return case(
            [
                (combined(exp.GTE, x, real(edges[last])), self._unless_nan(x, integer(last))),
                (combined(exp.LT, x, real(edges[first + 1])), integer(first)),
            ],
            inner,
        )

    def middle_bin(self, name: str, bins: Bins | None) -> int | None:
        """Return where a missing cell is counted; None if nowhere."""
        if not self._filled(name):
            return None
        stated = self.schema.stated[name]
        return (
            0
            if bins is None or isinstance(stated, Category)
            else int(bins.find(np.array([stated.middle]))[0])
        )

    def troubles(self, name: str) -> dict[str, Sql]:
        """Return by kind which cells do not fit: "odd", "unknown", or "absent" where none may be."""
        column, x = self.schema.stated[name], self.column(name)
        found: dict[str, Sql] = {}
        if name in self.schema.derived or getattr(column, "site", False):
            return found
        if self._odd(name) is not None:
            found["odd"] = combined(exp.EQ, self._flag(name), integer(1))
        if isinstance(column, Category):
            found["unknown"] = combined(exp.LT, x, integer(0))
        if not column.missing:
            absent = missing(x)
            if self._dialect.nan and isinstance(column, Number):
                absent = exp.Paren(this=exp.Or(this=absent, expression=self._dialect.is_nan(x)))
            found["absent"] = absent
        return found

    def outside(self, name: str) -> Sql:
        """Return whether a number lies outside its bounds."""
        below, above = self._ends(name)
        return exp.Paren(this=exp.Or(this=below, expression=above))

    # --- one cell -------------------------------------------------------------------------------------

    def _ends(self, name: str) -> tuple[Sql, Sql]:
        """Return whether a number lies below its bounds, and whether above; neither holds of NaN."""
        column, x, real = self.schema.stated[name], self.column(name), self._dialect.real
        assert isinstance(column, Number)
        below, above = combined(exp.LT, x, real(column.low)), combined(exp.GT, x, real(column.high))
        if self._dialect.nan:
            above = exp.Paren(this=exp.And(this=above, expression=exp.Not(this=self._dialect.is_nan(x))))
        return below, above

    def _filled(self, name: str) -> bool:
        stated = self.schema.stated[name]
        return self._fill and not stated.missing and stated.sql is None

    def _flag(self, name: str) -> Sql:
        """Return the column of `base` that says whether a cell is odd."""
        return self._dialect.name_of(f"{_ODD}{self._numbers[name]}")

    def _odd(self, name: str) -> Sql | None:
        column = self.schema.stated[name]
        if name not in self._kinds or not isinstance(column, Number) or column.sql is not None:
            return None
        return self._dialect.odd(self._dialect.name_of(name))

    def _read(self, name: str) -> Sql:
        column = self.schema.stated[name]
        if isinstance(column, Category) and column.site:
            return integer(column.values.index(self._site))
        kind, x = self._kinds[name], self._dialect.name_of(name)
        if isinstance(column, Number):
            return self._dialect.days(x) if column.date else self._dialect.number(x, kind)
        return self._code(column, kind, x)

    def _code(self, column: Category, kind: Kind, x: Sql) -> Sql:
        dialect, keys = self._dialect, column.codes
        pairs: list[tuple[Sql, Sql]] = []
        if kind in ("text", "cells"):
            for text, code in keys.texts.items():
                same = dialect.is_text(x, text)
                if same is not None:
                    pairs.append((same, integer(code)))
        if kind == "boolean":
            x = dialect.cast(x, "int")
        if kind in ("float", "decimal"):
            y = dialect.number(x, kind)
            pairs += [
                (combined(exp.EQ, y, dialect.real(float(key))), integer(code))
                for key, code in keys.numerals.items()
                if int(float(key)) == key
            ]
            if dialect.nan:
                pairs.append((dialect.is_nan(y), exp.Null()))
        elif kind != "text":
            for key, code in keys.numerals.items():
                same = combined(exp.EQ, x, integer(key))
                if isinstance(dialect, Sqlite):  # a text may look like a number
                    same = exp.Paren(this=exp.And(this=dialect.numeral(x), expression=same))
                pairs.append((same, integer(code)))
        return case([*pairs, (missing(x), exp.Null())], integer(-1))

    def _unless_nan(self, x: Sql, result: Sql) -> Sql:
        """Return a result for a number that is not below an end: NaN is not either, and has none."""
        return case([(self._dialect.is_nan(x), exp.Null())], result) if self._dialect.nan else result

    def _held(self, value: Value) -> Value:
        x, real = value.sql, self._dialect.real
        ends = [(combined(exp.GT, x, real(ONE)), real(ONE)), (combined(exp.LT, x, real(-ONE)), real(-ONE))]
        return Value(case(ends, x), self._dialect)

    def _even(self, x: Sql, bins: Bins, width: float) -> Sql:
        """Return the bin of a number that is not in the first or the last."""
        real, start = self._dialect.real, float(bins.edges[0])
        far = combined(exp.Sub, x, real(start)) if start else x
        guess = self._dialect.whole((Value(far, self._dialect) / width).sql)
        if bins.direct:
            return guess
        one = integer(1)

        def edge(i: Sql) -> Sql:
            return combined(
                exp.Add, combined(exp.Mul, self._dialect.cast(i, "double"), real(width)), real(start)
            )

        above = combined(exp.Add, guess, one)
        return case(
            [
                (combined(exp.LT, x, edge(guess)), combined(exp.Sub, guess, one)),
                (combined(exp.GTE, x, edge(above)), above),
            ],
            guess,
        )

    def _tree(self, x: Sql, edges: Sequence[float], first: int, last: int) -> Sql:
        """Return the bin between `first` and `last` by halving: as deep as the logarithm of their number."""
        if first == last:
            return integer(first)
        middle = (first + last + 1) // 2
        above = combined(exp.GTE, x, self._dialect.real(edges[middle]))
        return case([(above, self._tree(x, edges, middle, last))], self._tree(x, edges, first, middle - 1))
