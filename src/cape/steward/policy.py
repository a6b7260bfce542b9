"""A site's policy, `site.toml`: what a data steward allows, read whole before anything is answered.

Claim. What a `Policy` allows, it says: a key that is left out is the cautious choice, and a key that is not
known is an error. Nothing in it can be changed by a request; not whether the number of rows is public either,
which follows from the adjacency of the site's ledger alone.
Tested in tests/steward/test_policy.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args

from cape import check
from cape.analyses import KINDS
from cape.data import Schema
from cape.data.schema import hint
from cape.engine.query import Neighbours
from cape.errors import InvalidInput
from cape.steward.amount import Allowance, Limit
from cape.steward.keyring import person, read_keys
from cape.study import places
from cape.study.sites import Place, place_of

__all__ = ["SCHEMES", "Allowance", "Policy"]

SCHEMES = ("cape", "conventional")
"""Schemes whose noise protects a site by itself, or together with honest sites whose noise it is sure of."""

_SECTIONS = ("site", "schema", "allow", "protect", "budget", "coordinators", "peers")
_SITE = ("name", "data", "expires", "approve", "expected_rows")
_ALLOW = ("analyses", "columns", "schemes", "adjacency", "neighbours")
_PROTECT = ("min_rows", "other_honest", "colluding")
_BUDGET = ("release", "coordinator", "year", "total")
_RAISE = "its steward can raise {key} under [budget] in site.toml, or the study can state less"

Approve = Literal["auto", "ask"]


@dataclass(frozen=True)
class Policy:
    """What a site allows.

    Attributes:
        data: where its rows are.
        schema: its columns, with its own bounds: a study must have the same for those that it uses.
        analyses, columns, schemes, neighbours: what may be asked, of what, with which noise.
        min_rows: with fewer rows nothing is answered.
        expected_rows: how many rows there are, about, as everyone may know; needed where their number is
            private.
        other_honest: how many other honest sites must be in every sum.
        colluding: how many sites a study must at least suppose to side with the aggregator.
        release: the most that one release may cost.
        coordinator, year: what one coordinator, and all together, may spend in a calendar year (UTC).
        total: what all may spend ever.
        expires: the last day on which anything is answered (UTC).
        coordinators, peers: whom this site believes, by public key.
        approve: "auto", or "ask" to hold each study until the steward approves it.
    """

    path: Path
    name: str
    data: Place
    schema: Schema
    analyses: frozenset[str]
    columns: frozenset[str]
    schemes: frozenset[str]
    neighbours: frozenset[str]
    min_rows: int
    expected_rows: int | None
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

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read `site.toml`; raise `InvalidInput` with the key if anything in it cannot be right."""
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidInput(f"path must be that of a site.toml, not {path!r}")
        path = Path(path)
        try:
            text = places.read(path)
        except FileNotFoundError:
            raise InvalidInput(f"no policy {str(path)!r}; `cape site init` makes one") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} cannot be read: {type(error).__name__}") from None
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: str, path: Path) -> Policy:
        """Return the policy that a text says; `path` is where it stands, or will."""
        document = places.parse(path, text)
        with places.at(str(path)):
            return _read(path, document)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What no release may pass, as the ledger knows it."""
        of_one = _RAISE.format(key="coordinator")
        return (
            Limit("of this coordinator for this year", self.coordinator, True, True, hint=of_one),
            Limit("of this site for this year", self.year, False, True, hint=_RAISE.format(key="year")),
            Limit("of this site", self.total, hint=_RAISE.format(key="total")),
        )

    @property
    def adjacency(self) -> str:
        """The adjacency under which this site's ledger adds up: replace-one, if that is answered at all."""
        return "replace-one" if "replace-one" in self.neighbours else "add-remove"

    @property
    def sizes_public(self) -> bool:
        """Whether everyone may know how many rows there are: under add-remove nothing may depend on it."""
        return self.adjacency == "replace-one"

    def who(self, key: bytes) -> str | None:
        """Return what this policy calls a coordinator, None if it does not know the key."""
        return next((name for name, known in self.coordinators.items() if known == key), None)


def _read(path: Path, document: Mapping[str, Any]) -> Policy:
    for name in document:
        if name not in _SECTIONS:
            raise InvalidInput(f"unknown section [{name}]{hint(name, _SECTIONS)}")
    given = places.section(document, "schema")
    with places.at("[schema]"):
        schema = Schema(given)
    site = places.section(document, "site")
    with places.at("[site]"):
        places.keys(site, _SITE, _SITE[:4])
        name = person("name", site["name"])
        approve = _one_of("approve", site["approve"], get_args(Approve))
        expires = site["expires"]
        if type(expires) is not date:
            raise InvalidInput(f"expires must be a day without quotes, as in 2027-12-31, not {expires!r}")
        with places.at("data"):
            data = place_of(site["data"], path.parent)
            if data.elsewhere:
                raise InvalidInput("data must say where the rows are: a path, or a table with path or query")
    allow = places.section(document, "allow")
    with places.at("[allow]"):
        places.keys(allow, _ALLOW, ("analyses",))
        analyses = _some("analyses", allow["analyses"], list(KINDS))
        columns = _some("columns", allow.get("columns", list(schema)), list(schema))
        schemes = _some("schemes", allow.get("schemes", ["cape"]), SCHEMES)
        if "adjacency" in allow and "neighbours" in allow:
            raise InvalidInput("adjacency and neighbours are the same; write adjacency")
        key = "neighbours" if "neighbours" in allow else "adjacency"
        neighbours = _some(key, allow.get(key, ["replace-one"]), get_args(Neighbours))
    protect = places.section(document, "protect")
    with places.at("[protect]"):
        places.keys(protect, _PROTECT, ("min_rows", "other_honest"))
        min_rows = check.integer("min_rows", protect["min_rows"], least=1)
        other_honest = check.integer("other_honest", protect["other_honest"], least=0)
        colluding = check.integer("colluding", protect.get("colluding", 0), least=0)
    with places.at("[site]"):
        expected = site.get("expected_rows")
        if expected is not None:
            check.integer("expected_rows", expected, least=1)
        elif "replace-one" not in neighbours:
            raise InvalidInput(
                "expected_rows is missing: under add-remove the number of rows is private, and min_rows is "
                "compared with what everyone may know; write it as in expected_rows = 1000"
            )
    budget = places.section(document, "budget")
    with places.at("[budget]"):
        if "total" not in budget:
            raise InvalidInput(
                "total is missing: write what may be spent ever, as in total = {epsilon = 4.0, delta = 1e-6}"
            )
        places.keys(budget, _BUDGET, _BUDGET)
        allowances = {key: _allowance(key, value) for key, value in budget.items()}
    coordinators = read_keys(document, "coordinators")
    peers = read_keys(document, "peers")
    if name in peers:
        raise InvalidInput(f"[peers] {name}: that is this site's own name; peers are the others")
    return Policy(
        path,
        name,
        data,
        schema,
        analyses,
        columns,
        schemes,
        neighbours,
        min_rows,
        expected,
        other_honest,
        colluding,
        allowances["release"],
        allowances["coordinator"],
        allowances["year"],
        allowances["total"],
        expires,
        coordinators,
        peers,
        "auto" if approve == "auto" else "ask",
    )


def _allowance(key: str, given: Any) -> Allowance:
    with places.at(key):
        if not isinstance(given, dict):
            raise InvalidInput(f"must be a pair such as {{epsilon = 1.0, delta = 1e-6}}, not {given!r}")
        places.keys(given, ("epsilon", "delta"), ("epsilon", "delta"))
        epsilon = check.real("epsilon", given["epsilon"], above=0.0)
        return Allowance(epsilon, check.probability("delta", given["delta"]))


def _some(name: str, given: Any, known: Sequence[str]) -> frozenset[str]:
    if not isinstance(given, list) or not given:
        raise InvalidInput(
            f'{name} must be a list with at least one entry, as in ["{known[0]}"], not {given!r}'
        )
    for value in given:
        _one_of(name, value, known)
    return frozenset(given)


def _one_of(name: str, value: Any, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidInput(f"{name}: unknown {value!r}{hint(value, known)}")
    return value
