"""Documents decoded into structs: every error names the file, section and key.

The types of a struct's fields say what is valid, with a sentence where the type says too little, as in
`Meta(gt=0, description="must be a finite number above 0")`. `decode` refuses invalid values and unknown keys.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, inspect

from cape.core import check
from cape.core.check import hint
from cape.core.errors import InvalidInput

__all__ = ["Count", "Delta", "Epsilon", "Natural", "Text", "at", "decode", "one_of", "parse", "read", "shown"]

Text = Annotated[str, Meta(pattern=r"\S")]
Natural = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Epsilon = Annotated[float, Meta(gt=0, le=sys.float_info.max, description="must be a finite number above 0")]
Delta = Annotated[
    float, Meta(ge=0, lt=1, description="must lie between 0 and 1; leave it out for a budget without delta")
]

_Kind = TypeVar("_Kind")
_LONGEST, _PLACE = 600, 250  # characters
_MOST = 1 << 20  # bytes of a file that people write
_QUOTED = re.compile(  # strings and comments; an unterminated one takes the rest
    r"""\"{3}(?:\\.|[^\\])*?(?:\"{3}|\\?\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|\#[^\n]*""",
    re.DOTALL,
)
_DEEP = re.compile(r"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){8}")  # a key of nine names
_PATH = re.compile(r" - at `(?:key` in `)?\$([^`]*)`\Z")  # the path in an error of msgspec
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Prefix errors raised inside with a place, and keep them short and printable."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{check.plain(place, _PLACE)}: {check.plain(str(error), _LONGEST)}") from None


def read(
    path: str | Path, what: str, instead: str = "give the path of a TOML file", most: int = _MOST
) -> str:
    """Return the text of a file of limited size, or raise `InvalidInput`."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(f"path must be that of a TOML file, not {check.show(path)}")
    try:
        with open(path, "rb") as file:  # the size of a pipe or a device is not known in advance
            data = file.read(most + 1)
        if len(data) > most:
            raise InvalidInput(f"{path} is larger than {most >> 10} kB, the limit for such a file")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"no {what} {str(path)!r}; {instead}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not a TOML file: it is not written in UTF-8; {instead}") from None


def parse(path: Path, text: str) -> dict[str, Any]:
    """Return the contents of a TOML file, or raise `InvalidInput`.

    A key of many names (a.b.c...) is refused before it is parsed: the memory that `tomllib` needs grows with
    the square of their number, a gigabyte for 30 kB.
    """
    if _DEEP.search(_QUOTED.sub("q", text)):
        raise InvalidInput(f"{path} has a key of more than eight names with dots between them")
    try:
        return tomllib.loads(text)
    except RecursionError:
        problem = "its brackets are nested too deeply"
    except ValueError as error:  # also raised for numbers with thousands of digits
        problem = str(error)
    if re.search(r"^\s*\[analysis\]", text, re.MULTILINE):
        problem += "; each analysis begins with [[analysis]], in double brackets"
    raise InvalidInput(f"{path} is not a TOML file: {check.plain(problem, _LONGEST)}")


def decode(given: Any, kind: type[_Kind], *, file: bool = False) -> _Kind:
    """Return a mapping as a struct, or raise `InvalidInput`; the keys of a `file` are sections."""
    try:
        return msgspec.convert(given, kind, builtin_types=(date,))  # a date in quotes stays a text
    except msgspec.ValidationError as error:
        problem = _explain(given, kind, error, file)
    raise InvalidInput(problem)


def one_of(name: str, value: str, known: Iterable[str]) -> str:
    """Return the value if it is known, or raise an error that suggests a similar one."""
    names = list(known)
    if value not in names:
        raise InvalidInput(f"unknown {name} {check.show(value)}{hint(value, names)}")
    return value


def _explain(given: Any, kind: Any, error: msgspec.ValidationError, file: bool) -> str:
    """Return what is wrong, where, and what to write instead."""
    found = _PATH.search(str(error))
    shape, places = inspect.type_info(kind), list[str]()
    for key, index in _STEP.findall(found[1] if found else ""):
        plain, _ = _describe(shape)
        if isinstance(plain, inspect.StructType):
            shape = next(field.type for field in plain.fields if field.encode_name == key)
            places.append(f"[{key}]" if file and not places else key)
            given = given[key]
        elif isinstance(plain, inspect.ListType):
            shape = plain.item_type
            places[-1] = f"entry {int(index) + 1} of {places[-1]}"
            given = given[int(index)]
    if error.__cause__ is not None:  # a check of our own
        return ": ".join([*places, str(error.__cause__)])
    plain, wanted = _describe(shape)
    if isinstance(plain, inspect.StructType) and isinstance(given, Mapping):
        return ": ".join([*places, _wrong_key(given, plain, file and not places)])
    subject = places.pop() if places else "the document"
    return ": ".join([*places, f"{subject} {wanted}, not {shown(given)}"])


def _wrong_key(given: Mapping[str, Any], shape: inspect.StructType, section: bool) -> str:
    fields = {field.encode_name: field for field in shape.fields}
    for key in given:
        if key not in fields and section:
            return f"unknown section [{check.plain(str(key))}]{hint(key, fields)}"
        if key not in fields:
            return f"unknown key {check.show(key)}{hint(key, fields)}"
    name = next(name for name, field in fields.items() if field.required and name not in given)
    told = f"the section [{name}] is missing" if section else f"the key {name!r} is missing"
    described = isinstance(fields[name].type, inspect.Metadata)
    return f"{told}: it {_describe(fields[name].type)[1]}" if described else told


def _describe(shape: inspect.Type) -> tuple[inspect.Type, str]:
    """Return a type, without an optional None, and what a value of it must be."""
    match shape:
        case inspect.Metadata(type=inner, extra_json_schema=said):
            plain, wanted = _describe(inner)
            return plain, str((said or {}).get("description", wanted))
        case inspect.UnionType(types=kinds):
            return _describe(kinds[0])
        case inspect.BoolType():
            return shape, "must be true or false"
        case inspect.LiteralType(values=values):
            return shape, "must be " + " or ".join(f'"{value}"' for value in values if value)
        case inspect.IntType(ge=least):
            return shape, "must be an integer" + ("" if least is None else f" at least {least}")
        case inspect.ListType():
            return shape, "must be a list"
        case inspect.StructType() | inspect.DictType():
            return shape, "must be a table with keys"
        case _:
            return shape, "must be a text"


def shown(value: Any) -> str:
    """Return a value as an error shows it, without the contents of a table or a list."""
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list) else check.show(value)
