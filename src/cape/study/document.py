"""A study as it travels: its public part, its hash, and one of its analyses, parsed and checked.

Claim. A `ParsedAnalysis` that `read` returns was built by the site's own code from an untrusted document:
every field has its type and range, and unknown fields are refused.
Reason. The document is decoded into `Document`, a struct that accepts no other fields; columns, budget,
parties and analysis are made by the same constructors as in a study file.
Tested in tests/unit/site/test_decide.py, and fuzzed (`assurance.inputs.requests`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cape.analyses import build, build_after
from cape.core import check, documents
from cape.core.documents import Count, Delta, Epsilon, Natural, Text
from cape.core.errors import InvalidInput
from cape.data import Person, Schema
from cape.engine.query import Analysis, Neighbours, Query
from cape.engine.schemes import SCHEMES, Parties, Scheme, make_scheme
from cape.engine.session import AnalysisSession
from cape.engine.stages import Setting, Stages
from cape.noise import Kind
from cape.privacy import Budget

if TYPE_CHECKING:
    from cape.study.study import Study

__all__ = ["Document", "ParsedAnalysis", "Terms", "document", "hash_of", "read"]


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The [privacy] section of a study: budget, parties, scheme and adjacency."""

    epsilon: Epsilon
    delta: Delta = 0.0
    noise: Literal["gaussian", "laplace", "auto"] | None = None
    colluding: Natural | None = None
    min_sites: Count | None = None
    scheme: str = "cape"
    neighbours: Neighbours = "replace-one"

    def __post_init__(self) -> None:
        documents.one_of("scheme", self.scheme, SCHEMES)
        if not self.delta and self.noise == "gaussian":
            raise InvalidInput('noise = "gaussian" needs a delta, such as delta = 1e-6 beside epsilon')

    def parties(self, sites: int) -> Parties:
        """Return the parties of a study with so many sites; the scheme has the defaults."""
        return SCHEMES[self.scheme]().parties(sites, self.colluding, self.min_sites)

    def setting(self, schema: Schema, sites: int) -> Setting:
        """Return what all noise is calibrated to; Gaussian noise where the kind is still to be chosen."""
        budget = Budget(self.epsilon, self.delta)
        kind: Kind = "laplace" if self.noise == "laplace" else "gaussian"
        return Setting(schema, budget, self.parties(sites), self.neighbours, kind)


class Document(Terms, frozen=True, kw_only=True):
    """A whole study as a request carries it, without defaults."""

    name: Text
    description: str
    delta: Delta
    noise: Kind
    colluding: Natural
    min_sites: Count
    scheme: str
    neighbours: Neighbours
    schema: dict[str, Any]
    where: str = ""
    person: dict[str, Any] | None = None
    sites: list[str]
    analyses: list[Any]
    """A request uses its own only; the others may be invalid."""

    def columns(self) -> Schema:
        """Return the columns, the column of sites among them, and which rows count."""
        schema = Schema.of_study(self.schema, self.sites).of_persons(Person.of(self.person))
        return schema.only(self.where) if self.where else schema


def document(study: Study) -> dict[str, Any]:
    """Return a study as a request carries it: its public part, and every analysis with its budget share.

    What an analysis leaves to the rows that are expected is decided here, once for all sites.
    """
    told = study.to_dict()
    scheme = make_scheme(study.scheme, study.setting.noise)
    told["analyses"] = [
        {
            **study.setting.sized(entry.analysis, scheme, study.sizes, entry.share).to_dict(),
            "share": entry.share,
        }
        for entry in study.analyses
    ]
    # Tuples become lists, and keys become texts, as JSON would return them, with the same hash.
    plain: dict[str, Any] = msgspec.msgpack.decode(
        msgspec.msgpack.encode(msgspec.to_builtins(told, str_keys=True))
    )
    return plain


def hash_of(study: Mapping[str, Any]) -> str:
    """Return the hash of a study's document."""
    return sha256(b"cape study 1\0" + msgspec.msgpack.encode((study,))).hexdigest()


@dataclass(frozen=True)
class ParsedAnalysis:
    """One analysis of a study's document, built from untrusted data and checked."""

    analysis: Analysis
    setting: Setting
    scheme: Scheme
    stages: Stages
    sites: tuple[str, ...]

    @cached_property
    def query(self) -> Query:
        """What its first stage asks for; raises `InvalidInput` if that does not fit the columns."""
        asked = self.setting.asked(self.analysis, self.scheme)
        return asked.query(self.setting.schema, self.setting.neighbours)

    def session(self) -> AnalysisSession:
        """Return the analysis at its first stage."""
        return AnalysisSession(self.analysis, self.stages)

    def price(self, stages: int | None = None) -> tuple[Fraction, Fraction]:
        """Return mu² and pure epsilon of the first stages, or of all: one of them is 0."""
        share = self.stages.cost(len(self.stages) if stages is None else stages)
        if not share or self.stages.pure:
            return Fraction(0), self.setting.budget.part(share) if share else Fraction(0)
        return share * Fraction(self.stages.mu) ** 2, Fraction(0)


def read(study: Mapping[str, Any], number: int, model: Any = None) -> ParsedAnalysis:
    """Build an analysis from a study's document; raise `InvalidInput` if anything in it is invalid.

    `model` is that of the earlier analysis that it follows, if it does and that is released.
    """
    told = documents.decode(study, Document)
    setting = told.setting(told.columns(), len(told.sites))
    if not 1 <= number <= len(told.analyses):
        raise InvalidInput(f"the study has no analysis {number}")
    described = told.analyses[number - 1]
    if not isinstance(described, dict) or "share" not in described:
        raise InvalidInput(f"analysis {number} must be a table with a share")
    share = check.real("share", described["share"], above=0.0, most=1.0)
    _require_plain(described)
    earlier = build(described).follows
    if earlier is not None and earlier < number:
        _require_plain(told.analyses[earlier - 1])
    analysis = build_after(told.analyses, number, model)
    scheme = make_scheme(told.scheme, setting.noise)
    stages = Stages.of(analysis, setting, scheme, share)
    setting = stages.setting
    _ = stages.slack  # raises if delta is too small for sampling
    return ParsedAnalysis(analysis, setting, scheme, stages, tuple(told.sites))


def _require_plain(described: Any) -> None:
    """Raise `InvalidInput` for an analysis that would have a site open a file or parse a formula."""
    if not isinstance(described, Mapping):
        return
    if described.get("checkpoint") is not None:
        raise InvalidInput("checkpoint must be left out: a request cannot name a file at a site")
    if described.get("formula") is not None:
        raise InvalidInput("formula must be left out: a request says target and features")
