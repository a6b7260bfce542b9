"""Lines of a ledger: what is written for a release, and how it is chained and signed. Format 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from cape.errors import InvalidInput
from cape.steward.amount import ADJACENCIES, Amount, Basis
from cape.steward.heads import chain_of

__all__ = ["COLUMNS", "SETTLED", "Entry", "Line", "chained", "line_of", "loss_of", "values_of"]

_NOTHING, _ROW = Amount(), Basis()

SETTLED = "settled"
"""The kind of a line that charges what a restored backup had forgotten."""

COLUMNS = (
    "at",
    "year",
    "coordinator",
    "study",
    "study_hash",
    "number",
    "kind",
    "description",
    "scheme",
    "run",
    "stage",
    "plan",
    "adjacency",
    "asked",
    "unit",
    "unit_rows",
    "unit_sites",
    "sampled",
    "loss",
    "amount",
    "extra",
    "totals",
    "key",
)


@dataclass(frozen=True)
class Entry:
    """One stage of one release, as it is asked for.

    Attributes:
        coordinator: the public key of who asks.
        plan: what all stages of a run have in common, hashed: a run cannot become another one.
        cost: what this stage costs.
        once: what the run costs beside it, charged with the first of its stages that is reserved.
        basis: what both are stated against.
        asked: the adjacency of the request, from which they may have been converted.
    """

    coordinator: bytes
    study: str
    study_hash: str
    number: int
    kind: str
    description: str
    scheme: str
    run: bytes
    stage: int
    plan: bytes
    cost: Amount
    once: Amount = _NOTHING
    basis: Basis = _ROW
    asked: str = "replace-one"


@dataclass(frozen=True)
class Line:
    """One line of the ledger."""

    id: int
    at: datetime
    coordinator: bytes
    study: str
    study_hash: str
    number: int
    kind: str
    description: str
    scheme: str
    run: bytes
    stage: int
    plan: bytes
    basis: Basis
    asked: str
    charged: Amount
    totals: str
    key: bytes


def loss_of(amount: Amount) -> tuple[str, Fraction]:
    """Return the kind of an amount's loss, and how much; a line has one kind."""
    if amount.mu_squared and amount.pure:
        raise InvalidInput("a line is Gaussian or pure: write two")
    return ("epsilon", amount.pure) if amount.pure else ("mu", amount.mu_squared)


def values_of(entry: Entry, charged: Amount, at: datetime, totals: str, key: bytes) -> list[object]:
    """Return the columns of a line, in order."""
    loss, amount = loss_of(charged)
    basis = entry.basis
    return [
        at.isoformat(timespec="microseconds"),
        at.year,
        entry.coordinator.hex(),
        entry.study,
        entry.study_hash,
        entry.number,
        entry.kind,
        entry.description,
        entry.scheme,
        entry.run.hex(),
        entry.stage,
        entry.plan.hex(),
        basis.adjacency,
        entry.asked,
        basis.unit,
        basis.rows,
        basis.sites,
        int(basis.sampled),
        loss,
        str(amount),
        str(charged.extra),
        totals,
        key.hex(),
    ]


def line_of(number: int, values: Sequence[str | int]) -> Line:
    """Read a line; raise `ValueError` or `InvalidInput` if it cannot be right."""
    told = dict(zip(COLUMNS, values, strict=True))
    if told["loss"] not in ("mu", "epsilon") or told["sampled"] not in (0, 1):
        raise ValueError("unknown loss")
    if told["asked"] not in ADJACENCIES:
        raise ValueError("unknown adjacency")
    at, amount = datetime.fromisoformat(str(told["at"])), Fraction(str(told["amount"]))
    if at.year != told["year"] or at.tzinfo is None:
        raise ValueError("another year")
    pure = told["loss"] == "epsilon"
    return Line(
        number,
        at,
        bytes.fromhex(str(told["coordinator"])),
        str(told["study"]),
        str(told["study_hash"]),
        int(told["number"]),
        str(told["kind"]),
        str(told["description"]),
        str(told["scheme"]),
        bytes.fromhex(str(told["run"])),
        int(told["stage"]),
        bytes.fromhex(str(told["plan"])),
        Basis(
            str(told["adjacency"]),
            str(told["unit"]),
            int(told["unit_rows"]),
            int(told["unit_sites"]),
            bool(told["sampled"]),
        ),
        str(told["asked"]),
        Amount(
            Fraction(0) if pure else amount, Fraction(str(told["extra"])), amount if pure else Fraction(0)
        ),
        str(told["totals"]),
        bytes.fromhex(str(told["key"])),
    )


def chained(last: bytes, values: Sequence[object]) -> bytes:
    """Return the chain value of a line."""
    return chain_of(last, list(values))
