"""A study file read whole and checked before anything runs: names, keys, columns, and what it may cost."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cape import check
from cape.analyses import KINDS, build
from cape.analyses.registry import keys_of
from cape.data import Schema
from cape.data.schema import hint
from cape.engine.plan import Plan, make_plan
from cape.engine.query import Analysis, Neighbours
from cape.engine.result import Promise
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.setting import Setting
from cape.errors import InvalidInput, PrivacyLeakWarning
from cape.privacy import Budget, correlated
from cape.study import places
from cape.study.sites import TOO_FEW, Place, read_sites

if TYPE_CHECKING:
    from cape.engine.consortium import Consortium
    from cape.noise import SecureStream

__all__ = ["Entry", "Study"]

_SECTIONS = ("study", "privacy", "schema", "sites", "analysis")
_PRIVACY = ("epsilon", "delta", "colluding", "min_sites", "scheme", "neighbours")
_LARGE_EPSILON = 10.0
_LARGE_DELTA = 1e-3  # if nobody says how many rows there are
_FINEST = 10**9  # shares that the file leaves out are multiples of a billionth, and add up exactly


@dataclass(frozen=True)
class Entry:
    """One [[analysis]] of a study file: its number there, what is asked, and its share of the budget."""

    number: int
    analysis: Analysis
    share: float


@dataclass(frozen=True)
class Study:
    """What is asked of whom, at which price.

    >>> study = Study.load("study.toml")
    >>> consortium = study.consortium()
    >>> for entry in study.analyses:
    ...     print(consortium.release(entry.analysis, entry.share))
    """

    path: Path
    name: str
    description: str
    setting: Setting
    scheme: str
    sites: Mapping[str, Place]
    analyses: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read a study file; raise `InvalidInput` with its place if anything in it cannot be right.

        What can be right but protects little is a `PrivacyLeakWarning`, and stays in `warnings`. No site's
        file is opened: none of them has to be there.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidInput(
                f"path must be that of a TOML file, as in 'study.toml', not {check.show(path)}"
            )
        study = cls.parse(_text(Path(path)), Path(path))
        for text in study.warnings:
            warnings.warn(text, PrivacyLeakWarning, stacklevel=2)
        return study

    @classmethod
    def parse(cls, text: str, path: Path) -> Study:
        """Return the study that a text says; `path` is where it stands, for errors and for relative paths."""
        document = places.parse(path, text)
        with places.at(str(path)):
            return _read(path, document)

    @property
    def budget(self) -> Budget:
        """The whole budget, nothing of it spent."""
        return self.setting.budget

    @property
    def sizes(self) -> dict[str, int] | None:
        """The rows that people expect at each site, if the file says so."""
        sizes = {name: place.rows for name, place in self.sites.items() if place.rows is not None}
        return sizes or None

    def plan(self, entry: Entry, scheme: str | None = None) -> Plan:
        """Return what an analysis will do to privacy and accuracy. Opens no table."""
        kind = SCHEMES[scheme_name(scheme or self.scheme)]()
        return make_plan(entry.analysis, self.setting, kind, entry.share, self.sizes)

    def cost(self, entry: Entry) -> float:
        """Return what of the budget an analysis takes: its share, or nothing if what it asks is public."""
        return (
            entry.share if entry.analysis.query(self.setting.schema, self.setting.neighbours).blocks else 0.0
        )

    def total(self, entries: Sequence[Entry]) -> Budget:
        """Return the budget after these analyses."""
        budget = self.budget
        for entry in entries:
            budget = budget.spend(entry.share) if self.cost(entry) else budget
        return budget

    def promise(self, share: Fraction, scheme: str | None = None) -> Promise:
        """Return what releases promise that together spend this share."""
        promise = self.setting.promise(SCHEMES[scheme_name(scheme or self.scheme)](), float(share or 1))
        return promise if share or promise.mu == math.inf else replace(promise, mu=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return what everyone may know of it, as plain data: no path and no connection."""
        setting = self.setting
        return {
            "name": self.name,
            "description": self.description,
            "scheme": self.scheme,
            "epsilon": setting.budget.epsilon,
            "delta": setting.budget.delta,
            "colluding": setting.parties.colluding,
            "min_sites": setting.parties.min_sites,
            "neighbours": setting.neighbours,
            "schema": setting.schema.to_dict(),
            "sites": list(self.sites),
        }

    def consortium(self, *, scheme: str | None = None, stream: SecureStream | None = None) -> Consortium:
        """Open every site's table, and return the consortium that can answer."""
        from cape.engine.consortium import Consortium

        return Consortium(
            {name: place.source() for name, place in self.sites.items()},
            self.setting.schema,
            self.budget,
            colluding=self.setting.parties.colluding,
            min_sites=self.setting.parties.min_sites,
            scheme=scheme_name(scheme or self.scheme),
            neighbours=self.setting.neighbours,
            sizes=self.sizes,
            stream=stream,
        )


def scheme_name(name: Any) -> str:
    """Return the name of a scheme, or raise an error with the one that was probably meant."""
    return _one_of("scheme", name, list(SCHEMES))


def _text(path: Path) -> str:
    try:
        return places.read(path)
    except FileNotFoundError:
        raise InvalidInput(f"no study file {str(path)!r}; give the path of a TOML file") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not a TOML file: {error}") from None


def _read(path: Path, document: Mapping[str, Any]) -> Study:
    for name in document:
        if name not in _SECTIONS:
            raise InvalidInput(f"unknown section [{check.plain(name)}]{hint(name, _SECTIONS)}")
    about = places.section(document, "study")
    with places.at("[study]"):
        places.keys(about, ("name", "description"), ("name",))
        name = places.text("name", about["name"])
        description = places.text("description", about.get("description", name))
    schema_section = places.section(document, "schema")
    with places.at("[schema]"):
        schema = Schema(schema_section)
    sites = read_sites(places.section(document, "sites", TOO_FEW), path.parent)
    privacy = places.section(document, "privacy")
    with places.at("[privacy]"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyLeakWarning)  # kept for results and report, and given later
        setting, scheme = _privacy(privacy, schema, len(sites))
    entries = _entries(document.get("analysis"), setting)
    said = [str(warning.message) for warning in caught] + _weak(setting.budget, sites)
    if "description" not in about:
        description = ""
    return Study(path, name, description, setting, scheme, sites, entries, tuple(said))


def _weak(budget: Budget, sites: Mapping[str, Place]) -> list[str]:
    """Return what there is to be warned of in a budget that promises little."""
    said = []
    rows = sum(place.rows or 0 for place in sites.values())
    if budget.delta >= (1 / rows if rows else _LARGE_DELTA):
        most = f"1/rows = {1 / rows:.2g}" if rows else f"{_LARGE_DELTA:g}"
        said.append(
            f"delta = {budget.delta:g} is not below {most}: so large a delta would allow to publish "
            "somebody's whole row; take a much smaller one, such as 1e-6"
        )
    if budget.epsilon > _LARGE_EPSILON:
        said.append(
            f"epsilon = {budget.epsilon:g} is above {_LARGE_EPSILON:g}: it promises a person next to nothing"
        )
    return said


def _privacy(given: Mapping[str, Any], schema: Schema, sites: int) -> tuple[Setting, str]:
    places.keys(given, _PRIVACY, ("epsilon", "delta"))
    check.real("epsilon", given["epsilon"], above=0.0)
    colluding = given["colluding"] if "colluding" in given else correlated.default_colluding(sites)
    parties = Parties(sites, colluding, given.get("min_sites", sites))
    neighbours: Neighbours = _one_of(
        "neighbours", given.get("neighbours", "replace-one"), get_args(Neighbours)
    )  # type: ignore[assignment]
    budget = Budget(given["epsilon"], given["delta"])
    return Setting(schema, budget, parties, neighbours), scheme_name(given.get("scheme", "cape"))


def _entries(given: Any, setting: Setting) -> tuple[Entry, ...]:
    if (
        not isinstance(given, list)
        or not all(isinstance(described, dict) for described in given)
        or not given
    ):
        raise InvalidInput("there must be at least one [[analysis]], in two pairs of brackets")
    analyses, shares = [], []
    for number, described in enumerate(given, 1):
        with places.at(f"[[analysis]] {number}"):
            _check_keys(described)
            asked = {key: value for key, value in described.items() if key != "share"}
            analysis = build(asked)
            analysis.query(setting.schema, setting.neighbours)
            analyses.append(analysis)
            share = described.get("share")
            shares.append(None if share is None else check.real("share", share, above=0.0, most=1.0))
    return tuple(
        Entry(number, analysis, share)
        for number, (analysis, share) in enumerate(zip(analyses, _share_out(shares), strict=True), 1)
    )


def _check_keys(described: Mapping[str, Any]) -> None:
    """Raise an error for a key that this kind of analysis does not have; `build` tells of a wrong kind."""
    kind = described.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return
    keys = ["kind", *keys_of(kind), "share"]
    for key in described:
        if key not in keys:
            raise InvalidInput(f"an analysis of kind {kind!r} has no key {check.show(key)}{hint(key, keys)}")


def _share_out(shares: Sequence[float | None]) -> list[float]:
    """Return the shares, those left out getting an even part of what is left; together at most 1."""
    given = sum((Fraction(repr(share)) for share in shares if share is not None), Fraction(0))
    if given > 1:
        raise InvalidInput(f"the shares add up to {float(given):.6g}; they may add up to 1 at most")
    missing = sum(share is None for share in shares)
    left = int((1 - given) * _FINEST)
    if missing > left:
        raise InvalidInput(f"nothing is left of the budget for {missing} analyses without a share")
    whole, more = divmod(left, missing) if missing else (0, 0)
    parts = iter([(whole + (i < more)) / _FINEST for i in range(missing)])
    return [next(parts) if share is None else share for share in shares]


def _one_of(name: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise InvalidInput(f"unknown {name} {check.show(value)}{hint(value, known)}")
    return str(value)
