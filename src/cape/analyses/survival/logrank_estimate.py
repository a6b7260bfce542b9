"""Contrasts of events between groups, observed and expected, with the covariances of sampling and of noise.

In stratum h and bin k, with events d, exposures E and pi_g = E_g / E, the contrast of group g is U_g = sum w
(d_g - pi_g d). Under equal hazards it has mean 0 and the hypergeometric covariance V of the log-rank test
from sampling. Weights w are 1 (log-rank), Peto and Peto's survival (modified, prod(1 - d / (E + 1))), or
Fleming and Harrington's S^p (1 - S)^q of the survival before the bin.

*Noise.* Counts without constraints have no bias (`RiskTable.free`); U is their linear function at the fitted
counts, sum w (d_g - pi_g d) - w (d / E) (E_g - pi_g E), whose noise has an exact covariance N. Then U' (V +
N)^-1 U is chi-square with one degree of freedom less than there are groups. Without noise it is the usual
statistic. Bins count from the first until the exposure of all groups together is hardly above its noise.
Tested in tests/unit/analyses/survival/test_logrank.py against lifelines, and by survival.logrank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from cape.analyses.survival.risk_table import RiskTable
from cape.core.arrays import Floats
from cape.stats.independence import Independence

__all__ = ["WEIGHTINGS", "Contrast", "Weighting", "contrast"]

WEIGHTINGS = ("logrank", "peto", "fleming-harrington")
_CLEAR = 1.0  # noise in the exposure of all groups, in standard deviations, that it must exceed


@dataclass(frozen=True)
class Weighting:
    """What each bin counts for: by events and people exposed, in one of `WEIGHTINGS`, with powers p and q."""

    name: str
    p: float = 0.0
    q: float = 0.0

    def __call__(self, events: Floats, exposed: Floats) -> Floats:
        """Return the weight of each bin."""
        if self.name == "peto":
            return np.asarray(np.cumprod(1 - events / (exposed + 1)), np.float64)
        if self.name == "fleming-harrington":
            before = np.append(1.0, np.cumprod(1 - events / exposed)[:-1])
            return np.asarray(before**self.p * (1 - before) ** self.q)
        return np.ones(len(events))


def contrast(tables: Sequence[RiskTable], weighting: Weighting) -> Contrast | None:
    """Return the contrasts of one stratum; None if noise hides it from the first bin on."""
    many, bins, kinds = len(tables), tables[0].bins, tables[0].events.shape[0]
    free = [table.free or table for table in tables]
    blurred = math.sqrt(many) * tables[0].exposure_noise
    together = np.sum([table.exposed for table in free], 0)
    exposures = np.array([table.exposed for table in tables])
    hidden = (together <= _CLEAR * blurred) | (exposures.sum(0) <= 0)
    known = int(np.argmax(hidden)) if hidden.any() else bins
    if not known:
        return None
    exposed = exposures.sum(0)[:known]
    events = np.minimum(np.sum([table.deaths for table in tables], 0)[:known], exposed)
    shares, weights = exposures[:, :known] / exposed, weighting(events, exposed)
    had = np.array([table.deaths[:known] for table in free])
    at_risk = np.array([table.exposed[:known] for table in free])
    hazard = weights * events / exposed
    observed, expected = weights * had, weights * had.sum(0) * shares
    drift = hazard * (at_risk - shares * at_risk.sum(0))
    term = weights**2 * events * (exposed - events) / np.maximum(exposed - 1, 0.5)
    sampling = np.diag((shares * term).sum(1)) - (shares * term) @ shares.T
    noise = np.zeros((many, many))
    for place, table in enumerate(tables):
        own = (np.arange(many) == place)[:, None] - shares
        direct, by_exposure = np.zeros((many, kinds, bins)), np.zeros((many, bins))
        direct[:, :, :known] = (weights * own)[:, None, :]
        by_exposure[:, :known] = -hazard * own
        noise += table.blur.covariance(table.chained(direct, by_exposure))
    return Contrast(observed.sum(1), (expected + drift).sum(1), sampling, noise)


@dataclass(frozen=True)
class Contrast:
    """Weighted events of each group, observed and expected, and the covariances of their differences."""

    observed: Floats
    expected: Floats
    sampling: Floats
    noise: Floats

    @classmethod
    def added(cls, parts: Sequence[Contrast], many: int) -> Contrast:
        """Return the sum over strata."""
        found = cls(np.zeros(many), np.zeros(many), np.zeros((many, many)), np.zeros((many, many)))
        for part in parts:
            found = cls(
                found.observed + part.observed,
                found.expected + part.expected,
                found.sampling + part.sampling,
                found.noise + part.noise,
            )
        return found

    @property
    def moved(self) -> Floats:
        """Observed less expected events."""
        return self.observed - self.expected

    @property
    def test(self) -> Independence | None:
        """The test, with one degree of freedom less than there are groups; None if nothing is known."""
        moved, covariance = self.moved[:-1], (self.sampling + self.noise)[:-1, :-1]
        freedom = int(np.linalg.matrix_rank(covariance, hermitian=True))  # without groups that are empty
        if not freedom:
            return None
        statistic = float(moved @ np.linalg.pinv(covariance, hermitian=True) @ moved)
        return Independence(statistic, freedom, float(chdtrc(freedom, statistic)))
