"""Which cells are the same value as a category of the schema.

Text is compared as it is. An integer or a boolean may also arrive as another type that holds the same
value: 1 as 1, 1.0, True, "1" or "1.0"; True also as "True", "true" or "TRUE". Nothing else matches, and
a category that is text ("1") is found in columns of text only.
"""

from __future__ import annotations

from dataclasses import dataclass

from cape.site.schema import Category

__all__ = ["Keys"]


@dataclass(frozen=True)
class Keys:
    """Codes by what a cell may hold: `texts` for columns of text, `numerals` for all that are numbers."""

    texts: dict[str, int]
    numerals: dict[int, int]

    @classmethod
    def of(cls, category: Category) -> Keys:
        """Return the keys of a column's categories. What the schema has as text is found first."""
        texts = {value: code for code, value in enumerate(category.values) if isinstance(value, str)}
        numerals = {}
        for code, value in enumerate(category.values):
            if not isinstance(value, str):
                numerals[int(value)] = code
                for text in _spellings(value):
                    texts.setdefault(text, code)
        # A column of numbers holds 64 bits at most here; a category beyond them occurs as text only.
        return cls(texts, {key: code for key, code in numerals.items() if -(2**63) <= key < 2**63})


def _spellings(value: int | bool) -> tuple[str, ...]:
    words = (str(value), str(value).lower(), str(value).upper()) if isinstance(value, bool) else ()
    return (*words, str(int(value)), f"{int(value)}.0")
