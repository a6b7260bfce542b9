"""A study file as the fields of a form: what it shows of the text, which stays the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from cape.analyses.registry import KINDS
from cape.desk.coordinator.inputs import Option, options, written
from cape.desk.coordinator.study import parse_toml

__all__ = [
    "ABOUT",
    "MOST",
    "PRIVACY",
    "Analysis",
    "Column",
    "Fields",
    "Site",
    "column_of",
    "fields_of",
    "mapping",
    "table_of",
    "text_of",
]

ABOUT = ("name", "description", "where")
"""The keys of [study] that have a field."""
PRIVACY = ("epsilon", "delta", "colluding", "min_sites", "noise", "scheme", "neighbours")
"""Those of [privacy]."""
MOST = 300
"""Rows of a form."""


@dataclass(frozen=True)
class Column:
    """A column of [schema]; `kind` is "number", "category", or "other" if no field suits it."""

    name: str
    kind: str = "number"
    low: str = ""
    high: str = ""
    values: str = ""
    unit: str = ""
    label: str = ""
    mean: str = ""
    sd: str = ""
    missing: bool = True


@dataclass(frozen=True)
class Site:
    """A site: whether it takes part, whether its key is pinned, and the rows that are expected there."""

    name: str
    asked: bool = True
    pinned: bool = True
    rows: str = ""


@dataclass(frozen=True)
class Analysis:
    """An [[analysis]]: its kind, share, and for each option what its field shows."""

    kind: str
    share: str = ""
    values: Mapping[str, str | list[str]] = field(default_factory=dict)

    @property
    def options(self) -> tuple[Option, ...]:
        """What may be said of it; nothing if its kind is unknown."""
        return options(self.kind) if self.kind in KINDS else ()


@dataclass(frozen=True)
class Fields:
    """All that the form shows.

    Attributes:
        names: the columns that an analysis may name, derived ones and "site" among them.
        others: sections that the form keeps and does not show.
    """

    about: Mapping[str, str]
    privacy: Mapping[str, str]
    columns: Sequence[Column]
    sites: Sequence[Site]
    analyses: Sequence[Analysis]
    names: Sequence[str] = ()
    others: Sequence[str] = ()


def fields_of(text: str, pinned: Sequence[str] = ()) -> Fields:
    """Return the fields of a study; raise `InvalidInput` if the text is not TOML."""
    told = parse_toml(text)
    about, privacy, schema, sites = (table_of(told, name) for name in ("study", "privacy", "schema", "sites"))
    columns = [column_of(name, described) for name, described in schema.items()]
    listed = [
        Site(name, name in sites, name in pinned, text_of(mapping(sites.get(name)).get("rows")))
        for name in dict.fromkeys([*pinned, *sites])
    ]
    analyses = told.get("analysis")
    names = [*schema, *table_of(told, "derive"), "site"]
    return Fields(
        {name: text_of(about.get(name)) for name in ABOUT},
        {name: text_of(privacy.get(name)) for name in PRIVACY},
        columns[:MOST],
        listed[:MOST],
        [_analysis(each) for each in (analyses if isinstance(analyses, list) else ())][:MOST],
        list(dict.fromkeys(names)),
        [name for name in told if name not in ("study", "privacy", "schema", "sites", "analysis")],
    )


def column_of(name: str, described: Any) -> Column:
    """Return what the form shows of a column."""
    given = described if isinstance(described, Mapping) else {}
    bounds = described if isinstance(described, list) else given.get("bounds")
    values = given.get("categories")
    if isinstance(bounds, list) and bounds and all(isinstance(each, str) for each in bounds):
        bounds, values = None, bounds
    expected = mapping(given.get("expected"))
    shown: dict[str, Any] = {
        "unit": text_of(given.get("unit")),
        "label": text_of(given.get("label")),
        "mean": text_of(expected.get("mean")),
        "sd": text_of(expected.get("sd")),
        "missing": given.get("missing", True) is not False,
    }
    if isinstance(values, list):
        return Column(name, "category", values=written("list", values), **shown)
    if isinstance(bounds, list) and len(bounds) == 2:
        return Column(name, "number", text_of(bounds[0]), text_of(bounds[1]), **shown)
    if {"low", "high"} & set(given) or described == {}:
        return Column(name, "number", text_of(given.get("low")), text_of(given.get("high")), **shown)
    return Column(name, "other")


def _analysis(described: Any) -> Analysis:
    given = mapping(described)
    kind = str(given.get("kind", ""))
    values: dict[str, str | list[str]] = {}
    for option in options(kind) if kind in KINDS else ():
        told = given.get(option.name)
        if option.kind == "flag":
            values[option.name] = "yes" if told is True or (told is None and option.flag) else ""
        elif option.kind == "columns":
            values[option.name] = _listed(told)
        else:
            values[option.name] = written(option.kind, told)
    return Analysis(kind, text_of(given.get("share")), values)


def _listed(told: Any) -> list[str]:
    """Return the columns that are ticked; what is no list of names is one text, in brackets."""
    if told is None:
        return []
    if isinstance(told, str):
        return [told]
    plain = isinstance(told, list) and all(isinstance(each, str) and each[:1] not in "[{" for each in told)
    return list(told) if plain else [written("value", told)]


def table_of(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section, empty if it is missing or something else."""
    return mapping(told.get(name))


def mapping(told: Any) -> Mapping[str, Any]:
    """Return a table, empty if it is something else."""
    return told if isinstance(told, Mapping) else {}


def text_of(value: Any) -> str:
    """Return a value as its field shows it."""
    return value.isoformat() if isinstance(value, date) else written("value", value)
