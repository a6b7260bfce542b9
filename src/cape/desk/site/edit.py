"""A policy as a form: each field is one key of site.toml, which is edited with its comments kept.

The form has no rule of its own. What a person writes becomes a TOML value, and the policy's own reader says
what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError
from tomlkit.items import Array

from cape.analyses import KINDS
from cape.core.errors import InvalidInput
from cape.site.decide.policy import SCHEMES

__all__ = ["FIELDS", "Field", "Sheet", "read", "shown"]

Kind = Literal["text", "date", "one", "flag", "number", "many", "pair", "value"]


@dataclass(frozen=True)
class Field:
    """One key of site.toml.

    Attributes:
        kind: how it is asked for. A "pair" is an epsilon and a delta; a "value" is TOML as people write it.
        of: what can be chosen, with words for each.
        default: what counts if the key is missing.
    """

    section: str
    key: str
    kind: Kind
    label: str
    hint: str = ""
    of: tuple[tuple[str, str], ...] = ()
    default: Any = None
    optional: bool = False

    @property
    def name(self) -> str:
        """Its name in the form."""
        return f"{self.section}.{self.key}"


_PAIR = "A smaller epsilon protects better. Delta may be empty: then only Laplace noise is covered."

_NOISE = {
    "cape": "the noise of all honest sites together protects you",
    "conventional": "your noise alone protects you; answers are less accurate",
}

FIELDS = (
    Field(
        "site",
        "approve",
        "one",
        "Who decides on a study",
        "Studies are answered within this policy only, in either case.",
        (
            ("ask", "A steward approves each study first"),
            ("auto", "What the policy allows is answered at once"),
        ),
    ),
    Field(
        "site",
        "approvals",
        "number",
        "How many stewards must approve a study",
        "With 2, two different people must approve. One refusal refuses.",
        default=1,
        optional=True,
    ),
    Field("site", "expires", "date", "The last day on which anything is answered (UTC)"),
    Field(
        "site",
        "expected_rows",
        "number",
        "A public estimate of the number of rows",
        "Needed where the number itself is private: with add-remove, or with persons at several sites.",
        optional=True,
    ),
    Field(
        "allow",
        "analyses",
        "many",
        "Kinds of analyses that are answered",
        of=tuple((kind, kind) for kind in KINDS),
    ),
    Field("allow", "columns", "many", "Columns that may be used", optional=True),
    Field(
        "allow",
        "by_site",
        "flag",
        "Results may be given for each site",
        "Noise protects each person either way; this protects what your site as a whole is like.",
        default=True,
        optional=True,
    ),
    Field(
        "allow",
        "synthetic",
        "flag",
        "Tables may be measured to draw synthetic rows from",
        default=True,
        optional=True,
    ),
    Field(
        "allow",
        "ways",
        "number",
        "How many columns a table of counts may have",
        "Empty: any number.",
        optional=True,
    ),
    Field(
        "allow",
        "schemes",
        "many",
        "Noise",
        of=tuple((name, f"{name}: {_NOISE[name]}") for name in SCHEMES),
        default=["cape"],
        optional=True,
    ),
    Field(
        "allow",
        "adjacency",
        "many",
        "Which tables must be indistinguishable",
        of=(
            ("replace-one", "replace-one: they differ in one row; the number of rows is public"),
            ("add-remove", "add-remove: one has one row more; the number of rows is private"),
        ),
        default=["replace-one"],
        optional=True,
    ),
    Field("protect", "min_rows", "number", "With fewer rows than this nothing is answered"),
    Field("protect", "other_honest", "number", "How many other honest sites must be in every sum"),
    Field(
        "protect",
        "colluding",
        "number",
        "How many sites a study must at least assume to collude with the aggregator",
        default=0,
        optional=True,
    ),
    Field("budget", "release", "pair", "The most that one analysis may cost", _PAIR),
    Field("budget", "coordinator", "pair", "What each coordinator may spend in a year"),
    Field("budget", "year", "pair", "What all of them together may spend in a year"),
    Field("budget", "total", "pair", "What may be spent ever"),
)
"""The keys that have a field of their own; columns follow from the schema, and all else is in the file."""


class Sheet:
    """A text of site.toml, to be read and changed field by field.

    Raises:
        InvalidInput: it is not TOML, or a section is not a table; it can only be edited as text.
    """

    def __init__(self, text: str) -> None:
        try:
            self._document = tomlkit.parse(text)
        except (ParseError, TOMLKitError, ValueError, RecursionError) as error:
            raise InvalidInput(f"site.toml is not valid TOML: {error}") from None
        for name in ("site", "schema", "allow", "protect", "budget"):
            if not isinstance(self._document.get(name, {}), Mapping):
                raise InvalidInput(f"{name} in site.toml must be a section")

    @property
    def text(self) -> str:
        """The text, as changed so far."""
        return self._document.as_string()

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields: those of every policy, and one for each column of the schema."""
        return (*map(self._known, FIELDS), *(self.column(name) for name in self._section("schema")))

    def _known(self, field: Field) -> Field:
        """Let a person choose among the columns that there are; take the name of a key that the file has."""
        if field.name == "allow.columns":
            names = [str(name) for name in self._section("schema")]
            return replace(field, of=tuple((name, name) for name in names), default=names)
        if field.name == "allow.adjacency" and "neighbours" in self._section("allow"):
            return replace(field, key="neighbours")
        return field

    @staticmethod
    def column(name: str) -> Field:
        """Return the field of a column of the schema."""
        return Field("schema", name, "value", name, optional=True)

    def keys(self, section: str) -> list[str]:
        """Return the keys that a section has."""
        return [str(key) for key in self._section(section)]

    def get(self, field: Field) -> Any:
        """Return the current value, as plain data: the default where the key is missing."""
        section = self._section(field.section)
        if field.key not in section:
            return field.default
        value = section[field.key]
        if field.kind == "value":
            return value.as_string() if hasattr(value, "as_string") else str(value)
        return value.unwrap() if hasattr(value, "unwrap") else value

    def set(self, field: Field, value: Any) -> None:
        """Change a key; None removes it."""
        section = self._section(field.section)
        if value is None:
            section.pop(field.key, None)
        elif field.key not in section:
            self._insert(field, value)
        elif field.kind == "pair" and isinstance(section[field.key], Mapping):
            _update(section[field.key], value)
        elif field.kind == "many" and isinstance(section[field.key], Array):
            _choose(section[field.key], value)
        elif field.kind == "value":
            section[field.key] = _parsed(field, value)
        else:
            section[field.key] = value

    def _section(self, name: str) -> Any:
        return self._document.get(name, {})

    def _insert(self, field: Field, value: Any) -> None:
        """Add a key: after the comment that shows it, or else at the start of its section."""
        item = _parsed(field, value) if field.kind == "value" else tomlkit.item(value)
        line = f"{tomlkit.key(field.key).as_string()} = {item.as_string()}\n"
        text = self.text
        header = re.search(rf"^[ \t]*\[[ \t]*{re.escape(field.section)}[ \t]*\][^\n]*\n", text, re.MULTILINE)
        if header is None:
            self._take(field, f"{text.rstrip()}\n\n[{field.section}]\n{line}")
            return
        following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, header.end())
        end = len(text) if following is None else following.start()
        shown = re.compile(rf"^#[ \t]*{re.escape(field.key)}[ \t]*=[^\n]*\n", re.MULTILINE)
        place = shown.search(text, header.end(), end)
        at = header.end() if place is None else place.end()
        self._take(field, text[:at] + line + text[at:])

    def _take(self, field: Field, text: str) -> None:
        """Take a text with one more key, unless it came to stand elsewhere, or is no TOML."""
        try:
            found = tomlkit.parse(text)
            added = field.key in found[field.section] and len(found) <= len(self._document) + 1
        except (TOMLKitError, ValueError, LookupError, TypeError):
            added = False
        if not added:
            raise InvalidInput(f"{field.key} cannot be added to [{field.section}] here; edit the whole file")
        self._document = found


def _parsed(field: Field, value: str) -> Any:
    try:
        found = tomlkit.parse(f"x = {value.strip()}\n")
    except (ParseError, TOMLKitError, ValueError, RecursionError):
        found = tomlkit.document()
    if list(found) != ["x"]:
        raise InvalidInput(
            f'{field.key} must be TOML, as in [18, 90] or ["female", "male"] or {{low = 0, high = 10}}'
        )
    return found["x"]


def _update(table: Any, value: Mapping[str, Any]) -> None:
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, each in value.items():
        if table.get(key) != each:
            table[key] = each


def _choose(array: Array, wanted: Iterable[str]) -> None:
    """Change a list entry by entry, so that line breaks and comments in it stay."""
    wanted = list(wanted)
    for place in reversed(range(len(array))):
        if array[place] not in wanted:
            del array[place]
    for each in wanted:
        if each not in array:
            array.append(each)


def shown(field: Field, value: Any) -> Any:
    """Return a value as a form shows it."""
    if field.kind == "pair":
        table = value if isinstance(value, Mapping) else {}
        return {
            name: "" if table.get(name) is None else _number(table[name]) for name in ("epsilon", "delta")
        }
    if field.kind == "many":
        return list(value) if isinstance(value, list) else []
    if value is None:
        return ""
    return value if isinstance(value, bool) else str(value)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def read(field: Field, get: Callable[[str], str], every: Callable[[str], list[str]]) -> Any:
    """Return what a person wrote, as a TOML value; what is no number stays text, for the policy's reader."""
    name = field.name
    if field.kind == "many":
        known, chosen = [each for each, _ in field.of], every(name)
        return [each for each in known if each in chosen] + [each for each in chosen if each not in known]
    if field.kind == "pair":
        given = {part: get(f"{name}.{part}").strip() for part in ("epsilon", "delta")}
        return {part: _float(text) for part, text in given.items() if text or part == "epsilon"}
    if field.kind == "flag":
        return bool(get(name))
    text = get(name).strip()
    if not text and field.optional:
        return None
    if field.kind == "date":
        try:
            return date.fromisoformat(text)
        except ValueError:
            return text
    return _whole(text) if field.kind == "number" else text


def _whole(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[+-]?\d{1,15}", text) else text


def _float(text: str) -> float | int | str:
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
