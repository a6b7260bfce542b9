"""Two texts of a policy, line by line."""

from __future__ import annotations

import difflib

__all__ = ["diff"]

_MOST_DIFFERENT = 20_000  # lines of two texts that are still compared


def diff(old: str, new: str) -> str:
    """Return how a new text differs."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MOST_DIFFERENT:
        return "" if old == new else "the texts are too long to be compared\n"
    lines = difflib.unified_diff(before, after, "site.toml", "new", lineterm="")
    return "".join(f"{line}\n" for line in lines)
