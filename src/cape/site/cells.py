"""Cells to numbers: a column of a batch becomes float64 (NaN for missing) or codes (-1 for missing).

What does not fit the schema is an error at its row. Numbers are integers, floats, decimals or booleans (0
and 1); text is a number only in files that have nothing but text. Which cells are a category:
`cape.site.categories`.
"""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.site import faults
from cape.site.categories import Codes
from cape.site.schema import Category, Number, Schema

__all__ = ["Cells"]

_TEXT = (pl.String, pl.Categorical, pl.Enum)


class Cells:
    """Reads the columns of one site's batches; `offset` is the row that a batch starts with."""

    def __init__(self, site: str, schema: Schema, *, text: bool) -> None:
        self._site, self._schema, self._text = site, schema, text

    def read(self, series: pl.Series, offset: int) -> NDArray[Any]:
        """Return the column as numbers or as codes, whichever the schema says."""
        column = self._schema[series.name]
        if isinstance(column, Number):
            return self._numbers(series, column, offset)
        return self._codes(series, column, offset)

    def _numbers(self, series: pl.Series, column: Number, offset: int) -> NDArray[np.float64]:
        kind = series.dtype
        if kind == pl.Float64:  # nothing to parse
            found: NDArray[np.float64] = series.to_numpy()
            if not column.missing:
                self._none_missing(series.name, np.isnan(found), offset)
            return found
        if kind == pl.Object:
            parsed = pl.Series(series.name, [_number(value) for value in series], dtype=pl.Float64)
            missing = _objects_missing(series)
        else:
            missing = series.is_null()
            if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
                parsed = series.cast(pl.Float64)
            elif kind == pl.String and self._text:
                parsed = series.cast(pl.Float64, strict=False)
            else:
                parsed = pl.Series(series.name, [None], dtype=pl.Float64).new_from_index(0, len(series))
        row = _first(parsed.is_null() & ~missing)
        if row is not None:
            raise faults.wrong_type(
                self._site, series.name, column, _name(series, row), offset + row, text_file=self._text
            )
        numbers: NDArray[np.float64] = parsed.to_numpy()
        if not column.missing:
            self._none_missing(series.name, np.isnan(numbers), offset)
        return numbers

    def _codes(self, series: pl.Series, column: Category, offset: int) -> NDArray[np.int64]:
        kind, keys = series.dtype, column.codes
        if kind == pl.Object:
            codes = pl.Series(series.name, [_code(value, keys) for value in series], dtype=pl.Int64)
            missing = _objects_missing(series)
        else:
            if kind.is_float():
                series = series.fill_nan(None)
            missing = series.is_null()
            codes = _match(series, keys)
        row = _first(codes.is_null() & ~missing)
        if row is not None:
            if _comparable(series, row, keys):
                raise faults.unknown_category(self._site, series.name, column, offset + row)
            raise faults.wrong_type(self._site, series.name, column, _name(series, row), offset + row)
        if not column.missing:
            self._none_missing(series.name, missing.to_numpy(), offset)
        filled: NDArray[np.int64] = codes.fill_null(-1).to_numpy()
        return filled

    def _none_missing(self, name: str, missing: NDArray[np.bool_], offset: int) -> None:
        if missing.any():
            raise faults.missing_cell(self._site, name, offset + int(np.argmax(missing)))


def _match(series: pl.Series, keys: Codes) -> pl.Series:
    """Return codes, null where the cell is null or no category."""
    kind = series.dtype
    codes: dict[Any, int]
    if kind in _TEXT:
        values, codes = series.cast(pl.String), dict(keys.texts)
    elif kind.is_numeric() or kind == pl.Boolean:
        whole = series.cast(pl.Float64) if kind.is_decimal() else series
        values, codes = whole.cast(pl.Int64, strict=False), dict(keys.numerals)
        if whole.dtype.is_float():  # 1.5 is not 1
            same = values.cast(whole.dtype) == whole
            values = values.to_frame().select(pl.when(same).then(pl.first())).to_series()
    else:
        values, codes = series, {}
    if not codes:
        return pl.Series(series.name, [None], dtype=pl.Int64).new_from_index(0, len(series))
    return values.replace_strict(list(codes), list(codes.values()), default=None, return_dtype=pl.Int64)


def _comparable(series: pl.Series, row: int, keys: Codes) -> bool:
    """Return whether a cell of this type could be one of the categories at all."""
    kind = series.dtype
    if kind == pl.Object:
        value = series[row]
        return isinstance(value, str) or (_number(value) is not None and bool(keys.numerals))
    return kind in _TEXT or ((kind.is_numeric() or kind == pl.Boolean) and bool(keys.numerals))


def _first(flags: pl.Series) -> int | None:
    return int(flags.arg_max() or 0) if flags.any() else None


def _name(series: pl.Series, row: int) -> str:
    """Return the name of a cell's type, as people say it."""
    kind = series.dtype
    if kind == pl.Object:
        value = series[row]
        return "text" if isinstance(value, str) else f"a value of type {type(value).__name__}"
    return "text" if kind in _TEXT else f"the type {faults.type_name(kind)}"


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):
        return value.is_nan()  # math.isnan fails at a signaling one
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def _objects_missing(series: pl.Series) -> pl.Series:
    return pl.Series(series.name, [_is_missing(value) for value in series], dtype=pl.Boolean)


def _number(value: Any) -> float | None:
    """Return a Python value as a float if it is a number that is not missing."""
    if _is_missing(value) or not isinstance(value, (Real, Decimal, np.bool_)):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of more than 1024 bits
        return math.inf if abs(value) == value else -math.inf


def _code(value: Any, keys: Codes) -> int | None:
    """Return the code of a Python value, or None if it is missing or no category."""
    if isinstance(value, str):
        return keys.texts.get(value)
    number = _number(value)
    if number is None or not math.isfinite(number):
        return None
    exact = int(value)
    return keys.numerals.get(exact) if exact == value else None
