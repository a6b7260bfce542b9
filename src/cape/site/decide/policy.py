"""A site's policy, `site.toml`: what a data steward allows, read completely before anything is answered.

Claim. A `Policy` allows only what it states: a missing key has the cautious default, and an unknown key is an
error. Three keys restrict what `analyses` allows, and restrict nothing where they are missing: `by_site`,
`synthetic` and `ways`. No request can change it; even whether the number of rows is public depends on the
adjacency of the site's ledger alone.
Tested in tests/unit/site/test_policy.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from cape.analyses import KINDS
from cape.core import documents
from cape.core.documents import Count, Natural, Text
from cape.core.errors import InvalidInput
from cape.data import Person, Schema
from cape.engine.query import Neighbours
from cape.privacy.accounting import Allowance, Limit
from cape.site.keyring import person as person_name
from cape.site.keyring import read_keys
from cape.site.notify import NOBODY, Notify
from cape.study.sites import SourceSpec, place_of, require_person

__all__ = ["SCHEMES", "Allowance", "Policy"]

SCHEMES = ("cape", "conventional")
"""Schemes whose noise protects a site by itself, or together with honest sites whose noise it is sure of."""

_RAISE = "its steward can raise {key} under [budget] in site.toml, or the study can state less"

_EVER = Meta(description="must be what may be spent ever, as in {epsilon = 4.0, delta = 1e-6}")
_PAIR = Meta(description="must be a pair such as {epsilon = 1.0, delta = 1e-6}")

Approve = Literal["auto", "ask"]


def _some(example: str) -> Meta:
    return Meta(min_length=1, description=f'must be a list with at least one entry, as in ["{example}"]')


@dataclass(frozen=True)
class Policy:
    """What a site allows.

    Attributes:
        data: where its rows are.
        schema: its columns, with its own bounds; a study must have the same bounds for those that it uses.
        analyses, columns, schemes, neighbours: the allowed kinds, columns, noise and adjacencies.
        by_site: whether results may be given for each site.
        synthetic: whether tables may be measured to draw synthetic rows from.
        ways: how many columns a table of counts may have; None if that is not limited.
        min_rows: with fewer rows nothing is answered.
        person: whose rows are whose, and how many of a person's may count; None if each row is a person.
        expected_rows: a public estimate of the number of rows; required where the number itself is private.
        other_honest: how many other honest sites must be in every sum.
        colluding: how many sites a study must at least assume to collude with the aggregator.
        release: the most that one release may cost.
        coordinator, year: what one coordinator, and all together, may spend in a calendar year (UTC).
        total: what all may spend ever.
        expires: the last day on which anything is answered (UTC).
        coordinators, peers: the trusted public keys, by name.
        approve: "auto", or "ask" to hold each study until the steward approves it.
        approvals: how many different persons must approve a study.
        notify: where notices go.
    """

    path: Path
    name: str
    data: SourceSpec
    schema: Schema
    analyses: frozenset[str]
    columns: frozenset[str]
    by_site: bool
    synthetic: bool
    ways: int | None
    schemes: frozenset[str]
    neighbours: frozenset[str]
    min_rows: int
    expected_rows: int | None
    person: Person | None
    other_honest: int
    colluding: int
    release: Allowance
    coordinator: Allowance
    year: Allowance
    total: Allowance
    expires: date
    coordinators: Mapping[str, bytes]
    peers: Mapping[str, bytes]
    approve: Approve
    approvals: int = 1
    notify: Notify = NOBODY

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read `site.toml`; raise `InvalidInput` that names the key if anything in it is invalid."""
        return cls.parse(documents.read(path, "policy", "`cape site init` makes one"), Path(path))

    @classmethod
    def parse(cls, text: str, path: Path) -> Policy:
        """Return the policy of a text; `path` is its file, for errors and relative paths."""
        document = documents.parse(path, text)
        with documents.at(str(path)):
            return _read(path, document)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that the ledger enforces."""
        of_one = _RAISE.format(key="coordinator")
        return (
            Limit("of this coordinator for this year", self.coordinator, True, True, hint=of_one),
            Limit("of this site for this year", self.year, False, True, hint=_RAISE.format(key="year")),
            Limit("of this site", self.total, hint=_RAISE.format(key="total")),
        )

    @property
    def adjacency(self) -> str:
        """The adjacency of this site's ledger: replace-one, if the policy allows it."""
        return "replace-one" if "replace-one" in self.neighbours else "add-remove"

    @property
    def sizes_public(self) -> bool:
        """Whether the number of rows, or persons, is public: under add-remove nothing may depend on it.

        Where a person may be at several sites, replacing one changes how many persons a site has.
        """
        return self.adjacency == "replace-one" and (self.person is None or self.person.sites == 1)

    def who(self, key: bytes) -> str | None:
        """Return the name of the coordinator with this key; None if it is unknown."""
        return next((name for name, known in self.coordinators.items() if known == key), None)


class _Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    data: Any
    expires: Annotated[date, Meta(description="must be a day without quotes, as in 2027-12-31")]
    approve: Approve
    approvals: Annotated[int, Meta(ge=1, le=9)] = 1
    expected_rows: Count | None = None


class _Allow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    analyses: Annotated[list[str], _some("mean")]
    columns: Annotated[list[str], _some("age")] | None = None
    by_site: bool = True
    synthetic: bool = True
    ways: Count | None = None
    schemes: Annotated[list[str], _some("cape")] = msgspec.field(default_factory=lambda: ["cape"])
    adjacency: Annotated[list[Neighbours], _some("replace-one")] | None = None
    neighbours: Annotated[list[Neighbours], _some("replace-one")] | None = None


class _Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Text
    rows: Count = 1
    sites: Count = 1


class _Protect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    min_rows: Count
    other_honest: Natural
    colluding: Natural = 0


class _Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    release: Annotated[Allowance, _PAIR]
    coordinator: Annotated[Allowance, _PAIR]
    year: Annotated[Allowance, _PAIR]
    total: Annotated[Allowance, _EVER]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    site: _Site
    schema: dict[str, Any]
    allow: _Allow
    protect: _Protect
    budget: _Budget
    person: _Person | None = None
    notify: Notify = NOBODY
    coordinators: dict[str, Any] = {}
    peers: dict[str, Any] = {}


def _read(path: Path, document: Mapping[str, Any]) -> Policy:
    file = documents.decode(document, _File, file=True)
    site, allow = file.site, file.allow
    with documents.at("[schema]"):
        schema = Schema(file.schema)
    person = None
    if file.person is not None:
        with documents.at("[person]"):
            person = Person(**structs.asdict(file.person))
            person.check(schema)
    with documents.at("[allow]"):
        if allow.adjacency is not None and allow.neighbours is not None:
            raise InvalidInput("adjacency and neighbours mean the same; write adjacency only")
        neighbours = allow.adjacency or allow.neighbours or ["replace-one"]
        columns = list(schema) if allow.columns is None else allow.columns
        for name, given, known in (
            ("analysis", allow.analyses, KINDS),
            ("column", columns, schema),
            ("scheme", allow.schemes, SCHEMES),
        ):
            for value in given:
                documents.one_of(name, value, known)
    with documents.at("[notify]"):
        file.notify.check()
    with documents.at("[site]"):
        person_name("name", site.name)
        if site.approvals > 1 and site.approve != "ask":
            raise InvalidInput(
                f'approvals = {site.approvals} needs approve = "ask": with approve = "auto" nobody is asked'
            )
        private = "replace-one" not in neighbours or (person is not None and person.sites > 1)
        if site.expected_rows is None and private:
            raise InvalidInput(
                "expected_rows is missing: under add-remove, or with persons at several sites, the number of "
                "rows is private, and min_rows is compared with this public estimate; write it as in "
                "expected_rows = 1000"
            )
        with documents.at("data"):
            data = place_of(site.data, path.parent)
            if data.elsewhere:
                raise InvalidInput("data must say where the rows are: a path, or a table with path or query")
    with documents.at("[person]"):
        require_person(person, [data])
    coordinators = read_keys("coordinators", file.coordinators)
    peers = read_keys("peers", file.peers)
    if site.name in peers:
        raise InvalidInput(f"[peers] {site.name}: that is this site's own name; peers are the others")
    return Policy(
        path=path,
        name=site.name,
        data=data,
        schema=schema,
        analyses=frozenset(allow.analyses),
        columns=frozenset(columns),
        by_site=allow.by_site,
        synthetic=allow.synthetic,
        ways=allow.ways,
        schemes=frozenset(allow.schemes),
        neighbours=frozenset(neighbours),
        expected_rows=site.expected_rows,
        person=person,
        expires=site.expires,
        coordinators=coordinators,
        peers=peers,
        approve=site.approve,
        approvals=site.approvals,
        notify=file.notify,
        **structs.asdict(file.protect),
        **structs.asdict(file.budget),
    )
