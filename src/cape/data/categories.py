"""Which cells are the same value as a category of the schema.

Text is compared as it is. An integer or a boolean may also arrive as another type that holds the same
value: 1 as 1, 1.0, True, "1" or "1.0"; True also as "True", "true" or "TRUE". Nothing else matches, and
a category that is text ("1") is found in columns of text only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

__all__ = ["Codes", "Value"]

Value = str | int | bool


@dataclass(frozen=True)
class Codes:
    """The codes of a column's categories, by what a cell may hold, made when they are first asked for."""

    values: tuple[Value, ...]

    @cached_property
    def texts(self) -> dict[str, int]:
        """For columns of text. What the schema has as text is found first."""
        found = {value: code for code, value in enumerate(self.values) if isinstance(value, str)}
        for code, value in enumerate(self.values):
            if not isinstance(value, str):
                for text in _spellings(value):
                    found.setdefault(text, code)
        return found

    @cached_property
    def numerals(self) -> dict[int, int]:
        """For all that are numbers: 64 bits at most here; a category beyond them occurs as text only."""
        return {
            int(value): code
            for code, value in enumerate(self.values)
            if not isinstance(value, str) and -(2**63) <= value < 2**63
        }


def _spellings(value: int | bool) -> tuple[str, ...]:
    words = (str(value), str(value).lower(), str(value).upper()) if isinstance(value, bool) else ()
    return (*words, str(int(value)), f"{int(value)}.0")
