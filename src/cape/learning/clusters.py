"""What a clustering leaves behind: centres in people's units, the nearest for new rows, a table to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.data import Number, Schema
from cape.engine.query import Estimate
from cape.engine.result import as_text, count, number
from cape.learning.seeds import nearest

__all__ = ["KMeansModel", "Vectors"]

Floats = NDArray[np.float64]
Int64 = NDArray[np.int64]

_TOLD = 6  # columns that a table has room for


class Vectors:
    """From the columns' units to the vectors that sites make of rows, and back."""

    def __init__(self, design: Design, schema: Schema) -> None:
        self._design, self._schema = design, schema
        self.names = design.names(schema)
        columns = [schema[name] for name in design.features]
        length = design.length(schema)
        middle: list[float] = []
        unit: list[float] = []
        low: list[float] = []
        high: list[float] = []
        for column in columns:
            if isinstance(column, Number):
                middle, unit = [*middle, column.middle], [*unit, column.half * length]
                low, high = [*low, column.low], [*high, column.high]
            else:
                many = len(column.values) - 1
                middle, unit = middle + [0.0] * many, unit + [length] * many
                low, high = low + [0.0] * many, high + [1.0] * many
        self._middle, self.unit = np.array(middle), np.array(unit)
        self.low, self.high = np.array(low), np.array(high)

    def within(self, points: Floats) -> Floats:
        """Return vectors moved to where means of rows can be: within the bounds, and not longer than 1."""
        low, high = (self.low - self._middle) / self.unit, (self.high - self._middle) / self.unit
        cut = np.clip(points, low, high)
        return np.asarray(cut / np.fmax(np.linalg.norm(cut, axis=1, keepdims=True), 1.0))

    def back(self, points: Floats) -> Floats:
        """Return vectors in the columns' units, within their bounds; an indicator as a fraction."""
        return np.clip(self._middle + self.unit * points, self.low, self.high)

    def of(self, data: Any) -> Floats:
        """Return the vector of each row of a table, as a site makes it; NaN where a column is missing.

        `data` maps columns to arrays (a DataFrame does), or is an array with one column for each of the
        design's if all are numbers.
        """
        return Units(self._design, self._schema).rows(data)


@dataclass(frozen=True, repr=False)
class KMeansModel:
    """Clusters, the largest first.

    Attributes:
        names: what each entry of a centre is called: a numeric column, or "column=value".
        centres: (clusters, names), in the columns' units; for a category the fraction that has the value.
        percentages: how many of the rows belong to each cluster.
        clear: whether noise let each cluster be seen; the centre of one that is not is a place where it was
            looked for.
        estimates: the same with their errors.
    """

    design: Design
    schema: Schema
    names: tuple[str, ...]
    centres: Floats
    percentages: Floats
    clear: NDArray[np.bool_]
    estimates: tuple[Estimate, ...]
    vectors: Floats
    """The centres in units of x, in which rows are compared."""

    def predict(self, data: Any) -> Int64:
        """Return the place of the nearest centre in `centres`, from 0; -1 where a column is missing.

        `data` maps columns to arrays (a DataFrame does), or is an array with one column for each of the
        clustering's if all are numbers. Distances are those that sites take: every number in units of half
        its bounds.
        """
        x = Vectors(self.design, self.schema).of(data)
        missing = np.asarray(np.isnan(x).any(axis=1))
        return np.where(missing, -1, nearest(np.where(missing[:, None], 0.0, x), self.vectors))

    def __rich__(self) -> Group:
        shown = self.names[:_TOLD]
        table = Table(title=escape(count(len(self.centres), "cluster")), title_justify="left")
        for title in ("cluster", "% of rows", *shown):
            table.add_column(escape(title), justify="right")
        for i, (centre, size) in enumerate(zip(self.centres, self.percentages, strict=True)):
            errors = [estimate.privacy for estimate in self._of(i)]
            cells = [f"{number(v)} ± {number(e)}" for v, e in zip([size, *centre], errors, strict=True)]
            if not self.clear[i]:
                cells[1:] = ["hidden"] * (len(cells) - 1)
            table.add_row(str(i + 1), *cells[: len(shown) + 1])
        lines = ["± is one standard deviation of the noise."]
        if len(self.names) > _TOLD:
            lines.append(f"Another {count(len(self.names) - _TOLD, 'column')} can be found in `centres`.")
        if not self.clear.all():
            lines.append("Noise hides some clusters: use fewer of them, more epsilon or more rows.")
        return Group(table, Text(" ".join(lines), style="dim"))

    def _of(self, cluster: int) -> tuple[Estimate, ...]:
        width = len(self.names) + 1
        return self.estimates[cluster * width : (cluster + 1) * width]

    def summary(self) -> str:
        """Return the table of clusters as text."""
        return as_text(self, 130)

    __str__ = summary
    __repr__ = summary
