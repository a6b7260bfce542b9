"""The model of synthetic data that is fitted to what was measured, and rows that are drawn from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
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
from cape.show.plain import plain
from cape.stats.simulation import Random, generator

if TYPE_CHECKING:
    import polars as pl

    from cape.analyses.synthetic.check import Association

__all__ = ["SyntheticModel"]

_DIGITS = 3  # of a number within its bin
_REFIT = 500  # steps of a fit that starts at a similar model
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
        start: an earlier model's potentials, for a fit to similar numbers.
    """

    measured: Measured
    schema: Schema
    rows: int | None
    shares: tuple[float, ...]
    start: Potentials | None = field(default=None, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its rows."""
        return tuple(axis.column for axis in self.measured.axes)

    @cached_property
    def potentials(self) -> Potentials:
        """The fitted log-potentials: needs the extra `synthetic`, and takes up to a minute."""
        measured = self.measured
        told = (measured.chosen.sizes, measured.measurements(), measured.rows, measured.possible)
        return fit(*told) if self.start is None else fit(*told, self.start, _REFIT)

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

    def levels_of(self, rows: int, random: Random, *, even: bool = True) -> list[Integers]:
        """Return the value of each drawn row, by column, as its place.

        `even` spreads rows over shares as evenly as can be, so that tables vary less than of rows drawn by
        chance.
        """
        groups = self.network.draw(rows, random, even=even)
        return [
            drawn(shape, group, random, even=even) for shape, group in zip(self.shapes, groups, strict=True)
        ]

    def sample(self, rows: int | None = None, seed: int = 0) -> pl.DataFrame:
        """Return synthetic rows, as a polars DataFrame: as many as wanted, as often as wanted, at no cost.

        Args:
            rows: how many; by default as the analysis says, else as many as there are.
            seed: the same seed draws the same rows.
        """
        import polars as pl

        if rows is None:
            rows = self.rows or max(round(self.measured.rows), 1)
        rows = check.integer("rows", rows, least=1)
        random = generator(check.integer("seed", seed, least=0))
        places = self.levels_of(rows, random)
        found = {}
        for each, place in zip(self.measured.levels(self.schema), places, strict=True):
            found[each.column] = _cells(each, place, random)
        return pl.DataFrame(found)

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

    def again(self, random: Random) -> SyntheticModel:
        """Return the model of a repeated study: rows drawn from this one, measured with fresh noise."""
        measured = self.measured
        levels = self.levels_of(max(round(measured.rows), 1), random, even=False)
        repeated = Measured(
            measured.axes,
            measured.rows,
            measured.public,
            measured.singles.again(levels, random),
            measured.doubles.again(levels, random),
            measured.chosen.again(levels, random),
            measured.possible,
        )
        return SyntheticModel(repeated, self.schema, self.rows, self.shares, self.potentials)

    @cached_property
    def associations(self) -> list[Association]:
        """How strongly each pair goes together, the strongest first, from the released coarse tables."""
        from cape.analyses.synthetic.check import associations

        return associations(self)

    def tables(self) -> Sequence[Table]:
        chosen = self.measured.chosen
        rows = []
        for each in self.associations[:_MOST_LISTED]:
            mark = Mark.of(each.estimate)
            pair = each.pair
            how = "finely" if pair in chosen.tables else "coarsely"
            rows.append(
                (" × ".join(self._titles(pair)), mark.number, f"{mark.low:.2f} to {mark.high:.2f}", how)
            )
        more = max(len(self.associations) - len(rows), 0)
        return [
            Table(
                ("columns", "Cramér's V", "95% interval", "measured"),
                tuple(rows),
                title="The strongest associations",
                more=more,
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


def _cells(levels: Levels, places: Integers, random: Random) -> pl.Series:
    """Return the cells of a column: categories, or numbers spread evenly over their bins."""
    import polars as pl

    if levels.edges is None:
        return pl.Series([levels.values[place] for place in places])
    edges = np.array(levels.edges)
    bins = len(edges) - 1
    absent = places >= bins
    inside = np.where(absent, 0, places)
    low, width = edges[inside], np.diff(edges)[inside]
    digits = _DIGITS - math.floor(math.log10(float(np.diff(edges).min())))
    step = 10.0**digits
    values = np.maximum(np.floor((low + width * random.random(len(places))) * step) / step, low)
    cells = pl.Series(values)
    return cells.set(pl.Series(absent), None) if absent.any() else cells
