"""The text of a new study file, with places for bounds and categories and comments on what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cape.analyses.registry import build
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.clinical import is_sex, measure_of
from cape.data.troubles import toml, toml_key
from cape.engine.plan import noise_ratio
from cape.engine.schemes import Parties
from cape.engine.stages import Setting
from cape.noise import Kind
from cape.privacy import Budget
from cape.study.blanks import CATEGORY, COLUMN, HIGH, LOW, MARK, SITE

__all__ = ["Draft"]

_WIDTH = 80
_MANY = "table-one"  # what a new study asks of several columns
_ONE = {"number": "mean", "text": "proportion"}  # and of one: its noise may be Laplace's, which is less
_SAME = 0.95  # times as much noise: no less worth a word


@dataclass(frozen=True)
class Draft:
    """What a new study file says.

    Attributes:
        source: the name of the file that the columns come from.
        kinds: "number", "date", "text" or "unknown", by column.
        ids: columns that look like identifiers of persons.
        sites: the entry of each site in [sites].
        suggest: whether to propose bounds by name.
        found: bounds and categories that were read from rows, by column.
    """

    name: str
    source: str
    epsilon: float
    delta: float
    kinds: Mapping[str, str]
    ids: Sequence[str]
    sites: Mapping[str, Any]
    suggest: bool = False
    found: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """Return the file; `path` is its name, for the commands in its comments."""
        many = self._kind == _MANY
        lines = [
            f"# Written by `cape init` from the header of {self.source} and the type of each column",
            "# (number, date or text), taken from the file's types or from its first rows.",
            "# Everyone in the study sees this file. Bounds and categories come from public",
            "# knowledge (a codebook, the literature, an instrument), not from the rows.",
            "#",
            '# Fill in each "<...>", and delete the columns that the study does not need, in',
            "# [schema] and in [[analysis]]. Then:",
            f"#   cape check {path}    what is wrong with the rows, all at once",
            f"#   cape plan {path}     how much noise, and what it costs",
            f"#   cape run {path}      the results",
            "",
            *self._mark(),
            "[study]",
            f"name = {toml(self.name)}",
            "",
            "[privacy]",
            f"epsilon = {self.epsilon:g}  # for the whole study; less protects better",
            f"delta = {self.delta:g}  # far below 1 / number of persons",
            *self._noise(),
            "# colluding = 1  # how many sites may side with the aggregator",
            "",
            *self._person(),
            "[schema]",
            "# Numbers: low and high, between which nearly everyone lies; a cell beyond counts as",
            "# the bound. Texts: all categories; others are compared with the first. Numbers",
            "# that are codes have categories too: {categories = [0, 1]}. Counts, and ages in",
            "# whole years: {low = 0, high = 40, integer = true}.",
            *(self._column(name, kind) for name, kind in self.kinds.items()),
            "",
            "[sites]",
            "# A path, or {} for a site whose rows are on its own machine.",
            *(f"{toml_key(name)} = {toml(entry)}" for name, entry in self.sites.items()),
            *(
                [f"{toml_key(SITE)} = {{}}  # the name of another site; there must be two"]
                * (len(self.sites) < 2)
            ),
            "",
            "[[analysis]]",
            f"kind = {toml(self._kind)}",
            *_listed(list(self._asked)),
            *(['# by = "..."  # a column with categories: the table then has a column for each'] * many),
        ]
        return "\n".join(lines) + "\n"

    def _noise(self) -> list[str]:
        """Return the kind of noise that is proposed for the analysis below, and why."""
        kind, why = self._proposed()
        return [
            f"# Proposed: {kind} noise, because {why[0]}",
            *(f"# {line}" for line in why[1:]),
            f"noise = {toml(kind)}",
            '# "laplace" has less noise where a few means, shares or counts are all that is asked, and',
            '# needs no delta; "gaussian" where many numbers are, and some analyses have no other.',
            "# `cape plan` compares both for the whole study. Decide before the first release: a budget",
            "# that is spent on one kind leaves little room for the other.",
        ]

    def _proposed(self) -> tuple[Kind, list[str]]:
        """Compare both kinds for the analysis below, over columns with any bounds and two categories."""
        columns = {name: (0, 1) if kind == "number" else ["a", "b"] for name, kind in self._asked.items()}
        if not columns:
            return "gaussian", ["it is the default; nothing is asked yet."]
        setting = Setting(Schema(columns), Budget(self.epsilon, self.delta), Parties(3, 0, 3), "replace-one")
        asked = build({"kind": self._kind, "columns": list(columns)})
        try:
            times = noise_ratio(asked, setting, "cape", 1.0, None)
        except InvalidInput:
            return "gaussian", [
                f"the analysis below ({self._kind}) has no",
                "other. If only a mean or a few are asked, laplace has less.",
            ]
        if times is None or _SAME < times < 1 / _SAME:
            return "gaussian", ["with laplace the error of the analysis", "below would be the same."]
        kind: Kind = "gaussian" if times > 1 else "laplace"
        other, more = ("laplace", times) if times > 1 else ("gaussian", 1 / times)
        return kind, [
            "the error that noise makes in the analysis",
            f"below would be {more:.2g} times as large with {other}.",
        ]

    @property
    def _kind(self) -> str:
        """The analysis that is asked below."""
        kinds = list(self._asked.values())
        return _ONE.get(kinds[0], _MANY) if len(kinds) == 1 else _MANY

    @property
    def _asked(self) -> dict[str, str]:
        """The columns that are asked about, with their kinds."""
        return {name: kind for name, kind in self.kinds.items() if kind != "date"}

    def _mark(self) -> list[str]:
        if not self.found:
            return []
        return [
            "# Bounds and categories below were read from the rows of one site, and tell about its",
            "# patients. Replace them by public knowledge, then delete the next line.",
            f'{MARK} = "bounds and categories were read from rows"',
            "",
        ]

    def _person(self) -> list[str]:
        if not self.ids:
            return []
        return [
            "# If a person may have several rows, delete the signs # of these lines:",
            "# [person]",
            f"# id = {toml(self.ids[0])}" + "".join(f"  # or {toml(each)}" for each in self.ids[1:]),
            "# rows = 1  # how many rows of a person count at most",
            "",
        ]

    def _column(self, name: str, kind: str) -> str:
        start = f"{toml_key(name)} = "
        if name in self.found:
            return start + _read(kind, self.found[name]) + "  # from the rows"
        if self.suggest and kind != "date" and (found := measure_of(name)):
            measure, unit = found
            low, high = measure.bounds(unit)
            entry = {"low": low, "high": high, "unit": unit}
            return f"{start}{toml(entry)}  # suggested by its name: check bounds and unit"
        if self.suggest and kind in ("text", "unknown") and is_sex(name):
            return f"{start}{toml(['female', 'male'])}  # suggested by its name: check"
        if kind == "number":
            return start + toml({"low": LOW, "high": HIGH})
        if kind == "date":
            return start + toml({"low": LOW, "high": HIGH}) + "  # dates, as in 2015-01-31"
        return start + toml([CATEGORY, CATEGORY] if kind == "text" else COLUMN)


def _read(kind: str, found: Sequence[Any]) -> str:
    if kind == "text":
        return toml(list(found))
    low, high = found
    if kind == "date":
        return f"{{low = {low}, high = {high}}}"
    return toml({"low": float(low), "high": float(high)})


def _listed(names: Sequence[str]) -> list[str]:
    """Return the columns of an analysis, in lines that fit on a screen."""
    lines, line = [], "columns = ["
    for place, name in enumerate(names):
        item = toml(name) + ("]" if place == len(names) - 1 else ", ")
        if len(line) + len(item.rstrip()) > _WIDTH:
            lines.append(line.rstrip())
            line = "  "
        line += item
    return [*lines, line]
