"""Cells to numbers: a column of a batch becomes float64 (NaN for missing) or codes (-1 for missing).

Numbers are integers, floats, decimals or booleans (0 and 1); dates become days since 1970-01-01
(`cape.data.dates`). Which cells are a category: `cape.data.categories`; how the texts of a file are read:
`cape.data.notation`. What else does not fit the schema is an error at its row (`Strict`), or counts as
missing (`Lenient`). To the first, text is a number in files only.

Claim of `Lenient`. It never raises, and what it makes of a cell depends on that cell and the type of its
column alone: a number or a code, or "missing" where the schema says that a cell may be.
Reason. A text is read as a number wherever it stands, because one cell of text makes text of a whole column
in many files and databases; every other cell of it is then what it was before.
Tested in tests/unit/data/test_dirty_cells.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.core.arrays import Flags, Floats, Integers
from cape.core.errors import DataError, InvalidInput
from cape.data import faults
from cape.data.categories import Codes
from cape.data.dates import days_of
from cape.data.notation import Keys, Notation
from cape.data.schema import Category, Column, Number, Schema

__all__ = ["Cells", "Lenient", "Strict", "code_of", "is_missing", "number_of"]

_TEXT = (pl.String, pl.Categorical, pl.Enum)


class Cells(ABC):
    """Reads the columns of one site's batches; `offset` is the row that a batch starts with."""

    def __init__(self, site: str, schema: Schema, notation: Notation | None = None) -> None:
        self._site, self._schema, self._notation = site, schema, notation
        self._keys: dict[str, Keys] = {}
        try:
            if notation is not None:
                notation.check(schema)
        except InvalidInput as error:
            raise DataError(site, str(error)) from None

    def read(self, series: pl.Series, offset: int) -> NDArray[Any]:
        """Return the column as numbers or as codes, whichever the schema says."""
        column = self._schema.stated[series.name]
        if isinstance(column, Number):
            return (self._days if column.date else self._numbers)(series, column, offset)
        return self._codes(series, column, offset)

    def _numbers(self, series: pl.Series, column: Number, offset: int) -> Floats:
        kind, notation = series.dtype, self._notation
        if kind == pl.Float64 and notation is None:  # nothing to parse
            found: Floats = series.to_numpy()
            return found if column.missing else self._complete(series.name, found, np.isnan(found), offset)
        if kind == pl.Object:
            parsed = self._parse_objects(series)
            missing = _objects_missing(series)
        else:
            missing = series.is_null()
            if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
                parsed = series.cast(pl.Float64)
                parsed = parsed if notation is None else notation.changed(parsed, series.name)
            elif kind in _TEXT and notation is not None:
                parsed = notation.numbers(series.cast(pl.String))
            elif kind in _TEXT:
                parsed = self._parse_text(series)
            else:
                parsed = _nothing(series, pl.Float64)
        self._judge(series, column, parsed.is_null() & ~missing, offset)
        numbers: Floats = parsed.to_numpy()
        return numbers if column.missing else self._complete(series.name, numbers, np.isnan(numbers), offset)

    def _days(self, series: pl.Series, column: Number, offset: int) -> Floats:
        kind = series.dtype
        missing = _objects_missing(series) if kind == pl.Object else series.is_null()
        if self._notation is not None and kind in _TEXT:
            found = self._notation.days(series.cast(pl.String))
        else:
            found = days_of(series)
            missing = missing | series.is_nan() if kind.is_float() else missing
        self._judge(series, column, found.is_null() & ~missing, offset)
        days: Floats = found.to_numpy()
        return days if column.missing else self._complete(series.name, days, np.isnan(days), offset)

    def _codes(self, series: pl.Series, column: Category, offset: int) -> Integers:
        kind, notation, keys = series.dtype, self._notation, column.codes
        if kind == pl.Object:
            codes = pl.Series(series.name, [code_of(value, keys) for value in series], dtype=pl.Int64)
            missing = _objects_missing(series)
        else:
            if kind.is_float():
                series = series.fill_nan(None)
            missing = series.is_null()
            if notation is None:
                codes = _match(series, keys.texts, keys.numerals)
            elif kind in _TEXT:
                codes = notation.codes(series.cast(pl.String), self._keys_of(series.name, column, notation))
            else:
                codes = _match(series, {}, self._keys_of(series.name, column, notation).numerals)
        self._judge(series, column, codes.is_null() & ~missing, offset)
        filled: Integers = codes.fill_null(-1).to_numpy()
        return filled if column.missing else self._complete(series.name, filled, filled < 0, offset)

    def _keys_of(self, name: str, column: Category, notation: Notation) -> Keys:
        if name not in self._keys:
            self._keys[name] = notation.keys(name, column)
        return self._keys[name]

    @abstractmethod
    def _parse_text(self, series: pl.Series) -> pl.Series:
        """Return a column of text that is in no file as float64, null where it is no number."""

    @abstractmethod
    def _parse_objects(self, series: pl.Series) -> pl.Series:
        """Return a column of objects as float64, null where one is no number."""

    @abstractmethod
    def _judge(self, series: pl.Series, column: Column, unreadable: pl.Series, offset: int) -> None:
        """Raise an error for, or count, cells that are present but do not fit the schema."""

    @abstractmethod
    def _complete(self, name: str, values: NDArray[Any], missing: Flags, offset: int) -> NDArray[Any]:
        """Return a column in which nothing may be missing, with nothing missing."""


class Strict(Cells):
    """A cell that does not fit the schema is an error."""

    def _parse_text(self, series: pl.Series) -> pl.Series:
        return _nothing(series, pl.Float64)

    def _parse_objects(self, series: pl.Series) -> pl.Series:
        return pl.Series(series.name, [number_of(value) for value in series], dtype=pl.Float64)

    def _judge(self, series: pl.Series, column: Column, unreadable: pl.Series, offset: int) -> None:
        if not unreadable.any():
            return
        row = int(unreadable.arg_max() or 0)
        if isinstance(column, Category) and _comparable(series, row, column.codes):
            raise faults.unknown_category(self._site, series.name, column, offset + row)
        in_file = self._notation is not None and series.dtype in _TEXT
        raise faults.wrong_type(
            self._site, series.name, column, _name(series, row), offset + row, in_file=in_file
        )

    def _complete(self, name: str, values: NDArray[Any], missing: Flags, offset: int) -> NDArray[Any]:
        if missing.any():
            raise faults.missing_cell(self._site, name, offset + int(np.argmax(missing)))
        return values


class Lenient(Cells):
    """A cell that does not fit the schema counts as missing.

    Where none may be missing, it is the middle of the bounds or the first category. `unreadable` has how
    many such cells were read, by column.
    """

    def __init__(self, site: str, schema: Schema, notation: Notation | None = None) -> None:
        super().__init__(site, schema, notation)
        self.unreadable: Counter[str] = Counter()

    def _parse_text(self, series: pl.Series) -> pl.Series:
        return series.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)

    def _parse_objects(self, series: pl.Series) -> pl.Series:
        # polars refuses text with a lone surrogate
        texts = [v.encode(errors="replace").decode() if isinstance(v, str) else None for v in series]
        numbers = pl.Series(series.name, [number_of(value) for value in series], dtype=pl.Float64)
        return numbers.zip_with(
            numbers.is_not_null(), self._parse_text(pl.Series(series.name, texts, dtype=pl.String))
        )

    def _judge(self, series: pl.Series, column: Column, unreadable: pl.Series, offset: int) -> None:
        if column.missing:  # else `_complete` counts it
            self.unreadable[series.name] += int(unreadable.sum())

    def _complete(self, name: str, values: NDArray[Any], missing: Flags, offset: int) -> NDArray[Any]:
        self.unreadable[name] += int(np.count_nonzero(missing))
        column = self._schema.stated[name]
        return np.where(missing, column.middle if isinstance(column, Number) else 0, values)


def _nothing(series: pl.Series, kind: Any) -> pl.Series:
    return pl.Series(series.name, [None], dtype=kind).new_from_index(0, len(series))


def _match(series: pl.Series, texts: dict[str, int], numerals: dict[int, int]) -> pl.Series:
    """Return codes, null where the cell is null or no category."""
    kind = series.dtype
    codes: dict[Any, int]
    if kind in _TEXT:
        values, codes = series.cast(pl.String), dict(texts)
    elif kind.is_numeric() or kind == pl.Boolean:
        whole = series.cast(pl.Float64) if kind.is_decimal() else series
        values, codes = whole.cast(pl.Int64, strict=False), dict(numerals)
        if whole.dtype.is_float():  # 1.5 is not 1
            same = values.cast(whole.dtype) == whole
            values = values.to_frame().select(pl.when(same).then(pl.first())).to_series()
    else:
        values, codes = series, {}
    if not codes:
        return _nothing(series, pl.Int64)
    return values.replace_strict(list(codes), list(codes.values()), default=None, return_dtype=pl.Int64)


def _comparable(series: pl.Series, row: int, keys: Codes) -> bool:
    """Return whether a cell of this type could be one of the categories at all."""
    kind = series.dtype
    if kind == pl.Object:
        value = series[row]
        return isinstance(value, str) or (number_of(value) is not None and bool(keys.numerals))
    return kind in _TEXT or ((kind.is_numeric() or kind == pl.Boolean) and bool(keys.numerals))


def _name(series: pl.Series, row: int) -> str:
    """Return the name of a cell's type, as people say it."""
    kind = series.dtype
    if kind == pl.Object:
        value = series[row]
        return "text" if isinstance(value, str) else f"a value of type {type(value).__name__}"
    return "text" if kind in _TEXT else f"the type {faults.type_name(kind)}"


def is_missing(value: Any) -> bool:
    """Return whether a Python value stands for a missing cell."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):
        return value.is_nan()  # math.isnan fails at a signaling one
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def _objects_missing(series: pl.Series) -> pl.Series:
    return pl.Series(series.name, [is_missing(value) for value in series], dtype=pl.Boolean)


def number_of(value: Any) -> float | None:
    """Return a Python value as a float if it is a number that is not missing."""
    if is_missing(value) or not isinstance(value, (Real, Decimal, np.bool_)):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of more than 1024 bits
        return math.inf if abs(value) == value else -math.inf


def code_of(value: Any, keys: Codes) -> int | None:
    """Return the code of a Python value, or None if it is missing or no category."""
    if isinstance(value, str):
        return keys.texts.get(value)
    number = number_of(value)
    if number is None or not math.isfinite(number):
        return None
    exact = int(value)
    return keys.numerals.get(exact) if exact == value else None
