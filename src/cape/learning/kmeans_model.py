"""The model of a clustering: centres in the columns' units, predictions, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.arrays import Flags, Floats, Integers
from cape.data import Schema
from cape.learning.seeds import nearest
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS, MOST_MARKS
from cape.show.numbers import count, rounded
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate

__all__ = ["KMeansModel"]


_TOLD = 6  # columns that a table has room for
_MOST_PANELS = 12


@dataclass(frozen=True, repr=False)
class KMeansModel(Shown):
    """Clusters, the largest first.

    Attributes:
        names: what each entry of a centre is called: a numeric column, or "column=value".
        centres: (clusters, names), in the columns' units; for a category the fraction that has the value.
        percentages: how many of the rows belong to each cluster.
        clear: whether noise let each cluster be seen; the centre of a hidden one is only
            where it was looked for.
        estimates: the same with their errors.
    """

    design: Design
    schema: Schema
    names: tuple[str, ...]
    centres: Floats
    percentages: Floats
    clear: Flags
    estimates: tuple[Estimate, ...]
    vectors: Floats
    """The centres in units of x, in which rows are compared."""

    def predict(self, data: Any) -> Integers:
        """Return the place of the nearest centre in `centres`, from 0; -1 where a column is missing.

        `data` maps columns to arrays (a DataFrame does), or is an array with one column for each of the
        clustering's if all are numbers. Distances are those that sites take: every number in units of half
        its bounds.
        """
        x = Units(self.design, self.schema).rows(data)
        missing = np.asarray(np.isnan(x).any(axis=1))
        return np.where(missing, -1, nearest(np.where(missing[:, None], 0.0, x), self.vectors))

    def tables(self) -> Sequence[Table]:
        names = [self.schema.title(name) for name in self.names[:_TOLD]]
        rows = []
        for i in range(len(self.centres)):
            size, *cells = (
                f"{rounded(each.value, each.privacy)} ± {rounded(each.privacy, each.privacy)}"
                for each in self._of(i)
            )
            rows.append((f"{i + 1}", size, *(cells if self.clear[i] else ["hidden"] * len(cells))[:_TOLD]))
        columns = ("cluster", "% of rows", *names)
        caption = "± is one standard deviation of the noise."
        if len(self.names) > _TOLD:
            caption += f" Another {count(len(self.names) - _TOLD, 'column')} can be found in `centres`."
        title = count(len(self.centres), "cluster")
        clusters = Table(columns, tuple(rows), title, caption, drop=tuple(range(len(columns) - 1, 1, -1)))
        return [clusters, listed(self.estimates, self._title, folded=True)]

    def figures(self) -> Sequence[Figure]:
        panels = []
        for place, name in enumerate(("% of rows", *self.names)[:_MOST_PANELS]):
            marks = tuple(
                Mark.of(self._of(i)[place], f"cluster {i + 1}" + ("" if seen else " (hidden)"))
                for i, seen in enumerate(self.clear[:MOST_MARKS])
            )
            panels.append(Intervals(marks, self.schema.title(name) if place else name))
        return [Figure(tuple(panels), DOTS)]

    def notes(self) -> Sequence[str]:
        notes = ["Intervals describe the rows in the tables: they cover privacy noise, not sampling."]
        if not self.clear.all():
            notes.append("Noise hides some clusters: use fewer of them, more epsilon or more rows.")
        return notes

    def to_dict(self) -> dict[str, Any]:
        return plain(
            {
                "names": self.names,
                "centres": self.centres,
                "percentages": self.percentages,
                "clear": self.clear,
            }
        )

    def _title(self, label: str) -> str:
        cluster, colon, name = label.partition(": ")
        return f"{cluster}{colon}{self.schema.title(name)}"

    def _of(self, cluster: int) -> tuple[Estimate, ...]:
        width = len(self.names) + 1
        return self.estimates[cluster * width : (cluster + 1) * width]
