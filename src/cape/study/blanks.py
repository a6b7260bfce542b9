"""What `cape init` leaves open in a study file: a file with a blank or an unreviewed mark is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["CATEGORY", "COLUMN", "HIGH", "LOW", "MARK", "SITE", "refuse_blanks"]

LOW, HIGH, CATEGORY, COLUMN, SITE = "<low>", "<high>", "<category>", "<bounds or categories>", "<site>"
MARK = "unreviewed"
"""The key of a file whose bounds or categories were read from rows."""

_BLANKS = {LOW, HIGH, CATEGORY, COLUMN, SITE}
_SHOWN = 12


def refuse_blanks(document: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` with the places of all blanks, or for the mark."""
    found = [
        f"[{section}] {check.plain(place)}" if place else f"[{section}]"
        for section, rest in document.items()
        for place in dict.fromkeys(_blank(rest))
    ]
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise InvalidInput(
            f"fill in what stands in <...>, or delete the line: {', '.join(found[:_SHOWN])}{more}"
        )
    if MARK in document:
        raise InvalidInput(
            f"bounds or categories were read from rows, which tells everyone about them; replace them by "
            f"public knowledge, then delete the line that starts with {MARK!r}"
        )


def _blank(value: Any, top: str = "") -> Iterator[str]:
    """Yield the key below a section, once for each blank within it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key in _BLANKS:
                yield str(key)
            yield from _blank(each, top or str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _blank(each, top)
    elif isinstance(value, str) and value in _BLANKS:
        yield top
