"""The columns of a study with *public* bounds or categories: what everyone may know before any row is read.

Bounds and categories come from people. They are never computed from the data, because then they would
themselves be answers about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

from cape import check
from cape.data.categories import Codes, Value
from cape.data.expected import Expected, shares, spread
from cape.errors import InvalidInput

__all__ = ["Category", "Column", "Number", "Schema", "Site", "hint"]

_LONGEST_NAME, _SHOWN_NAME, _SHOWN_NAMES = 100, 30, 20
_LONGEST_LABEL = 80
_SHOWN = ("label", "unit", "per")  # what is only for people
_AFTER = ("", " ", "=", ",")  # what follows a column's name in a label
_SMALLEST_HALF = 2.0**-1000  # so that dividing by a 2^20th of it is as exact as dividing by it


@dataclass(frozen=True)
class Number:
    """A numeric column between public bounds; what lies outside is clamped to them.

    `missing=False` says that no cell is empty: means then divide by the public number of rows, and a
    table with an empty cell is refused, or read with the middle of the bounds there (see `Table`).

    `label`, `unit` and `per` say how results are shown: a coefficient or an odds ratio is for `per` units
    more. `expected` is the mean and SD that people expect, as in {"mean": 61, "sd": 12}, from the literature:
    plans use it. None of these plays a part when columns are compared, as a site compares a study's with its
    own.
    """

    low: float
    high: float
    missing: bool = True
    label: str | None = field(default=None, compare=False, kw_only=True)
    unit: str | None = field(default=None, compare=False, kw_only=True)
    per: float | None = field(default=None, compare=False, kw_only=True)
    expected: Expected | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_text("label", self.label)
        _check_text("unit", self.unit)
        if self.per is not None:
            object.__setattr__(self, "per", check.real("per", self.per, above=0.0))
        low, high = check.real("low", self.low), check.real("high", self.high)
        if not low < high:
            raise InvalidInput(f"bounds must rise, as in (18, 90), not ({low:g}, {high:g})")
        if high / 2 - low / 2 < _SMALLEST_HALF:
            raise InvalidInput(f"bounds must be further apart than ({low!r}, {high!r}); use a larger unit")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if self.expected is not None:
            object.__setattr__(self, "expected", spread(self.expected, low, high))

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
    """

    values: tuple[Value, ...]
    missing: bool = True
    label: str | None = field(default=None, compare=False, kw_only=True)
    expected: tuple[float, ...] | None = field(default=None, compare=False, kw_only=True)

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
    def shares(self) -> tuple[float, ...]:
        """The share of rows that a plan takes each value to have: as expected, or all the same."""
        return self.expected or (1 / len(self.values),) * len(self.values)

    @cached_property
    def codes(self) -> Codes:
        """The place of each value in the list, by what a cell may hold."""
        return Codes(self.values)


Column = Number | Category


@dataclass(frozen=True)
class Site:
    """A name and a table: what a consortium is made of. For a table's kinds see `cape.blocks.Table`."""

    name: str
    table: Any


class Schema(Mapping[str, Column]):
    """The columns of a study.

    >>> Schema(age=(18, 90), sex=["female", "male"], visits=Number(0, 40, missing=False))
    Schema(age=18 to 90, sex=female | male, visits=0 to 40, never missing)

    Two numbers are bounds, a list of text is categories. A mapping does the same for names that are no
    Python identifiers, and holds what a study file says: {"bounds": [0, 40], "missing": False, "label":
    "Visits"} or {"categories": [0, 1], "expected": {"share": 0.1}}.
    """

    def __init__(self, columns: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        if columns is not None and not isinstance(columns, Mapping):
            raise InvalidInput(
                f"a schema has names and columns, as in Schema(age=(18, 90)), not {check.show(columns)}"
            )
        given: dict[Any, Any] = {**(columns or {}), **named}
        if not given:
            raise InvalidInput("a schema must have at least one column, as in Schema(age=(18, 90))")
        self._columns = {name: _column(name, description) for name, description in given.items()}

    def __getitem__(self, name: str) -> Column:
        try:
            return self._columns[name]
        except (KeyError, TypeError):
            raise InvalidInput(
                f"no column {check.show(name)} in the schema{hint(name, self._columns)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def number(self, name: str) -> Number:
        """Return a numeric column, or raise an error that says what the column is."""
        column = self[name]
        if not isinstance(column, Number):
            raise InvalidInput(
                f"column {name!r} must have numeric bounds here; the schema gives it categories"
            )
        return column

    def category(self, name: str) -> Category:
        """Return a column with categories, or raise an error that says what the column is."""
        column = self[name]
        if not isinstance(column, Category):
            raise InvalidInput(f"column {name!r} must have categories here; the schema gives it bounds")
        return column

    def label(self, name: str) -> str:
        """Return what people call a column."""
        return self[name].label or name

    def title(self, text: str) -> str:
        """Return a result's label, which starts with a column's name, as tables and figures show it.

        "age" is "Age (years)", "sex=male" is "Sex: male", and "age mean" is "Age mean" where columns have
        such labels and units; without them a text is returned as it is.
        """
        known = [name for name in self._columns if text.startswith(name) and text[len(name) :][:1] in _AFTER]
        name = max(known, key=len, default="")
        column, rest = self._columns.get(name), text[len(name) :]
        if column is None:
            return text
        if isinstance(column, Number) and column.unit and not rest:
            rest = f" ({column.unit})"
        if column.label and rest.startswith("="):
            rest = f": {rest[1:]}"
        return self.label(name) + rest

    def change(self, label: str, per: float = 1.0) -> tuple[str, float]:
        """Return the title of a coefficient, and for how many units more it is shown.

        That is what the schema says of its column, else `per`; a category is compared with the first one.
        """
        column = self._columns.get(label)
        if not isinstance(column, Number) or (column.per is None and per == 1):
            return self.title(label), 1.0
        per = column.per or per
        unit = f" {column.unit}" if column.unit else ""
        return f"{self.label(label)} (per {per:g}{unit})", per

    def to_dict(self) -> dict[str, Any]:
        return {
            name: (
                {"low": c.low, "high": c.high} if isinstance(c, Number) else {"categories": list(c.values)}
            )
            | {"missing": c.missing}
            | {key: value for key in _SHOWN if (value := getattr(c, key, None)) is not None}
            | ({} if c.expected is None else {"expected": _expected(c)})
            for name, c in self._columns.items()
        }

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}={_describe(c)}' for name, c in self._columns.items())})"


def _column(name: str, description: Any) -> Column:
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a column's name must be text, not {check.show(name)}")
    try:
        return _read(description)
    except InvalidInput as error:
        raise InvalidInput(f"column {check.show(name)}: {error}") from None


def _read(description: Any) -> Column:
    if isinstance(description, (Number, Category)):
        return description
    if isinstance(description, Mapping):
        return _described(description)
    values = _values(description)
    if isinstance(description, tuple) and len(values) != 2:
        raise InvalidInput(
            f"bounds must be two numbers, as in (18, 90), not {len(values)}; categories are a list"
        )
    if len(values) == 2 and not any(isinstance(value, (str, bool)) for value in values):
        return Number(values[0], values[1])
    numeric = sum(isinstance(value, Real) and not isinstance(value, bool) for value in values)
    if len(values) == numeric == 1 or 0 < numeric < len(values):
        raise InvalidInput(
            "bounds are two numbers, as in [18, 90], and categories are all text or all numbers, not "
            f"{check.show(list(values))}"
        )
    return Category(values)


def _described(description: Mapping[Any, Any]) -> Column:
    """Return the column that the keys of a study file describe."""
    missing = description.get("missing", True)
    if not isinstance(missing, bool):
        raise InvalidInput(f"missing must be true or false, not {check.show(missing)}")
    shown = {key: description[key] for key in (*_SHOWN, "expected") if key in description}
    keys = set(description) - {"missing", *shown}
    if keys == {"bounds"}:
        ends = _values(description["bounds"])
        if len(ends) != 2:
            raise InvalidInput(f"bounds must be two numbers, as in [18, 90], not {len(ends)}")
        return Number(*ends, missing, **shown)
    if keys == {"low", "high"}:
        return Number(description["low"], description["high"], missing, **shown)
    if keys == {"categories"} and not {"unit", "per"} & set(shown):
        return Category(_values(description["categories"]), missing, **shown)
    raise InvalidInput(
        "keys must be low and high, or bounds (and missing, label, unit, per, expected), or categories (and "
        f"missing, label, expected), not {check.show(sorted(map(str, description)))}"
    )


def _check_text(name: str, text: Any) -> None:
    if text is None:
        return
    if not isinstance(text, str) or not text or not text.isprintable() or len(text) > _LONGEST_LABEL:
        raise InvalidInput(
            f"{name} must be a line of text with at most {_LONGEST_LABEL} characters, not {check.show(text)}"
        )


def _values(description: Any) -> tuple[Any, ...]:
    if not isinstance(description, (str, bytes)):
        try:
            return tuple(description)
        except TypeError:  # an array of no dimensions says that it can be gone through, and cannot
            pass
    raise InvalidInput(
        f'must be bounds such as [18, 90] or categories such as ["no", "yes"], not {check.show(description)}'
    )


def _expected(column: Column) -> dict[str, float]:
    """Return what a study file says of what people expect."""
    if isinstance(column, Number):
        return column.expected.to_dict() if column.expected else {}
    return dict(zip(map(str, column.values), column.expected or (), strict=True))


def _describe(column: Column) -> str:
    if isinstance(column, Number):
        text = f"{column.low:g} to {column.high:g}"
    else:
        text = " | ".join(map(str, column.values))
    return text if column.missing else f"{text}, never missing"


def hint(name: Any, known: Iterable[str]) -> str:
    """Return the end of an error's sentence: the name that was probably meant, or all there are."""
    names, wanted = list(known), str(name)
    close = difflib.get_close_matches(wanted, names, n=1) if len(wanted) <= _LONGEST_NAME else []
    if close and len(close[0]) <= _LONGEST_NAME:
        return f"; did you mean {close[0]!r}?"
    shown = [check.plain(each, _SHOWN_NAME) for each in names[:_SHOWN_NAMES]]
    return f"; choose from {', '.join(shown)}" + (" and others" if len(names) > _SHOWN_NAMES else "")
