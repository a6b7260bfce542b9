"""Texts of a policy that may not be valid: what they say, and how two of them differ line by line."""

from __future__ import annotations

import difflib
import tomllib
from typing import Any

__all__ = ["diff", "loaded"]

_MOST_DIFFERENT = 20_000  # lines of two texts that are still compared


def loaded(text: str) -> dict[str, Any] | None:
    """Return what a text says; None if it is not valid TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def diff(old: str, new: str) -> str:
    """Return how a new text differs."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MOST_DIFFERENT:
        return "" if old == new else "the texts are too long to be compared\n"
    lines = difflib.unified_diff(before, after, "site.toml", "new", lineterm="")
    return "".join(f"{line}\n" for line in lines)
