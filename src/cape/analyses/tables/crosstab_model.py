"""One table of a release: counts with their errors, printed as a crosstab, and what can be made of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from cape.analyses.tables import effects
from cape.analyses.tables.marginals import Levels, Marginal
from cape.core import check
from cape.core.arrays import Floats
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.show import Figure, HeatMap, Mark, Shown, Table
from cape.show.numbers import count, number, p_said
from cape.show.plain import plain
from cape.stats.estimates import Estimate, Estimates, unknown
from cape.stats.independence import Independence
from cape.stats.law import GAUSSIAN, Law

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Crosstab"]

_STRENGTH = "Cramer's V"
_CELLS = "Released counts; point at a cell for its interval, which is that of privacy noise."
_MOST_DRAWN = 400  # cells of a heat map


@dataclass(frozen=True, repr=False)
class Crosstab(Shown):
    """A table of counts of one to several columns, made of a release of tables: it costs nothing.

    Counts are unbiased: noise can make small ones negative, and sums over cells are the counts of coarser
    tables. `nonnegative` is for people who want counts as counts are. Rows that miss one of the columns are
    left out, unless "missing" was asked for as a value.

    Attributes:
        counts: the counts and the covariance of their noise.
        schema: the columns.
        where: the condition on further columns.
        law: of the noise, where it is not Gaussian: that of a cell by itself. Sums of cells are nearer to a
            Gaussian, so that intervals cover rather more than they say.
    """

    counts: Marginal
    schema: Schema
    where: str | None = None
    law: Law = GAUSSIAN

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return self.counts.columns

    @property
    def values(self) -> Floats:
        """The unbiased counts, one direction for each column."""
        return self.counts.values

    @property
    def standard_error(self) -> Floats:
        """The standard deviation of the noise in each count."""
        return self.counts.noise

    @property
    def covariance(self) -> Floats:
        """The covariance of the noise in all counts, the last column's values running fastest."""
        return self.counts.covariance

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the intervals of all counts: of how many people in the tables there are."""
        half = (1 + check.probability("level", level)) / 2
        reach = self.law.quantile(half, self.standard_error)
        return self.values - reach, self.values + reach

    def nonnegative(self) -> Floats:
        """Return the nearest counts that are not negative and have the same total, for looking at.

        These are biased; intervals and tests are those of the unbiased counts.
        """
        flat = self.values.reshape(-1)
        total = max(float(flat.sum()), 0.0)
        falling = np.sort(flat)[::-1]
        over = (np.cumsum(falling) - total) / np.arange(1, flat.size + 1)
        above = np.flatnonzero(falling > over)
        excess = over[above[-1]] if above.size else falling[0]
        return np.asarray(np.maximum(flat - excess, 0.0).reshape(self.values.shape))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What each count is, the last column's values running fastest: "sex=male, ill=yes"."""
        each = [[levels.label(i) for i in range(len(levels))] for levels in self.counts.levels]
        return tuple(", ".join(cell) for cell in itertools.product(*each))

    @property
    def estimates(self) -> Estimates:
        """The counts as estimates."""
        return Estimates(self.labels, self.values.reshape(-1), 0.0, self.standard_error.reshape(-1))

    # --- what follows ---------------------------------------------------------------------------------

    def shares(self) -> Estimates:
        """Return the shares of the last column's values, within each combination of the other columns'.

        They estimate those of the population: intervals count sampling and noise.
        """
        return Estimates.of(effects.conditional(self.counts))

    def independence(self, *, trend: bool = False) -> Independence | None:
        """Return a chi-square test of independence of two columns that counts the noise.

        `trend` tests for one over the order of values. None if noise leaves a row or a column without a clear
        count.
        """
        found = effects.interaction(self._of(2, "a test of independence"), trend=trend)
        return None if found is None else found.test

    def cramers_v(self) -> Estimate:
        """Return Cramér's V of two columns: 0 if they are independent, 1 if each gives the other."""
        found = effects.interaction(self._of(2, "Cramér's V"))
        if found is None:
            return unknown(_STRENGTH, 0.0, 1.0)
        unit = 1 / math.sqrt(found.count * found.least)
        noise = unit * math.sqrt(max(float(np.trace(found.noise)), 0.0) / found.z.size)
        return Estimate(_STRENGTH, found.strength, unit, noise, (0.0, 1.0), found.interval)

    def odds_ratio(self, rows: Sequence[Any] | None = None, columns: Sequence[Any] | None = None) -> Estimate:
        """Return the odds ratio of two columns: odds of the second of `columns`, second of `rows` over first.

        Columns with two values need no choice.
        """
        return effects.ratios(self._two_by_two(rows, columns))[1]

    def risk_ratio(self, rows: Sequence[Any] | None = None, columns: Sequence[Any] | None = None) -> Estimate:
        """Return the ratio of risks: shares of the second of `columns` among these two."""
        return effects.ratios(self._two_by_two(rows, columns))[0]

    def mean(self) -> Estimate:
        """Return the mean of one column: of the middles of bins, or of the places 0, 1, ... of values.

        A number that was cut is known up to its bin: the mean of the cells themselves can differ from that of
        the middles by up to half the width of the bins.
        """
        return effects.mean(self._of(1, "a mean"))

    def correlation(self) -> Estimate:
        """Return the correlation of two columns, of the middles of bins or the places of values."""
        return effects.correlation(self._of(2, "a correlation"))

    def _of(self, many: int, what: str) -> Marginal:
        if len(self.columns) != many:
            own = len(self.columns)
            raise InvalidInput(f"{what} is of {count(many, 'column')}, and this table has {own}")
        return self.counts.known()

    def _two_by_two(self, rows: Sequence[Any] | None, columns: Sequence[Any] | None) -> Marginal:
        table = self._of(2, "a ratio")
        for direction, given in enumerate((rows, columns)):
            levels = table.levels[direction]
            if given is None and len(levels) != 2:
                raise InvalidInput(
                    f"column {levels.column!r} has {len(levels)} values: say which two are compared, as in "
                    f"{'rows' if direction == 0 else 'columns'}=({levels.names[0]!r}, {levels.names[-1]!r})"
                )
            if given is not None:
                table = table.picked(direction, _places(levels, given))
        return table

    # --- how it is shown ------------------------------------------------------------------------------

    def to_polars(self, level: float = 0.95) -> pl.DataFrame:
        """Return a row for each cell: the columns' values, count, standard error and interval."""
        import polars as pl

        return pl.DataFrame(self._frame(level))

    def to_pandas(self, level: float = 0.95) -> Any:
        """Return the same for pandas, which must be installed."""
        return import_module("pandas").DataFrame(self._frame(level))

    def _frame(self, level: float) -> dict[str, Any]:
        places = np.indices(self.values.shape).reshape(len(self.columns), -1)
        low, high = self.interval(level)
        return {
            **{
                each.column: [each.values[i] for i in at]
                for each, at in zip(self.counts.levels, places.tolist(), strict=True)
            },
            "count": self.values.reshape(-1),
            "standard_error": self.standard_error.reshape(-1),
            "low": low.reshape(-1),
            "high": high.reshape(-1),
        }

    def tables(self) -> Sequence[Table]:
        """Return a crosstab: the last column's values beside each other, with sums."""
        *down, across = self.counts.levels
        noise = self.standard_error
        of = " by ".join(map(self.schema.label, self.columns))
        of += f", where {self.where}" if self.where else ""
        if not down:
            low, high = self.interval()
            listed = [
                (name, f"{value:,.0f}", f"{at:,.0f} to {to:,.0f}", number(error))
                for name, value, at, to, error in zip(
                    across.names, self.values, low, high, noise, strict=True
                )
            ]
            titles = (self.schema.label(across.column), "count", "95% interval", "noise (SD)")
            return [Table(titles, tuple(listed), of, drop=(3,))]
        rows: list[tuple[str, ...]] = []
        for at in itertools.product(*(range(len(each)) for each in down)):
            line = self.values[at]
            name = ", ".join(self.schema.title(each.label(i)) for each, i in zip(down, at, strict=True))
            rows.append((name, *(f"{value:,.0f}" for value in line), f"{line.sum():,.0f}"))
        whole = self.values.reshape(-1, len(across)).sum(axis=0)
        rows.append(("sum", *(f"{value:,.0f}" for value in whole), f"{whole.sum():,.0f}"))
        head = ("", *(self.schema.title(across.label(i)) for i in range(len(across))), "sum")
        least, most = number(float(noise.min())), number(float(noise.max()))
        told = least if least == most else f"{least} to {most}"
        caption = f"Unbiased counts with noise of standard deviation {told} in each cell."
        return [Table(head, tuple(rows), of, caption)]

    def figures(self) -> Sequence[Figure]:
        """Return a heat map of two columns."""
        if len(self.columns) != 2 or self.values.size > _MOST_DRAWN:
            return ()
        down, across = self.counts.levels
        marks = [Mark.of(each, most=0) for each in self.estimates]
        wide = len(across)
        cells = tuple(tuple(marks[i * wide : (i + 1) * wide]) for i in range(len(down)))
        names = tuple(self.schema.title(down.label(i)) for i in range(len(down)))
        return [Figure((HeatMap(names, across.names, cells, self.schema.label(across.column)),), _CELLS)]

    def notes(self) -> Sequence[str]:
        """Return a test of independence of two columns."""
        if len(self.columns) != 2 or min(self.counts.known().values.shape) < 2:
            return ()
        test = self.independence()
        if test is None:
            return ["There is too much noise for a test of independence."]
        return [
            f"Test of independence, privacy noise counted: chi-square = {test.statistic:.2f} with "
            f"{count(test.freedom, 'degree')} of freedom, {p_said(test.p_value)}."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        low, high = self.interval()
        return plain(
            {
                "columns": list(self.columns),
                "values": [list(each.names) for each in self.counts.levels],
                "where": self.where,
                "counts": self.values.tolist(),
                "standard_error": self.standard_error.tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
            }
        )


def _places(levels: Levels, given: Sequence[Any]) -> list[int]:
    """Return the places of two values."""
    if isinstance(given, str) or len(given) != 2:
        raise InvalidInput(f"two values of {levels.column!r} must be named, not {check.show(given)}")
    found = []
    for value in given:
        if str(value) not in levels.names:
            known = hint(str(value), levels.names)
            raise InvalidInput(f"column {levels.column!r} has no value {check.show(value)}{known}")
        found.append(levels.names.index(str(value)))
    return found
