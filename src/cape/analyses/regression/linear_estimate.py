"""What second moments say of a linear regression: its coefficients with all errors, in the users' units.

`inference` has the errors, and `ridge` the fit for predictions.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.faults import sentence
from cape.analyses.regression.inference import Coefficients, Unsure, coefficients, largest, unreliable, widest
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.moments import SecondMoments
from cape.analyses.regression.ridge import Fit, fit
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import TooNoisyWarning, outside

__all__ = ["INTERCEPT", "Reading"]

INTERCEPT = "intercept"

_LESS = 'method = "scores" needs less where bounds are much wider than residuals.'


@dataclass(frozen=True)
class Reading:
    """What second moments say: predictions, and coefficients if the number of rows is known."""

    target: str
    intercept: bool
    units: Units
    sums: SecondMoments
    fit: Fit
    known: Coefficients | None

    @classmethod
    def of(
        cls, sums: SecondMoments, units: Units, target: str, *, intercept: bool, ridge: float | None
    ) -> Reading:
        """Return what these moments say; the noise sets the ridge if it is None."""
        found = fit(sums, centred=intercept, ridge=ridge)
        known = coefficients(sums, centred=intercept, loss=found.loss) if sums.enough else None
        return cls(target, intercept, units, sums, found, known)

    @property
    def shown(self) -> bool:
        """Whether any coefficient is known better than its bounds."""
        return any(isinstance(each.at, Unsure) or each.at is None for each in self.joint.estimates)

    @property
    def joint(self) -> Joint:
        """The coefficients with all errors, in the users' units."""
        column, first = self.units.schema.number(self.target), int(not self.intercept)
        half, units, known = column.half, self.units, self.known
        labels, within = (INTERCEPT, *units.names)[first:], self._limits
        owners = ("", *units.owners)[first:]
        if known is None:
            return Joint(labels, within, owners=owners)
        values = half * units.values(known.values)
        values[0] += column.middle
        pulls = half * units.matrix @ known.pull * largest(units, 2.0)

        def rows(matrix: Floats) -> tuple[tuple[float, ...], ...]:
            return rows_of(half**2 * units.covariance(matrix)[first:, first:])

        return Joint(
            labels,
            within,
            tuple(map(float, values[first:])),
            rows(known.privacy),
            rows(known.sampling),
            rows(known.clear),
            () if known.doubt is None else rows(known.doubt),
            rows_of(pulls[first:]) if known.pull.any() else (),
            owners,
        )

    @property
    def moved(self) -> Floats:
        """How far the ridge moves coefficients, in the users' units, if the sums have no noise in them."""
        first, sums, known = int(not self.intercept), self.sums, self.known
        if known is None:
            return np.zeros(len(self.joint.labels))
        true = coefficients(sums.silent, centred=self.intercept, loss=0.0).values[1:]
        half = self.units.schema.number(self.target).half
        return np.asarray(np.abs(half * self.units.matrix @ known.pull @ true)[first:])

    @property
    def _limits(self) -> tuple[tuple[float, float], ...]:
        """Bounds on coefficients, if no column moves the target by more than its whole range."""
        column = self.units.schema.number(self.target)
        slopes = widest(self.units, 2.0, 1.0) * column.half
        limits = [(-float(slope), float(slope)) for slope in slopes]
        limits[0] = column.middle - float(slopes[0]), column.middle + float(slopes[0])
        return tuple(limits[not self.intercept :])

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with the data, as sentences, with a warning of what spoils the fit."""
        found = []
        if self.known is not None and math.isnan(self.known.explained):
            target = self.units.schema.label(self.target)
            found.append(
                f"Noise hides how much {target} varies: how much of that the features explain is not known."
                if self.sums.yy_noise
                else f"{target} does not vary: there is nothing that features could explain."
            )
        if any(estimate.within[0] > -math.inf for estimate in self.joint.estimates):
            found.insert(0, sentence(self._warned(), self.units.names))
        return tuple(found)

    def _warned(self) -> str:
        """Warn of coefficients that noise hides, or that do not vary, and return it."""
        sums, known = self.sums, self.known
        if known is None:
            text = (
                f"noise hides the number of rows ({sums.count:.0f}, with noise of {sums.count_noise:.0f}): "
                "no coefficient is known. Use more rows, a larger share or more epsilon."
            )
        else:
            text = unreliable(self.units.names, known.hidden, noise=sums.xx_noise > 0)
            if sums.xx_noise > 0:
                text += f" {_needed(known)}; {_LESS}"
        text += f" Wide intervals assume that no column moves {self.target} by more than its whole range."
        warnings.warn(text, TooNoisyWarning, stacklevel=outside())
        return text


def _needed(known: Coefficients) -> str:
    """Return how much more would be enough, in words, where the noise lets it be told."""
    if known.smallest <= known.noise / 3:
        return "It would take far more rows or a far larger epsilon"
    needed = max(3 * known.noise / known.smallest, 1.0)
    return f"About {needed:.1f} times the rows or the epsilon would be enough"
