"""Passwords in a policy: a steward reads and changes site.toml without learning how to reach the rows.

Claim. What `hide` returns holds no connection of a database and no password of an address. A text that a
steward has changed beside the marks is saved with what they stand for (`restore`).
Reason. The value of every key `connection`, in whatever quotes, and what stands between user and host of an
address (at most 1,000 characters) become a mark, found by position: the text need not be valid. Marks that
come back stand for the secrets of the old text, in the same order. They may come back in the data of [site]
alone, or in remarks: anywhere else, as the name of a column, say, a summary of the policy would show them.
Tested in tests/steward/test_desk.py.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import partial
from typing import Any

from cape.errors import InvalidInput

__all__ = ["MARK", "hide", "restore"]

MARK = "(hidden)"

_STRING = r"\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'[^'\n]*'?|[^\s\"',}#][^,}#\n]*"
_CONNECTION = re.compile(rf"(\bconnection[\"']?\s*=[ \t]*)({_STRING})", re.DOTALL)
_ADDRESS = re.compile(r"(://[^\s:/@\"']*:)([^\s/@\"'][^\s\"']{0,1000})(?=@)")


def hide(text: str) -> str:
    """Return a policy without its secrets."""
    text = _CONNECTION.sub(rf'\1"{MARK}"', text)
    return _ADDRESS.sub(rf"\1{MARK}", text)


def restore(text: str, old: str) -> str:
    """Return a text in which the marks that `hide` made in `old` are what they stand for.

    Raises:
        InvalidInput: a mark stands where a secret would be shown, or nobody can tell where it stands.
    """
    _require_in_place(text)
    for pattern, mark in ((_CONNECTION, f'"{MARK}"'), (_ADDRESS, MARK)):
        secrets = iter([found[2] for found in pattern.finditer(old)])
        text = pattern.sub(partial(_put, mark, secrets), text)
        old = pattern.sub(rf"\1{mark}", old)  # an address in a connection is hidden with it
    return text


def _put(mark: str, secrets: Iterator[str], found: re.Match[str]) -> str:
    secret = next(secrets, None) if found[2] == mark else None
    return found[0] if secret is None else f"{found[1]}{secret}"


def _require_in_place(text: str) -> None:
    """Raise if a mark stands in anything but the address or the connection of the site's data."""
    if MARK not in text:
        return
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"the policy is not valid TOML: {error}") from None
    site = document.get("site")
    given = site.get("data") if isinstance(site, dict) else None
    if isinstance(given, dict):
        for key in ("connection", "path"):
            given.pop(key, None)
    elif isinstance(site, dict):
        site.pop("data", None)
    if any(MARK in each for each in _strings(document)):
        raise InvalidInput(f"{MARK!r} stands for a secret; it may stand in the data of [site] only")


def _strings(value: Any) -> Iterator[str]:
    """Yield every key and every text in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
