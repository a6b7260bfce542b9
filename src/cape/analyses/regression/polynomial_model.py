"""What minimises a polynomial loss: its scores of rows, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.analyses.regression.effects import effects, forest, plainly
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.data import Schema
from cape.show import Figure, Shown, Table
from cape.show.numbers import counted, number
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["PolynomialModel"]


@dataclass(frozen=True, repr=False)
class PolynomialModel(Shown):
    """What minimises a polynomial loss: scores x·w, in units of the scaled target.

    Attributes:
        estimates: w per unit of each feature, with errors from noise.
        intercept: the score where numbers and indicators of categories are all 0.
        coefficients: the score per unit of each feature.
        weights: the same for (1, x), or x, with x as sites make it.
        rows: how many complete rows there are, as released.
        ridge: what was added to the mean of the loss times |w|², infinite if w is 0.
        faults: what is wrong with the data, in sentences.
        rows_noise: the noise in the number of rows, 0 if that is public.
    """

    target: str
    design: Design
    schema: Schema
    estimates: tuple[Estimate, ...]
    intercept: float
    coefficients: dict[str, float]
    weights: tuple[float, ...]
    with_intercept: bool
    rows: float
    ridge: float
    faults: tuple[str, ...] = ()
    rows_noise: float = 0.0

    def decision_function(self, data: Any) -> Floats:
        """Return x·w for each row: see `LinearModel.predict` for what data may be."""
        weights = np.array(self.weights)
        first = int(self.with_intercept)
        x = Units(self.design, self.schema).rows(data)
        return np.asarray((weights[0] if first else 0.0) + x @ weights[first:])

    def tables(self) -> Sequence[Table]:
        title = f"score for {self.target} ({counted(self.rows, self.rows_noise, 'row')})"
        rows = tuple((each.title, *each.cells[:3]) for each in effects(self.estimates, self.schema))
        return [Table(("", "coef", "95% interval", "privacy error"), rows, title)]

    def figures(self) -> Sequence[Figure]:
        slopes = [each for each in self.estimates if each.label in self.coefficients]
        return forest(slopes, self.schema, "Change of the score")

    def notes(self) -> Sequence[str]:
        return [*self.faults, f"Ridge {number(self.ridge)}."]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: coefficients per what `per` says, those of predictions per unit."""
        return plain(
            {
                "target": self.target,
                **plainly(self.estimates, self.coefficients, self.schema),
                "predictions": {"intercept": self.intercept, "coefficients": self.coefficients},
                "ridge": self.ridge,
                "rows": self.rows,
                "faults": list(self.faults),
            }
        )
