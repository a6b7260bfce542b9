"""The fields of a form for the arguments of an analysis, made from what its class says of itself.

Names, defaults and types come from the signature, choices from `Literal` types, hints from the docstring. An
analysis that is added to the registry has its form; what no field suits is written as TOML.
"""

from __future__ import annotations

import csv
import inspect
import re
import sys
import textwrap
import tomllib
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from cape.analyses.registry import KINDS, keys_of
from cape.data.troubles import toml
from cape.engine.query import Analysis

__all__ = ["Kind", "Option", "kinds", "options", "parsed", "value_of", "written"]

Kind = Literal["column", "columns", "flag", "choice", "text", "list", "value"]
"""How an argument is asked for: one column, several, yes or no, one of some words, a text, a list with commas
between its items, or a value: a number, a word or TOML in brackets."""

_COLUMN = ("column", "time", "event", "by", "target", "entry", "offset", "weights")
_COLUMNS = ("columns", "features", "strata")
_COMMON = ("columns", "features", "formula", "target", "by", "time", "event")
_LISTS = ("Iterable[", "Sequence[", "tuple[")
_HINT = 160  # characters


@dataclass(frozen=True)
class Option:
    """One argument of an analysis: its key in a study file, and how it is asked for.

    Attributes:
        default: what holds where it is left out, as a study file would write it; empty for nothing.
        flag: what a flag is where it is left out.
        rare: whether most studies leave it out.
    """

    name: str
    kind: Kind
    required: bool = False
    default: str = ""
    flag: bool = False
    choices: tuple[str, ...] = ()
    hint: str = ""
    rare: bool = False

    @property
    def label(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ")


@cache
def kinds() -> dict[str, str]:
    """Return the kinds of analyses of the registry, and what each is about, in a sentence."""
    return {
        kind: (inspect.getdoc(made) or "").partition("\n")[0].replace("`", "") for kind, made in KINDS.items()
    }


@cache
def options(kind: str) -> tuple[Option, ...]:
    """Return what may be said of an analysis of this kind, besides its share."""
    made = KINDS[kind]
    parameters = inspect.signature(made).parameters
    hints = _hints(inspect.getdoc(made) or "")
    found = []
    for key in keys_of(kind):
        if key == "checkpoint":  # it names a file
            continue
        parameter = parameters.get(key)
        found.append(_option(key, parameter, hints.get(key, ""), made))
    return tuple(found)


def _option(key: str, parameter: inspect.Parameter | None, hint: str, made: type[Analysis]) -> Option:
    """Return how one argument is asked for; None is an option that the signature does not name."""
    empty = inspect.Parameter.empty
    many = parameter is not None and parameter.kind is inspect.Parameter.VAR_POSITIONAL
    default = None if parameter is None or many or parameter.default is empty else parameter.default
    annotation = "" if parameter is None or parameter.annotation is empty else str(parameter.annotation)
    required = parameter is not None and not many and parameter.default is empty
    kind: Kind
    choices: tuple[str, ...] = ()
    if isinstance(default, bool):
        kind = "flag"
    elif key in _COLUMNS:
        kind = "columns"
    elif key in _COLUMN:
        kind = "column"
    elif choices := _choices(annotation, made):
        kind = "choice"
    elif annotation in ("str", "str | None") or key == "where":
        kind = "text"
    elif any(name in annotation for name in _LISTS) and "Mapping" not in annotation:
        kind = "list"
    else:
        kind = "value"
    rare = not (required or key in made.example or key in _COMMON)
    shown = "" if default is None or default == () else written(kind, default)
    return Option(key, kind, required, shown, default is True, choices, hint, rare)


def _choices(annotation: str, made: type[Analysis]) -> tuple[str, ...]:
    """Return the words of a `Literal`, written out or by a name of the module; empty for other types."""
    found = re.fullmatch(r"Literal\[(.*)\]", annotation)
    if found:
        return tuple(word.strip().strip("'\"") for word in found[1].split(","))
    named = vars(sys.modules[made.__module__]).get(annotation)
    return tuple(map(str, typing.get_args(named))) if typing.get_origin(named) is Literal else ()


def _hints(doc: str) -> dict[str, str]:
    """Return what a docstring says of each argument: the first sentence."""
    found = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    said: dict[str, str] = {}
    for names, text in re.findall(
        r"^    (\w[\w, ]*): ((?:.*\n?)(?:^     +.*\n?)*)", found[1] if found else "", re.MULTILINE
    ):
        sentence = re.split(r"(?<=[.;]) ", " ".join(text.split()))[0].rstrip(".;").replace("`", "")
        said |= {
            name.strip(): textwrap.shorten(sentence, _HINT, placeholder=" ...") for name in names.split(",")
        }
    return said


def written(kind: Kind, value: Any) -> str:
    """Return a value of a study file as a field shows it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and kind in ("list", "columns", "value"):
        items = [each if isinstance(each, str) else toml(each) for each in value]
        if all(isinstance(each, (str, int, float)) for each in value) and parsed(
            "list", _joined(items)
        ) == list(value):
            return _joined(items)
    return toml(value)


def parsed(kind: Kind, text: str) -> Any:
    """Return what a field says, as a study file holds it; None if it is empty."""
    text = text.strip()
    if not text:
        return None
    if text[0] in "[{":
        try:
            return tomllib.loads(f"value = {text}\n")["value"]
        except (ValueError, RecursionError):
            return text  # the study's own check says what is wrong
    if kind in ("list", "columns"):
        return [_typed(each) for each in _split(text)]
    if kind == "value" and "," in text:
        return [_typed(each) for each in _split(text)]
    return text if kind in ("text", "choice", "column") else _typed(text)


def value_of(option: Option, sent: Sequence[str]) -> Any:
    """Return what the fields of an option say, as a study file holds it; None to leave it out."""
    if option.kind == "flag":
        told = "yes" in sent
        return None if told == option.flag else told
    if option.kind == "columns":
        listed = [each for each in sent if each]
        if len(listed) == 1 and listed[0][0] in "[{":
            return parsed("columns", listed[0])
        return listed or None
    return parsed(option.kind, sent[-1] if sent else "")


def _joined(items: Sequence[str]) -> str:
    """Return items with commas between them; quotes around those with a comma or a quote."""
    return ", ".join(
        f'"{item.replace(chr(34), chr(34) * 2)}"' if set(item) & {",", '"'} else item for item in items
    )


def _split(text: str) -> list[str]:
    try:
        rows = list(csv.reader([" ".join(text.split())], skipinitialspace=True))
    except csv.Error:
        return [text]
    return [item.strip() for item in rows[0] if item.strip()] if rows else []


def _typed(text: str) -> Any:
    """Return a number as a number, and true or false as that."""
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        return number if abs(number) < 1e300 and "_" not in text else text
    return text
