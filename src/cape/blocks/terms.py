"""Terms, the features of a regression as text: a column, an interaction, or a spline.

"age" is a column, "age:sex" the product of two, and "spline(bmi, 4)" a smooth curve with four degrees of
freedom; "spline(bmi, 4):sex" is a curve for each sex. A name that holds a colon, or that looks like a spline,
stands in backticks, "`a:b`", and a backtick within them is doubled. Text alone says which columns a term
reads: no schema is needed for that.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from functools import lru_cache

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["Factor", "Feature", "Spline", "parse", "quoted", "same"]

_LONGEST = 2000  # characters of a term: a site parses what anybody may have written
_MOST_FACTORS = 6
_MOST_FREEDOM = 30
_SPLINE = re.compile(r"spline\s*\((.*)\)", re.DOTALL)
_OPTIONS = re.compile(r"\s*(?:(?:df\s*=\s*)?(?P<df>\d{1,4})|knots\s*=\s*\[(?P<knots>[^\[\]]*)\])\s*")
_QUOTED = re.compile("`(?:[^`]|``)+`")
_HOW = "write spline(column, 4) or spline(column, knots=[20, 30])"


@dataclass(frozen=True)
class Spline:
    """A natural cubic spline on a column's bounds (`splines`), with so many degrees of freedom.

    Inner knots divide the bounds evenly unless they are given.
    """

    freedom: int
    knots: tuple[float, ...] | None = None

    def __str__(self) -> str:
        if self.knots is None:
            return str(self.freedom)
        return f"knots=[{', '.join(f'{knot:.17g}' for knot in self.knots)}]"


@dataclass(frozen=True)
class Factor:
    """A column of a term, as it is or as a spline."""

    column: str
    spline: Spline | None = None

    def __str__(self) -> str:
        name = quoted(self.column, within=self.spline is not None)
        return name if self.spline is None else f"spline({name}, {self.spline})"


@dataclass(frozen=True)
class Feature:
    """A product of factors; of one factor, that factor."""

    factors: tuple[Factor, ...]

    def __str__(self) -> str:
        return ":".join(map(str, self.factors))

    @property
    def plain(self) -> bool:
        """Whether it is a column as it is."""
        return len(self.factors) == 1 and self.factors[0].spline is None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(factor.column for factor in self.factors))


def quoted(name: str, *, within: bool = False) -> str:
    """Return the term that is nothing but a column of this name; `within` a spline a comma ends it."""
    special = any(sign in name for sign in (":`,()[]" if within else ":`")) or name != name.strip()
    if not special and not _SPLINE.fullmatch(name) and name:
        return name
    return f"`{name.replace('`', '``')}`"


@lru_cache(maxsize=4096)
def parse(text: str) -> Feature:
    """Return the term that a text says, or raise `InvalidInput`."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"a feature must be a term such as 'age' or 'age:sex', not {check.show(text)}")
    if len(text) > _LONGEST:
        raise InvalidInput(f"a feature must have at most {_LONGEST} characters, not {len(text)}")
    found = tuple(_factor(part, text) for part in _split(text))
    if len(set(found)) != len(found):
        twice = next(each for each in found if found.count(each) > 1)
        raise InvalidInput(
            f"term {check.show(text)} has {str(twice)!r} twice; for a square, derive a column such as "
            f'{{sql = "{twice.column} * {twice.column}"}} under [derive], or write spline({twice.column}, 4)'
        )
    if len(found) > _MOST_FACTORS:
        raise InvalidInput(f"term {check.show(text)} must have at most {_MOST_FACTORS} factors")
    return Feature(found)


def same(term: str, other: str) -> bool:
    """Return whether two texts say the same term, its factors in whatever order."""
    try:
        return frozenset(parse(term).factors) == frozenset(parse(other).factors)
    except InvalidInput:
        return False


def _split(text: str) -> list[str]:
    """Return the parts between colons that stand neither in backticks nor in brackets."""
    parts, depth, inside = [""], 0, False
    for sign in text:
        if sign == "`":
            inside = not inside
        elif not inside:
            depth += (sign in "([") - (sign in ")]")
        if sign == ":" and not inside and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    if inside:
        raise InvalidInput(f"term {check.show(text)} has a backtick without its second one")
    return parts


def _factor(text: str, term: str) -> Factor:
    text = text.strip()
    if not text:
        raise InvalidInput(f"term {check.show(term)} must have a column on both sides of each colon")
    call = _SPLINE.fullmatch(text)
    if call is None:
        return Factor(_name(text))
    name, rest = _argument(call[1])
    options = _OPTIONS.fullmatch(rest)
    if not name or options is None:
        raise InvalidInput(f"spline {check.show(text)} cannot be read; {_HOW}")
    return Factor(_name(name), _spline(options, text))


def _argument(inside: str) -> tuple[str, str]:
    """Return the column of a spline and what follows it."""
    inside = inside.strip()
    within = _QUOTED.match(inside)
    end = 0 if within is None else within.end()
    name, _, rest = inside[end:].partition(",")
    return (inside[:end] + name).strip(), rest


def _name(text: str) -> str:
    if _QUOTED.fullmatch(text):
        return text[1:-1].replace("``", "`")
    if "`" in text:
        raise InvalidInput(f"{check.show(text)} is no column: a name in backticks has one at both ends")
    return text


def _spline(options: re.Match[str], text: str) -> Spline:
    if options["knots"] is None:
        freedom = int(options["df"])
        if not 2 <= freedom <= _MOST_FREEDOM:
            raise InvalidInput(
                f"spline {check.show(text)} must have from 2 to {_MOST_FREEDOM} degrees of freedom, not "
                f"{freedom}; with one it would be the column itself"
            )
        return Spline(freedom)
    try:
        knots = tuple(float(each) for each in options["knots"].split(","))
    except ValueError:
        raise InvalidInput(f"spline {check.show(text)}: knots must be numbers; {_HOW}") from None
    rising = all(a < b for a, b in itertools.pairwise(knots))
    if not rising or not all(map(math.isfinite, knots)) or len(knots) >= _MOST_FREEDOM:
        raise InvalidInput(
            f"spline {check.show(text)}: knots must be rising numbers, at most {_MOST_FREEDOM - 1}"
        )
    return Spline(len(knots) + 1, knots)
