"""Cells to days since 1970-01-01, for columns whose bounds are dates.

A date is what a table holds as one, or a time, of which the day counts, or a text such as 2020-01-31,
2020-01-31 12:30 or 31.01.2020. What can be read in two ways, as 01/02/2020 or a bare number, is no date.
Tested in tests/unit/data/test_dates.py.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import polars as pl

from cape.data.columns import days

__all__ = ["days_of", "days_of_objects", "days_of_texts"]

_TEXT = (pl.String, pl.Categorical, pl.Enum)
_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST, _LAST = -719_000, 2_900_000  # days of the years 2 to 9909, in which time zones are looked up
_FORMS = {  # a text that matches starts with a date in this form
    r"^\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}.*)?$": "%Y-%m-%d",
    r"^\d{2}\.\d{2}\.\d{4}(?: \d{2}:\d{2}.*)?$": "%d.%m.%Y",
}


def days_of(series: pl.Series) -> pl.Series:
    """Return a column as days, null where the cell is null or no date."""
    kind = series.dtype
    if kind == pl.Object:
        return days_of_objects(series)
    if kind in _TEXT:
        return days_of_texts(series.cast(pl.String))
    if kind == pl.Date:
        return series.to_physical().cast(pl.Float64)
    if isinstance(kind, pl.Datetime):
        return _days_of_moments(series, kind)
    return _none(series)


def _days_of_moments(series: pl.Series, kind: pl.Datetime) -> pl.Series:
    """Return moments as days where their time zone is; polars panics at one that no calendar has."""
    whole = series.to_physical()
    day = _DAY[kind.time_unit]
    found = (whole // day).cast(pl.Float64)
    if kind.time_zone is None:
        return found
    known = whole.is_between(max(_FIRST * day, 2 * day - 2**63), min(_LAST * day, 2**63 - 2 * day))
    there = series.to_frame().select(pl.when(known).then(pl.first())).to_series().dt.date()
    return there.to_physical().cast(pl.Float64).zip_with(known.fill_null(False), found)


def days_of_texts(series: pl.Series) -> pl.Series:
    """Return texts as days, null where one is no date."""
    plain, found = series.str.strip_chars(), _none(series)
    for pattern, form in _FORMS.items():
        fits = plain.str.contains(pattern).fill_null(False)
        read = plain.filter(fits).str.slice(0, 10).str.to_date(form, strict=False)
        found = found.scatter(fits.arg_true(), read.cast(pl.Int32).cast(pl.Float64))
    return found


def days_of_objects(series: pl.Series) -> pl.Series:
    """Return Python values as days, null where one is no date."""
    values: list[float | None] = []
    for value in series:
        values.append(_days(value))
    return pl.Series(series.name, values, dtype=pl.Float64)


def _days(value: Any) -> float | None:
    if isinstance(value, np.datetime64):
        found = value.astype("datetime64[D]")
        return None if np.isnat(found) else float(found.astype(np.int64))
    if isinstance(value, str):
        text = value.encode(errors="replace").decode()  # polars refuses text with a lone surrogate
        found = days_of_texts(pl.Series([text]))[0]
        return None if found is None else float(found)
    if not isinstance(value, date) or value != value:  # NaT is a date that differs from itself
        return None
    return days(date(value.year, value.month, value.day))


def _none(series: pl.Series) -> pl.Series:
    return pl.Series(series.name, [None], dtype=pl.Float64).new_from_index(0, len(series))
