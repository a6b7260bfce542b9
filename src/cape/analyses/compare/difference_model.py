"""How differences of means between groups are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.compare.difference_estimate import Comparison
from cape.analyses.empty import empty_groups
from cape.data import Schema
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import LEVEL, between, p_said, p_value, rounded
from cape.show.plain import plain
from cape.stats.estimates import Estimate, is_unknown
from cape.stats.welch import MeansTest

__all__ = ["DifferenceModel"]

_LEAST = 3  # rows of a group that can be tested


@dataclass(frozen=True, repr=False)
class DifferenceModel(Shown):
    """Means of groups compared, column by column; `sizes` of groups, with their noise."""

    by: str
    schema: Schema
    comparisons: tuple[Comparison, ...]
    sizes: tuple[tuple[Any, float, float], ...] = ()

    def p_value(self, column: str) -> float | None:
        """Return the P value of the test that all groups have the same mean; None if noise hides a group."""
        for each in self.comparisons:
            if each.column == column:
                return None if each.overall is None else each.overall.p_value
        raise KeyError(column)

    def tables(self) -> Sequence[Table]:
        """Return means, differences and standardised differences, with P values."""
        several = any(len(each.differences) > 1 for each in self.comparisons)
        rows: list[tuple[str, ...]] = []
        for each in self.comparisons:
            rows.append((self.schema.title(each.column),))
            empty = ("",) * (2 if several else 1)
            rows += [(*_line(mean), *empty) for mean in each.means]
            for estimate, test, adjusted in zip(each.differences, each.tests, each.adjusted, strict=True):
                p = ["-" if test is None else p_value(test.p_value)]
                if several:
                    p.append("-" if adjusted is None else p_value(adjusted))
                rows.append((*_line(estimate), *p))
            for estimate, test in each.contrasts:
                p = ["-" if test is None else p_value(test.p_value), *([""] if several else [])]
                rows.append((*_line(estimate), *p))
            rows += [(*_line(ratio), *empty) for ratio in each.standardised]
        heads = ("", "value", f"{LEVEL:.0%} interval", "P", *(("P (Holm)",) if several else ()))
        return [Table(heads, tuple(rows), drop=(4, 2) if several else (2,))]

    def figures(self) -> Sequence[Figure]:
        """Return the differences of each column about 0."""
        panels = tuple(
            Intervals(
                tuple(
                    Mark.of(estimate, _short(estimate))
                    for estimate in (*each.differences, *(found for found, _ in each.contrasts))
                ),
                self.schema.title(each.column),
                line=0.0,
            )
            for each in self.comparisons
        )
        return [Figure(panels, DOTS)]

    def notes(self) -> Sequence[str]:
        """Return the tests that all means are equal, and what the numbers are."""
        found = empty_groups(
            self.by, {value: (rows, noise) for value, rows, noise in self.sizes}, self.schema
        )
        noisy = any(noise > 0 for _, _, noise in self.sizes) or not self.sizes
        for each in self.comparisons:
            name, test = self.schema.label(each.column), each.overall
            if test is None:
                few = any(rows < _LEAST for _, rows, _ in self.sizes)
                found.append(
                    f"There is too much noise to test whether groups differ in {name}."
                    if noisy
                    else f"There are too few rows in a group to test whether groups differ in {name}."
                    if few
                    else f"{name} does not vary within a group: there is no test of whether groups differ."
                )
            elif len(each.means) > 2:
                found.append(
                    f"Welch's test that all groups have the same mean of {name}, privacy noise counted: "
                    f"F = {test.statistic:.2f} with {test.freedom[0]:.0f} and {test.freedom[1]:,.1f} degrees "
                    f"of freedom, {p_said(test.p_value)} from the distribution of F with the noise."
                )
        found.append("P values are those of Welch's t-test and count privacy noise.")
        found.append("SMD is the standardised mean difference: over the root of the mean of both variances.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain(
            {
                "by": self.by,
                "columns": {
                    each.column: {
                        "overall": _plainly(each.overall),
                        "differences": [
                            {"label": e.label, "test": _plainly(test), "p_holm": adjusted}
                            for e, test, adjusted in zip(
                                each.differences, each.tests, each.adjusted, strict=True
                            )
                        ],
                        "contrasts": [
                            {"label": estimate.label, "test": _plainly(test)}
                            for estimate, test in each.contrasts
                        ],
                    }
                    for each in self.comparisons
                },
            }
        )


def _plainly(test: MeansTest | None) -> dict[str, Any] | None:
    if test is None:
        return None
    return {"statistic": test.statistic, "freedom": list(test.freedom), "p": test.p_value}


def _short(estimate: Estimate) -> str:
    """Return what stands behind the bar of a label."""
    return estimate.label.partition(" | ")[2]


def _line(estimate: Estimate) -> tuple[str, str, str]:
    kind = estimate.label.partition(" | ")[0].rpartition(" ")[2]
    error = estimate.standard_error
    ends = estimate.interval(LEVEL)
    shown = "not known" if math.isinf(ends[0]) else between(ends, error)
    value = "-" if is_unknown(estimate) else rounded(estimate.value, error)
    return f"{kind}, {_short(estimate)}", value, shown
