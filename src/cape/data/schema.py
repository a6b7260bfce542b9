"""The columns of a study with *public* bounds or categories: what everyone may know before any row is read.

Bounds and categories come from people. They are never computed from the data, because then they would
themselves be answers about it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

from cape.core import check
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data.columns import Category, Column, Number, as_date
from cape.data.person import Person
from cape.data.products import pieces, spline_of
from cape.show import Framed, Table

if TYPE_CHECKING:
    from cape.data.expressions import Expression

__all__ = ["HELD_OUT", "SITE", "Category", "Column", "Number", "Schema", "Site", "meant"]

_SHOWN = ("label", "unit", "per")  # what is only for people
_MOST_NAMED = 3  # columns of a condition, in an error
_TAU2, _I2 = "tau²", "I²"  # the variance between sites, and its part in the variance of their estimates
_AFTER = ("", " ", "=", ",")  # what follows a column's name in a label
_MOST_DERIVED = 200
SITE = "site"
"""The column that every study has: the name of the site that holds a row."""
HELD_OUT = "held_out"
"""The column of a study that keeps persons apart: whether a row's person is held out."""


@dataclass(frozen=True)
class Site:
    """A name and a table: what a consortium is made of. For a table's kinds see `cape.blocks.Table`."""

    name: str
    table: Any


class Schema(Framed, Mapping[str, Column]):
    """The columns of a study, and which rows of a table count.

    >>> Schema(age=(18, 90), sex=["female", "male"], visits=Number(0, 40, missing=False))
    Schema(age=18 to 90, sex=female | male, visits=0 to 40, never missing)

    Two numbers or two dates are bounds, a list of text is categories. A mapping does the same for names that
    are no Python identifiers, and holds what a study file says: {"bounds": [0, 40], "missing": False,
    "label": "Visits", "integer": True} or {"categories": [0, 1], "expected": {"share": 0.1}}. With {"sql":
    "bmi >= 30"} a column is derived from others, at the site (`cape.data.expressions`).

    Attributes:
        derived: the expression of each derived column; it reads columns that stand before it.
        where: which rows count; None if all do.
        person: who is protected, if a person may have several rows; None if each row is a person.
        open: whether the number of rows that count is private. A row that does not count contributes to no
            sum, as one whose cells are all missing: every column then says that a cell may be missing.
    """

    def __init__(self, columns: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        if columns is not None and not isinstance(columns, Mapping):
            raise InvalidInput(
                f"a schema has names and columns, as in Schema(age=(18, 90)), not {check.show(columns)}"
            )
        given: dict[Any, Any] = {**(columns or {}), **named}
        if not given:
            raise InvalidInput("a schema must have at least one column, as in Schema(age=(18, 90))")
        _few(name for name, each in given.items() if isinstance(each, Mapping) and "sql" in each)
        self._stated: dict[str, Column] = {}
        self.derived: dict[str, Expression] = {}
        self.where: Expression | None = None
        self.person: Person | None = None
        self._conditions: tuple[str, ...] = ()
        for name, description in given.items():
            self._stated[name], expression = _column(name, description, self._stated)
            if expression is not None:
                self.derived[name] = expression
        self._columns = self._stated

    @classmethod
    def of_study(cls, columns: Mapping[str, Any], sites: Iterable[str]) -> Schema:
        """Return the schema of a study at these sites: derived columns may read which site holds a row."""
        derived = {
            name: each for name, each in columns.items() if isinstance(each, Mapping) and "sql" in each
        }
        base = {name: each for name, each in columns.items() if name not in derived}
        return cls(base).at(sites).deriving({name: columns[name] for name in columns if name in derived})

    @property
    def open(self) -> bool:
        return self.where is not None or (self.person is not None and self.person.open)

    @property
    def rows_of_person(self) -> int:
        """How many rows of one person may count at a site."""
        return 1 if self.person is None else self.person.rows

    def only(self, where: str) -> Schema:
        """Return the schema of the rows among these for which a condition is true."""
        from cape.data.expressions import parse

        expression = parse(where, self._stated)
        if expression.kind != "boolean":
            raise InvalidInput(f"where must be a condition, as in age >= 65, not {check.show(where)}")
        if not expression.possible:
            raise InvalidInput(f"no row can meet {check.plain(where)}: {self._allowed(expression.columns)}")
        if expression.text in self._conditions:
            return self
        conditions = (*self._conditions, expression.text)
        joined = parse(" and ".join(f"({each})" for each in conditions), self._stated)
        return self._copy(_conditions=conditions, where=joined)

    def _allowed(self, names: Sequence[str]) -> str:
        """Return which cells these columns can have, in words."""
        found = []
        for name in names[:_MOST_NAMED]:
            column = self._stated[name]
            ends = _describe(replace(column, missing=True))
            number = isinstance(column, Number)
            found.append(f"the bounds of {name} are {ends}" if number else f"{name} is one of {ends}")
        return "; ".join(found) + ("; ..." if len(names) > _MOST_NAMED else "")

    def of_persons(self, person: Person | None) -> Schema:
        """Return the schema of a study in which the unit is such a person; None if each row is one."""
        stated = {name: column for name, column in self._stated.items() if not _held_out(column)}
        if person is not None:
            person.check(stated)
            if person.keep_apart is not None:
                if HELD_OUT in stated:
                    raise InvalidInput(
                        f"with keep_apart a study has a column {HELD_OUT!r}; rename the one in [schema]"
                    )
                kept = (1 - person.keep_apart, person.keep_apart)
                stated[HELD_OUT] = Category((False, True), missing=False, expected=kept, held_out=True)
        return self._copy(person=person, _stated=stated)

    def at(self, sites: Iterable[str]) -> Schema:
        """Return the schema of a study at these sites, which has the column "site"."""
        stated = self._stated.get(SITE)
        if isinstance(stated, Category) and stated.site:
            return self
        if stated is not None:
            raise InvalidInput(
                f"a study makes the column {SITE!r} itself, the name of the site that holds a row; give your "
                f'column another name, such as "ward", which rename = {{ward = "{SITE}"}} reads from a file'
            )
        column = Category(tuple(sites), missing=False, site=True)
        return self._copy(_stated={**self._stated, SITE: column})

    def deriving(self, columns: Mapping[str, Any]) -> Schema:
        """Return it with derived columns besides, as [derive] of a study file describes them."""
        _few(columns)
        stated, derived = dict(self._stated), dict(self.derived)
        for name, description in columns.items():
            if name in stated:
                raise InvalidInput(f"column {check.show(name)} is in [schema] already; give it another name")
            if isinstance(description, str):
                description = {"sql": description}
            if not isinstance(description, Mapping) or "sql" not in description:
                raise InvalidInput(
                    f'column {check.show(name)} must have sql, as in {{sql = "bmi >= 30"}}, not '
                    f"{check.show(description)}"
                )
            stated[name], expression = _column(name, description, stated)
            if expression is not None:
                derived[name] = expression
        return self._copy(_stated=stated, derived=derived)

    def changed(self, columns: Mapping[str, Column]) -> Schema:
        """Return it with other columns in the place of some."""
        return self._copy(_stated={**self._stated, **columns})

    def _copy(self, **fields: Any) -> Self:
        found = object.__new__(type(self))
        vars(found).update(
            {key: value for key, value in vars(self).items() if key != "key"} | fields  # a cached property
        )
        columns = found._stated
        if found.open:
            columns = {name: replace(column, missing=True) for name, column in columns.items()}
        found._columns = columns
        return found

    @property
    def stated(self) -> Mapping[str, Column]:
        """The columns as people state them, whether or not a row may be absent: what cells are read by."""
        return self._stated

    def sources(self, names: Iterable[str]) -> list[str]:
        """Return the columns of a site's table that these depend on, and `where`, and which rows count.

        What is computed over a person's rows is not in the table; the person's id is not among them.
        """
        return [name for name in self._bottom(names) if not getattr(self[name], "made", False)]

    def by_site(self, names: Iterable[str]) -> bool:
        """Return whether these columns, or `where`, depend on which site holds a row."""
        return any(getattr(self[name], "site", False) for name in self._bottom(names))

    def _bottom(self, names: Iterable[str]) -> list[str]:
        found: dict[str, None] = {}
        person = self.person
        made = {} if person is None else dict(person.aggregates)
        waiting = [*names, *(self.where.columns if self.where else ())]
        waiting += () if person is None else person.reads
        while waiting:
            name = waiting.pop(0)
            if name in self.derived:
                waiting += self.derived[name].columns
            elif name not in made:
                found[name] = None
        return list(found)

    @cached_property
    def key(self) -> str:
        """All that rows are read by, as text: two schemas with the same key read the same."""
        person = self.person and self.person.to_dict()
        return json.dumps([self.to_dict(), self._conditions, self._sites, person], default=str)

    @property
    def _sites(self) -> list[str]:
        site = self._stated.get(SITE)
        return [str(value) for value in site.values] if isinstance(site, Category) and site.site else []

    def __getitem__(self, name: str) -> Column:
        try:
            return self._columns[name]
        except (KeyError, TypeError):
            raise InvalidInput(
                f"no column {check.show(name)} in the schema{meant(name, self._columns)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        """Go through the columns that people have named: those that sites make are not among them."""
        return (name for name, column in self._columns.items() if not getattr(column, "made", False))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def number(self, name: str) -> Number:
        """Return a numeric column, or raise an error that says what the column is."""
        column = self[name]
        if not isinstance(column, Number):
            raise InvalidInput(
                f"column {name!r} must have numeric bounds here; the schema gives it categories"
            )
        if column.date:
            raise InvalidInput(
                f"column {name!r} holds dates; derive a number from it, as in days = {{sql = "
                f"\"days_between('{as_date(column.low)}', {name})\"}} under [derive]"
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
        such labels and units; without them a text is returned as it is. That of a product names its factors.
        """
        factors = [] if text in self._columns else pieces(text, self._columns)
        if len(factors) > 1:
            return " × ".join(map(self.title, factors))
        name, knot = spline_of(text) or ("", "")
        smooth = self._columns.get(name)
        if isinstance(smooth, Number):  # a curve's coefficient is its value at a knot less that at the bound
            return f"{self.label(name)} {knot} against {smooth.low:g} (spline)"
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

        That is what the schema says of its column, else `per`; a category is compared with the first one. A
        product's is for as many units of each number, together. A variance, "tau² age" or "age | tau²", is in
        squares of them, and I² has no unit.
        """
        name, bar, of = label.partition(" | ")
        if bar and label not in self._columns:
            title, per = self.change(name, per)
            return f"{title} | {of}", {_TAU2: per * per, _I2: 1.0}.get(of, per)
        if label.startswith(f"{_TAU2} ") and label not in self._columns:
            title, per = self.change(label.removeprefix(f"{_TAU2} "), per)
            return f"{_TAU2} {title}", per * per
        factors = [] if label in self._columns else pieces(label, self._columns)
        if len(factors) > 1:
            titles, amounts = zip(*map(self.change, factors), strict=True)
            return " × ".join(titles), math.prod(amounts)
        column = self._columns.get(label)
        if not isinstance(column, Number) or (column.per is None and per == 1):
            return self.title(label), 1.0
        per = column.per or per
        unit = f" {column.unit}" if column.unit else ""
        return f"{self.label(label)} (per {per:g}{unit})", per

    def to_dict(self) -> dict[str, Any]:
        return {
            name: (_bounds(c) if isinstance(c, Number) else {"categories": list(c.values)})
            | ({"missing": c.missing} if c.sql is None else {"sql": c.sql})
            | {key: value for key in _SHOWN if (value := getattr(c, key, None)) is not None}
            | ({} if c.expected is None else {"expected": _expected(c)})
            | ({"integer": True} if isinstance(c, Number) and c.integer else {})
            for name, c in self._stated.items()
            if not getattr(c, "made", False)
        }

    def tables(self) -> list[Table]:
        """Return the columns with their bounds or categories."""
        rows = [
            (name, column.label or "", _describe(column), (getattr(column, "unit", "") or ""))
            for name, column in self.items()
        ]
        return [Table(("column", "label", "bounds or categories", "unit"), tuple(rows), words=True)]

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}={_describe(c)}' for name, c in self.items())})"


def _few(derived: Iterable[str]) -> None:
    """Raise an error if derived columns are many: parsing them takes time, and a site does so unpaid."""
    if sum(1 for _ in derived) > _MOST_DERIVED:
        raise InvalidInput(f"a study may have at most {_MOST_DERIVED} derived columns")


def _column(name: str, description: Any, known: Mapping[str, Column]) -> tuple[Column, Expression | None]:
    """Return a column, and the expression that it is derived by."""
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a column's name must be text, not {check.show(name)}")
    try:
        if isinstance(description, Mapping) and "sql" in description:
            return _derived(description, known)
        column = _read(description)
        if column.sql is None:
            return column, None
        from cape.data.expressions import parse

        expression = parse(column.sql, known)
        return replace(column, missing=True), expression  # where a cell that it needs is, or by 0 / 0
    except InvalidInput as error:
        raise InvalidInput(f"column {check.show(name)}: {error}") from None


def _derived(description: Mapping[Any, Any], known: Mapping[str, Column]) -> tuple[Column, Expression]:
    """Return a derived column: its bounds or categories are given, or follow from those of other columns."""
    from cape.data.expressions import parse

    sql, rest = description["sql"], {key: value for key, value in description.items() if key != "sql"}
    if not isinstance(sql, str):
        raise InvalidInput(f'sql must be an expression such as "bmi >= 30", not {check.show(sql)}')
    expression = parse(sql, known)
    if "missing" in rest:
        raise InvalidInput("a derived cell is missing where one that it needs is; leave missing out")
    keys = {"low", "high", "bounds", "categories"} & set(rest)
    if expression.kind in ("number", "date"):
        if "categories" in keys:
            raise InvalidInput("sql gives numbers; write low and high, or leave them out")
        if not keys:
            rest["low"], rest["high"] = _ends(expression)
    else:
        found = ("no", "yes") if expression.kind == "boolean" else expression.values
        values = _values(rest.setdefault("categories", found))
        if keys - {"categories"}:
            raise InvalidInput("sql gives categories; write categories = [...], or leave it out")
        if expression.kind == "boolean" and len(values) != 2:
            raise InvalidInput("sql is a condition: categories are two, of what is false and of what is true")
        listed = {value for value in values if isinstance(value, str)}
        unlisted = [value for value in found if value not in listed]
        if expression.kind == "text" and unlisted:
            raise InvalidInput(f"categories must list {unlisted[0]!r}, which sql gives")
    return replace(_described(rest), sql=expression.text), expression


def _ends(expression: Expression) -> tuple[Any, Any]:
    """Return the bounds of a derived number that follow from those of the columns it is computed from."""
    low, high = expression.bounds
    if not low < high:
        raise InvalidInput("sql gives the same number for every row; it must read a column")
    return (as_date(low), as_date(high)) if expression.kind == "date" else (low, high)


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
    if len(values) == 2 and all(isinstance(value, date) for value in values):
        return Number(values[0], values[1])
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
    keys = set(description) - {"missing", "integer", *shown}
    integer = description.get("integer", False)
    if keys == {"bounds"}:
        ends = _values(description["bounds"])
        if len(ends) != 2:
            raise InvalidInput(f"bounds must be two numbers, as in [18, 90], not {len(ends)}")
        return Number(*ends, missing, **shown, integer=integer)
    if keys == {"low", "high"}:
        return Number(description["low"], description["high"], missing, **shown, integer=integer)
    if "integer" in description:
        raise InvalidInput("integer is for columns with bounds, as in {low = 0, high = 40, integer = true}")
    if keys == {"categories"} and not {"unit", "per"} & set(shown):
        return Category(_values(description["categories"]), missing, **shown)
    raise InvalidInput(
        "keys must be low and high, or bounds (and missing, label, unit, per, expected, integer), or "
        f"categories (and missing, label, expected), not {check.show(sorted(map(str, description)))}"
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


def _bounds(column: Number) -> dict[str, Any]:
    if column.date:
        return {"low": as_date(column.low).isoformat(), "high": as_date(column.high).isoformat()}
    return {"low": column.low, "high": column.high}


def _expected(column: Column) -> dict[str, float]:
    """Return what a study file says of what people expect."""
    if isinstance(column, Number):
        return column.expected.to_dict() if column.expected else {}
    return dict(zip(map(str, column.values), column.expected or (), strict=True))


def _describe(column: Column) -> str:
    if isinstance(column, Number):
        text = " to ".join(
            str(as_date(end)) if column.date else f"{end:g}" for end in (column.low, column.high)
        )
        text += ", whole numbers" if column.integer else ""
    else:
        text = " | ".join(map(str, column.values))
    return text if column.missing else f"{text}, never missing"


def _held_out(column: Column) -> bool:
    return isinstance(column, Category) and column.held_out


def meant(name: Any, known: Iterable[str]) -> str:
    """Return the end of an error's sentence about a column that a schema does not have."""
    if name == HELD_OUT:
        return (
            ': rows are held out by the id of their person; write id = "..." and keep_apart = 0.2 in [person]'
        )
    return hint(name, known)
