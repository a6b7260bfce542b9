"""Passwords in a policy: a steward reads and edits site.toml without learning how to reach the rows.

Claim. The text that `hide` returns contains no database connection and no password of an address. In a text
that a steward has edited, `restore` puts the secrets back in place of the marks.
Reason. The value of every key `connection` or `omop`, in any quotes, and the part of an address between user
and host (at most 1,000 characters) are replaced by a mark, by position: the text need not be valid. Marks in
an edited text stand for the secrets of the old text, in the same order. They are allowed only in the data of
[site] and in comments: elsewhere, for instance as the name of a column, a summary of the policy would show
the secret.
Tested in tests/steward/test_desk.py.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import partial
from typing import Any

from cape.errors import InvalidInput

__all__ = ["MARK", "hide", "restore"]

MARK = "(hidden)"

_STRING = r"\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'[^'\n]*'?|[^\s\"',}#][^,}#\n]*"
_CONNECTION = re.compile(rf"(\b(?:connection|omop)[\"']?\s*=[ \t]*)({_STRING})", re.DOTALL)
_ADDRESS = re.compile(r"(://[^\s:/@\"']*:)([^\s/@\"'][^\s\"']{0,1000})(?=@)")


def hide(text: str) -> str:
    """Return a policy without its secrets."""
    text = _CONNECTION.sub(rf'\1"{MARK}"', text)
    return _ADDRESS.sub(rf"\1{MARK}", text)


def restore(text: str, old: str) -> str:
    """Return a text with the secrets of `old` in place of the marks that `hide` made.

    Raises:
        InvalidInput: a mark is where the secret would be shown, or the text is not valid TOML.
    """
    _require_in_place(text, hide(old))
    for pattern, mark in ((_CONNECTION, f'"{MARK}"'), (_ADDRESS, MARK)):
        secrets = iter([found[2] for found in pattern.finditer(old)])
        text = pattern.sub(partial(_put, mark, secrets), text)
        old = pattern.sub(rf"\1{mark}", old)  # an address in a connection is hidden with it
    return text


def _put(mark: str, secrets: Iterator[str], found: re.Match[str]) -> str:
    secret = next(secrets, None) if found[2] == mark else None
    return found[0] if secret is None else f"{found[1]}{secret}"


def _require_in_place(text: str, before: str) -> None:
    """Raise if a mark is anywhere except in the address or connection of the site's data.

    There it is the whole of a connection, or part of an address that is the same as before: a mark in another
    address would send the secret elsewhere.
    """
    if MARK not in text:
        return
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"the policy is not valid TOML: {error}") from None
    site, given = document.get("site"), _data(document)
    if isinstance(given, dict):
        was = _data_before(before)
        for key in ("connection", "omop"):
            if given.get(key) == MARK:
                given.pop(key)
        if isinstance(was, dict) and given.get("path") == was.get("path"):
            given.pop("path", None)
    elif isinstance(site, dict) and given == _data_before(before):
        site.pop("data", None)
    if MARK in json.dumps(document, default=str):
        raise InvalidInput(f"{MARK!r} stands for a secret; it may occur in the data of [site] only")


def _data(document: dict[str, Any]) -> Any:
    site = document.get("site")
    return site.get("data") if isinstance(site, dict) else None


def _data_before(text: str) -> Any:
    """Return the data of the policy that is in force, without secrets; None if it cannot be read."""
    try:
        return _data(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
