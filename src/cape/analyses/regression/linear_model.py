"""What a linear regression leaves behind: coefficients in people's units, predictions, a table to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cape.analyses.regression.inference import z_and_p
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.data import Schema
from cape.engine.query import Estimate
from cape.engine.result import as_text, between, number

__all__ = ["LinearModel"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class LinearModel:
    """A target that is linear in the features.

    Attributes:
        estimates: the intercept, if there is one, and the change of the target per unit of each feature, with
            errors: least squares, less what noise does to them.
        intercept: of predictions, where numbers and indicators of categories are all 0.
        coefficients: of predictions, per unit of each feature: those of a ridge regression.
        weights: the same for (1, x) and y as sites make them.
        rows: how many complete rows there are, as released.
        ridge: what was added to the mean of xx', infinite if predictions are a constant.
        error: the root of the mean squared error of predictions over the rows, estimated from the release.
        residual: the standard deviation of residuals, estimated from the release.
        r_squared: the share of the target's variance that least squares explains; NaN if noise hides it.
        noise: the largest eigenvalue of the noise in xx', beside the smallest of xx' about its means.
    """

    target: str
    design: Design
    schema: Schema
    estimates: tuple[Estimate, ...]
    intercept: float
    coefficients: dict[str, float]
    weights: tuple[float, ...]
    rows: float
    ridge: float
    error: float
    residual: float
    r_squared: float
    noise: float

    def predict(self, data: Any) -> Floats:
        """Return the target for each row, within its bounds; NaN where a feature is missing.

        `data` maps columns to arrays (a DataFrame does), or is an array with one column a feature if all
        features are numbers. Cells are cut to their bounds and rows to the norm, as sites do it.
        """
        weights = np.array(self.weights)
        y = weights[0] + Units(self.design, self.schema).rows(data) @ weights[1:]
        column = self.schema.number(self.target)
        return np.asarray(column.middle + column.half * np.clip(y, -1.0, 1.0))

    @property
    def told(self) -> list[str]:
        """How much is explained, and how far predictions are off, in words where it is not known."""
        known = math.isfinite(self.r_squared)
        said = [f"R² {number(self.r_squared)}" if known else "R² is not known"]
        if math.isfinite(self.residual):
            said.append(f"residual SD {number(self.residual)}")
        if not math.isfinite(self.error):
            return [*said, "error of predictions not known"]
        # an estimate that noise cut to 0 is no error of 0
        return [
            *said,
            f"error of predictions {number(self.error)}"
            if self.error > 0
            else "error of predictions too small to tell from noise",
        ]

    @property
    def title(self) -> str:
        """What stands above the table: the target, and how it was fitted."""
        return f"{self.target} by least squares ({self.rows:,.0f} rows)"

    def __rich__(self) -> Group:
        table = Table(title=escape(self.title), title_justify="left")
        table.add_column("")
        for name in ("coef", "std err", "of it privacy", "z", "P>|z|", "95% interval", "in predictions"):
            table.add_column(name, justify="right")
        used = {"intercept": self.intercept, **self.coefficients}
        for each in self.estimates:
            table.add_row(
                escape(each.label),
                number(each.value),
                number(each.standard_error),
                number(each.privacy),
                *z_and_p(each),
                between(each.interval(0.95)),
                number(used[each.label]),
            )
        lines = [
            "; ".join([*self.told, *([] if math.isinf(self.ridge) else [f"ridge {number(self.ridge)}"])])
        ]
        if math.isinf(self.ridge):
            lines.append("Noise hides what the features say: predictions are a constant.")
        if math.isfinite(self.noise) and self.noise > 0:
            lines.append(f"Largest noise in xx' beside the least that features vary: {number(self.noise)}")
        return Group(table, Text("\n".join(lines), style="dim"))

    def summary(self) -> str:
        """Return the table of coefficients as text."""
        return as_text(self, 130)

    __str__ = summary
    __repr__ = summary
