"""How a rank test is shown: the test, and how often values of one group exceed those of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.empty import empty_groups
from cape.data import Schema
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import count, p_said
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate
from cape.stats.independence import Independence

__all__ = ["RankTestModel"]


@dataclass(frozen=True, repr=False)
class RankTestModel(Shown):
    """A rank test, and how often a value of one group exceeds one of another; `sizes` have their noise."""

    column: str
    by: str
    schema: Schema
    estimates: tuple[Estimate, ...]
    test: Independence | None
    sizes: tuple[tuple[Any, float, float], ...] = ()

    @property
    def p_value(self) -> float | None:
        """The P value, which counts the noise; None if noise hides a group."""
        return None if self.test is None else self.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return the probabilities."""
        return [listed(self.estimates)]

    def figures(self) -> Sequence[Figure]:
        """Return the probabilities about one half."""
        marks = tuple(Mark.of(estimate) for estimate in self.estimates)
        return [Figure((Intervals(marks, self.schema.title(self.column), line=0.5),), DOTS)]

    def notes(self) -> Sequence[str]:
        """Return the test."""
        name = f"{'Mann–Whitney' if len(self.estimates) == 1 else 'Kruskal–Wallis'} test"
        empty = empty_groups(
            self.by, {value: (rows, noise) for value, rows, noise in self.sizes}, self.schema
        )
        if self.test is None:
            noisy = any(noise > 0 for _, _, noise in self.sizes)
            why = "There is too much noise" if noisy else "There are too few rows, or all are in one bin,"
            return [*empty, f"{why} for the {name}."]
        return [
            *empty,
            f"{name} of {self.schema.label(self.column)}, ties and privacy noise counted: chi-square = "
            f"{self.test.statistic:.2f} with {count(self.test.freedom, 'degree')} of freedom, "
            f"{p_said(self.test.p_value)}.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        test = None if self.test is None else vars(self.test)
        return plain({"column": self.column, "by": self.by, "test": test})
