"""What a steward sees of the ledger, as plain structs."""

from __future__ import annotations

import msgspec

__all__ = ["Curve", "Ledger", "Limit", "Line", "Run", "Spent", "Told", "Verified"]


class Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the desk tells: no field is unknown at the other end."""


class Limit(Told, frozen=True):
    """A limit of the policy: epsilon at a delta, what is spent, and what would be spent after a study."""

    name: str
    epsilon: float
    delta: float
    spent: float
    after: float


class Line(Told, frozen=True):
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


class Run(Told, frozen=True):
    """The lines of one release together: an analysis may have many stages. `line` is its first."""

    line: int
    run: str
    at: str
    coordinator: str
    study: str
    number: int
    description: str
    stages: int
    mu: float
    epsilon: float


class Spent(Told, frozen=True):
    """A sum of lines; epsilon is infinite where delta is too small."""

    lines: int
    mu: float
    epsilon: float


class Ledger(Told, frozen=True):
    """A page of the selected releases, the sum of all selected, the sum of all releases, and the limits.

    Attributes:
        runs, releases: the page: by run, or by line if lines were asked for.
        found: how many runs, or lines, were selected.
        next: the number to give as `after` for the next page; None if this is the last.
    """

    site: str
    delta: float
    runs: tuple[Run, ...]
    releases: tuple[Line, ...]
    shown: Spent
    total: Spent
    limits: tuple[Limit, ...]
    found: int = 0
    next: int | None = None


class Curve(Told, frozen=True):
    """The running total of all releases: times (UTC) with the epsilon spent until then, and the most ever."""

    points: tuple[tuple[str, float], ...]
    most: float
    delta: float


class Verified(Told, frozen=True):
    """What a check of the whole ledger found: chain, signatures, times and totals of every line.

    Attributes:
        ok: whether nothing is wrong.
        ledger: its identifier; lines: how many it has; first, last: when they were written.
        line: the first line that is wrong; None if none is.
        problems: what is wrong, in sentences.
        at: when it was checked (UTC).
    """

    ok: bool
    ledger: str
    lines: int
    first: str
    last: str
    line: int | None
    problems: tuple[str, ...]
    at: str
