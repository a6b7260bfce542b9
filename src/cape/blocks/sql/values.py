"""Numbers that a database computes of each row, and what a block asks to have added up of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlglot import exp

from cape.blocks.bins import Bins
from cape.core.arrays import Integers
from cape.data.databases.dialects import Dialect, Sql, combined

__all__ = ["Ask", "Several", "Totals", "Value"]


@dataclass(frozen=True)
class Value:
    """A number of each row, null where it is missing; arithmetic with it is that of float64.

    `column` is the column that alone decides whether it is missing, if there is one.
    """

    sql: Sql
    dialect: Dialect
    column: str | None = None

    def __add__(self, other: Value | float) -> Value:
        return self._with(exp.Add, other)

    def __sub__(self, other: Value | float) -> Value:
        return self._with(exp.Sub, other)

    def __mul__(self, other: Value | float) -> Value:
        return self._with(exp.Mul, other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._with(exp.Div, other)

    def __abs__(self) -> Value:
        return Value(exp.Abs(this=self.sql.copy()), self.dialect, self.column)

    def _with(self, kind: Any, other: Value | float) -> Value:
        second = other.sql if isinstance(other, Value) else self.dialect.real(other)
        found = combined(kind, self.sql, second)
        if kind is exp.Div:  # of doubles: sqlglot need not cast them
            found.this.set("typed", True)
        return Value(found, self.dialect)


class Totals(NamedTuple):
    """What a database found over some rows.

    Attributes:
        rows: how many there are.
        counts: in how many of them each value is not missing.
        sums: the sum of each value.
        products: the sums of the products that were asked for.
    """

    rows: int
    counts: list[int]
    sums: list[int]
    products: list[int]


@dataclass(frozen=True)
class Ask:
    """Whole numbers within 2^20 to be added up, in each group of rows.

    Attributes:
        finish: makes the block's sums of the totals of each group that has rows. Groups are numbered row by
            row. Without `by`, there is one group, 0.
        values: what to add up (`SqlColumns.steps`, `spread` or `whole`).
        products: pairs of values, by their places, whose products are added up as well.
        complete: columns; rows that miss one of them are left out.
        by: columns that divide the rows into groups, by bins if they are numeric; rows that miss one are
            left out.
    """

    finish: Callable[[Mapping[int, Totals]], tuple[Integers, ...]]
    values: Sequence[Value] = ()
    products: Sequence[tuple[int, int]] = ()
    complete: Sequence[str] = ()
    by: Sequence[tuple[str, Bins | None]] = field(default=())


@dataclass(frozen=True)
class Several:
    """Asks with divisions of their own, and what makes the block's sums of what all of them give."""

    asks: Sequence[Ask]
    finish: Callable[[Sequence[tuple[Integers, ...]]], tuple[Integers, ...]]
