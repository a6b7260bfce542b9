"""Which statements answer what blocks ask: few, each over one division of the rows into groups.

A division that is finer than another answers for both, because integers add up exactly: counts on coarser
edges, sums over everybody, and how many cells are missing are all taken from the finest one that has their
columns. A Table One is then one statement for each of its columns, in which a database of columns reads
nothing else; PostgreSQL takes longer for one statement with GROUPING SETS, which it does not compute in
parallel, or with a row for every cell, than for one scan each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlglot import exp

from cape.blocks.bins import Bins
from cape.blocks.sql.columns import SqlColumns
from cape.blocks.sql.values import Ask, Totals, Value
from cape.core.arrays import Integers
from cape.data.databases.dialects import Sql, case, combined, integer
from cape.data.databases.reader import Row, SqlReader

__all__ = ["Plan"]

_FEW_GROUPS = 1 << 14  # in which sums of values may be kept, besides counts
_MOST_COLUMNS = 1000
_SHIFT = 20


@dataclass(frozen=True)
class Key:
    """A column that divides rows into groups, by its codes or by bins."""

    name: str
    bins: Bins | None

    def refines(self, other: Key) -> bool:
        """Return whether every bin of the other is made up of bins of this one."""
        if self.name != other.name or (self.bins is None) != (other.bins is None):
            return False
        if self.bins is None or other.bins is None:
            return True
        return bool(np.isin(other.bins.edges[1:-1], self.bins.edges[1:-1]).all())

    def within(self, other: Key) -> Integers | None:
        """Return the bin of the other that each bin of this one is in; None if they are the same."""
        if self.bins is None or other.bins is None:
            return None
        return np.searchsorted(other.bins.edges[1:-1], [-np.inf, *self.bins.edges[1:-1]], side="right")


@dataclass(eq=False)
class _Grouping:
    """One statement: the groups of rows, and what is added up in each."""

    keys: list[Key]
    filter: tuple[str, ...] | None  # columns that are complete in the rows that count; None: every row
    values: list[Value] = field(default_factory=list)
    products: list[tuple[int, int]] = field(default_factory=list)
    flags: list[Sql] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def covers(self, keys: Sequence[Key]) -> bool:
        return all(any(own.refines(key) for own in self.keys) for key in keys)

    def position(self, name: str) -> int | None:
        return next((i for i, key in enumerate(self.keys) if key.name == name), None)

    def value(self, value: Value) -> int:
        """Return the place of a value, which is added if it is new."""
        for i, known in enumerate(self.values):
            if known.sql == value.sql:
                return i
        self.values.append(value)
        return len(self.values) - 1

    def product(self, pair: tuple[int, int]) -> int:
        pair = min(pair), max(pair)
        if pair not in self.products:
            self.products.append(pair)
        return self.products.index(pair)


@dataclass(frozen=True)
class _Found:
    """Where the totals of an ask are: a grouping for each value, and one that counts rows."""

    ask: Ask
    counted: _Grouping
    values: list[tuple[_Grouping, int]]
    products: list[tuple[_Grouping, int]]


class Plan:
    """The statements that answer some asks, and say how many cells do not fit.

    Args:
        columns: the columns as SQL.
        asks: what blocks want.
        checked: columns whose cells are looked at.
    """

    def __init__(self, columns: SqlColumns, asks: Sequence[Ask], checked: Iterable[str]) -> None:
        self._columns, self._asks = columns, asks
        self._groupings: list[_Grouping] = []
        wanted = [self._keys(ask) for ask in asks]
        for ask, keys in sorted(zip(asks, wanted, strict=True), key=lambda each: -self._size(each[1])):
            if ask.by:
                self._grouping(keys, self._filter(ask))
        self._found = [self._place(ask, keys) for ask, keys in zip(asks, wanted, strict=True)]
        self._flags: dict[tuple[str, str], tuple[_Grouping, int]] = {}
        for name in dict.fromkeys(checked):
            for trouble, sql in columns.troubles(name).items():
                self._flags[name, trouble] = self._flag(name, sql)

    def flag(self, name: str, what: str, sql: Sql) -> None:
        """Have the rows counted for which a condition on a column is true."""
        self._flags[name, what] = self._flag(name, sql)

    def statements(self, reader: SqlReader) -> list[Sql]:
        """Return what the database is to be asked."""
        self._wide = reader.dialect.wide
        return [statement for each in self._groupings for statement in self._statements(each, reader)]

    def tell(self, answers: Sequence[list[Row]]) -> None:
        """Take in the rows that each statement gave."""
        told = iter(answers)
        for grouping in self._groupings:
            keys = len(grouping.keys)
            found: dict[Row, list[Any]] = {}
            for _ in range(self._parts(grouping)):
                for row in next(told):
                    found.setdefault(row[:keys], list(row[:keys])).extend(row[keys:])
            grouping.rows = [tuple(row) for row in found.values()]

    def flagged(self) -> dict[tuple[str, str], int]:
        """Return for how many rows each condition is true, by column and what it is."""
        return {
            key: sum(int(row[at - len(grouping.flags)] or 0) for row in grouping.rows)
            for key, (grouping, at) in self._flags.items()
        }

    def sums(self) -> list[tuple[Integers, ...]]:
        """Return what each ask makes of its totals."""
        return [each.ask.finish(self._totals(each)) for each in self._found]

    # --- what was found -------------------------------------------------------------------------------

    def _totals(self, found: _Found) -> dict[int, Totals]:
        ask, keys = found.ask, self._keys(found.ask)
        rows: dict[int, int] = {} if keys else {0: 0}
        for cell, row in self._cells(found.counted, keys):
            rows[cell] = rows.get(cell, 0) + int(row[len(found.counted.keys)])
        values, products = len(ask.values), len(ask.products)
        totals = {
            cell: Totals(often, [0] * values, [0] * values, [0] * products) for cell, often in rows.items()
        }
        for i, (grouping, at) in enumerate(found.values):
            for cell, row in self._cells(grouping, keys):
                place = len(grouping.keys) + 1 + 2 * at
                totals[cell].counts[i] += int(row[place])
                totals[cell].sums[i] += int(row[place + 1] or 0)
        for i, (grouping, at) in enumerate(found.products):
            start = len(grouping.keys) + 1 + 2 * len(grouping.values)
            for cell, row in self._cells(grouping, keys):
                if self._wide:
                    totals[cell].products[i] += int(row[start + at] or 0)
                else:
                    high, low = row[start + 2 * at : start + 2 * at + 2]
                    totals[cell].products[i] += (int(high or 0) << _SHIFT) + int(low or 0)
        return totals

    def _cells(self, grouping: _Grouping, keys: Sequence[Key]) -> Iterator[tuple[int, Row]]:
        """Yield the rows of a grouping with the number of the group that each belongs to."""
        axes = []
        for key in keys:
            at = next(i for i, own in enumerate(grouping.keys) if own.refines(key))
            size = self._size_of(key)
            axes.append(
                (at, size, grouping.keys[at].within(key), self._columns.middle_bin(key.name, key.bins))
            )
        for row in grouping.rows:
            cell = 0
            for at, size, within, middle in axes:
                bin_ = row[at]
                if bin_ is None or bin_ < 0:
                    bin_ = middle
                elif within is not None:
                    bin_ = within[int(bin_)]
                if bin_ is None:
                    break
                cell = cell * size + int(bin_)
            else:
                yield cell, row

    # --- which groupings ------------------------------------------------------------------------------

    def _filter(self, ask: Ask) -> tuple[str, ...] | None:
        where = self._columns.schema.where
        if not ask.complete:
            return () if where is not None else None
        return tuple(sorted(set(ask.complete)))

    def _keys(self, ask: Ask) -> list[Key]:
        return [Key(name, bins) for name, bins in ask.by]

    def _size_of(self, key: Key) -> int:
        return len(self._columns.schema.category(key.name).values) if key.bins is None else key.bins.count

    def _size(self, keys: Sequence[Key]) -> int:
        """Return how many groups there can be, with those of missing and unknown cells."""
        return math.prod(self._size_of(key) + 2 for key in keys)

    def _grouping(self, keys: Sequence[Key], kept: tuple[str, ...] | None, *, few: bool = False) -> _Grouping:
        """Return the smallest grouping that answers for these keys; a new one if there is none."""
        fitting = [
            each
            for each in self._groupings
            if each.filter == kept and each.covers(keys) and (not few or self._size(each.keys) <= _FEW_GROUPS)
        ]
        if fitting:
            return min(fitting, key=lambda each: self._size(each.keys))
        made = _Grouping(list(keys), kept)
        self._groupings.append(made)
        return made

    def _place(self, ask: Ask, keys: list[Key]) -> _Found:
        kept = self._filter(ask)
        counted = self._grouping(keys, kept)
        if ask.complete or any(i != j for i, j in ask.products):  # all together
            where = self._grouping(keys, kept, few=True)
            at = [(where, where.value(value)) for value in ask.values]
        else:
            at = [self._beside(value, keys, kept) for value in ask.values]
        products = [(at[i][0], at[i][0].product((at[i][1], at[j][1]))) for i, j in ask.products]
        return _Found(ask, counted, at, products)

    def _beside(self, value: Value, keys: list[Key], kept: tuple[str, ...] | None) -> tuple[_Grouping, int]:
        """Return where a value is added up: where its own column is read already, if anywhere."""
        for each in self._groupings:
            own = value.column is not None and each.position(value.column) is not None
            if own and each.filter == kept and each.covers(keys) and self._size(each.keys) <= _FEW_GROUPS:
                return each, each.value(value)
        where = self._grouping(keys, kept, few=True)
        return where, where.value(value)

    def _flag(self, name: str, sql: Sql) -> tuple[_Grouping, int]:
        open_to_all = [each for each in self._groupings if each.filter is None]
        reading = [each for each in open_to_all if each.position(name) is not None]
        where = (reading or open_to_all or [self._grouping([], None)])[0]
        where.flags.append(sql)
        return where, len(where.flags) - 1

    # --- one statement --------------------------------------------------------------------------------

    def _parts(self, grouping: _Grouping) -> int:
        """Return in how many statements a grouping is asked: databases give a row so many columns."""
        sums = 1 + 2 * len(grouping.values) + len(grouping.products) * (1 if self._wide else 2)
        return -(-(sums + len(grouping.flags)) // _MOST_COLUMNS)

    def _statements(self, grouping: _Grouping, reader: SqlReader) -> list[Sql]:
        columns, dialect = self._columns, reader.dialect
        inner: list[Any] = [
            exp.alias_(columns.place(key.name, key.bins), f"p{i}", quoted=True)
            for i, key in enumerate(grouping.keys)
        ]
        inner += [exp.alias_(v.sql.copy(), f"v{i}", quoted=True) for i, v in enumerate(grouping.values)]
        inner += [
            exp.alias_(case([(flag, integer(1))]), f"f{i}", quoted=True)
            for i, flag in enumerate(grouping.flags)
        ]
        present = [columns.present(name) for name in grouping.filter or ()]
        filters = [each for each in present if each is not None]
        base = columns.base(
            columns.named([*inner, *filters]), reader.table(), filtered=grouping.filter is not None
        )
        select = exp.select(*(inner or [exp.alias_(integer(1), "one", quoted=True)])).from_(
            base.subquery("b", copy=False)
        )
        for each in filters:
            select = select.where(each, copy=False)
        if dialect.fence and grouping.products and (grouping.keys or len(grouping.products) > 2):
            select = select.offset(0, copy=False)
        places = [dialect.name_of(f"p{i}") for i in range(len(grouping.keys))]
        outer: list[Sql] = [exp.Count(this=exp.Star())]
        for i in range(len(grouping.values)):
            value = dialect.name_of(f"v{i}")
            outer += [exp.Count(this=value), exp.Sum(this=value.copy())]
        for i, j in grouping.products:
            product = combined(exp.Mul, dialect.name_of(f"v{i}"), dialect.name_of(f"v{j}"))
            outer += [exp.Sum(this=half) for half in _halves(product, dialect.wide)]
        outer += [exp.Count(this=dialect.name_of(f"f{i}")) for i in range(len(grouping.flags))]
        named = [exp.alias_(each, f"c{i}", quoted=True, copy=False) for i, each in enumerate(outer)]
        found: list[Sql] = []
        for start in range(0, len(named), _MOST_COLUMNS):
            part = exp.select(*places, *named[start : start + _MOST_COLUMNS]).from_(select.subquery("r"))
            found.append(part.group_by(*places) if places else part)
        return found


def _halves(product: Sql, wide: bool) -> list[Sql]:
    """Return a product of at most 2^40, or what adds up to it in sums that stay within 64 bits."""
    if wide:
        return [product]
    low = combined(exp.BitwiseAnd, product, integer((1 << _SHIFT) - 1))
    return [combined(exp.BitwiseRightShift, product, integer(_SHIFT)), low]
