"""The rows that count, with all their columns: derived ones are computed, and `where` is applied.

Claim. What is made of a row depends on that row alone, and never fails.
Reason. Expressions compute every row by itself, and none fails by value (`cape.data.expressions`). They see
numbers clamped to their public bounds and codes of listed categories, so that a cell outside of the schema
cannot show through them.
Tested in tests/unit/blocks/test_made.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.core.arrays import Flags, Integers
from cape.core.errors import DataError
from cape.data.columns import Category, Column, Number
from cape.data.schema import HELD_OUT, Schema

if TYPE_CHECKING:
    from cape.data.expressions import Expression

__all__ = ["Maker"]

Cells = dict[str, NDArray[Any]]


class Maker:
    """Makes the columns that sums need out of those of a table.

    Args:
        site: the name of the site, which the column of sites holds.
        schema: the study's columns.
        wanted: the columns that sums need.
    """

    def __init__(self, site: str, schema: Schema, wanted: Sequence[str]) -> None:
        self._schema, self._wanted = schema, list(dict.fromkeys(wanted))
        self.reads = schema.sources(self._wanted)
        needed = [*self._wanted, *(schema.where.columns if schema.where else ())]
        for name in reversed(schema.derived):  # what it reads stands before it
            if name in needed:
                needed += schema.derived[name].columns
        self._derived = {name: each for name, each in schema.derived.items() if name in needed}
        self.split = HELD_OUT in needed and schema.person is not None
        self._site: tuple[str, int] | None = None
        for name in needed:
            column = schema[name]
            if isinstance(column, Category) and column.site:
                if site not in column.values:
                    raise DataError(site, "this site is not in the study's list of sites")
                self._site = name, column.values.index(site)
        self._plain = not self._derived and schema.where is None and self._site is None

    def held_out(self, ids: pl.Series) -> Cells:
        """Return the column of who is held out, for rows with these ids as texts, where it is needed."""
        person = self._schema.person
        if not self.split or person is None:
            return {}
        found = {each: person.holds_out(each) for each in ids.drop_nulls().unique()}
        return {HELD_OUT: np.array([found.get(each, False) for each in ids], np.int64)}

    @property
    def expressions(self) -> list[Expression]:
        """All that is computed of a row: derived columns, and which rows count."""
        return [*self._derived.values(), *([self._schema.where] if self._schema.where else [])]

    def make(self, cells: Cells, rows: int, keep: Flags | None = None) -> tuple[Cells, int]:
        """Return the wanted columns of the rows that count, and how many these are.

        `keep` says which count, if that is known already; else `where` says it.
        """
        if self._plain and keep is None:
            return cells, rows
        made, seen = self._complete(cells, rows)
        keep = self._true(seen) if keep is None else keep
        if keep is not None:
            rows = int(np.count_nonzero(keep))
            made = {name: made[name][keep] for name in self._wanted}
        return {name: made[name] for name in self._wanted}, rows

    def matches(self, cells: Cells, rows: int) -> Flags | None:
        """Return for which rows `where` is true; None if all count."""
        return self._true(self._complete(cells, rows)[1])

    def _true(self, seen: Mapping[str, NDArray[Any]]) -> Flags | None:
        where = self._schema.where
        return None if where is None else where.evaluate(seen) == 1

    def _complete(self, cells: Cells, rows: int) -> tuple[Cells, Mapping[str, NDArray[Any]]]:
        """Return all columns, and the same as expressions see them."""
        made = dict(cells)
        if self._site is not None:
            name, code = self._site
            made[name] = np.full(rows, code, np.int64)
        seen = _Clamped(self._schema, made)
        for name, expression in self._derived.items():
            made[name] = _fitted(expression, self._schema[name], expression.evaluate(seen))
        return made, seen


class _Clamped(Mapping[str, NDArray[Any]]):
    """Columns as expressions see them: numbers between their bounds, each clamped when it is first read."""

    def __init__(self, schema: Schema, cells: Cells) -> None:
        self._schema, self._cells = schema, cells
        self._seen: Cells = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._seen:
            column, cells = self._schema[name], self._cells[name]
            if isinstance(column, Number):
                cells = np.clip(cells, column.low, column.high)
            self._seen[name] = cells
        return self._seen[name]

    def __iter__(self) -> Any:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


def _fitted(expression: Expression, column: Column, found: NDArray[Any]) -> NDArray[Any]:
    """Return what an expression gives as a column of the schema holds it."""
    if isinstance(column, Number):
        return found
    if expression.kind == "boolean":
        return found.astype(np.int64)
    known = {value: code for code, value in enumerate(column.values)}
    codes = [known[value] for value in expression.values]
    places = np.array([*codes, -1], np.int64)  # a missing cell has the code -1, the last place
    fitted: Integers = places[found]
    return fitted
