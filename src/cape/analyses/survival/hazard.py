"""Cumulative hazards at the edges of bins, with sampling and privacy noise in every interval.

With events d and exposures E of a `RiskTable`, the hazard until an edge adds up over bins

- -log(1 - d / E), which is minus the logarithm of Kaplan and Meier's curve; or
- d / E, which is Nelson and Aalen's.

*Errors.* From sampling Greenwood's, sum d / (E (E - d)), or sum d / E²: increments of different bins are
uncorrelated, so that covariances are the variances at the earlier edge. From noise those of the linear part,
whose slopes are the exact derivatives with respect to every count.

*Intervals.* The sampling variance is nearly proportional to the hazard L, and that of noise is not. The
interval holds the L with (L - found)² <= q² (a L + noise²), where a is the sampling variance over the hazard:
at 0 it is open above, as Wilson's interval of a proportion is, and with many events it is the usual one. It
is made from the counts without constraints, which have no bias, and widened to hold what is shown.

*The end.* From the first bin whose exposure is below four standard deviations of its noise, nothing is known
but that the hazard goes on rising.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from cape.analyses.survival.risk_table import RiskTable
from cape.core.arrays import Floats

__all__ = ["Form", "Hazard", "wilson"]

Form = Literal["product", "sum"]
_CLEAR = 4.0  # noise in an exposure, in standard deviations, that it must exceed


def wilson(found: Floats, per: Floats, noise: Floats, q: float | Floats) -> tuple[Floats, Floats]:
    """Return the ends of the x >= 0 with (x - found)² <= q² (per x + noise); both infinite where found is."""
    finite = np.where(np.isfinite(found), found, 0.0)
    middle = finite + q * q * per / 2
    reach = np.sqrt(np.maximum(middle**2 - finite**2 + q * q * noise, 0.0))
    ends = np.maximum(middle - reach, 0.0), np.maximum(middle + reach, 0.0)
    low, high = (np.where(np.isfinite(found), end, found) for end in ends)
    return low, high


@dataclass(frozen=True)
class Hazard:
    """The cumulative hazard of one group at the ends of bins."""

    table: RiskTable
    form: Form = "product"

    @property
    def _free(self) -> RiskTable:
        return self.table.free or self.table

    @cached_property
    def known(self) -> int:
        """In how many bins, from the first, exposures are clear of noise."""
        free = self._free
        hidden = (free.exposed <= _CLEAR * free.exposure_noise) | (self.table.exposed <= 0)
        return int(np.argmax(hidden)) if hidden.any() else len(hidden)

    @cached_property
    def values(self) -> Floats:
        """The hazard until the end of each bin, as it is shown; bins without exposure add nothing."""
        return np.cumsum(self._steps(self.table))

    @cached_property
    def unbiased(self) -> Floats:
        """The hazard until the end of each known bin, from counts without constraints."""
        return np.cumsum(self._steps(self._free)[: self.known])

    def _steps(self, table: RiskTable) -> Floats:
        exposed = np.where(table.exposed > 0, table.exposed, 1.0)
        share = np.where(table.exposed > 0, table.deaths / exposed, 0.0)
        if self.form == "sum":
            return share
        with np.errstate(divide="ignore"):
            return -np.log1p(-np.minimum(share, 1.0))

    @cached_property
    def _left(self) -> Floats:
        """What derivatives divide by in the known bins: those exposed, for a product without an event."""
        exposed = self.table.exposed[: self.known]
        if self.form == "sum":
            return exposed
        return np.maximum(exposed - self.table.deaths[: self.known], 0.5)

    @cached_property
    def variance_steps(self) -> Floats:
        """The sampling variance that each known bin adds."""
        known = self.known
        return np.asarray(self.table.deaths[:known] / (self.table.exposed[:known] * self._left))

    @cached_property
    def sampling(self) -> Floats:
        """The sampling variance until the end of each known bin."""
        return np.cumsum(self.variance_steps)

    @cached_property
    def noise(self) -> Floats:
        """The covariance of the noise until the ends of known bins."""
        known, table = self.known, self.table
        direct = np.zeros((known, table.events.shape[0], table.bins))
        by_exposure = np.zeros((known, table.bins))
        so_far = np.tril(np.ones((known, known)))
        direct[:, :, :known] = (so_far / self._left)[:, None, :]
        by_exposure[:, :known] = -so_far * self.variance_steps
        return table.blur.covariance(table.chained(direct, by_exposure))

    @cached_property
    def errors(self) -> tuple[Floats, Floats]:
        """The standard errors from sampling and from noise at the ends of known bins."""
        return np.sqrt(self.sampling), np.sqrt(np.maximum(np.diag(self.noise), 0.0))

    @cached_property
    def covariance(self) -> Floats:
        """The covariance of all errors at the ends of known bins."""
        earlier = np.minimum.outer(np.arange(self.known), np.arange(self.known))
        return np.asarray(self.sampling[earlier] + self.noise) if self.known else np.zeros((0, 0))

    def reach(self, q: float | Floats) -> tuple[Floats, Floats]:
        """Return the ends of intervals of q standard errors, one number or one a known bin, at all bins'
        ends."""
        known, hidden = self.known, self.table.bins - self.known
        values = self.values[:known]
        alone = np.cumsum(1 / self.table.exposed[:known]) / np.arange(1, known + 1)
        per = np.divide(self.sampling, values, out=alone, where=(values > 0) & np.isfinite(values))
        lows, highs = wilson(self.unbiased, per, np.maximum(np.diag(self.noise), 0.0), q)
        lows, highs = np.minimum(lows, values), np.maximum(highs, values)
        last = float(lows[-1]) if known else 0.0
        return np.append(lows, np.full(hidden, last)), np.append(highs, np.full(hidden, np.inf))
