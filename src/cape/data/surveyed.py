"""What a survey of a site's rows found, as plain data, for those who hold them: nothing of it is public."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec
from msgspec import structs

from cape.data.categories import Value
from cape.data.guesses import letters

__all__ = ["Absent", "ColumnSurvey", "Ids", "Spots", "Survey", "Unit"]

_NEAR = 3
_OTHERS = 6


class _Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Spots(_Found, frozen=True):
    """Cells or lines of one trouble: how many, the first places, and the most frequent cells with counts."""

    count: int = 0
    places: tuple[str, ...] = ()
    cells: dict[str, int] = {}
    distinct: int = 0

    def hidden(self) -> Spots:
        """Return it without cells."""
        return structs.replace(self, cells={})


class Absent(_Found, frozen=True):
    """A column of the schema that the file does not have, and names in the file that are like it."""

    name: str
    same: tuple[str, ...]
    """The name, but for case, blanks and signs."""
    near: tuple[str, ...]
    others: tuple[str, ...]
    """Columns of the file that nobody asks for."""

    @classmethod
    def of(cls, name: str, known: Sequence[str], wanted: Sequence[str]) -> Absent:
        """Look for a name among those of a file."""
        plain = letters(name)
        same = tuple(each for each in known if letters(each) == plain)[:_NEAR]
        close = difflib.get_close_matches(plain, [letters(each) for each in known], n=_NEAR)
        near = tuple(each for each in known if letters(each) in close and each not in same)[:_NEAR]
        others = tuple(each for each in known if each not in wanted)[:_OTHERS]
        return cls(name, same, near, others)


class Unit(_Found, frozen=True):
    """What cells would have to be multiplied by to lie within bounds, and the unit that they may be in."""

    factor: float
    name: str | None


class Ids(_Found, frozen=True):
    """A column that identifies persons, or looks so: cells, different ones, and the most rows of one.

    Where a study has [person], `rows` is how many rows of a person count, `beyond` how many do not for that,
    and `nobody` how many have no id.
    """

    name: str
    cells: int
    persons: int
    most: int
    rows: int | None = None
    beyond: int = 0
    nobody: int = 0


class ColumnSurvey(_Found, frozen=True):
    """One column of the schema.

    Attributes:
        present, missing: cells that could be read, and empty ones.
        misfits: cells that are not a number, a date, or a listed category.
        gaps: empty cells where the schema says that none is missing.
        below, above: cells beyond the bounds, which count as the bounds.
        fractions: cells that are no whole number, where the schema says `integer = true`.
        unit: another unit that would explain them.
        codes: cells beyond the bounds that are usual codes for a missing one, with counts.
        recode, null_values, decimal_comma: what misfits probably mean.
        unclear: the codes of a column most of whose cells are not listed, each with a blank to fill in.
    """

    name: str
    kind: str
    present: int
    missing: int
    misfits: Spots
    gaps: Spots
    low: float | None = None
    high: float | None = None
    below: int = 0
    above: int = 0
    fractions: Spots = Spots()
    unit: Unit | None = None
    codes: dict[str, int] = {}
    recode: dict[str, Value] = {}
    null_values: tuple[str, ...] = ()
    decimal_comma: bool = False
    unclear: dict[str, str] = {}


class Survey(_Found, frozen=True):
    """One site's rows.

    Attributes:
        unit: what places count: lines of a text file, or rows, both from 1.
        lenient: whether cells that do not fit count as missing, as at a site's daemon.
        problems: sentences about the file as a whole, each of which would end a run.
        headless: whether the first line has no name of the schema.
        separator, encoding_guess: what is probably meant, where the file does not fit what is stated.
        supposed: the layout that it was read by instead, as keys of [sites].
        broken: lines that fall apart.
        blank: rows without a cell.
        encoding: lines that are not UTF-8.
        joined: whether a run reads such lines all the same, the first as cells with a line break in them.
    """

    site: str
    rows: int
    unit: str
    lenient: bool
    problems: tuple[str, ...]
    columns: tuple[ColumnSurvey, ...]
    absent: tuple[Absent, ...]
    headless: bool
    separator: str | None
    supposed: dict[str, str]
    twice: tuple[str, ...]
    broken: Spots
    joined: bool
    blank: Spots
    encoding: Spots
    encoding_guess: str | None
    ids: tuple[Ids, ...]

    def fails(self, *, but_lines: bool = False) -> bool:
        """Return whether a run would fail, not counting odd lines if `but_lines`.

        A daemon counts cells that do not fit as missing, and answers.
        """
        if self.problems or self.absent or self.twice:
            return True
        if self.lenient:
            return False
        if self.supposed:
            return True
        lines = (self.broken.count or self.encoding.count) and not self.joined and not but_lines
        return bool(lines or any(column.misfits.count or column.gaps.count for column in self.columns))

    @property
    def unreadable(self) -> dict[str, int]:
        """How many cells of each column a daemon counts as missing, or replaces, because they do not fit."""
        return {c.name: c.misfits.count + c.gaps.count + self.broken.count for c in self.columns}

    @property
    def outside(self) -> dict[str, int]:
        """How many cells of each numeric column lie beyond its bounds."""
        return {c.name: c.below + c.above for c in self.columns if c.kind != "category"}

    def shown(self) -> Survey:
        """Return it without any cell, and without names in the first line that may be cells."""
        columns = tuple(
            structs.replace(
                column,
                misfits=column.misfits.hidden(),
                fractions=column.fractions.hidden(),
                codes={},
                recode={},
                null_values=(),
                unclear={},
            )
            for column in self.columns
        )
        absent = tuple(structs.replace(each, near=(), others=()) for each in self.absent)
        return structs.replace(self, columns=columns, absent=absent)
