"""How a log-rank test is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.empty import empty_groups, nobody
from cape.analyses.regression.effects import Effect
from cape.analyses.survival.logrank_estimate import Contrast
from cape.data import Schema
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import LEVEL, between, count, p_said, rounded
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate, is_unknown
from cape.stats.independence import Independence

__all__ = ["LogRankModel"]


@dataclass(frozen=True, repr=False)
class LogRankModel(Shown):
    """A log-rank test, how many events groups had beside how many were expected, and ratios of hazards.

    Attributes:
        estimates: observed less expected events of each group.
        ratios: the log-hazard ratio of each group but the first against it.
        noise: that of the number of rows of a group.
        events: all of them, with their noise.
    """

    by: str
    sentence: str
    schema: Schema
    estimates: tuple[Estimate, ...]
    ratios: tuple[Estimate, ...]
    sizes: tuple[float, ...]
    contrast: Contrast
    test: Independence | None
    name: str
    noise: float = 0.0
    events: tuple[float, float] = (math.inf, 0.0)

    @property
    def p_value(self) -> float | None:
        """The P value, which counts the noise; None if noise hides all groups."""
        return None if self.test is None else self.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return rows, observed and expected events of each group, and their difference."""
        values = self.schema.category(self.by).values
        contrast, rows = self.contrast, []
        each = zip(values, self.sizes, contrast.observed, contrast.expected, self.estimates, strict=True)
        for value, size, seen, due, apart in each:
            error = apart.standard_error
            moved = f"{rounded(apart.value, error)} ({between(apart.interval(), error)})" if error else "-"
            title = self.schema.title(f"{self.by}={value}")
            rows.append((title, f"{size:,.0f}", f"{seen:,.1f}", f"{due:,.1f}", moved))
        against = self.schema.title(f"{self.by}={values[0]}")
        compared = tuple((each.title, *each.ratio, each.test[1]) for each in self._effects)
        noisy = any(apart.privacy for apart in self.estimates)
        caption = "Rows and events have privacy noise, which may make them negative." if noisy else ""
        head = ("", "rows", "events observed", "expected", f"observed - expected ({LEVEL:.0%} interval)")
        return [
            Table(head, tuple(rows), caption=caption),
            Table(("", "hazard ratio", f"{LEVEL:.0%} interval", "P>|z|"), compared, f"Against {against}"),
            listed(self.estimates, self.schema.title, folded=True),
        ]

    @property
    def _effects(self) -> list[Effect]:
        """The ratios as people read them."""
        titles = (self.schema.title(each.label.removesuffix(" log hazard ratio")) for each in self.ratios)
        return [Effect(title, 1.0, each) for title, each in zip(titles, self.ratios, strict=True)]

    @property
    def hazard_ratios(self) -> dict[str, float]:
        """By what the hazard of the first group is multiplied in each other one; none that noise hides."""
        return {
            each.label.removesuffix(" log hazard ratio"): math.exp(each.value)
            for each in self.ratios
            if not is_unknown(each)
        }

    def figures(self) -> Sequence[Figure]:
        """Return observed less expected events."""
        marks = tuple(Mark.of(e, self.schema.title(e.label)) for e in self.estimates)
        return [Figure((Intervals(marks, "Observed less expected events", line=0.0),), DOTS)]

    def notes(self) -> Sequence[str]:
        """Return the test, and groups in which nobody is."""
        values = self.schema.category(self.by).values
        sizes = {value: (size, self.noise) for value, size in zip(values, self.sizes, strict=True)}
        empty = empty_groups(self.by, sizes, self.schema)
        if nobody(*self.events):
            few = "Noise hides whether there are any events" if self.events[1] else "There are no events"
            known = "little" if self.events[1] else "nothing"
            empty.append(f"{few}: {known} can be said of how groups differ.")
        if self.test is None:
            return [*empty, f"There is no {self.name}: noise hides who is at risk, or there are no events."]
        ratios = "Hazard ratios are those of a Cox regression on the groups; their errors are robust."
        return [
            *empty,
            f"{self.name[0].upper()}{self.name[1:]}{', privacy noise counted' if self.noise else ''}: "
            "chi-square = "
            f"{self.test.statistic:.2f} with {count(self.test.freedom, 'degree')} of freedom, "
            f"{p_said(self.test.p_value)}.",
            *([ratios] if self.hazard_ratios else []),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        test = None if self.test is None else vars(self.test)
        return plain(
            {
                "by": self.by,
                "test": test,
                "name": self.name,
                "rows": list(self.sizes),
                "observed": self.contrast.observed.tolist(),
                "expected": self.contrast.expected.tolist(),
                "hazard_ratios": {
                    each.label.removesuffix(" log hazard ratio"): Effect("", 1.0, each).ratio_to_dict()
                    for each in self.ratios
                    if not is_unknown(each)
                },
            }
        )
