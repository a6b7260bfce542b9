"""A study file read whole and checked before anything runs: names, keys, columns, and what it may cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from cape import check
from cape.analyses import build
from cape.data import Schema
from cape.engine.plan import Plan, make_plan
from cape.engine.query import Analysis
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import SCHEMES
from cape.engine.stages import Setting
from cape.errors import InvalidInput, PrivacyLeakWarning
from cape.privacy import Budget
from cape.study import places
from cape.study.document import Terms
from cape.study.places import Text
from cape.study.sites import SourceSpec, read_sites

if TYPE_CHECKING:
    from cape.engine.consortium import Consortium
    from cape.noise import SecureStream

__all__ = ["Entry", "Study"]

_AT_LEAST_ONE = Meta(min_length=1, description="must be at least one [[analysis]], in two pairs of brackets")
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
    sites: Mapping[str, SourceSpec]
    analyses: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read a study file; raise `InvalidInput` with its place if anything in it cannot be right.

        What can be right but protects little is a `PrivacyLeakWarning`, and stays in `warnings`. No site's
        file is opened: none of them has to be there.
        """
        study = cls.parse(places.read(path, "study file"), Path(path))
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

    def guarantee(self, share: Fraction, scheme: str | None = None) -> ReleaseGuarantee:
        """Return what releases promise that together spend this share."""
        promise = self.setting.guarantee(SCHEMES[scheme_name(scheme or self.scheme)](), float(share or 1))
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

    def consortium(
        self,
        *,
        scheme: str | None = None,
        stream: SecureStream | None = None,
        spent: Fraction = Fraction(0),
    ) -> Consortium:
        """Open every site's table, and return the consortium that can answer with what is not yet spent."""
        from cape.engine.consortium import Consortium

        return Consortium(
            {name: place.source() for name, place in self.sites.items()},
            self.setting.schema,
            replace(self.budget, spent=spent),
            colluding=self.setting.parties.colluding,
            min_sites=self.setting.parties.min_sites,
            scheme=scheme_name(scheme or self.scheme),
            neighbours=self.setting.neighbours,
            sizes=self.sizes,
            stream=stream,
        )


def scheme_name(name: str) -> str:
    """Return the name of a scheme, or raise an error with the one that was probably meant."""
    return places.one_of("scheme", name, SCHEMES)


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    description: Text = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    study: _About
    privacy: Terms
    schema: dict[str, Any]
    sites: dict[str, Any]
    analysis: Annotated[list[dict[str, Any]], _AT_LEAST_ONE]


def _read(path: Path, document: Mapping[str, Any]) -> Study:
    file = places.decode(document, _File, file=True)
    with places.at("[schema]"):
        schema = Schema(file.schema)
    sites = read_sites(file.sites, path.parent)
    with places.at("[privacy]"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyLeakWarning)  # kept for results and report, and given later
        setting = file.privacy.setting(schema, len(sites))
    entries = _entries(file.analysis, setting)
    said = [str(warning.message) for warning in caught] + _weak(setting.budget, sites)
    about, scheme = file.study, file.privacy.scheme
    return Study(path, about.name, about.description, setting, scheme, sites, entries, tuple(said))


def _weak(budget: Budget, sites: Mapping[str, SourceSpec]) -> list[str]:
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


def _entries(given: Sequence[Mapping[str, Any]], setting: Setting) -> tuple[Entry, ...]:
    analyses, shares = [], []
    for number, described in enumerate(given, 1):
        with places.at(f"[[analysis]] {number}"):
            analysis = build(described)
            analysis.query(setting.schema, setting.neighbours)
            analyses.append(analysis)
            share = described.get("share")
            shares.append(None if share is None else check.real("share", share, above=0.0, most=1.0))
    return tuple(
        Entry(number, analysis, share)
        for number, (analysis, share) in enumerate(zip(analyses, _share_out(shares), strict=True), 1)
    )


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
