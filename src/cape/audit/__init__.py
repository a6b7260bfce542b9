"""Attacks on the guarantee: the real protocol, run many times against an adversary who sees all messages, and
the lower bound on epsilon that their errors prove.

Not here: attacks by bad input, load and kills, which stand beside the package (`assurance/`).
"""

from __future__ import annotations

from cape.audit.cases import FLOOR, FLOOR_FAST, Case, cases
from cape.audit.run import SEED, Audit, amount, audit
from cape.audit.slices import Slice
from cape.audit.table import CHECKS, ERROR, Row

__all__ = [
    "CHECKS",
    "ERROR",
    "FLOOR",
    "FLOOR_FAST",
    "SEED",
    "Audit",
    "Case",
    "Row",
    "Slice",
    "amount",
    "audit",
    "cases",
]
