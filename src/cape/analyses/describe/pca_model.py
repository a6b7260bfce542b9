"""Released components: scores of rows, and how components are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.analyses.describe.pca_estimate import label
from cape.blocks import Design
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.show import Figure, HeatMap, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS, MOST_MARKS, extent
from cape.show.numbers import between, counted, rounded
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["PCAModel"]

_MOST_COLUMNS = 8  # of loadings that are drawn

_SHARES = "The share of all variance that lies along each component."

_LOADINGS = (
    "What a component is made of: the weight of each column, from -1 to 1, as released. No errors are known."
)


@dataclass(frozen=True, repr=False, eq=False)
class PCAModel(Shown):
    """Directions, one a row of `components`, in units of t; the largest entry of each is positive.

    Attributes:
        explained_variance: along each component, corrected for what noise adds.
        explained_variance_ratio: the same as a share of all variance.
        mean: of t, by column; 0 if columns were not centred.
        clear: whether a component stands out from the noise.
    """

    design: Design
    schema: Schema
    components: Floats
    explained_variance: Floats
    explained_variance_ratio: Floats
    mean: Floats
    estimates: tuple[Estimate, ...]
    clear: tuple[bool, ...]
    count: float
    count_noise: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The column, or category, of each entry of a component."""
        return self.design.names(self.schema)

    def transform(self, data: Any) -> Floats:
        """Return the scores of each row of a table; NaN where a column is missing."""
        t = Units(self.design, self.schema).rows(data) * self.design.length(self.schema)
        return np.asarray((t - self.mean) @ self.components.T)

    def inverse_transform(self, scores: Any) -> dict[str, Floats]:
        """Return rows by name, in the columns' units, that have these scores and are average otherwise."""
        try:
            scores = np.asarray(scores, np.float64)
        except (TypeError, ValueError):
            raise InvalidInput("scores must be rows of numbers, one for each component") from None
        if scores.ndim != 2 or scores.shape[1] != len(self.components):
            raise InvalidInput(
                f"scores must have {len(self.components)} columns, not the shape {scores.shape}"
            )
        return Units(self.design, self.schema).from_t(scores @ self.components + self.mean)

    def tables(self) -> Sequence[Table]:
        by_label = {each.label: each for each in self.estimates}
        rows: list[tuple[str, ...]] = []
        for what in ("variance", "share"):
            found = [by_label[label(i, what)] for i in range(len(self.clear))]
            rows.append((what, *(rounded(e.value, e.standard_error) for e in found)))
            rows.append(("  95% interval", *(between(e.interval(), e.standard_error) for e in found)))
        for j, name in enumerate(self.names):
            rows.append((self._called(name), *(f"{row[j]:.3f}" for row in self.components)))
        title = f"principal components ({counted(self.count, self.count_noise, 'row')})"
        return [Table(("", *self._titles), tuple(rows), title, drop=tuple(range(len(self.clear), 1, -1)))]

    def figures(self) -> Sequence[Figure]:
        shares = [each for each in self.estimates if each.label.endswith(" share")][:MOST_MARKS]
        marks = tuple(
            Mark.of(each, f"component {name}") for each, name in zip(shares, self._titles, strict=False)
        )
        held = Intervals(marks, axis="share of all variance", ends=(0.0, *extent(marks)))
        found = [Figure((held,), f"{_SHARES} {DOTS}")]
        if len(marks) <= _MOST_COLUMNS:
            cells = tuple(
                tuple(
                    Mark.exact(f"{name} in component {i + 1}", float(row[j]))
                    for i, row in enumerate(self.components)
                )
                for j, name in enumerate(self.names)
            )
            names = tuple(map(self._called, self.names))
            found.append(Figure((HeatMap(names, self._titles, cells),), _LOADINGS))
        return found

    def notes(self) -> Sequence[str]:
        return [
            "Columns are scaled to -1 to 1 between their bounds. Variances are corrected for what noise adds."
        ]

    def to_dict(self) -> dict[str, Any]:
        return plain(
            {
                "names": self.names,
                "components": self.components,
                "mean": self.mean,
                "explained_variance": self.explained_variance,
                "explained_variance_ratio": self.explained_variance_ratio,
                "clear": self.clear,
                "rows": self.count,
            }
        )

    def _called(self, name: str) -> str:
        """Return a column as people call it, without its unit."""
        return self.schema.label(name) if name in self.schema else self.schema.title(name)

    @property
    def _titles(self) -> tuple[str, ...]:
        return tuple(f"{i + 1}" if clear else f"{i + 1} (noise)" for i, clear in enumerate(self.clear))
