"""A trusted curator who holds every row, and answers by a method of the literature.

Claim. None of this repository's: what is promised is what the literature claims for the method, and the
release says so. A method spends the whole budget.
Tested in tests/unit/reproduction/literature/.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch
from typing import Any

from cape.blocks.holder import Holder
from cape.blocks.table import Table
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.query import Analysis, AnalysisResult, Neighbours
from cape.engine.result import Release, ReleaseGuarantee
from cape.engine.schemes import Cost, Parties
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.stats.estimates import Estimates

__all__ = ["Claimed", "Curator", "Holdings", "methods_of"]


@dataclass(frozen=True)
class Holdings:
    """What a trusted curator has.

    Attributes:
        tables: every site's rows: what no site here would hand over.
        schema: the columns.
        epsilon, delta: the whole budget, which a method spends.
        neighbours: what a neighbouring table is.
        stream: where its noise comes from.
    """

    tables: Mapping[str, Any]
    schema: Schema
    epsilon: float
    delta: float
    neighbours: Neighbours
    stream: SecureStream


@singledispatch
def methods_of(analysis: Analysis) -> Mapping[str, Callable[[Holdings], AnalysisResult]]:
    """Return the methods of the literature for a question, by name; none for most questions."""
    return {}


@dataclass(frozen=True)
class Claimed(ReleaseGuarantee):
    """What the literature claims of a method: an epsilon at the study's delta, and no mu."""

    claimed: float = math.inf

    @property
    def epsilon(self) -> float:
        """The epsilon that is claimed."""
        return self.claimed

    @property
    def loss(self) -> str:
        """The same, for the line below a table."""
        return f"epsilon = {self.claimed:.4g}"

    @property
    def statement(self) -> str:
        """Who was trusted, and what the literature claims."""
        return (
            f"A comparison: a trusted curator saw every row, and answered by {self.scheme!r}, for which "
            f"the literature claims ({self.claimed:.4g}, {self.delta:g})-differential privacy when one "
            "person's row is replaced by any other."
        )


class Curator:
    """One party that everyone trusts with every row, and one budget.

    >>> curator = Curator({"a": a_frame, "b": "b.csv"}, schema, Budget(epsilon=1, delta=1e-6))
    >>> curator.release(cape.LinearRegression("chol", ["age", "bmi"]), 1.0, method="dp-fm")
    """

    def __init__(
        self,
        sites: Mapping[str, Any],
        schema: Schema,
        budget: Budget,
        *,
        neighbours: Neighbours = "replace-one",
        stream: SecureStream | None = None,
    ) -> None:
        self._tables = {
            name: source if isinstance(source, Holder) else Table(name, source, schema)
            for name, source in sites.items()
        }
        self._schema, self._neighbours = schema, neighbours
        self._stream = SecureStream() if stream is None else stream
        self._count = 0
        self.budget = budget

    def release(self, analysis: Analysis, share: float, *, method: str) -> Release:
        """Answer by a method of the literature, which spends the whole budget: its share must be 1."""
        known = methods_of(analysis)
        if method not in known:
            raise InvalidInput(
                f"method must be one of {', '.join(known) or 'none for this question'}, not {method!r}"
            )
        if share != 1:
            raise InvalidInput(
                f"{method!r} is a comparison that spends the whole budget: its share must be 1, not {share:g}"
            )
        began, before = time.perf_counter(), self.budget
        public = self._neighbours == "replace-one"
        if public:
            for table in self._tables.values():
                table.require_rows()
        self.budget = before.spend(Fraction(1))
        self._count += 1
        held = Holdings(
            self._tables,
            self._schema,
            before.epsilon,
            before.delta,
            self._neighbours,
            self._stream.fork(f"run {self._count}"),
        )
        try:
            finding = known[method](held)
        except InvalidInput:  # what it cannot be asked for at all; nothing was answered
            self.budget = before
            raise
        parties = Parties(len(self._tables), 0, len(self._tables))
        return Release(
            analysis,
            Estimates.of(finding.estimates),
            Claimed(math.inf, before.delta, method, parties, self._neighbours, claimed=before.epsilon),
            1.0,
            method,
            tuple(self._tables),
            sum(table.rows() for table in self._tables.values()) if public else None,
            Cost(0, 0, 0, time.perf_counter() - began),
            finding.model,
            schema=self._schema,
        )
