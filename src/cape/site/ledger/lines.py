"""Lines of a ledger: what is written for a release, and how it is chained and signed. Format 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from cape.core.errors import InvalidInput
from cape.privacy.accounting import ADJACENCIES, Amount, Basis

__all__ = ["COLUMNS", "SETTLED", "Entry", "Line", "line_of", "values_of"]

_NOTHING, _ROW = Amount(), Basis()

SETTLED = "settled"
"""The kind of a line that charges what a restored backup had lost."""

COLUMNS = {
    "at": "TEXT",
    "year": "INTEGER",
    "coordinator": "TEXT",
    "study": "TEXT",
    "study_hash": "TEXT",
    "number": "INTEGER",
    "kind": "TEXT",
    "description": "TEXT",
    "scheme": "TEXT",
    "run": "TEXT",
    "stage": "INTEGER",
    "plan": "TEXT",
    "adjacency": "TEXT",
    "asked": "TEXT",
    "unit": "TEXT",
    "unit_rows": "INTEGER",
    "unit_sites": "INTEGER",
    "sampled": "INTEGER",
    "loss": "TEXT",
    "amount": "TEXT",
    "extra": "TEXT",
    "totals": "TEXT",
    "key": "TEXT",
}
"""The columns that a chain value covers, in order, with their SQLite types."""
_TYPES = {"TEXT": str, "INTEGER": int}


@dataclass(frozen=True)
class _Stage:
    """One stage of one release.

    Attributes:
        coordinator: the public key of the coordinator that asked.
        plan: hash of what all stages of a run have in common: a run cannot become another one.
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


@dataclass(frozen=True)
class Entry(_Stage):
    """One stage of one release, before it is written.

    Attributes:
        cost: what this stage costs.
        once: what the run costs in addition, charged with the first of its stages that is reserved.
        basis: what both are stated against.
        asked: the adjacency of the request, from which they may have been converted.
    """

    cost: Amount
    once: Amount = _NOTHING
    basis: Basis = _ROW
    asked: str = "replace-one"


@dataclass(frozen=True)
class Line(_Stage):
    """One line of the ledger."""

    id: int
    at: datetime
    basis: Basis
    asked: str
    charged: Amount
    totals: str
    key: bytes


def values_of(entry: Entry, charged: Amount, at: datetime, totals: str, key: bytes) -> list[object]:
    """Return the values of `COLUMNS` for a new line."""
    if charged.mu_squared and charged.pure:
        raise InvalidInput("a line is Gaussian or pure: write two")
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
        "epsilon" if charged.pure else "mu",
        str(charged.pure or charged.mu_squared),
        str(charged.extra),
        totals,
        key.hex(),
    ]


def line_of(number: int, values: Sequence[str | int]) -> Line:
    """Read a line; raise `ValueError` or `InvalidInput` if it cannot be right."""
    told: dict[str, Any] = dict(zip(COLUMNS, values, strict=True))
    if any(not isinstance(told[name], _TYPES[kind]) for name, kind in COLUMNS.items()):
        raise ValueError("a cell of another type")
    if told["loss"] not in ("mu", "epsilon") or told["sampled"] not in (0, 1):
        raise ValueError("unknown loss")
    if told["asked"] not in ADJACENCIES:
        raise ValueError("unknown adjacency")
    at = datetime.fromisoformat(told["at"])
    if at.year != told["year"] or at.tzinfo is None:
        raise ValueError("another year")
    amount, extra = Fraction(told["amount"]), Fraction(told["extra"])
    unit = told["unit"], told["unit_rows"], told["unit_sites"]
    return Line(
        bytes.fromhex(told["coordinator"]),
        told["study"],
        told["study_hash"],
        told["number"],
        told["kind"],
        told["description"],
        told["scheme"],
        bytes.fromhex(told["run"]),
        told["stage"],
        bytes.fromhex(told["plan"]),
        number,
        at,
        Basis(told["adjacency"], *unit, bool(told["sampled"])),
        told["asked"],
        Amount(amount, extra) if told["loss"] == "mu" else Amount(extra=extra, pure=amount),
        told["totals"],
        bytes.fromhex(told["key"]),
    )
