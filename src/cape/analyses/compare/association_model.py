"""How an association of two columns is shown: tests, measures and the released counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.empty import empty_groups
from cape.core.arrays import Floats
from cape.data import Schema
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import count, p_said
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate
from cape.stats.independence import STRENGTH, Independence
from cape.stats.risks import RATIOS

__all__ = ["AssociationModel"]

_SHOWN = {STRENGTH: "Cramér's V"}


@dataclass(frozen=True, repr=False)
class AssociationModel(Shown):
    """What a private table says of two columns: tests and measures of association.

    Attributes:
        counts: the released table, with noise of the standard deviation `noise` in each cell.
        test: of independence; None if noise hides a margin of the table.
        by_order: whether a test for trend was asked for.
        trend: that test, None if noise hides it.
    """

    columns: tuple[str, ...]
    schema: Schema
    estimates: tuple[Estimate, ...]
    counts: Floats
    noise: float
    test: Independence | None
    by_order: bool = False
    trend: Independence | None = None

    @property
    def p_value(self) -> float | None:
        """The P value of the test of independence, which counts the noise."""
        return None if self.test is None else self.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return the estimates, and the released counts."""
        down, across = (self.schema.category(name).values for name in self.columns)
        titles = [self.schema.title(f"{self.columns[0]}={value}") for value in down]
        rows = [
            (title, *(f"{cell:,.0f}" for cell in row)) for title, row in zip(titles, self.counts, strict=True)
        ]
        head = ("", *(self.schema.title(f"{self.columns[1]}={value}") for value in across))
        caption = f"Each count has noise with a standard deviation of {self.noise:.3g}." if self.noise else ""
        counts = Table(head, tuple(rows), "Released counts", caption, folded=True)
        return [listed(self.estimates, _title), counts]

    def figures(self) -> Sequence[Figure]:
        """Return measures about 0 on one axis, and ratios about 1 on a logarithmic one."""
        marks = {e.label: Mark.of(e, _title(e.label)) for e in self.estimates}
        panels = [Intervals((mark,), line=0.0) for label, mark in marks.items() if label not in RATIOS]
        bounded = [
            mark for label, mark in marks.items() if label in RATIOS and 0 < mark.low <= mark.high < math.inf
        ]
        if bounded:
            panels.append(Intervals(tuple(bounded), line=1.0, log=True))
        return [Figure(tuple(panels), DOTS)]

    def notes(self) -> Sequence[str]:
        """Return the tests, and which categories are compared."""
        found = [*self._empty, _said("Test of independence", self.test, self.noise)]
        if self.by_order:
            found.append(_said("Test for trend over the order of categories", self.trend, self.noise))
        if len(self.estimates) > 1:
            (first, second), (_, event) = (self.schema.category(name).values for name in self.columns)
            down, across = self.columns
            compared = (self.schema.title(f"{down}={value}") for value in (second, first))
            found.append(
                f"Risks and odds are those of {self.schema.title(f'{across}={event}')}, for "
                f"{' compared with '.join(compared)}."
            )
        return found

    @property
    def _empty(self) -> list[str]:
        """What is to be said of values that nobody has."""
        found = []
        for axis, name in enumerate(self.columns):
            margin, noise = self.counts.sum(axis=1 - axis), self.noise * self.counts.shape[1 - axis] ** 0.5
            values = self.schema.category(name).values
            sizes = {value: (float(each), noise) for value, each in zip(values, margin, strict=True)}
            found += empty_groups(name, sizes, self.schema)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        tests = {"independence": self.test, **({"trend": self.trend} if self.by_order else {})}
        return plain(
            {
                "columns": list(self.columns),
                "counts": self.counts.tolist(),
                "noise": self.noise,
                "tests": {name: None if test is None else vars(test) for name, test in tests.items()},
            }
        )


def _title(label: str) -> str:
    return _SHOWN.get(label, label)


def _said(what: str, test: Independence | None, noise: float) -> str:
    if test is None:
        why = "There is too much noise" if noise else "There are too few rows, or too few values that occur,"
        return f"{why} for a {what[0].lower()}{what[1:]}."
    return (
        f"{what}, privacy noise counted: chi-square = {test.statistic:.2f} with "
        f"{count(test.freedom, 'degree')} of freedom, {p_said(test.p_value)}."
    )
