"""Numbers and dates between public bounds, and categories: the columns of a schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import Any

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.categories import Codes, Value
from cape.data.expected import Expected, shares, spread

__all__ = ["Category", "Column", "Number", "as_date", "days"]

_LONGEST_LABEL = 80
_SMALLEST_HALF = 2.0**-1000  # so that dividing by a 2^20th of it is as exact as dividing by it
_LARGEST_WHOLE = 2.0**53  # up to which float64 has every whole number
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Number:
    """A numeric column between public bounds; what lies outside is clamped to them.

    `missing=False` says that no cell is empty: means then divide by the public number of rows, and a
    table with an empty cell is refused, or read with the middle of the bounds there (see `Table`).

    `label`, `unit` and `per` say how results are shown: a coefficient or an odds ratio is for `per` units
    more. `expected` is the mean and SD that people expect, as in {"mean": 61, "sd": 12}, from the literature:
    plans use it. None of these plays a part when columns are compared, as a site compares a study's with its
    own.

    `integer` says that cells are whole numbers, such as counts or ages in years: tables then cut between
    them, and synthetic rows have whole numbers. A cell that is none is read as it is, and counts in tables as
    the whole number below it; `cape check` names such cells. It plays no part in comparisons either.

    Bounds that are dates (`datetime.date`, or text such as "2015-01-01") make a column of dates: its cells
    are days since 1970-01-01, for expressions such as days_between(admitted, discharged). `sql` is the
    expression that a derived column is computed by: see `Schema`.
    """

    low: float
    high: float
    missing: bool = True
    label: str | None = field(default=None, compare=False, kw_only=True)
    unit: str | None = field(default=None, compare=False, kw_only=True)
    per: float | None = field(default=None, compare=False, kw_only=True)
    expected: Expected | None = field(default=None, compare=False, kw_only=True)
    date: bool = field(default=False, kw_only=True)
    sql: str | None = field(default=None, kw_only=True)
    integer: bool = field(default=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_text("label", self.label)
        _check_text("unit", self.unit)
        if self.per is not None:
            object.__setattr__(self, "per", check.real("per", self.per, above=0.0))
        first, last = _day(self.low), _day(self.high)
        if (first is None) != (last is None):
            raise InvalidInput('bounds must be two numbers, or two dates, as in "2015-01-01"')
        if first is not None and last is not None:
            object.__setattr__(self, "date", True)
            low, high = first, last
        else:
            low, high = check.real("low", self.low), check.real("high", self.high)
        if not low < high:
            shown = (as_date(low), as_date(high)) if self.date else (f"{low:g}", f"{high:g}")
            raise InvalidInput(f"bounds must rise, as in (18, 90), not ({shown[0]}, {shown[1]})")
        if high / 2 - low / 2 < _SMALLEST_HALF:
            raise InvalidInput(f"bounds must be further apart than ({low!r}, {high!r}); use a larger unit")
        self._check_integer(low, high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if self.expected is not None:
            object.__setattr__(self, "expected", spread(self.expected, low, high))

    def _check_integer(self, low: float, high: float) -> None:
        if not isinstance(self.integer, bool):
            raise InvalidInput(f"integer must be true or false, not {check.show(self.integer)}")
        if not self.integer:
            return
        if self.date:
            raise InvalidInput("integer is for numbers: a column of dates holds whole days anyway")
        for end in (low, high):
            if not end.is_integer() or abs(end) > _LARGEST_WHOLE:
                raise InvalidInput(
                    f"bounds of a column of whole numbers must be whole and within ±2^53, not {end!r}; leave "
                    "integer = true out, or round them outwards"
                )

    @property
    def middle(self) -> float:
        """The centre of the bounds: what a scaled value of 0 stands for."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half the range: what a scaled value of 1 stands for."""
        return self.high / 2 - self.low / 2


@dataclass(frozen=True)
class Category:
    """A column with a public list of values; any other in a table is an error, or missing: see `Table`.

    `expected` is the share of rows that people expect to hold each value, for plans: {"no": 0.9, "yes": 0.1},
    or {"share": 0.1}, that of the second of two values. As for `Number`, it plays no part in comparisons.
    `site` says that every cell is the name of the site that holds the row, and `held_out` that it is whether
    the row's person is held out; `sql` is as for `Number`.
    """

    values: tuple[Value, ...]
    missing: bool = True
    label: str | None = field(default=None, compare=False, kw_only=True)
    expected: tuple[float, ...] | None = field(default=None, compare=False, kw_only=True)
    sql: str | None = field(default=None, kw_only=True)
    site: bool = field(default=False, kw_only=True)
    held_out: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_text("label", self.label)
        values = tuple(self.values)
        if not all(isinstance(value, (str, int, bool)) for value in values):
            raise InvalidInput(
                f"categories must be text, integers or booleans, not {check.show(list(values))}"
            )
        distinct = min(len(set(values)), len(set(map(str, values))))  # True is 1, and "1" reads as 1
        if not values or distinct != len(values):
            raise InvalidInput(
                f"categories must be different and at least one, not {check.show(list(values))}"
            )
        object.__setattr__(self, "values", values)
        if self.expected is not None:
            object.__setattr__(self, "expected", shares(self.expected, values))

    @property
    def made(self) -> bool:
        """Whether a site makes its cells: they are in no file."""
        return self.site or self.held_out

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of rows that a plan takes each value to have: as expected, or all the same."""
        return self.expected or (1 / len(self.values),) * len(self.values)

    @cached_property
    def codes(self) -> Codes:
        """The place of each value in the list, by what a cell may hold."""
        return Codes(self.values)


Column = Number | Category


def days(day: date) -> float:
    """Return a date as days since 1970-01-01: what the cells of a date column are read as."""
    return float((day - _EPOCH).days)


def _day(bound: Any) -> float | None:
    """Return a bound as days if it is a date, or a text that reads as one."""
    if isinstance(bound, date) and not isinstance(bound, datetime):
        return days(bound)
    if isinstance(bound, str):
        try:
            return days(date.fromisoformat(bound))
        except ValueError:
            raise InvalidInput(
                f'bounds must be numbers or dates such as "2015-01-31", not {check.show(bound)}'
            ) from None
    return None


def as_date(number: float) -> date:
    """Return the date that is so many days after 1970-01-01."""
    return date.fromordinal(_EPOCH.toordinal() + round(number))


def _check_text(name: str, text: Any) -> None:
    if text is None:
        return
    if not isinstance(text, str) or not text or not text.isprintable() or len(text) > _LONGEST_LABEL:
        raise InvalidInput(
            f"{name} must be a line of text with at most {_LONGEST_LABEL} characters, not {check.show(text)}"
        )
