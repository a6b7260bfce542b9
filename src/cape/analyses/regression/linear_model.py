"""The model of a linear regression: coefficients in the columns' units, predictions, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cape.analyses.regression.effects import Effect, effects, forest, plainly, tested
from cape.analyses.regression.joint import Joint, Tested
from cape.analyses.regression.portable import Portable
from cape.analyses.regression.reference import INTERCEPT, Reference, reference
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.data import Schema
from cape.show import Figure, Table
from cape.show.numbers import counted, number
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["LinearModel"]

_ERRORS = {
    "robust": "Standard errors are robust: they do not assume the same spread of residuals everywhere.",
    "classical": "Standard errors are classical: they assume the same spread of residuals everywhere.",
    "unknown": "Standard errors are not known.",
}


_SAID = 'Least squares was asked for by second moments (method = "moments").'
_HIDDEN = 1000  # times the least that features vary: more is not worth a number


@dataclass(frozen=True, repr=False)
class LinearModel(Tested, Portable):
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
        joint: the estimates together, with the covariances of their errors.
        errors: "robust" if sampling errors hold whatever residuals are like, "classical" if they do not,
            "unknown" if there are none.
        faults: what is wrong with the data, in sentences.
        rows_noise: the noise in the number of rows, 0 if that is public.
    """

    link: ClassVar[str] = "identity"
    found_by: ClassVar[str] = "moments"

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
    joint: Joint
    errors: str
    faults: tuple[str, ...] = ()
    rows_noise: float = 0.0

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
    def _accuracy(self) -> list[str]:
        """The share of variance explained and the error of predictions; in words where they are not known."""
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
        rows = counted(self.rows, self.rows_noise, "row")
        return f"{self.schema.title(self.target)} by least squares ({rows})"

    def tables(self) -> Sequence[Table]:
        used = {"intercept": self.intercept, **self.coefficients}
        rows = [
            (each.title, *each.cells, *each.test, number(each.per * used[each.label]))
            for each in effects(self.estimates, self.schema)
        ]
        if self.reference is not None:  # in the place of the intercept
            place = [each.label for each in self.estimates].index(INTERCEPT)
            there = number(float(self.predict({name: [v] for name, v in self.reference.values.items()})[0]))
            rows[place] = ("at reference", *Effect("", 1.0, self.reference.estimate).cells, "", "", there)
        columns = ("", "coef", "95% interval", "std err", "from privacy", "z", "P>|z|", "in predictions")
        return [tested(Table(columns, tuple(rows), self.title, drop=(7, 5, 4, 3)), self.estimates)]

    def figures(self) -> Sequence[Figure]:
        slopes = [each for each in self.estimates if each.label in self.coefficients]
        return forest(slopes, self.schema, f"Change of {self.schema.title(self.target)}")

    @cached_property
    def reference(self) -> Reference | None:
        """The target at typical values of the features, if there are such."""
        return reference(self.joint, self.schema)

    def notes(self) -> Sequence[str]:
        ridge = [] if math.isinf(self.ridge) else [f"ridge {number(self.ridge)}"]
        notes = [f"{'; '.join([*self._accuracy, *ridge])} (root mean square, estimated from the release)."]
        if self.reference is not None:
            notes.insert(0, f"At reference: {self.reference.words}.")
        notes = [*self.faults, *notes, *([] if self.errors == "unknown" else [_SAID]), _ERRORS[self.errors]]
        if math.isinf(self.ridge):
            notes.append("Noise hides what the features say: predictions are a constant.")
        if self.noise > _HIDDEN:
            notes.append(
                f"Noise is more than {_HIDDEN:,} times the least that features vary, as far as is seen: it "
                "hides whether one of them does not vary, or whether they vary together."
            )
        elif self.noise > 0:
            notes.append(f"Noise is at most {number(self.noise)} times the least that features vary.")
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: coefficients per what `per` says, those of predictions per unit."""
        return plain(
            {
                "target": self.target,
                **plainly(self.estimates, self.coefficients, self.schema),
                "predictions": {"intercept": self.intercept, "coefficients": self.coefficients},
                "reference": self.reference and self.reference.to_dict(),
                "ridge": self.ridge,
                "r_squared": self.r_squared,
                "residual": self.residual,
                "error": self.error,
                "rows": self.rows,
                "errors": self.errors,
                "method": self.found_by,
                "faults": list(self.faults),
                "covariance": self.covariance.to_dict(),
            }
        )
