"""A study file, read and checked completely before anything runs: names, keys, columns and cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from cape.analyses import build_after, model_from_json
from cape.core import check, documents
from cape.core.documents import Text
from cape.core.errors import InvalidInput, PrivacyLeakWarning, outside
from cape.data import Person, Schema
from cape.engine.arguments import joined
from cape.engine.plan import Plan, make_plan, noise_ratio
from cape.engine.query import Analysis
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import SCHEMES, Scheme, make_scheme
from cape.engine.stages import Setting, Stages
from cape.privacy import Budget
from cape.study.blanks import refuse_blanks
from cape.study.document import Terms
from cape.study.named_files import without_sources
from cape.study.sites import SourceSpec, read_sites, require_person

if TYPE_CHECKING:
    from cape.engine.consortium import Consortium
    from cape.noise import Kind, SecureStream

__all__ = ["BetterNoise", "Entry", "Study"]

_AT_LEAST_ONE = Meta(min_length=1, description="must be at least one [[analysis]], in double brackets")
_LARGE_EPSILON = 10.0
_LARGE_DELTA = 1e-3  # if the number of rows is unknown
_CLEARLY = 1 / 1.1  # how large an error must be at most, compared with the present one, to be proposed
_FINEST = 10**9  # default shares are multiples of a billionth, and add up exactly


@dataclass(frozen=True)
class Entry:
    """One [[analysis]] of a study file: its number, the analysis, and its budget share."""

    number: int
    analysis: Analysis
    share: float


@dataclass(frozen=True)
class BetterNoise:
    """The kind of noise that a study would do better with, and how large its error would be then."""

    kind: Kind
    times: float

    def __str__(self) -> str:
        name, other = ("Laplace", "Gaussian") if self.kind == "laplace" else ("Gaussian", "Laplace")
        delta = ", and delta could be left out" if self.kind == "laplace" else ""
        return (
            f"With {name} noise the error of the whole study would be {self.times:.2g} times that with "
            f'{other} noise (geometric mean over the analyses){delta}: write noise = "{self.kind}" under '
            "[privacy]. Decide before the first release: a budget that is spent on one kind leaves little "
            "room for the other."
        )


@dataclass(frozen=True)
class Study:
    """The analyses, sites and budget of a study.

    >>> study = Study.load("study.toml")
    >>> consortium = study.consortium()
    >>> for entry in study.analyses:
    ...     print(consortium.release(entry.analysis, entry.share))
    """

    path: Path
    name: str
    description: str
    where: str
    setting: Setting
    scheme: str
    sites: Mapping[str, SourceSpec]
    analyses: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()
    rehearsal: bool = False
    """Whether its rows are made up (`cape.study.rehearsal`)."""
    chosen: str = ""
    """Which kind of noise was chosen and why, where the file says noise = "auto"."""

    @property
    def asked_twice(self) -> list[str]:
        """Return a sentence for each comparison that two analyses make, with noise of their own."""
        said = []
        for one, other in combinations(self.analyses, 2):
            if {one.analysis.kind, other.analysis.kind} != {"table-one", "difference"}:
                continue
            pair = [vars(entry.analysis) for entry in (one, other)]
            same = [name for name in pair[0]["columns"] if name in pair[1]["columns"]]
            if same and pair[0]["by"] == pair[1]["by"]:
                table, test = sorted((one, other), key=lambda entry: entry.analysis.kind != "table-one")
                said.append(
                    f"Analyses {table.number} and {test.number} both compare {joined(same)} by "
                    f"{pair[0]['by']}, each with noise of its own. Quote analysis {test.number}, which "
                    "spends its share on this alone, or leave one of them out."
                )
        return said

    @cached_property
    def better_noise(self) -> BetterNoise | None:
        """Return the other kind of noise, if the error of the whole study would be clearly smaller with it.

        A budget without delta has Laplace noise only, and "auto" has chosen already.
        """
        setting = self.setting
        if self.chosen or setting.budget.pure or not self.analyses:
            return None
        try:
            times = _laplace_over_gaussian(setting, self.scheme, self.analyses, self.sizes)
        except InvalidInput:
            return None
        kind: Kind = "laplace"
        if setting.noise == "laplace":
            kind, times = "gaussian", 1 / times
        return BetterNoise(kind, times) if times < _CLEARLY else None

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read a study file; raise `InvalidInput` that names the place if anything in it is invalid.

        A valid setting that protects little is a `PrivacyLeakWarning`, and is kept in `warnings`. No site's
        file is opened: none of them has to exist.
        """
        study = cls.parse(documents.read(path, "study file"), Path(path))
        for text in study.warnings:
            warnings.warn(text, PrivacyLeakWarning, stacklevel=outside())
        return study

    @classmethod
    def parse(cls, text: str, path: Path, *, elsewhere: bool = False) -> Study:
        """Return the study of a text; `path` is its file, for errors and relative paths.

        With `elsewhere`, what it says of where rows are is left out, and no file is looked for.
        """
        document = documents.parse(path, text)
        if elsewhere:
            document = without_sources(document)
        with documents.at(str(path)):
            refuse_blanks(document)
            return _read(path, document)

    @property
    def budget(self) -> Budget:
        """The whole, unspent budget."""
        return self.setting.budget

    @property
    def sizes(self) -> dict[str, int] | None:
        """The expected number of rows at each site, if the file states it."""
        sizes = {name: place.rows for name, place in self.sites.items() if place.rows is not None}
        return sizes or None

    def plan(self, entry: Entry, scheme: str | None = None) -> Plan:
        """Return the plan of an analysis: its privacy cost and accuracy. Opens no table."""
        return make_plan(entry.analysis, self.setting, self._scheme(scheme), entry.share, self.sizes)

    def cost(self, entry: Entry) -> float:
        """Return the budget share that an analysis spends: none if it asks only for public numbers."""
        query = entry.analysis.query(self.setting.of(entry.analysis).schema, self.setting.neighbours)
        return entry.share if query.blocks else 0.0

    def total(self, entries: Sequence[Entry]) -> Budget:
        """Return the budget after these analyses."""
        budget = self.budget
        for entry in entries:
            budget = budget.spend(entry.share) if self.cost(entry) else budget
        return budget

    def guarantee(self, share: Fraction, scheme: str | None = None) -> ReleaseGuarantee:
        """Return the guarantee of releases that together spend this share."""
        found = self.setting.guarantee(self._scheme(scheme), float(share or 1))
        return found if share or found.mu == math.inf else replace(found, mu=0.0, pure=None)

    def _scheme(self, name: str | None) -> Scheme:
        return make_scheme(scheme_name(name or self.scheme), self.setting.noise)

    def to_dict(self) -> dict[str, Any]:
        """Return its public part as plain data: no path and no connection."""
        setting = self.setting
        return {
            "name": self.name,
            "description": self.description,
            "scheme": self.scheme,
            "epsilon": setting.budget.epsilon,
            "delta": setting.budget.delta,
            "noise": setting.noise,
            "colluding": setting.parties.colluding,
            "min_sites": setting.parties.min_sites,
            "neighbours": setting.neighbours,
            "schema": setting.schema.to_dict(),
            "where": self.where,
            "person": setting.schema.person and setting.schema.person.to_dict(),
            "sites": list(self.sites),
            **({"rehearsal": True} if self.rehearsal else {}),
        }

    def consortium(
        self,
        *,
        scheme: str | None = None,
        stream: SecureStream | None = None,
        spent: Fraction = Fraction(0),
    ) -> Consortium:
        """Open every site's table, and return a consortium with the budget that is not yet spent."""
        from cape.engine.consortium import Consortium

        return Consortium(
            {name: place.source() for name, place in self.sites.items()},
            self.setting.schema,
            replace(self.budget, spent=spent),
            colluding=self.setting.parties.colluding,
            min_sites=self.setting.parties.min_sites,
            scheme=scheme_name(scheme or self.scheme),
            noise=self.setting.noise,
            neighbours=self.setting.neighbours,
            sizes=self.sizes,
            stream=stream,
        )


def scheme_name(name: str) -> str:
    """Return the name of a scheme, or raise an error that suggests a similar one."""
    return documents.one_of("scheme", name, SCHEMES)


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    description: Text = ""
    where: Text = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    study: _About
    privacy: Terms
    schema: dict[str, Any]
    sites: dict[str, Any]
    analysis: Annotated[list[dict[str, Any]], _AT_LEAST_ONE]
    derive: dict[str, Any] = {}
    person: dict[str, Any] | None = None


def _read(path: Path, document: Mapping[str, Any]) -> Study:
    file = documents.decode(document, _File, file=True)
    sites = read_sites(file.sites, path.parent)
    with documents.at("[schema]"):
        schema = Schema.of_study(file.schema, sites)
    if file.derive:
        with documents.at("[derive]"):
            schema = schema.deriving(file.derive)
    with documents.at("[person]"):
        require_person(file.person, sites.values())
        schema = schema.of_persons(Person.of(file.person))
    if file.study.where:
        with documents.at("[study] where"):
            schema = schema.only(file.study.where)
    with documents.at("[privacy]"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyLeakWarning)  # kept for results and report, and issued later
        setting = file.privacy.setting(schema, len(sites))
    entries = _entries(_with_models(file.analysis, path.parent), setting)
    chosen = ""
    if file.privacy.noise == "auto":
        setting, chosen = _choose(setting, file.privacy.scheme, entries, sites)
    if setting.noise == "laplace":
        with documents.at("[privacy]"):
            made = make_scheme(file.privacy.scheme, "laplace")
        for entry in entries:
            with documents.at(f"[[analysis]] {entry.number}"):
                Stages.of(entry.analysis, setting, made, entry.share)
    said = [str(warning.message) for warning in caught] + _weak(setting.budget, sites)
    about = (file.study.name, file.study.description, file.study.where)
    return Study(path, *about, setting, file.privacy.scheme, sites, entries, tuple(said), chosen=chosen)


def _choose(
    setting: Setting, scheme: str, entries: Sequence[Entry], sites: Mapping[str, SourceSpec]
) -> tuple[Setting, str]:
    """Return the setting with the kind of noise whose error is smaller for the whole study, and why."""
    if setting.budget.pure:
        return setting, "Laplace noise: the budget has no delta."
    sizes = {name: site.rows for name, site in sites.items() if site.rows is not None}
    try:
        mean = _laplace_over_gaussian(setting, scheme, entries, sizes)
    except InvalidInput as error:
        return replace(setting, noise="gaussian"), f"Gaussian noise: {error}."
    better, kind = ("Laplace", "laplace") if mean < 1 else ("Gaussian", "gaussian")
    other = "Gaussian" if mean < 1 else "Laplace"
    said = (
        f"{better} noise, chosen for the whole study: its error is {min(mean, 1 / mean):.3g} times that of "
        f"{other} noise (geometric mean over the analyses)."
    )
    return replace(setting, noise="laplace" if kind == "laplace" else "gaussian"), said


def _laplace_over_gaussian(
    setting: Setting, scheme: str, entries: Sequence[Entry], sizes: Mapping[str, int] | None
) -> float:
    """Return how many times as large the error of the whole study is with Laplace noise as with Gaussian.

    That is the geometric mean over the analyses of the times for the noise of the median number, from plans
    of both: of public numbers only, with the rows that people expect. Raises `InvalidInput` where an analysis
    or the scheme has no Laplace noise.
    """
    found = [noise_ratio(entry.analysis, setting, scheme, entry.share, sizes) for entry in entries]
    times = [math.log(each) for each in found if each is not None]
    return math.exp(sum(times) / len(times)) if times else 1.0


def _weak(budget: Budget, sites: Mapping[str, SourceSpec]) -> list[str]:
    """Return warnings about a budget that protects little."""
    said = []
    rows = sum(place.rows or 0 for place in sites.values())
    if budget.delta >= (1 / rows if rows else _LARGE_DELTA):
        most = f"1/rows = {1 / rows:.2g}" if rows else f"{_LARGE_DELTA:g}"
        said.append(
            f"delta = {budget.delta:g} is not below {most}: so large a delta would allow publishing "
            "somebody's whole row; use a much smaller one, such as 1e-6"
        )
    if budget.epsilon > _LARGE_EPSILON:
        said.append(f"epsilon = {budget.epsilon:g} is above {_LARGE_EPSILON:g}: it hardly protects a person")
    return said


def _with_models(given: Sequence[Mapping[str, Any]], folder: Path) -> list[Mapping[str, Any]]:
    """Return descriptions of analyses, with the models that they name as JSON files."""
    found = []
    for number, described in enumerate(given, 1):
        model = described.get("model")
        if isinstance(model, str):
            with documents.at(f"[[analysis]] {number}"):
                held = model_from_json(folder / model)
            described = {**described, "model": held.to_dict()}
        found.append(described)
    return found


def _entries(given: Sequence[Mapping[str, Any]], setting: Setting) -> tuple[Entry, ...]:
    analyses, shares = [], []
    for number, described in enumerate(given, 1):
        with documents.at(f"[[analysis]] {number}"):
            analysis = build_after(given, number)
            analysis.query(setting.of(analysis).schema, setting.neighbours)
            analyses.append(analysis)
            share = described.get("share")
            shares.append(None if share is None else check.real("share", share, above=0.0, most=1.0))
    return tuple(
        Entry(number, analysis, share)
        for number, (analysis, share) in enumerate(zip(analyses, _share_out(shares), strict=True), 1)
    )


def _share_out(shares: Sequence[float | None]) -> list[float]:
    """Return the shares; missing ones get equal parts of the rest, so that all add up to at most 1."""
    given = sum((Fraction(repr(share)) for share in shares if share is not None), Fraction(0))
    if given > 1:
        raise InvalidInput(f"the shares add up to {float(given):.6g}; they must add up to at most 1")
    missing = sum(share is None for share in shares)
    left = int((1 - given) * _FINEST)
    if missing > left:
        raise InvalidInput(f"nothing is left of the budget for {missing} analyses without a share")
    whole, more = divmod(left, missing) if missing else (0, 0)
    parts = iter([(whole + (i < more)) / _FINEST for i in range(missing)])
    return [next(parts) if share is None else share for share in shares]
