"""Dates as days since 1970-01-01, for years 1 to 9999."""

from __future__ import annotations

import math
import re
from datetime import date

__all__ = ["FIRST", "LAST", "iso", "of_iso", "of_year", "year", "years_between"]

_EPOCH = date(1970, 1, 1).toordinal()
FIRST, LAST = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_ISO = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def of_iso(text: str) -> float | None:
    """Return the day of a text such as 2020-01-31, or None if it is no date."""
    if not _ISO.fullmatch(text):
        return None
    try:
        return float(date.fromisoformat(text).toordinal() - _EPOCH)
    except ValueError:
        return None


def iso(day: float) -> str:
    """Return a day as a text such as 2020-01-31."""
    return _date(day).isoformat()


def of_year(number: int) -> float:
    """Return the first day of a year."""
    return float(date(number, 1, 1).toordinal() - _EPOCH)


def year(day: float) -> float:
    """Return the year of a day."""
    return float(_date(day).year)


def years_between(first: float, second: float) -> float:
    """Return how many whole years lie between two days; negative where the second is earlier."""
    a, b = _date(first), _date(second)
    if b < a:
        return -years_between(second, first)
    return float(b.year - a.year - ((b.month, b.day) < (a.month, a.day)))


def _date(day: float) -> date:
    return date.fromordinal(math.floor(min(max(day, FIRST), LAST)) + _EPOCH)
