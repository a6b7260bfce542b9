"""Plain data, as JSON that any reader takes, and as CSV in which a spreadsheet finds no formula.

Claim. However a spreadsheet cuts a line of this CSV into cells, none of them is a formula; numbers stay
numbers.
Reason. Names of studies, coordinators and categories come from outside. A text has an apostrophe where it, or
what follows a sign that some take for the end of a cell, begins with =, +, - or @, also in a wide or small
form, after blanks, quotes or signs that do not show. What is a number here is written as it is.
Tested in tests/unit/show/test_csv.py.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["csv_rows", "plain", "to_csv", "to_json"]

_END = "\r\n"  # so that a cell with either sign is quoted
_BEGINS = ("=", "+", "-", "\N{MINUS SIGN}", "@")
_ENDS = re.compile(r"([;,|\t\r\n])")  # of a cell, somewhere
_NUMBER = re.compile(r"\s*[+-]\d[\d.]*[)\]]?")  # as in the interval [-10, -5]: no formula after a comma


def to_json(value: Any, indent: int | None = 2) -> str:
    """Return plain data as JSON; a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=indent is not None)


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records with the same keys as CSV; what is not known is empty."""
    if not records:
        return ""
    names = list(records[0])
    return csv_rows([names, *([plain(each)[name] for name in names] for each in records)])


def csv_rows(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as lines of CSV, without anything that a spreadsheet would take for a formula."""
    return "".join(map(_line, rows))


def _line(row: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=_END).writerow([_cell(value) for value in row])
    return text.getvalue().removesuffix(_END) + "\n"


def _cell(value: Any) -> Any:
    """Return a text with an apostrophe before each part that would be a formula; a number as it is."""
    if not isinstance(value, str):
        return value
    parts, before = _ENDS.split(value), ""
    for place, part in enumerate(parts):
        if place % 2:
            before = part
        elif _is_formula(part) and not (before == "," and _NUMBER.fullmatch(part)):
            parts[place] = f"'{part}"
    return "".join(parts)


def _is_formula(text: str) -> bool:
    """Return whether the first sign that shows, but for blanks and quotes, begins a formula."""
    first = next((sign for sign in text if sign.isprintable() and not sign.isspace() and sign != '"'), "")
    return unicodedata.normalize("NFKC", first).startswith(_BEGINS)


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return data as dicts, lists, numbers and text; an array is a list, a number that is not finite None."""
    return {str(key): _finite(inner) for key, inner in value.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (np.generic, np.ndarray)):
        return _finite(value.tolist())
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
