"""Where in a study file something is wrong: every error names the file, the section and the key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cape import check
from cape.data.schema import hint
from cape.errors import InvalidInput

__all__ = ["at", "keys", "parse", "read", "section", "text"]

_LONGEST, _PLACE = 600, 250  # characters
_MOST = 1 << 20  # bytes of a file that people write
_QUOTED = re.compile(  # strings and comments; one that does not end takes all that is left
    r"""\"{3}(?:\\.|[^\\])*?(?:\"{3}|\\?\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|\#[^\n]*""",
    re.DOTALL,
)
_DEEP = re.compile(r"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){8}")  # a key of nine names


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put the place in front of what an error inside says, and keep all of it short and printable."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{check.plain(place, _PLACE)}: {check.plain(str(error), _LONGEST)}") from None


def read(path: Path, most: int = _MOST) -> str:
    """Return a file's text, if it is no larger than one that people write; else raise `InvalidInput`."""
    with open(path, "rb") as file:  # what it says of its size may be wrong, as of a pipe or a device
        data = file.read(most + 1)
    if len(data) > most:
        raise InvalidInput(f"{path} is larger than {most >> 10} kB; nothing that people write here is")
    return data.decode("utf-8")


def parse(path: Path, text: str) -> dict[str, Any]:
    """Return what a TOML file says, or raise `InvalidInput`.

    A key of many names (a.b.c...) is refused before it is read: `tomllib` needs memory that grows with the
    square of their number, a gigabyte for 30 kB.
    """
    if _DEEP.search(_QUOTED.sub("q", text)):
        raise InvalidInput(f"{path} has a key of more than eight names with dots between them")
    try:
        return tomllib.loads(text)
    except RecursionError:
        problem = "its brackets are nested too deeply"
    except ValueError as error:  # also numbers with thousands of digits, which are no TOMLDecodeError
        problem = str(error)
    if re.search(r"^\s*\[analysis\]", text, re.MULTILINE):
        problem += "; each analysis begins with [[analysis]], in two pairs of brackets"
    raise InvalidInput(f"{path} is not a TOML file: {check.plain(problem, _LONGEST)}")


def section(document: Mapping[str, Any], name: str, empty: str = "") -> dict[str, Any]:
    """Return a section that must be there and have keys; `empty` is what to say if it has none."""
    if name not in document:
        raise InvalidInput(f"the section [{name}] is missing")
    value = document[name]
    if value == {} and empty:
        raise InvalidInput(empty)
    if value == {}:
        raise InvalidInput(f"the section [{name}] is empty")
    if not isinstance(value, dict):
        raise InvalidInput(f"[{name}] must be a section with keys, not {check.show(value)}")
    return value


def keys(given: Mapping[str, Any], known: Iterable[str], needed: Iterable[str] = ()) -> None:
    """Raise an error if a key is not known, with the one that was probably meant, or if one is missing."""
    names = list(known)
    for key in given:
        if key not in names:
            raise InvalidInput(f"unknown key {check.show(key)}{hint(key, names)}")
    for key in needed:
        if key not in given:
            raise InvalidInput(f"the key {key!r} is missing")


def text(name: str, value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{name} must be a text, not {check.show(value)}")
    return value
