"""Passwords in a policy: a steward reads and edits site.toml without learning how to reach the rows.

Claim. The text that `hide` returns contains no database connection, and of an address in `data` no user,
password or query string; `scrub` does the same to any other text, such as a line of the log. In a text that a
steward has edited, `restore` puts the secrets back in place of the marks.
Reason. The value of every key `connection` or `omop`, in any quotes, the part of an address before the host
(at most 1,000 characters) and options that are named like secrets are replaced by a mark, by position: the
text need not be valid. If it is, what it says then is looked at: where a connection, a secret of an address
or any query string (which may be a signature) is still in `data`, as by a key with an escape or a password
with a quote, one mark takes the place of all of `data`. Marks in an edited text stand for the secrets of the
old text, in the same order. They are allowed only in the data of [site] and in comments: elsewhere, for
instance as the name of a column, a summary of the policy would show the secret.
Tested in tests/unit/site/test_desk.py and tests/unit/site/test_meant.py.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from cape.core.errors import InvalidInput
from cape.data.secrets import has_password
from cape.site.admin.compared import loaded

__all__ = ["MARK", "hide", "restore", "scrub"]

MARK = "(hidden)"

_LINE = f'data = "{MARK}"\n'
_NOTHING = "# The policy holds a secret that cannot be hidden here: write [site] with a line for data.\n"
_DATA = re.compile(r"""\s*(data|"data"|'data')\s*[.=]""")
_SITE = re.compile(r"""\s*\[\s*(site|"site"|'site')\s*\]""")
_MOST_LINES = 50  # of what says where rows are
_MOST_STARTS = 3

_STRING = r"\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'[^'\n]*'?|[^\s\"',}#][^,}#\n]*"
_CONNECTION = re.compile(rf"(\b(?:connection|omop)[\"']?\s*=[ \t]*)({_STRING})", re.DOTALL)
_SECRET = re.compile(
    r"\b(password|passwd|pwd|token|sig)\s*=\s*[^\s&]|://[^\s/@:]+@|://[^\s/@]*:[^\s/@]+@", re.I
)
_NAMES = r"password|passwd|pwd|token|sig|signature|secret|credential|key|auth"
_OPTION = re.compile(rf"([?&](?:[\w.-]*?(?:{_NAMES}))=)([^\s&\"']{{1,1000}})", re.IGNORECASE)
_USER = re.compile(r"(://)([^\s:/@\"'?]{1,1000})(?=@)")
_QUERY = re.compile(r"(://[^\s\"'?#]{0,1000}[?#])([^\s\"']+)")
_ADDRESS = re.compile(r"(://[^\s:/@\"']*:)([^\s/@\"'][^\s\"']{0,1000})(?=@)")


def hide(text: str) -> str:
    """Return a policy without its secrets."""
    if not _valid(text):
        return scrub(text)
    found = _by_position(text)
    return found if _valid(found) and not _shows(found) else _without_data(text)


def scrub(text: str) -> str:
    """Return any text without connections, and addresses in it without user, password and query string."""
    return _QUERY.sub(rf"\1{MARK}", _by_position(text))


def _valid(text: str) -> bool:
    return isinstance((loaded(text) or {}).get("site"), dict)


def _by_position(text: str) -> str:
    text = _CONNECTION.sub(rf'\1"{MARK}"', text)
    for pattern in (_ADDRESS, _OPTION, _USER):
        text = pattern.sub(rf"\1{MARK}", text)
    return text


def _shows(text: str) -> bool:
    """Return whether the data of a valid policy holds a secret."""
    data = _data(tomllib.loads(text))
    values = data if isinstance(data, dict) else {"path": data}
    if any(values.get(key) not in (None, MARK) for key in ("connection", "omop")):
        return True
    texts = [each.replace(MARK, "") for each in values.values() if isinstance(each, str)]
    return any(has_password(each) or _SECRET.search(each) or _QUERY.search(each) for each in texts)


def _without_data(text: str) -> str:
    """Return a policy with a mark for its data; comments beside it are hidden by position."""
    place = _data_lines(text)
    if place is None:
        return _NOTHING
    lines = text.splitlines(keepends=True)
    return _by_position("".join([*lines[: place.start], _LINE, *lines[place.stop :]]))


def _data_lines(text: str) -> range | None:
    """Return the lines of a policy that say where the rows are; None if they say something else besides.

    Few places in [site] are tried, and read by themselves first: the text may be made to take long.
    """
    lines = text.splitlines(keepends=True)
    wanted = tomllib.loads(text)
    wanted["site"]["data"] = MARK
    for start in islice(_starts(lines), _MOST_STARTS):
        for stop in range(start + 1, min(start + _MOST_LINES, len(lines)) + 1):
            keys = _keys("".join(lines[start:stop]))
            if keys is not None and keys != ["data"]:
                break
            if keys and loaded("".join([*lines[:start], _LINE, *lines[stop:]])) == wanted:
                return range(start, stop)
    return None


def _starts(lines: Sequence[str]) -> Iterator[int]:
    """Yield the lines in [site] that begin to say where the rows are."""
    inside = False
    for place, line in enumerate(lines):
        if line.lstrip().startswith("["):
            inside = _SITE.match(line) is not None
        if inside and _DATA.match(line):
            yield place


def _keys(text: str) -> list[str] | None:
    """Return the keys that some lines assign; None if they are not whole."""
    found = loaded(text)
    return None if found is None else list(found)


def restore(text: str, old: str) -> str:
    """Return a text with the secrets of `old` in place of the marks that `hide` made.

    Raises:
        InvalidInput: a mark is where the secret would be shown, or the text is not valid TOML.
    """
    hidden = hide(old)
    _require_in_place(text, hidden)
    if _data_before(hidden) == MARK and (place := _data_lines(old)) is not None:
        lines = old.splitlines(keepends=True)
        given = "".join(lines[place.start : place.stop])
        around = "".join([*lines[: place.start], *lines[place.stop :]])
        found = [given if line.strip() == _LINE.strip() else line for line in text.splitlines(keepends=True)]
        return _kept("".join(found) if given in found else text, text, old, hidden, around)
    return _kept(_put_back(text, old), text, old, hidden)


def _put_back(text: str, old: str) -> str:
    """Return a text with the secrets of the old one in place of its marks, in the same order."""
    for pattern, mark in ((_CONNECTION, f'"{MARK}"'), (_ADDRESS, MARK), (_OPTION, MARK), (_USER, MARK)):
        secrets = iter([found[2] for found in pattern.finditer(old)])
        text = pattern.sub(partial(_put, mark, secrets), text)
        old = pattern.sub(rf"\1{mark}", old)  # an address in a connection is hidden with it
    return text


def _kept(restored: str, text: str, old: str, hidden: str, around: str = "") -> str:
    """Return a restored policy, with the secrets of comments; raise if its data is not what is meant.

    Marks are counted from the top: a comment with one that was added or removed would shift them.
    """
    if around:
        restored = _put_back(restored, around)
    try:
        now, meant = _data(tomllib.loads(restored)), _data(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        return restored  # refused for that
    same = meant == _data_before(hidden)
    if MARK in json.dumps(now, default=str) or (same and now != _data_before(old)):
        raise InvalidInput(
            f"it is not clear which secret {MARK!r} stands for; leave the lines with it as they were, or "
            "write the connection anew"
        )
    return restored


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
