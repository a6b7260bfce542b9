"""How many rows, how many cells that are not missing, how many rows in a category."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cape.analyses.by_group import ByGroup
from cape.blocks import Axis, Counts
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.data.categories import Value
from cape.engine.arguments import conditions, joined, names
from cape.engine.query import Answer, Neighbours, Query, check_where
from cape.stats.estimates import Estimate

__all__ = ["Count"]


@dataclass(frozen=True, init=False)
class Count(ByGroup):
    """How many rows there are, or how many with a value in a column, or in categories.

    >>> Count(), Count("age"), Count(sex="female"), Count("chol", sex="female", disease="yes")

    With columns, one number for each: the rows where it is not missing. `where` is a condition, or a mapping
    of columns to categories; keywords do the same as such a mapping. A count is of the people in the tables:
    it has no sampling error.

    **Sensitivity.** sqrt(k), k the number of private counts, for both relations. A row enters each count
    as 0 or 1, so adding, removing or replacing one row changes each by 1 at most, and k of them by sqrt(k)
    in the L2 norm; a row that all of them count, against none or against one with missing cells, attains
    it; in the L1 norm the same row moves them by k. Under replace-one a count of all rows, or of a column
    that is never missing, is public: it is neither asked for nor paid for.
    """

    kind: ClassVar[str] = "count"
    example: ClassVar[dict[str, Any]] = {"where": {"sex": "female"}}
    whole: ClassVar[bool] = True
    columns: tuple[str, ...]
    categories: tuple[tuple[str, Value], ...]

    def __init__(
        self, *columns: str, where: str | Mapping[str, Value] | None = None, **conditions: Value
    ) -> None:
        given = where if isinstance(where, Mapping) else {}
        both = {**given, **conditions}
        if len(both) < len(given) + len(conditions):
            raise InvalidInput("a column must be given one category, not two")
        condition = None if where is None or isinstance(where, Mapping) else check_where(where)
        if condition is not None and both:
            condition = " and ".join([*(_equal(*pair) for pair in both.items()), f"({condition})"])
            both = {}
        self._set(columns=names(columns, least=0), categories=tuple(both.items()), where=condition)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        blocks = tuple(
            self._block(schema, column)
            for column in self._asked
            if not (neighbours == "replace-one" and self._everyone(schema, column))
        )
        many = len(blocks)
        return Query(blocks, tuple((1.0,) for _ in blocks), math.sqrt(many), l1=float(many) or None)

    def finish(self, answer: Answer) -> list[Estimate]:
        found = zip(answer.sums, answer.noise, strict=True)
        estimates = []
        for column in self._asked:
            label = self._label(column)
            if answer.rows is not None and self._everyone(answer.schema, column):
                estimates.append(Estimate(label, float(answer.rows), 0.0, 0.0, (0.0, math.inf)))
            else:
                (count,), (noise,) = next(found)
                most = math.inf if answer.rows is None else float(answer.rows)
                value = min(max(float(count), 0.0), most)
                estimates.append(Estimate(label, value, 0.0, noise, (0.0, most)))
        return estimates

    def adding_up(self, schema: Schema) -> Sequence[int]:
        return [place for place, column in enumerate(self._asked) if self._everyone(schema, column)]

    def describe(self) -> str:
        each = "each of " if len(self.columns) > 1 else ""
        what = (
            f"number of rows with a value of {each}{joined(self.columns)}"
            if self.columns
            else "number of rows"
        )
        return what + (f", where {self._condition}" if self.categories else "")

    def title(self, label: str, schema: Schema) -> str:
        """Return how a count is named; that of all rows by no column."""
        named = conditions(label, [name for name, _ in self.categories], schema)
        return named if self.columns or self.categories else label

    def keys(self) -> dict[str, Any]:
        parts = {"columns": list(self.columns), "where": dict(self.categories)}
        return {key: value for key, value in parts.items() if value}

    @property
    def _asked(self) -> tuple[str | None, ...]:
        return self.columns or (None,)

    @property
    def _condition(self) -> str:
        return ", ".join(f"{column}={value}" for column, value in self.categories)

    def _label(self, column: str | None) -> str:
        if column is None:
            return self._condition or "rows"
        return f"{column} not missing" + (f", {self._condition}" if self.categories else "")

    def _everyone(self, schema: Schema, column: str | None) -> bool:
        if schema.open or self.categories:
            return False
        return column is None or not schema[column].missing

    def _block(self, schema: Schema, column: str | None) -> Counts:
        axes, cell = [], []
        for name, value in self.categories:
            values = schema.category(name).values
            if value not in values:
                raise InvalidInput(f"no category {value!r} in column {name!r}{hint(value, map(str, values))}")
            axes.append(Axis(name))
            cell.append(values.index(value))
        if column is None:
            return Counts(tuple(axes), tuple(cell))
        found = schema[column]
        edges = (found.low, found.high) if isinstance(found, Number) else None
        return Counts((*axes, Axis(column, edges)), (*cell, None))


def _equal(name: str, value: Value) -> str:
    """Return the condition that a column has a category, as an expression."""
    quoted = name.replace('"', '""')
    text = str(value).replace("'", "''")
    return f'"{quoted}" = ' + (f"'{text}'" if isinstance(value, str) else str(value).lower())
