"""The model of synthetic data that is fitted to what was measured, and rows that are drawn from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cape.analyses.synthetic.fit import Network, Potentials, drawn, fit
from cape.analyses.synthetic.measured import Measured
from cape.analyses.tables.marginals import Levels
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.show import Figure, HeatMap, Mark, Shown, Table
from cape.show.numbers import LEVEL, between
from cape.show.plain import plain
from cape.stats.estimates import is_unknown
from cape.stats.simulation import Random, generator
from cape.stats.together import level_of_each, said_together

if TYPE_CHECKING:
    import polars as pl

    from cape.analyses.synthetic.check import Association

__all__ = ["SyntheticModel", "cells"]

_DIGITS = 3  # of a number within its bin
_MOST_SHOWN = 12  # columns of a picture
_MOST_LISTED = 15
_LEAST_COUNT = 1e-9
_PICTURE = (
    "How strongly columns go together: Cramér's V of the released coarse tables, less what noise adds; 0 is "
    "not at all, 1 is as strongly as can be. Point at a cell for its interval."
)


@dataclass(frozen=True, repr=False)
class SyntheticModel(Shown):
    """A model of all columns, from which rows are drawn. It is fitted when it is first needed.

    Attributes:
        measured: what was released.
        shares: how the budget share was divided among the three stages.
    """

    measured: Measured
    schema: Schema
    rows: int | None
    shares: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its rows."""
        return tuple(axis.column for axis in self.measured.axes)

    @cached_property
    def potentials(self) -> Potentials:
        """The fitted log-potentials: needs the extra `synthetic`, and takes up to a minute."""
        measured = self.measured
        return fit(measured.chosen.sizes, measured.measurements(), measured.rows, measured.possible)

    @cached_property
    def network(self) -> Network:
        """The model as conditional shares of groups."""
        return Network.of(self.measured.chosen.sizes, self.potentials, self.measured.possible)

    @cached_property
    def shapes(self) -> tuple[Floats, ...]:
        """For each column the shares of its values within each group, by [group, value]."""
        found = []
        for groups, counts in zip(self.measured.chosen.groups, self.measured.counts, strict=True):
            inside = np.zeros((max(groups) + 1, len(counts)))
            inside[np.array(groups), np.arange(len(counts))] = np.maximum(counts, _LEAST_COUNT)
            found.append(inside / inside.sum(axis=1, keepdims=True))
        return tuple(found)

    def levels_of(self, rows: int, random: Random) -> list[Integers]:
        """Return the value of each drawn row, by column, as its place.

        They are spread over shares as evenly as can be: tables vary less than of rows drawn by chance.
        """
        groups = self.network.draw(rows, random)
        return [drawn(shape, group, random) for shape, group in zip(self.shapes, groups, strict=True)]

    def sample(self, rows: int | None = None, seed: int = 0) -> pl.DataFrame:
        """Return synthetic rows, as a polars DataFrame: as many as wanted, as often as wanted, at no cost.

        Args:
            rows: how many; by default as the analysis says, else as many as there are.
            seed: the same seed draws the same rows.
        """
        if rows is None:
            rows = self.rows or max(round(self.measured.rows), 1)
        rows = check.integer("rows", rows, least=1)
        random = generator(check.integer("seed", seed, least=0))
        return self.drawn(rows, random)[0]

    def drawn(self, rows: int, random: Random) -> tuple[pl.DataFrame, list[Integers]]:
        """Return drawn rows, and the place of each of their values, by column."""
        import polars as pl

        places = self.levels_of(rows, random)
        found = {
            each.column: cells(each, place, random.random(rows))
            for each, place in zip(self.measured.levels(self.schema), places, strict=True)
        }
        return pl.DataFrame(found), places

    def table(self, *columns: str) -> Floats:
        """Return the model's expected counts of each cell of a table, by value of each column."""
        places = tuple(self._place(name) for name in columns)
        found = self.network.table(places) * self.measured.rows
        for axis, i in enumerate(places):
            found = np.moveaxis(np.tensordot(found, self.shapes[i], axes=(axis, 0)), -1, axis)
        return found

    def evaluate(self, within: float = 0.05) -> pl.DataFrame:
        """Return how far from the data's each column and each table of two columns may be.

        Errors are distances in total variation: the part of the rows that would have to move. `noise` is what
        privacy noise alone makes of it in the table that was measured; `misfit` is how far the model is from
        the released coarse table of a pair, less that table's own noise: for pairs that were not chosen, the
        model has not seen it. `trustworthy` is whether both together are at most `within`. The coarse tables
        took `shares[1]` of this analysis' budget share, and nothing else is spent.
        """
        from cape.analyses.synthetic.check import evaluated

        return evaluated(self, check.real("within", within, above=0.0, most=1.0))

    @cached_property
    def associations(self) -> list[Association]:
        """How strongly each pair goes together, from the released coarse tables: surely strong ones first."""
        from cape.analyses.synthetic.check import associations

        return associations(self)

    def tables(self) -> Sequence[Table]:
        chosen, many = self.measured.chosen, len(self.associations)
        rows = []
        for each in self.associations[:_MOST_LISTED]:
            ends = between(each.estimate.interval(level_of_each(LEVEL, many)), 0.01)
            how = "finely" if each.pair in chosen.tables else "coarsely"
            value = "-" if is_unknown(each.estimate) else f"{each.estimate.value:.2f}"
            rows.append((" × ".join(self._titles(each.pair)), value, ends, how))
        return [
            Table(
                ("columns", "Cramér's V", f"{LEVEL:.0%} interval", "measured"),
                tuple(rows),
                "The strongest associations",
                said_together(LEVEL, many, "pairs"),
                more=many - len(rows),
            )
        ]

    def figures(self) -> Sequence[Figure]:
        """Return a picture of the largest associations."""
        strongest = list(dict.fromkeys(i for each in self.associations for i in each.pair))[:_MOST_SHOWN]
        places = sorted(strongest)
        known = {each.pair: each for each in self.associations}
        marks = []
        for a in places:
            row = []
            for b in places:
                label = " × ".join(self._titles((a, b)))
                row.append(
                    Mark.exact(label, 1.0)
                    if a == b
                    else Mark.of(known[min(a, b), max(a, b)].estimate, label, most=2)
                )
            marks.append(tuple(row))
        names = self._titles(tuple(places))
        return [Figure((HeatMap(names, names, tuple(marks)),), _PICTURE)]

    def notes(self) -> Sequence[str]:
        measured = self.measured
        pairs, all_pairs = len(measured.chosen.tables), len(measured.doubles.tables)
        return [
            f"Measured: {len(measured.axes)} columns, all {all_pairs} pairs coarsely, {pairs} pairs finely "
            f"({', '.join(f'{share:.0%}' for share in self.shares)} of the budget share). What these pairs "
            "do not say, synthetic rows do not know: three columns together, rare combinations, and anything "
            "about one person. Analyses of synthetic rows are not exact: cape.synthetic.combine gives "
            "intervals, and a direct release of the same analysis is more precise."
        ]

    def to_dict(self) -> dict[str, Any]:
        measured = self.measured
        told = measured.levels(self.schema)
        return plain(
            {
                "columns": {
                    each.column: {
                        "values": list(each.names),
                        "counts": measured.singles.tables[i,],
                        "noise": measured.singles.noise[i,],
                        "groups": {
                            "coarse": list(measured.doubles.groups[i]),
                            "fine": list(measured.chosen.groups[i]),
                        },
                    }
                    for i, each in enumerate(told)
                },
                "pairs": [
                    {
                        "columns": [self.columns[i] for i in pair],
                        "groups": how,
                        "counts": stage.tables[pair],
                        "noise": stage.noise[pair],
                    }
                    for how, stage in (("coarse", measured.doubles), ("fine", measured.chosen))
                    for pair in stage.tables
                ],
                "rows": measured.rows,
                "shares": list(self.shares),
                "associations": [
                    {
                        "columns": [self.columns[i] for i in each.pair],
                        "cramers_v": each.estimate.value,
                        "privacy_error": each.estimate.privacy,
                        "interval": each.estimate.interval(level_of_each(LEVEL, len(self.associations))),
                    }
                    for each in self.associations
                ],
            }
        )

    def _titles(self, places: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.schema.label(self.columns[i]) for i in places)

    def _place(self, name: str) -> int:
        if name not in self.columns:
            raise InvalidInput(
                f"no column {check.show(name)} in the synthetic data{hint(name, self.columns)}"
            )
        return self.columns.index(name)


def cells(levels: Levels, places: Integers, within: Floats) -> pl.Series:
    """Return the cells of a column: categories, or numbers at these parts of the way through their bins."""
    import polars as pl

    if levels.ends is None:
        return pl.Series([levels.values[place] for place in places])
    ends = np.array(levels.ends)
    absent = places >= len(ends)
    low, high = ends[np.where(absent, 0, places)].T
    if levels.whole:
        values = low + np.minimum(np.floor(within * (high - low + 1)), high - low)
        found = pl.Series(values.astype(np.int64))
    else:
        widths = ends[:, 1] - ends[:, 0]
        step = 10.0 ** (_DIGITS - math.floor(math.log10(float(widths[widths > 0].min(initial=1.0)))))
        values = np.floor((low + (high - low) * within) * step) / step
        least = np.minimum(low + 1 / step, (low + high) / 2)  # a lower end with a bin of its own is not in it
        taken = np.isin(low, ends[widths == 0, 0])
        found = pl.Series(np.where(high > low, np.maximum(values, np.where(taken, least, low)), low))
    return found.set(pl.Series(absent), None) if absent.any() else found
