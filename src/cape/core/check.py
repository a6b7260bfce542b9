"""Checks of arguments before anything is computed: each returns the clean value.

These are for parameters (a scale, a number of sites), never for cells of a table: the message shows the
argument's value.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from typing import Any

from cape.core.errors import InvalidInput

__all__ = ["array_of", "hint", "integer", "plain", "probability", "real", "shape", "show"]

_LONGEST_NAME, _SHOWN_NAME, _SHOWN_NAMES = 100, 30, 20


def real(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    infinite: bool = False,
) -> float:
    """Return `value` as a float that is a number in the range, or raise `InvalidInput`."""
    number = math.nan
    if not isinstance(value, (bool, str, bytes)) and not _is_boolean(value):
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if (
        math.isnan(number)
        or (math.isinf(number) and not infinite)
        or (above is not None and not number > above)
        or (least is not None and not number >= least)
        or (most is not None and not number <= most)
    ):
        wanted = _range("a number" if infinite else "a finite number", above, least, most)
        raise InvalidInput(f"{name} must be {wanted}, not {show(value)}")
    return number


def integer(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int in the range, or raise `InvalidInput`. 3.0 is not an integer."""
    number = None
    if not isinstance(value, bool) and not _is_boolean(value):
        with suppress(TypeError):
            number = operator.index(value)
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        wanted = _range("an integer", None, least, most)
        raise InvalidInput(f"{name} must be {wanted}, not {show(value)}")
    return number


def probability(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1, or raise `InvalidInput`."""
    try:
        number = real(name, value, above=0.0)
    except InvalidInput:
        number = 1.0
    if number >= 1.0:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, not {show(value)}")
    return number


def array_of(dtype: str, name: str, value: Any) -> Any:
    """Return `value` if it is an array of that type, or raise `InvalidInput` without showing it."""
    kind = str(getattr(value, "dtype", type(value).__name__))
    if kind != dtype:
        raise InvalidInput(f"{name} must be an array of {dtype}, not {kind}")
    return value


def shape(name: str, value: Any) -> tuple[int, ...]:
    """Return a count or a shape as a tuple of sizes, or raise `InvalidInput`."""
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    try:
        return tuple(integer(name, size, least=0) for size in sizes)
    except InvalidInput:
        raise InvalidInput(f"{name} must be a count or a shape, not {show(value)}") from None


def show(value: Any, most: int = 80) -> str:
    """Return a value as an error shows it: short and on one line."""
    try:
        text = repr(value)
    except Exception:  # for an integer with thousands of digits, repr raises
        text = f"a value of type {type(value).__name__}"
    return plain(text, most)


def plain(text: str, most: int = 80) -> str:
    """Return a text without control characters, cut to at most `most` characters: never within an escape."""
    if len(text) <= most and text.isprintable():
        return text
    signs = [sign if sign.isprintable() else repr(sign)[1:-1] for sign in text[: most + 1]]
    ends = list(accumulate(map(len, signs), initial=0))
    if ends[-1] <= most:
        return "".join(signs)
    fits = max(number for number, end in enumerate(ends) if end <= max(most - 3, 0))
    return "".join(signs[:fits]) + "..."


def _range(kind: str, above: float | None, least: float | None, most: float | None) -> str:
    limits = {"above": None if above is None else f"{above:g}", "at least": least, "at most": most}
    parts = [f"{words} {limit}" for words, limit in limits.items() if limit is not None]
    return f"{kind} {' and '.join(parts)}".strip()


def _is_boolean(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) == "bool"


def hint(name: Any, known: Iterable[str]) -> str:
    """Return the end of an error's sentence: the name that was probably meant, or all there are."""
    names, wanted = list(known), str(name)
    close = difflib.get_close_matches(wanted, names, n=1) if len(wanted) <= _LONGEST_NAME else []
    if close and len(close[0]) <= _LONGEST_NAME:
        return f"; did you mean {close[0]!r}?"
    shown = [plain(each, _SHOWN_NAME) for each in names[:_SHOWN_NAMES]]
    return f"; choose from {', '.join(shown)}" + (" and others" if len(names) > _SHOWN_NAMES else "")
