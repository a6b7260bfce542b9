"""Arguments of analyses, checked, and how labels write columns and numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema

__all__ = ["conditions", "digits_apart", "features_of", "joined", "names", "regression", "written"]

_MOST_DIGITS = 17  # enough for any two floats to differ


def names(given: Iterable[Any], least: int = 1) -> tuple[str, ...]:
    """Return the names of distinct columns, at least `least` of them, or raise `InvalidInput`."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidInput(f"columns must be a list of names, not {given!r}")
    columns = tuple(given)
    for name in columns:
        if not isinstance(name, str):
            raise InvalidInput(f"columns must be names, as in Mean('age', 'chol'), not {name!r}")
    if len(columns) < least:
        wanted = "at least one column" if least == 1 else f"at least {least} columns"
        raise InvalidInput(f"{wanted} must be named, not {list(columns)!r}")
    if len(set(columns)) != len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise InvalidInput(f"columns must be different; {twice!r} is named twice")
    return columns


def features_of(given: Any, intercept: bool) -> tuple[str, ...]:
    """Return the features of a regression, one name or several; "intercept" is a label of its own."""
    features = names((given,) if isinstance(given, str) else given)
    if intercept and "intercept" in features:
        raise InvalidInput(
            "a feature must not be called 'intercept' where there is an intercept: rename the column, or set "
            "intercept=False"
        )
    return features


def regression(
    target: Any, features: Any, *, intercept: Any, ridge: Any, norm: float | None
) -> dict[str, Any]:
    """Return the arguments that regressions have in common, or raise `InvalidInput`."""
    if not isinstance(target, str):
        raise InvalidInput(f"target must be a column's name, not {target!r}")
    if not isinstance(intercept, bool):
        raise InvalidInput(f"intercept must be True or False, not {intercept!r}")
    if isinstance(ridge, str) and ridge != "auto":
        raise InvalidInput(f"ridge must be 'auto' or a number, not {ridge!r}")
    return {
        "target": target,
        "features": features_of(features, intercept),
        "intercept": intercept,
        "ridge": ridge if isinstance(ridge, str) else check.real("ridge", ridge, least=0.0),
        "norm": None if norm is None else check.real("norm", norm, above=0.0),
    }


def conditions(label: str, columns: Sequence[str], schema: Schema) -> str:
    """Return a label such as 'sex=male, ill=yes', with conditions on these columns in turn, for readers."""
    parts = [label]
    for name in columns:
        head, found, value = parts[-1].partition(f", {name}=")
        if found:
            parts[-1:] = [head, f"{name}={value}"]
    return ", ".join(map(schema.title, parts))


def joined(columns: Sequence[str]) -> str:
    """Return names as a sentence has them: 'age, chol and bmi'."""
    if len(columns) < 2:
        return "".join(columns)
    return f"{', '.join(columns[:-1])} and {columns[-1]}"


def digits_apart(rising: Sequence[float]) -> int:
    """Return how many digits are needed for rising numbers to differ as text."""
    for digits in range(4, _MOST_DIGITS):
        if all(a != b for a, b in itertools.pairwise(f"{number:.{digits}g}" for number in rising)):
            return digits
    return _MOST_DIGITS


def written(number: float, digits: int) -> str:
    """Return a number as text with `digits` digits, or in full."""
    return repr(number) if digits == _MOST_DIGITS else f"{number:.{digits}g}"
