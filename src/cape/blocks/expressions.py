"""A lazy table's columns as narwhals expressions: the formulas of `steps`, `bins` and `categories` again.

Each is the same float64 operations in the same order, so that every engine finds the same integers. Whole
numbers are float64 too and truncation is floor or ceil by sign: a cast to integers rounds to nearest in
some engines. Tested in tests/blocks/test_backends.py.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw

from cape.blocks.bins import Bins
from cape.blocks.block import Axis
from cape.blocks.steps import ONE, Steps
from cape.data import faults
from cape.data.schema import Category, Column, Number, Schema

__all__ = ["Columns", "place"]


class Columns:
    """A table's columns as expressions, after a look at their types."""

    def __init__(self, site: str, schema: Schema, types: dict[str, Any]) -> None:
        self._schema, self._types = schema, types
        for name, kind in types.items():
            if not _fits(schema[name], kind):
                raise faults.wrong_type(site, name, schema[name], _say(kind))

    def raw(self, name: str) -> nw.Expr:
        """Return a column as it stands, with null for every missing cell."""
        kind, column = self._types[name], nw.col(name)
        if isinstance(self._schema[name], Number):
            return column.cast(nw.Float64()).fill_nan(None)
        if kind.is_float():
            return column.fill_nan(None)
        if kind.is_decimal() or kind == nw.Boolean:
            return column.cast(nw.Float64())
        return column if kind.is_integer() else column.cast(nw.String())

    def steps(self, name: str) -> nw.Expr:
        """Return a numeric column in whole steps of 2^-20."""
        column = self._schema.number(name)
        steps = Steps.of(column)
        scaled = (self._clamped(name) - steps.middle) / steps.size
        scaled = _clamp(scaled, steps.least, steps.most)
        return nw.when(scaled >= 0).then(scaled.floor()).otherwise(scaled.ceil())

    def code(self, name: str) -> nw.Expr:
        """Return a category column as codes, -1 for what is missing or unknown."""
        keys, kind = self._schema.category(name).codes, self._types[name]
        codes: dict[Any, int] = dict(keys.texts if _is_text(kind) else keys.numerals)
        if not _is_text(kind) and not kind.is_integer():
            codes = {float(key): code for key, code in codes.items()}
        return self.raw(name).replace_strict(
            list(codes), list(codes.values()), default=-1, return_dtype=nw.Int64()
        )

    def spread(self, name: str) -> list[nw.Expr]:
        """Return a column as `Gram` wants it: in steps, or one column per category but the first."""
        column = self._schema[name]
        if isinstance(column, Number):
            return [self.steps(name)]
        code = self.code(name)
        return [
            nw.when(code == i).then(nw.lit(ONE)).otherwise(nw.lit(0.0)) for i in range(1, len(column.values))
        ]

    def along(self, axis: Axis) -> nw.Expr:
        """Return what is cut into bins along an axis: codes, or numbers between their bounds."""
        return self.code(axis.column) if axis.edges is None else self._clamped(axis.column)

    def _clamped(self, name: str) -> nw.Expr:
        column = self._schema.number(name)
        return _clamp(self.raw(name), column.low, column.high)


def place(x: nw.Expr, axis: Axis) -> nw.Expr:
    """Return the bin of every row along an axis: the arithmetic of `Bins.find`, or comparisons."""
    if axis.edges is None:
        return x
    bins = Bins.of(axis.edges)
    if bins.width is None:
        return _tree(x, bins.edges, 0, bins.count - 1).cast(nw.Int64())
    start, width, last = bins.edges[0], bins.width, float(bins.count - 1)
    guess = _clamp(((x - start) / width).floor(), 0.0, last)
    down = nw.when(x < guess * width + start).then(guess - 1.0).otherwise(guess)
    up = nw.when(x >= (down + 1.0) * width + start).then(down + 1.0).otherwise(down)
    return _clamp(up, 0.0, last).cast(nw.Int64())


def _clamp(x: nw.Expr, low: float, high: float) -> nw.Expr:
    """Return x between two numbers, null where it is null: GREATEST of some engines skips a null."""
    held = nw.when(x > high).then(nw.lit(high)).otherwise(x)
    return nw.when(x < low).then(nw.lit(low)).otherwise(held)


def _tree(x: nw.Expr, edges: tuple[float, ...], first: int, last: int) -> nw.Expr:
    """Return the bin between `first` and `last` by halving: as deep as the logarithm of their number."""
    if first == last:
        return nw.lit(float(first))
    middle = (first + last + 1) // 2
    return (
        nw.when(x >= edges[middle])
        .then(_tree(x, edges, middle, last))
        .otherwise(_tree(x, edges, first, middle - 1))
    )


def _fits(column: Column, kind: Any) -> bool:
    number = kind.is_numeric() or kind == nw.Boolean
    if isinstance(column, Category):
        return _is_text(kind) or (number and bool(column.codes.numerals))
    return bool(number)


def _is_text(kind: Any) -> bool:
    return kind in (nw.String, nw.Categorical, nw.Enum)


def _say(kind: Any) -> str:
    return "a column of text" if _is_text(kind) else f"a column of type {faults.type_name(kind)}"
