"""What a steward sees, as plain structs: commands print them, and a page can show them.

Texts from outside (names and descriptions of studies) have been shortened and made printable.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cape.data.surveyed import Survey
from cape.steward.approvals import State
from cape.steward.codes import Refusal

__all__ = [
    "MOST_TEXT",
    "Analysis",
    "Checked",
    "Decided",
    "Document",
    "Hash",
    "Inbox",
    "Ledger",
    "Limit",
    "Line",
    "Lines",
    "Log",
    "Mine",
    "Name",
    "PolicyState",
    "PolicySummary",
    "Reason",
    "Run",
    "Spent",
    "State",
    "Status",
    "Study",
    "Text",
    "Tried",
    "Trusted",
    "Year",
]

MOST_TEXT = 1 << 20
"""Bytes of a study's or a policy's text."""

Name = Annotated[str, Meta(max_length=400)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Reason = Annotated[str, Meta(max_length=2000)]
Hash = Annotated[str, Meta(max_length=64)]
Year = Annotated[int, Meta(ge=0, le=9999)]
Lines = Annotated[int, Meta(ge=0, le=100_000)]

PolicyState = Literal["in force", "expired", "broken"]


class _Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Analysis(_Told, frozen=True):
    """One analysis of a study: what it would cost now, and whether it would be answered."""

    number: int
    kind: str
    description: str
    mu: float
    epsilon: float
    allowed: bool
    refusal: Refusal | None


class Limit(_Told, frozen=True):
    """A limit of the policy: epsilon at a delta, what is spent, and what would be spent after a study."""

    name: str
    epsilon: float
    delta: float
    spent: float
    after: float


class Study(_Told, frozen=True):
    """A study that waits for the steward, was approved, or was refused.

    Attributes:
        since: when it was first held (UTC).
        coordinator: the coordinator's name in the policy; None if its key is unknown.
        epsilon, delta, colluding, scheme, sites: what the study states.
        answered: how many of its analyses would be answered now.
        mu, cost: what these would add to the ledger; `cost` is the epsilon at `cost_delta`.
        limits: the policy's budgets, before and after.
    """

    study: str
    hash: str
    state: State
    since: str
    coordinator: str | None
    fingerprint: str
    description: str
    epsilon: str
    delta: str
    colluding: str
    scheme: str
    sites: str
    analyses: tuple[Analysis, ...]
    answered: int
    mu: float
    cost: float
    cost_delta: float
    limits: tuple[Limit, ...]

    @property
    def who(self) -> str:
        """The coordinator, by name or by fingerprint."""
        return self.coordinator or self.fingerprint


class Inbox(_Told, frozen=True):
    """The studies that a site holds, and a sentence for each unrecognised file among them."""

    studies: tuple[Study, ...]
    unreadable: tuple[str, ...]

    def of(self, state: State) -> list[Study]:
        """Return the studies in one state."""
        return [study for study in self.studies if study.state == state]


class Decided(_Told, frozen=True):
    """A study as it was when the steward decided on it."""

    study: Study
    unreadable: tuple[str, ...]


class Trusted(_Told, frozen=True):
    """A key in the policy; `changed` is False if trusting or revoking it changed nothing."""

    name: str
    key: str
    fingerprint: str
    coordinator: bool
    changed: bool = False


class PolicySummary(_Told, frozen=True):
    """A summary of a policy."""

    name: str
    approve: str
    expires: str
    expired: bool
    analyses: tuple[str, ...]
    columns: tuple[str, ...]
    budgets: dict[str, str]
    trusted: tuple[Trusted, ...]


class Document(_Told, frozen=True):
    """The text of site.toml, its hash, which a change must quote, and its summary if it is valid.

    Passwords are replaced by marks, which stand for them in a changed text. Hashes are per process.
    """

    text: str
    hash: str
    problem: str | None
    summary: PolicySummary | None


class Tried(_Told, frozen=True):
    """The summary of a new text of site.toml, or what is wrong with it; and how it differs.

    `hash` is that of the text in force: the old one, or the new one once it is saved.
    """

    problem: str | None
    summary: PolicySummary | None
    diff: str
    hash: str
    saved: bool = False


class Mine(_Told, frozen=True):
    """The site's own name and public key, for others."""

    name: str
    key: str
    fingerprint: str


class Status(_Told, frozen=True):
    """The state of a site: `linked` says whether a link is connected, None if no daemon runs."""

    version: str
    site: Mine | None
    policy: PolicyState
    problem: str | None
    summary: PolicySummary | None
    waiting: int
    linked: bool | None


class Line(_Told, frozen=True):
    """One line of the ledger: amounts are fractions, under `adjacency`; `asked` is that of the request."""

    line: int
    at: str
    coordinator: str | None
    key: str
    study: str
    study_hash: str
    number: int
    kind: str
    description: str
    scheme: str
    run: str
    stage: int
    mu: float
    mu_squared: str
    epsilon: str
    extra: str
    adjacency: str
    asked: str
    unit: str
    unit_rows: int
    unit_sites: int


class Run(_Told, frozen=True):
    """The lines of one release together: an analysis may have many stages."""

    run: str
    at: str
    coordinator: str
    study: str
    number: int
    description: str
    stages: int
    mu: float
    epsilon: float


class Spent(_Told, frozen=True):
    """A sum of lines; epsilon is infinite where delta is too small."""

    lines: int
    mu: float
    epsilon: float


class Ledger(_Told, frozen=True):
    """The selected releases, their sum, the sum of all releases, and the limits."""

    site: str
    delta: float
    runs: tuple[Run, ...]
    releases: tuple[Line, ...]
    shown: Spent
    total: Spent
    limits: tuple[Limit, ...]


class Checked(_Told, frozen=True):
    """The policy checked against the data; the survey of the rows, without cells, is for the steward only."""

    site: str
    problems: tuple[str, ...]
    survey: Survey | None
    approve: str
    expires: str
    coordinators: tuple[str, ...]
    peers: tuple[str, ...]
    waiting: tuple[str, ...]
    delta: float
    analyses: tuple[Analysis, ...] | None


class Log(_Told, frozen=True):
    """The last lines of the site's log, oldest first."""

    lines: tuple[str, ...]
