"""What a release of tables holds, and all that can be made of it: post-processing, which costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cape.analyses.tables.crosstab_model import Crosstab
from cape.analyses.tables.marginals import Levels, Measured
from cape.analyses.tables.where import Where, chosen
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.show import Figure, HeatMap, Mark, Shown, Table
from cape.show.numbers import LEVEL, between, count, p_value, rounded
from cape.show.plain import plain
from cape.stats.estimates import Estimate
from cape.stats.independence import Independence
from cape.stats.law import GAUSSIAN, Law
from cape.stats.together import by_lower_end, level_of_each, said_together

__all__ = ["PairFound", "TablesModel"]

_TESTED = 300  # pairs of columns whose association is worked out for tables and figures
_LISTED = 20
_DRAWN = 16  # columns of a heat map
_HEAT = (
    "Cramér's V of each pair of columns, noise taken off: 0 if they are independent, 1 if each gives the "
    "other. Point at a cell for its interval."
)
_LEVELS = ("column", "names", "values", "edges", "missing", "ends", "whole")
_SHADES = " ░▒▓█"


@dataclass(frozen=True)
class PairFound:
    """How two columns go together; the test is None if noise hides a margin."""

    columns: tuple[str, str]
    strength: Estimate
    test: Independence | None


@dataclass(frozen=True, repr=False)
class TablesModel(Shown):
    """All tables of counts of a release, consistent with each other and with public totals.

    >>> release.table("sex", "ill").odds_ratio().interval()
    >>> release.table("sex", "ill", where="age >= 65").to_polars()

    Attributes:
        measured: the released numbers, and the noise in them.
        schema: the columns.
        named: the tables that mattered to whoever asked; all within them are there, too.
    """

    measured: Measured
    schema: Schema
    named: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tables can have."""
        return tuple(each.column for each in self.measured.levels)

    def table(self, *columns: str, where: Where | None = None, missing: bool = False) -> Crosstab:
        """Return the counts of each combination of these columns' values.

        Args:
            columns: one or more of the release's columns.
            where: a condition on further columns, as in "stage = 'II'" or {"stage": "II"}; together they
                must be the columns of a table that was released. Numbers must be divided at their edges.
            missing: whether "missing" is one of the values; by default rows that miss a column are left out.
        """
        if not columns:
            raise InvalidInput("a table needs a column: " + ", ".join(self.columns))
        if where is None:
            found = self.measured.marginal(columns)
            return Crosstab(found if missing else found.known(), self.schema, law=self.measured.law)
        conditions, mask = chosen(where, self.measured, self.schema)
        both = [name for name in conditions if name in columns]
        if both:
            raise InvalidInput(f"column {both[0]!r} is both in the table and in where: leave one out")
        found = self.measured.marginal((*conditions, *columns)).among(mask)
        told = where if isinstance(where, str) else " and ".join(f"{k} = {v}" for k, v in where.items())
        return Crosstab(found if missing else found.known(), self.schema, told, self.measured.law)

    def rows(self) -> tuple[float, float]:
        """Return the number of rows, and the noise in it: 0 if it is public."""
        return self.measured.rows

    @cached_property
    def associations(self) -> tuple[PairFound, ...]:
        """How pairs of columns go together, those first that surely do so most.

        That is by the lower ends of intervals that hold together for all pairs. If there are very many, those
        are worked out whose released numbers stand out most.
        """
        found = []
        for one, other in self._pairs()[:_TESTED]:
            table = self.table(one, other)
            if min(table.values.shape) > 1:
                found.append(PairFound((one, other), table.cramers_v(), table.independence()))
        return tuple(by_lower_end(found, lambda each: each.strength, LEVEL, self._many))

    @property
    def _many(self) -> int:
        """How many pairs there are to choose from."""
        return len(self._pairs())

    def _pairs(self) -> list[tuple[str, str]]:
        """Return pairs of columns, those first whose residual is largest compared with its noise."""
        scored = []
        for places, coordinates in self.measured.coordinates.items():
            if len(places) == 2:
                noise = self.measured.noise[places]
                size = float(np.sum(np.asarray(coordinates) ** 2))
                scored.append((size - np.size(coordinates) * noise**2, places))
        scored.sort(key=lambda each: -each[0])
        names = self.columns
        return [(names[places[0]], names[places[1]]) for _, places in scored]

    def tables(self) -> Sequence[Table]:
        """Return the counts of each column's values, and the largest associations."""
        found = [self._counts()]
        if self.associations:
            found.append(self._listed())
        if len(self._drawn) > 2:
            found.append(self._heat())
        return found

    def _counts(self) -> Table:
        rows: list[tuple[str, ...]] = []
        reach = float(self.measured.law.quantile((1 + LEVEL) / 2))
        for each in self.measured.levels:
            table = self.measured.marginal((each.column,))
            rows.append((self.schema.label(each.column),))
            for name, value, noise in zip(each.names, table.values, table.noise, strict=True):
                ends = value - reach * noise, value + reach * noise
                rows.append((name, rounded(value, noise, 0), between(ends, noise, 0), rounded(noise, noise)))
        return Table(("", "count", "95% interval", "noise (SD)"), tuple(rows), "Counts", drop=(3,))

    def _listed(self) -> Table:
        rows, many = [], self._many
        for each in self.associations[:_LISTED]:
            name = " and ".join(map(self.schema.label, each.columns))
            strength, test = each.strength, each.test
            ends = between(strength.interval(level_of_each(LEVEL, many)), 0.01)
            value = "-" if test is None else f"{strength.value:.2f}"
            told = ("-", "-")
            if test is not None:
                told = f"{test.statistic:.1f} ({test.freedom})", p_value(test.p_value)
            rows.append((name, value, ends, *told))
        caption = f"Privacy noise is counted. {said_together(LEVEL, many, 'pairs')}".strip()
        if many > _TESTED:
            caption += f" Of {many:,} pairs, the {_TESTED} that stand out most were worked out."
        if many > 1:
            caption += " P values are those of single tests, not adjusted for their number."
        columns = ("", "Cramér's V", "95% interval", "chi-square (df)", "P")
        more = len(self.associations) - len(rows)
        return Table(columns, tuple(rows), "Largest associations", caption, more=more)

    @cached_property
    def _drawn(self) -> tuple[str, ...]:
        """The columns of the heat map: those of the largest associations, in the order of the release."""
        found: dict[str, None] = {}
        for each in self.associations:
            if len({*found, *each.columns}) <= _DRAWN:
                found |= dict.fromkeys(each.columns)
        return tuple(name for name in self.columns if name in found)

    @property
    def _strengths(self) -> dict[frozenset[str], PairFound]:
        return {frozenset(each.columns): each for each in self.associations}

    def _heat(self) -> Table:
        """Return Cramér's V of pairs as a table, shaded with characters, for terminals."""
        known, names = self._strengths, self._drawn
        most = max((each.strength.value for each in self.associations), default=1.0) or 1.0
        rows = []
        for i, one in enumerate(names[1:], 1):
            cells = []
            for other in names[:-1]:
                each = known.get(frozenset((one, other))) if other in names[:i] else None
                shown = each is not None and each.test is not None
                value = each.strength.value if each is not None else 0.0
                shade = _SHADES[min(round(4 * value / most), 4)]
                cells.append(f"{value:.2f} {shade}" if shown else "")
            rows.append((self.schema.label(one), *cells))
        head = ("", *map(self.schema.label, names[:-1]))
        drop = tuple(range(len(head) - 1, 3, -1))
        return Table(head, tuple(rows), "Cramér's V of pairs", drop=drop)

    def figures(self) -> Sequence[Figure]:
        """Return a heat map of the largest associations."""
        known, names = self._strengths, self._drawn
        if len(names) < 2:
            return ()
        rows = []
        for one in names:
            cells = []
            for other in names:
                each = known.get(frozenset((one, other)))
                label = f"{self.schema.label(one)} and {self.schema.label(other)}"
                cells.append(
                    Mark.exact(label, 1.0 if one == other else 0.0)
                    if each is None
                    else Mark.of(each.strength, label, most=2)
                )
            rows.append(tuple(cells))
        labels = tuple(map(self.schema.label, names))
        return [Figure((HeatMap(labels, labels, tuple(rows)),), _HEAT)]

    def notes(self) -> Sequence[str]:
        """Return how many tables there are."""
        tables = len({tuple(sorted(each)) for each in self.named})
        return [
            f"{count(tables, 'table')} of up to {max(map(len, self.named))} columns, and all within them, "
            "can be made of this release at no further cost: release.table(...)."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all that was released, as plain data; `from_dict` reads it."""
        measured = self.measured
        return plain(
            {
                "columns": [{key: getattr(each, key) for key in _LEVELS} for each in measured.levels],
                "residuals": [
                    {
                        "columns": [measured.levels[i].column for i in places],
                        "noise": measured.noise[places],
                        "coordinates": np.asarray(found).tolist(),
                    }
                    for places, found in measured.coordinates.items()
                ],
                "tables": [list(each) for each in self.named],
                "shape": measured.law.shape,
            }
        )

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], schema: Schema) -> TablesModel:
        """Return the model that `to_dict` wrote, for a schema with these columns."""
        try:
            levels = tuple(
                Levels(
                    each["column"],
                    tuple(each["names"]),
                    tuple(each["values"]),
                    None if each["edges"] is None else tuple(each["edges"]),
                    bool(each["missing"]),
                    each.get("ends") and tuple((low, high) for low, high in each["ends"]),
                    bool(each.get("whole")),
                )
                for each in found["columns"]
            )
            place = {each.column: i for i, each in enumerate(levels)}
            coordinates, noise = {}, {}
            for each in found["residuals"]:
                places = tuple(place[name] for name in each["columns"])
                shape = [len(levels[i]) - 1 for i in places]
                coordinates[places] = np.array(each["coordinates"], np.float64).reshape(shape)
                noise[places] = float(check.real("noise", each["noise"], least=0.0))
            named = tuple(tuple(each) for each in found["tables"])
            law = GAUSSIAN if found["shape"] is None else Law(found["shape"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"these are not the tables of a release: {error}") from None
        return cls(Measured(levels, coordinates, noise, law), schema, named)
