"""The unit that is protected: a person, who may have several rows, at several sites.

Claim. Whatever rows a person has, at most `rows` of them count at a site; so replacing one person by another,
with as many rows as either may have, changes the sums of at most `sites` sites, each by at most `rows` times
what one row against another, or against none, changes them.
Reason. Each person fills `rows` slots at a site; a slot that is not used contributes 0. Which rows fill them
is decided by that person's rows alone (`cape.blocks.persons`), so nobody else's slots change. Numbers of rows
then depend on persons: with `rows` or `sites` above 1 they are private (`open`), and so is the number of
persons at a site if a person may be at several. With one slot and one site, the number of persons is what
stays the same when one is replaced, and is public.
Tested in tests/unit/data/test_person.py, tests/unit/blocks/test_persons.py and
tests/unit/engine/test_persons.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from typing import Any, Literal, get_args

from cape.core import check
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data.columns import Number

__all__ = ["AGGREGATES", "Aggregate", "OneRow", "Person", "Take"]

Take = Literal["random", "latest", "earliest"]
AGGREGATES = ("count", "min", "max", "sum", "avg")
"""What can be computed over the rows of one person."""

_MOST_ROWS = 1000  # beyond, noise leaves nothing; sums of so many clipped vectors are exact (`blocks.clip`)
_MOST_SITES = 10_000
_MOST_AGGREGATES = 200
_LONGEST = 200  # characters of a name
_SPLIT = "cape held out 1\0"
_KEYS = ("id", "rows", "sites", "take", "by", "row", "keep_apart", "salt")
_LEAST_APART = 1e-6


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over the rows of a person: `column` is None for count(*)."""

    function: str
    column: str | None

    @classmethod
    def parse(cls, text: Any) -> Aggregate:
        """Return the aggregate that a text such as "max(hba1c)" names, or raise `InvalidInput`."""
        import sqlglot
        from sqlglot import exp

        kinds: dict[type, str] = {
            exp.Count: "count",
            exp.Min: "min",
            exp.Max: "max",
            exp.Sum: "sum",
            exp.Avg: "avg",
        }
        try:
            found = sqlglot.parse_one(text) if isinstance(text, str) and len(text) <= _LONGEST else None
        except Exception:  # whatever a parser makes of any text
            found = None
        function = kinds.get(type(found)) if found is not None else None
        inner = None if found is None else found.args.get("this")
        beside = (
            () if found is None else [key for key, value in found.args.items() if value and key != "this"]
        )
        if function is not None and set(beside) <= {"big_int"}:
            if isinstance(inner, exp.Star) and function == "count" and not any(inner.args.values()):
                return cls("count", None)
            if isinstance(inner, exp.Column) and isinstance(inner.this, exp.Identifier) and not inner.table:
                return cls(function, inner.name)
        raise InvalidInput(
            f"must be one of {', '.join(AGGREGATES)} over one column, such as max(hba1c), or count(*), not "
            f"{check.show(text)}"
        )

    def __str__(self) -> str:
        if self.column is None:
            return "count(*)"
        plain = self.column.isidentifier() and self.column.isascii()
        column = self.column if plain else '"' + self.column.replace('"', '""') + '"'
        return f"{self.function}({column})"


@dataclass(frozen=True)
class OneRow:
    """How one row is made of all rows of a person: which of them is taken, and columns computed over all.

    Attributes:
        take, by: as for `Person`.
        aggregates: name -> aggregate. These columns are in the schema, with public bounds, and not in the
            file.
    """

    take: Take = "random"
    by: str | None = None
    aggregates: tuple[tuple[str, Aggregate], ...] = ()

    def __post_init__(self) -> None:
        _check_take(self.take, self.by)
        if len(self.aggregates) > _MOST_AGGREGATES:
            raise InvalidInput(f"[person.row] may have at most {_MOST_AGGREGATES} aggregates")
        names = [name for name, _ in self.aggregates]
        for name, aggregate in self.aggregates:
            if aggregate.column in names:
                raise InvalidInput(
                    f"{name}: {aggregate} reads {aggregate.column!r}, which is an aggregate too"
                )

    @classmethod
    def of(cls, given: Any) -> OneRow:
        """Return what the keys of [person.row] describe."""
        if isinstance(given, OneRow):
            return given
        if not isinstance(given, Mapping):
            raise InvalidInput(
                f'row must be a table such as {{take = "latest", by = "admitted"}}, not {given!r}'
            )
        aggregates = []
        for name, text in given.items():
            if name in ("take", "by"):
                continue
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"a column's name must be text, not {check.show(name)}")
            try:
                aggregates.append((name, Aggregate.parse(text)))
            except InvalidInput as error:
                raise InvalidInput(f"{check.plain(name)} {error}") from None
        return cls(given.get("take", "random"), given.get("by"), tuple(aggregates))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that which row is made depends on."""
        columns = [self.by, *(aggregate.column for _, aggregate in self.aggregates)]
        return tuple(dict.fromkeys(column for column in columns if column is not None))

    def to_dict(self) -> dict[str, Any]:
        """Return what a study file would say."""
        by = {} if self.by is None else {"by": self.by}
        return {"take": self.take, **by, **{name: str(aggregate) for name, aggregate in self.aggregates}}


@dataclass(frozen=True)
class Person:
    """Who is protected, if a person may have several rows.

    >>> Person("patient_id", rows=4, take="latest", by="admitted", sites=2)

    Attributes:
        id: the column of every site's table that says whose a row is. It is no column of the study and
            leaves no site. A row without an id does not count.
        rows: how many rows of a person count at a site, at most, among those that a study's `where` keeps.
        sites: at how many sites a person may appear. Nobody can check it: it is an assumption.
        take: which rows count if a person has more: "random", which the site draws in secret; or "latest" or
            "earliest" by a column of the study. A row where that is missing comes last.
        by: that column.
        row: how one row is made of all of a person's, before anything else is computed; `rows` is then 1.
        keep_apart: the share of persons that are held out, by a hash of their id. Conditions see it as the
            column `held_out`: a model is fitted `where="not held_out"`, and evaluated `where="held_out"`.
        salt: public text that the hash starts with: another one holds out other persons.
    """

    id: str
    rows: int = 1
    sites: int = 1
    take: Take = "random"
    by: str | None = None
    row: OneRow | None = field(default=None)
    keep_apart: float | None = None
    salt: str = ""

    def __post_init__(self) -> None:
        named = isinstance(self.id, str) and self.id.strip() and self.id.isprintable()
        if not named or len(self.id) > _LONGEST:
            raise InvalidInput(f"id must name the column that says whose a row is, not {check.show(self.id)}")
        check.integer("rows", self.rows, least=1, most=_MOST_ROWS)
        check.integer("sites", self.sites, least=1, most=_MOST_SITES)
        _check_take(self.take, self.by)
        if self.row is not None:
            object.__setattr__(self, "row", OneRow.of(self.row))
            if self.rows != 1 or self.take != "random" or self.by is not None:
                raise InvalidInput(
                    "[person.row] makes one row of a person's; write take and by there, and leave out rows"
                )
        if self.keep_apart is not None:
            check.real("keep_apart", self.keep_apart, least=_LEAST_APART, most=1 - _LEAST_APART)
        if not isinstance(self.salt, str) or len(self.salt) > _LONGEST:
            raise InvalidInput(f"salt must be text, not {check.show(self.salt)}")
        if self.salt and self.keep_apart is None:
            raise InvalidInput("salt says which persons are held out; give keep_apart too, such as 0.2")
        if self.id in self.reads or self.id in dict(self.aggregates):
            raise InvalidInput(f"the id {self.id!r} must not be a column of the study")

    @classmethod
    def of(cls, given: Any) -> Person | None:
        """Return what the keys of [person] in a study file describe; None for none."""
        if given is None or isinstance(given, Person):
            return given
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, Mapping):
            raise InvalidInput(
                f'person must be a table such as {{id = "patient_id"}}, not {check.show(given)}'
            )
        unknown = [key for key in given if key not in _KEYS]
        if unknown:
            raise InvalidInput(f"unknown key {check.show(unknown[0])}; choose from {', '.join(_KEYS)}")
        if "id" not in given:
            raise InvalidInput("the key 'id' is missing: it names the column that says whose a row is")
        return cls(**given)

    @property
    def open(self) -> bool:
        """Whether the numbers of rows are private: see the head of the module."""
        return self.rows > 1 or self.sites > 1

    @property
    def aggregates(self) -> tuple[tuple[str, Aggregate], ...]:
        """The columns that are computed over the rows of a person."""
        return () if self.row is None else self.row.aggregates

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the study that which rows count depends on."""
        made = () if self.row is None else self.row.reads
        return tuple(dict.fromkeys([*made, *([] if self.by is None else [self.by])]))

    def check(self, columns: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` if it does not fit the columns of a study."""
        if self.id in columns:
            raise InvalidInput(
                f"the id {self.id!r} must not be a column of the schema: it never leaves a site"
            )
        for name in self.reads:
            column = columns.get(name)
            if column is None:
                close = hint(name, columns)
                raise InvalidInput(f"there is no column {name!r} in the schema to give its bounds{close}")
            if getattr(column, "sql", None) is not None or name in dict(self.aggregates):
                raise InvalidInput(f"column {name!r} must be in the file: a person's row is made before it")
            if getattr(column, "site", False):
                raise InvalidInput(f"column {name!r} is the same in all rows of a site")
        for name in filter(None, (self.by, self.row.by if self.row else None)):
            if not isinstance(columns[name], Number):
                raise InvalidInput(f"by must name a column of numbers or dates; {name!r} has categories")
        for name, aggregate in self.aggregates:
            made = columns.get(name)
            if not isinstance(made, Number) or made.date or made.sql is not None:
                raise InvalidInput(
                    f'{name} = "{aggregate}" needs public bounds: write {name} = [0, 20], say, under [schema]'
                )
            if not made.missing and aggregate.function != "count":
                raise InvalidInput(
                    f"{name}: {aggregate} is missing for a person without a cell; leave out missing"
                )
            read = None if aggregate.column is None else columns[aggregate.column]
            if aggregate.function != "count" and (not isinstance(read, Number) or read.date):
                raise InvalidInput(f"{name}: {aggregate} must be over a column of numbers")

    def to_dict(self) -> dict[str, Any]:
        """Return what a study file would say."""
        told: dict[str, Any] = {"id": self.id, "rows": self.rows, "sites": self.sites}
        if self.keep_apart is not None:
            told |= {"keep_apart": self.keep_apart} | ({"salt": self.salt} if self.salt else {})
        if self.row is not None:
            return told | {"row": self.row.to_dict()}
        return told | {"take": self.take} | ({} if self.by is None else {"by": self.by})

    @property
    def sentence(self) -> str:
        """How much of a person counts, for a report."""
        made = self.row or self
        which = "drawn by the site in secret" if made.by is None else f"the {made.take} by {made.by}"
        if self.row is not None:
            beside = ", ".join(name for name, _ in self.aggregates)
            told = f"Each person counts as one row at a site, {which}" + (
                f", with {beside}" if beside else ""
            )
        elif self.rows == 1:
            told = f"One row of each person counts at a site, {which}"
        else:
            told = f"At most {self.rows} rows of each person count at a site, {which}"
        where = "one site" if self.sites == 1 else f"at most {self.sites} sites"
        told = f"{told}; each person appears at {where}."
        if self.keep_apart is None:
            return told
        return f"{told} Held out are {self.keep_apart:.3g} of the persons, by a hash of their id."

    def holds_out(self, id: str) -> bool:
        """Return whether the person with this id is held out: by a hash that every site computes alike.

        It depends on the id and on public text only, so that no other person can change it.
        """
        digest = sha256(
            f"{_SPLIT}{len(self.salt)}:{self.salt}{id}".encode(errors="backslashreplace")
        ).digest()
        return int.from_bytes(digest[:8]) < int(Fraction(self.keep_apart or 0.0) * (1 << 64))


def _check_take(take: Any, by: Any) -> None:
    if take not in get_args(Take):
        raise InvalidInput(f"take must be one of {', '.join(get_args(Take))}, not {check.show(take)}")
    if by is not None and (not isinstance(by, str) or not by):
        raise InvalidInput(f"by must name a column, not {check.show(by)}")
    if (take == "random") != (by is None):
        raise InvalidInput(
            'take = "latest" or "earliest" needs by = "..." (a column), and take = "random" has none'
        )
