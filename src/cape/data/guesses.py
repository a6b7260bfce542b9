"""What was probably meant by cells that do not fit a column: a listed category, a missing cell, another unit.

Guesses for the eyes of those who hold the rows. None of them changes how a cell is read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cape.core.arrays import Floats
from cape.data.categories import Value
from cape.data.clinical import unit_in
from cape.data.schema import Category, Number

__all__ = ["Factor", "another_unit", "codes_in", "comma_is_decimal", "letters", "means_missing", "meant"]

_ALIKE = 0.8  # of difflib's ratio
_SHORTEST = 4  # signs of a category that a misspelling is looked for
_EXPLAINED = 0.95  # of the cells beyond the bounds that another unit has to bring within
_POWERS = (10.0, 0.1, 100.0, 0.01, 1000.0, 0.001)
_WORDS = (
    ("female", "f", "w", "woman", "weiblich", "frau", "femme", "féminin", "feminin"),
    ("male", "m", "man", "männlich", "maennlich", "mann", "homme", "masculin"),
    ("yes", "y", "true", "1", "ja", "j", "oui", "o", "sí", "si"),
    ("no", "n", "false", "0", "nein", "non"),
)
_MISSING = frozenset(
    {"na", "n/a", "n.a.", "nan", "null", "none", "nil", "unknown", "unk", "missing", "miss", "nd", "n.d.",
     "k.a.", "ka", "unbekannt", "inconnu", "not known", "not done", "not available", "keine angabe", "#n/a",
     "#na", "#value!", "?", "??", "-", "--", ".", "..", "-9", "-99", "-999", "-9999", "99", "999", "9999"}
)  # fmt: skip
_CODES = (0.0, -1.0, -9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0, 888.0, 777.0)
# How far a code lies from all other cells, in parts of the range of these and of the bounds: by itself, and
# where several cells are heaped there.
_FAR, _APART = 0.5, 0.1
_HEAP, _TWICE = 5, 2  # cells
_NEGATIVE = -9.0  # from there on a negative number is a code where no other number is negative
_COMMA = re.compile(r"[+-]?\d{1,3}(?:\.?\d{3})*,\d+")


def letters(text: object) -> str:
    """Return a text without case, blanks and signs."""
    return "".join(sign for sign in str(text).casefold() if sign.isalnum())


def meant(cell: str, column: Category) -> Value | None:
    """Return the listed category that a cell probably stands for, or None."""
    plain, listed = letters(cell), {letters(value): value for value in column.values}
    if plain in listed:
        return listed[plain]
    number = _whole(cell)
    for value in column.values:
        if number is not None and _whole(str(value)) == number:
            return value
    for words in _WORDS:
        if cell.strip().casefold() in words:
            known = [value for value in column.values if str(value).casefold() in words]
            return known[0] if len(known) == 1 else None
    if len(plain) >= _SHORTEST:
        close = difflib.get_close_matches(plain, listed, n=1, cutoff=_ALIKE)
        return listed[close[0]] if close else None
    return None


def _whole(text: str) -> int | None:
    try:
        number = float(text)
        return int(number) if number == int(number) else None
    except (ValueError, OverflowError):
        return None


def means_missing(cell: str) -> bool:
    """Return whether a cell is a usual sign for a missing one."""
    return cell.strip().casefold() in _MISSING


def comma_is_decimal(cells: Iterable[str]) -> bool:
    """Return whether most cells are numbers with a decimal comma."""
    found = [_COMMA.fullmatch(cell.strip()) is not None for cell in cells]
    return bool(found) and sum(found) * 2 > len(found)


def codes_in(beyond: Floats, column: Number) -> tuple[dict[str, int], Floats]:
    """Return usual codes for a missing cell among cells beyond bounds, with counts; and the other cells.

    A number that other cells lie around, or that could be one of them, is no code: -1 among other negative
    numbers, 888 among ages in months, 0 where bounds begin at 1.
    """
    others = beyond[~np.isin(beyond, _CODES)]
    counts = {code: int(np.count_nonzero(beyond == code)) for code in _CODES}
    found = {code for code, times in counts.items() if times and _is_code(code, times, others, column)}
    said = {f"{code:g}": counts[code] for code in _CODES if code in found}
    return said, beyond[~np.isin(beyond, list(found))]


def _is_code(code: float, times: int, others: Floats, column: Number) -> bool:
    """Return whether cells of this number, beyond the bounds, lie apart from all others."""
    around = np.concatenate([others, [column.low, column.high]])
    least, most = float(around.min()), float(around.max())
    if least <= code <= most:
        return False
    gap = min(abs(code - least), abs(code - most)) / max(most - least, 1e-300)
    if code <= _NEGATIVE and least >= 0 and times >= _TWICE:
        return True
    heaped = times >= _HEAP and gap > _APART and (code > most or column.low > 0)
    return heaped or gap > _FAR


@dataclass(frozen=True)
class Factor:
    """What cells could be multiplied by to lie within the bounds; `unit` is the one they would be in."""

    factor: float
    unit: str | None


def another_unit(name: str, column: Number, beyond: Floats) -> Factor | None:
    """Return the unit that explains why cells lie beyond their bounds, or None.

    A unit that is known for the column's name comes first, then a power of ten, the one after which they lie
    nearest to the middle.
    """
    known: Mapping[str, float] = unit_in(name, column.low, column.high)
    tried = [Factor(factor, unit) for unit, factor in known.items()]
    if column.unit == "°C" or letters(name).startswith("temp"):
        within = _within((beyond - 32) / 1.8, column)
        if within >= _EXPLAINED:
            return Factor(1 / 1.8, "°F")
    for choice in (tried, [Factor(factor, None) for factor in _POWERS]):
        fits = [each for each in choice if _within(beyond * each.factor, column) >= _EXPLAINED]
        if fits:
            middle = float(np.median(beyond))
            return min(fits, key=lambda each: abs(middle * each.factor - column.middle))
    return None


def _within(cells: Floats, column: Number) -> float:
    return float(np.mean((cells >= column.low) & (cells <= column.high))) if cells.size else 0.0
