"""What a steward sees, as plain structs: commands print them, and a page can show them.

Texts from outside (names and descriptions of studies) have been shortened and made printable.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cape.data.surveyed import Survey
from cape.site.admin.released import Curve, Ledger, Limit, Line, Run, Spent, Told, Verified
from cape.site.decide.approvals import State
from cape.site.decide.codes import Refusal
from cape.site.decide.held import MOST_QUESTION
from cape.site.notify import Kind

__all__ = [
    "MOST_POLICY",
    "MOST_TEXT",
    "Analysis",
    "Approval",
    "Checked",
    "Curve",
    "Day",
    "Decided",
    "Document",
    "Event",
    "Hash",
    "Inbox",
    "Ledger",
    "Limit",
    "Line",
    "Lines",
    "Log",
    "Mine",
    "Name",
    "PageSize",
    "Party",
    "People",
    "PlanLine",
    "PolicyState",
    "PolicySummary",
    "Reason",
    "Run",
    "Spent",
    "State",
    "Status",
    "Study",
    "StudyFile",
    "Text",
    "Tried",
    "Trusted",
    "Verified",
    "Wait",
]

MOST_TEXT = 1 << 20
"""Bytes of a study's text."""
MOST_POLICY = 1 << 16
"""Characters of a new text of a policy."""

Name = Annotated[str, Meta(max_length=400)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Reason = Annotated[str, Meta(max_length=2000)]
Hash = Annotated[str, Meta(max_length=64)]
Question = Annotated[str, Meta(max_length=MOST_QUESTION * 4)]
Day = Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")]
Lines = Annotated[int, Meta(ge=0, le=100_000)]
Number = Annotated[int, Meta(ge=0)]
PageSize = Annotated[int, Meta(ge=0, le=10_000)]
Wait = Annotated[float, Meta(ge=0, le=30)]

PolicyState = Literal["in force", "expired", "broken"]


class Analysis(Told, frozen=True):
    """One analysis of a study: what it would cost now, whether it would be answered, what it reads."""

    number: int
    kind: str
    description: str
    mu: float
    epsilon: float
    allowed: bool
    refusal: Refusal | None
    columns: tuple[str, ...] = ()


class Approval(Told, frozen=True):
    """Who approved a study, when (UTC), whether each analysis may be answered once only, and why."""

    person: str
    desk: bool
    at: str
    once: bool
    reason: str = ""


class Study(Told, frozen=True):
    """A study that waits for the steward, was approved, or was refused.

    Attributes:
        since: when it was first held (UTC).
        coordinator: the coordinator's name in the policy; None if its key is unknown.
        epsilon, delta, colluding, scheme, neighbours, sites: what the study states.
        answered: how many of its analyses would be answered now.
        mu, cost: what these would add to the ledger; `cost` is the epsilon at `cost_delta`.
        bet: how often somebody who knows all else could at most win an even bet on one person's record, with
            these answers; and bet_after, with all that was ever released besides.
        limits: the policy's budgets, before and after.
        columns: all columns that it reads; where: which rows count; unit: whom noise protects, a row or a
            person, of whom so many rows count.
        why: why it waits, in a sentence; empty if it does not.
        approvals, needed: who has approved it, and how many different persons must.
        once: whether somebody approved it for once; ended: whether too few approvals still count.
        question: what its coordinator was asked last.
        reason: why it was refused; decided_by: by whom, and decided_at: when.
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
    neighbours: str
    sites: str
    analyses: tuple[Analysis, ...]
    answered: int
    mu: float
    cost: float
    cost_delta: float
    limits: tuple[Limit, ...]
    columns: tuple[str, ...] = ()
    where: str = ""
    unit: str = "row"
    unit_rows: int = 1
    why: str = ""
    approvals: tuple[Approval, ...] = ()
    needed: int = 1
    once: bool = False
    ended: bool = False
    question: str = ""
    reason: str = ""
    decided_by: str = ""
    decided_at: str = ""
    bet: float = 0.5
    bet_after: float = 0.5

    @property
    def who(self) -> str:
        """The coordinator, by name or by fingerprint."""
        return self.coordinator or self.fingerprint


class Inbox(Told, frozen=True):
    """The studies that a site holds, and a sentence for each unrecognised file among them."""

    studies: tuple[Study, ...]
    unreadable: tuple[str, ...]

    def of(self, state: State) -> list[Study]:
        """Return the studies in one state."""
        return [study for study in self.studies if study.state == state]


class Decided(Told, frozen=True):
    """A study as it was when the steward decided on it."""

    study: Study
    unreadable: tuple[str, ...]


class PlanLine(Told, frozen=True):
    """The plan of one analysis: a table of its noise and expected error, with a title, and notes.

    `problem` says why there is no plan, if there is none; `whole`, whether its numbers count people.
    """

    number: int
    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    whole: bool = False


class Party(Told, frozen=True):
    """A site of a study: the fingerprint of its key in the policy, empty if the policy has none."""

    name: str
    fingerprint: str
    mine: bool


class Trusted(Told, frozen=True):
    """A key in the policy; `changed` is False if trusting or revoking it changed nothing."""

    name: str
    key: str
    fingerprint: str
    coordinator: bool
    changed: bool = False


class PolicySummary(Told, frozen=True):
    """A summary of a policy: `notify` lists the ways in which notices go out."""

    name: str
    approve: str
    approvals: int
    expires: str
    expired: bool
    analyses: tuple[str, ...]
    columns: tuple[str, ...]
    budgets: dict[str, str]
    trusted: tuple[Trusted, ...]
    notify: tuple[str, ...] = ()


class Document(Told, frozen=True):
    """The text of site.toml, its hash, which a change must quote, and its summary if it is valid.

    Passwords are replaced by marks, which stand for them in a changed text. Hashes are per process.
    """

    text: str
    hash: str
    problem: str | None
    summary: PolicySummary | None


class Tried(Told, frozen=True):
    """The summary of a new text of site.toml, or what is wrong with it; and how it differs.

    `hash` is that of the text in force: the old one, or the new one once it is saved.
    """

    problem: str | None
    summary: PolicySummary | None
    diff: str
    hash: str
    saved: bool = False


class Mine(Told, frozen=True):
    """The site's own name and public key, for others."""

    name: str
    key: str
    fingerprint: str


class Status(Told, frozen=True):
    """The state of a site.

    `linked` says whether a link is connected, None if no daemon runs. `last_event` is the number of the
    newest event, after which `events` can be asked for.
    """

    version: str
    site: Mine | None
    policy: PolicyState
    problem: str | None
    summary: PolicySummary | None
    waiting: int
    linked: bool | None
    last_event: int = 0


class StudyFile(Told, frozen=True):
    """All that a site knows of a study.

    Attributes:
        study: what it asks, and what was decided.
        text: the study as it was signed, as a TOML text.
        rows: the number of rows of this site, if it is known; the plan assumes as many at each.
        plan: noise and expected error of the first analyses, by the site's own computation.
        roster: its sites, with the fingerprints of their keys in the policy.
        released: what left this site for it, newest first, and `spent`, the sum of it.
    """

    study: Study
    text: str
    rows: int | None
    plan: tuple[PlanLine, ...]
    roster: tuple[Party, ...]
    released: tuple[Line, ...]
    spent: Spent


class People(Told, frozen=True):
    """How many rows, or persons, the site's table has: for the steward only. None if it cannot be read."""

    count: int | None
    unit: str


class Event(Told, frozen=True):
    """Something that happened at the site: never anything of the data.

    Attributes:
        number: counts up, also over restarts of the daemon.
        time: when (UTC).
        study, hash, coordinator: which study, and who asks; empty where none is concerned.
    """

    number: int
    time: str
    kind: Kind
    study: str
    coordinator: str
    sentence: str
    hash: str = ""


class Checked(Told, frozen=True):
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
    approvals: int = 1


class Log(Told, frozen=True):
    """The last lines of the site's log, oldest first."""

    lines: tuple[str, ...]
