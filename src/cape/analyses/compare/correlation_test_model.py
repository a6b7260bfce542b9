"""How a test of a correlation is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.describe.covariance import Correlation
from cape.data import Schema
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import p_said
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate
from cape.stats.independence import Independence

__all__ = ["CorrelationModel"]


@dataclass(frozen=True, repr=False)
class CorrelationModel(Shown):
    """A test of a correlation, and the correlation; `same` is said of columns that do not vary."""

    columns: tuple[str, ...]
    method: str
    schema: Schema
    estimate: Estimate
    test: Independence | None
    same: tuple[str, ...] = ()

    @property
    def p_value(self) -> float | None:
        """The P value, which counts the noise; None if noise hides how many rows there are."""
        return None if self.test is None else self.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return the correlation."""
        return [listed([self.estimate], self._title)]

    def figures(self) -> Sequence[Figure]:
        """Return the correlation about 0."""
        return [
            Figure((Intervals((Mark.of(self.estimate, self._title(self.estimate.label)),), line=0.0),), DOTS)
        ]

    def notes(self) -> Sequence[str]:
        """Return the test."""
        what = f"{self.method.title()}'s test of independence"
        if self.test is None:
            return [*self.same, f"There is too much noise, or too little that varies, for {what}."]
        return [*self.same, f"{what}, privacy noise counted: {p_said(self.test.p_value)}."]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        test = None if self.test is None else vars(self.test)
        return plain({"columns": list(self.columns), "method": self.method, "test": test})

    def _title(self, label: str) -> str:
        return Correlation(*self.columns).title(label, self.schema)
