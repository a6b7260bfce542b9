"""Where in a study file something is wrong: every error names the file, the section and the key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cape.errors import InvalidInput
from cape.site.schema import hint

__all__ = ["at", "keys", "section", "text"]


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put the place in front of what an error inside says."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None


def section(document: Mapping[str, Any], name: str, empty: str = "") -> dict[str, Any]:
    """Return a section that must be there and have keys; `empty` is what to say if it has none."""
    if name not in document:
        raise InvalidInput(f"the section [{name}] is missing")
    value = document[name]
    if value == {} and empty:
        raise InvalidInput(empty)
    if not isinstance(value, dict) or not value:
        raise InvalidInput(f"[{name}] must be a section with keys, not {value!r}")
    return value


def keys(given: Mapping[str, Any], known: Iterable[str], needed: Iterable[str] = ()) -> None:
    """Raise an error if a key is not known, with the one that was probably meant, or if one is missing."""
    names = list(known)
    for key in given:
        if key not in names:
            raise InvalidInput(f"unknown key {key!r}{hint(key, names)}")
    for key in needed:
        if key not in given:
            raise InvalidInput(f"the key {key!r} is missing")


def text(name: str, value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{name} must be a text, not {value!r}")
    return value
