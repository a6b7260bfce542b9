"""How the cells of a file are written: words for missing cells, for true and false, marks in numbers, codes.

Frames and databases have a null of their own, and none of this. The same cell is read in the same way by
every reader, in every row: what it is depends on its text and the column's description alone. So does the
time: what most cells are is looked up in all of them, and the rest by itself, also where there is none.

The first that applies: what `recode` says for the cell's column; a category of the schema, so that one called
"NA" is read as such; what `recode` says for all columns, or the file's label for a code, if that is a
category; a word for true or false, in columns with the categories 0 and 1, or false and true; a word for a
missing cell. Space around a cell is not part of it, and case matters in categories and `recode` only.
Tested in tests/unit/data/test_notation.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.dates import days_of_texts
from cape.data.files import NULLS, Words
from cape.data.schema import Category, Schema

__all__ = ["BROKEN", "Keys", "Notation"]

BROKEN = "\0"
"""What stands for each cell of a line that cannot be read."""
_MISSING = -1
_BLANK = " \u00a0\u2007\u2009\u202f"  # any of them between thousands, where a blank is stated


@dataclass(frozen=True)
class Keys:
    """The codes of a column, by what its cells hold; -1 stands for a missing cell."""

    texts: dict[str, int]
    words: dict[str, int]  # in lower case
    numerals: dict[int, int]

    def add(self, text: str, code: int) -> None:
        """Let a text stand for a code, and so the number that it writes, unless they have one."""
        self.texts.setdefault(text, code)
        if (number := _whole(text)) is not None:
            self.numerals.setdefault(number, code)
            for spelling in (str(number), f"{number}.0"):
                self.texts.setdefault(spelling, code)

    def drop(self, text: str) -> None:
        """Forget what a text stands for, and the number that it writes."""
        self.texts.pop(text, None)
        if (number := _whole(text)) is not None:
            self.numerals.pop(number, None)
            for spelling in (str(number), f"{number}.0"):
                self.texts.pop(spelling, None)


@dataclass(frozen=True)
class Notation:
    """The words of a file (`Words`), the marks in its numbers, and by column the labels of its codes."""

    words: Words = field(default_factory=Words)
    decimal: str = "."
    thousands: str | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def labelled(self, labels: Mapping[str, Mapping[str, str]]) -> Notation:
        """Return the notation of a file that has labels for the codes in its columns."""
        return replace(self, labels=labels)

    def unknown(self, names: Iterable[str]) -> str | None:
        """Return a column that `recode` names and the file does not have."""
        return next((name for name in self.words.columns if name not in set(names)), None)

    def check(self, schema: Schema) -> None:
        """Raise `InvalidInput` if `recode` makes something of a column's cells that its cells cannot be."""
        for name, column in schema.items():
            if isinstance(column, Category):
                self.keys(name, column)
            elif column.date:
                self._dates(name)
            else:
                self._changes(name)

    def keys(self, name: str, column: Category) -> Keys:
        """Return the codes of a column's cells."""
        listed = column.codes
        found = Keys({text: code for text, code in listed.texts.items() if text}, {}, dict(listed.numerals))
        stated: dict[str, int] = {}
        for old, new in self.words.columns.get(name, {}).items():
            code = _MISSING if self._is_null(new) and new not in listed.texts else listed.texts.get(new)
            if code is None:
                raise InvalidInput(
                    f"recode of column {check.show(name)} gives {check.show(new)}, which is not one of its "
                    f"categories; choose from {check.show([str(value) for value in column.values], 200)}"
                )
            stated[old] = code
        for old, code in stated.items():
            found.drop(old)
            found.add(old, code)
        for old, new in {**self.words.everywhere, **self.labels.get(name, {})}.items():
            if new in listed.texts:
                found.add(old, listed.texts[new])
        if listed.numerals and set(listed.numerals) <= {0, 1}:
            for value, said in enumerate((self.words.false, self.words.true)):
                if value in listed.numerals:
                    found.words.update({_lower(word): listed.numerals[value] for word in said})
        for word in self._nulls:
            found.words.setdefault(word, _MISSING)
            if _whole(word) is not None:
                found.add(word, _MISSING)
        return found

    def codes(self, series: pl.Series, keys: Keys) -> pl.Series:
        """Return a column of text as codes: null where the cell is null, or none of them."""
        found = _replaced(series, keys.texts)
        odd = found.is_null() & series.is_not_null()
        rest = series.filter(odd).str.strip_chars()
        trimmed = _replaced(rest, keys.texts)
        words = _replaced(rest.str.to_lowercase(), keys.words)
        return found.scatter(odd.arg_true(), trimmed.zip_with(trimmed.is_not_null(), words))

    def numbers(self, series: pl.Series) -> pl.Series:
        """Return a column of text as numbers: NaN for a missing cell, null for a null or no number."""
        plain = self.decimal == "." and self.thousands != "."  # what is a number everywhere is that
        found = series.cast(pl.Float64, strict=False) if plain else _constant(series, None, pl.Float64)
        odd = found.is_null() & series.is_not_null()
        rest = series.filter(odd).str.strip_chars()
        changes = self._changes(series.name)
        texts = {old: new for old, new in changes.items() if self._number(old) is None}
        given = _replaced(rest, texts, pl.Float64)
        null = rest.str.to_lowercase().is_in(self._nulls)
        parsed = self._parsed(rest).zip_with(~null, _constant(rest, math.nan, pl.Float64))
        found = found.scatter(odd.arg_true(), given.zip_with(given.is_not_null(), parsed))
        return self.changed(found, series.name)

    def changed(self, numbers: pl.Series, name: str) -> pl.Series:
        """Return numbers with those that `recode` and `null_values` name replaced; NaN is missing."""
        values = dict(self._null_numbers)
        for old, new in self._changes(name).items():
            if (number := self._number(old)) is not None:
                values[number] = new
        if not values:
            return numbers
        return numbers.replace(
            pl.Series(list(values), dtype=pl.Float64), pl.Series(list(values.values()), dtype=pl.Float64)
        )

    def days(self, series: pl.Series) -> pl.Series:
        """Return a column of text as days since 1970-01-01: NaN for a missing cell, null for no date."""
        plain = series.str.strip_chars()
        changes = _replaced(plain, self._dates(series.name), pl.Float64)
        found = days_of_texts(plain)
        null = plain.str.to_lowercase().is_in(self._nulls)
        found = found.zip_with(~null | plain.is_null(), _constant(plain, math.nan, pl.Float64))
        return changes.zip_with(changes.is_not_null(), found)

    def ids(self, series: pl.Series) -> pl.Series:
        """Return the ids of persons without blanks around them: null for a missing one, and in a broken line.

        The id "7 " is the person "7", or that person would have more rows than may count.
        """
        if series.dtype != pl.String:
            return series
        plain = series.str.strip_chars()
        none = plain.str.to_lowercase().is_in([*self._nulls, BROKEN])
        return plain.zip_with(~none | plain.is_null(), _constant(plain, None, pl.String))

    def _dates(self, name: str) -> dict[str, float]:
        """Return what `recode` makes of cells in a column of dates."""
        found = {}
        for old, new in self.words.columns.get(name, {}).items():
            day = math.nan if self._is_null(new) else days_of_texts(pl.Series([new]))[0]
            if day is None:
                raise InvalidInput(
                    f"recode of column {check.show(name)} gives {check.show(new)}, and the schema says that "
                    "its cells are dates, such as 2020-01-31"
                )
            found[old] = day
        return found

    def _changes(self, name: str) -> dict[str, float]:
        """Return what `recode` makes of cells in a column of numbers."""
        found = {}
        for old, new in self.words.columns.get(name, {}).items():
            number = math.nan if self._is_null(new) else _float(new)
            if number is None:
                raise InvalidInput(
                    f"recode of column {check.show(name)} gives {check.show(new)}, and the schema says that "
                    "its cells are numbers"
                )
            found[old] = number
        return found

    @cached_property
    def _nulls(self) -> list[str]:
        return list(dict.fromkeys(map(_lower, ("", *NULLS, *self.words.null_values))))

    @cached_property
    def _null_numbers(self) -> dict[float, float]:
        return {number: math.nan for word in self._nulls if (number := self._number(word)) is not None}

    def _is_null(self, text: str) -> bool:
        return _lower(text.strip()) in self._nulls

    def _number(self, text: str) -> float | None:
        found = self._parsed(pl.Series([text], dtype=pl.String))[0]
        return None if found is None or math.isnan(found) else float(found)

    def _parsed(self, texts: pl.Series) -> pl.Series:
        """Return texts as numbers, null where they are none.

        A mark of thousands stands before groups of three digits only: "1.5" is not 15 where it is a dot.
        """
        if self.decimal == "." and self.thousands is None:
            return texts.cast(pl.Float64, strict=False)
        plain = texts
        if self.decimal != ".":
            plain = plain.zip_with(~plain.str.contains(".", literal=True), _constant(texts, None, pl.String))
            plain = plain.str.replace(self.decimal, ".", literal=True)
        if self.thousands is not None:
            mark = re.escape(_BLANK) if self.thousands == " " else re.escape(self.thousands)
            grouped = texts.str.contains(
                rf"^[+-]?\d{{1,3}}([{mark}]\d{{3}})+({re.escape(self.decimal)}\d*)?$"
            )
            whole = texts.str.replace_all(f"[{mark}]", "").str.replace(self.decimal, ".", literal=True)
            plain = whole.zip_with(grouped, plain)
        return plain.cast(pl.Float64, strict=False)


def _lower(word: str) -> str:
    return str(pl.Series([word]).str.to_lowercase()[0])


def _constant(like: pl.Series, value: float | None, kind: Any) -> pl.Series:
    return pl.Series(like.name, [value], dtype=kind).new_from_index(0, len(like))


def _replaced(texts: pl.Series, codes: Mapping[str, Any], kind: Any = pl.Int64) -> pl.Series:
    if not codes:
        return _constant(texts, None, kind)
    return texts.replace_strict(list(codes), list(codes.values()), default=None, return_dtype=kind)


def _float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _whole(text: str) -> int | None:
    number = _float(text)
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**63 else None
