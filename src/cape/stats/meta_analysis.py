"""Estimates of several sites brought together: whether they agree, how far they differ, and what they share.

A site's estimate y has the variance v: sampling and privacy noise, which is independent from site to site.
All that is textbook meta-analysis then holds with the noise counted in v:

- *Cochran's Q* is the sum of (y - mean)² / v, the mean weighted by 1 / v. If all sites agree it is chi-square
  on sites - 1 degrees of freedom if the v are known. They are estimated, from samples and through noise:
  Welch's correction counts how well (`_Weighted.tail`).
- *tau²*, the variance between sites, is Paule and Mandel's: with v + tau² in place of v, Q is what it is
  expected to be. Its interval has the tau² for which Q is not too large and not too small (Q-profile,
  Viechtbauer 2007).
- *I²* is tau² over tau² plus the typical sampling variance: noise is no part of it. tau² is DerSimonian and
  Laird's here, so that without noise it is (Q - k + 1) / Q.
- *Fixed effect*: weights 1 / v; the interval counts that weights are estimated (Meier 1953).
- *Random effects*: weights 1 / (v + tau²). The error is Hartung and Knapp's, with the factor Q / (sites - 1)
  where that exceeds 1; with this tau² it is 1 wherever tau² > 0. The interval is mixed over the tau² that
  are compatible with Q (`mixture`): for equal sites that is Student's t on sites - 1 degrees of freedom.
- *Prediction interval*, for the true effect at a new site: mixed over the same tau², each of which counts
  for the mean and for the new site (Nagashima and others 2019). One value of tau² from five sites would
  make it too narrow.

Tested in tests/unit/stats/test_meta_analysis.py against statsmodels; measured by `compare.sites`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import chdtrc, fdtrc, ndtri

from cape.core.arrays import Floats
from cape.stats.mixture import Mixture, quantile, quantiles

__all__ = ["Effect", "HeterogeneityTest", "Synthesis"]

_MOST_FREEDOM = 1e9
_ROUNDED = 1e-12  # of a sum: what rounding may leave of it
_MIXED = 100  # values of tau² that an interval is mixed over


@dataclass(frozen=True)
class Effect:
    """The estimate of one site.

    Attributes:
        site: its name.
        value: the estimate.
        sampling: its variance from having sampled people.
        privacy: its variance from noise.
        doubt: the variance of the estimate of both together.
        agreed: the variance if all sites agree, where that says more; None if it is the same.
    """

    site: str
    value: float
    sampling: float
    privacy: float
    doubt: float = 0.0
    agreed: float | None = None

    @property
    def total(self) -> float:
        """Both variances."""
        return self.sampling + self.privacy

    def scaled(self, unit: float, shift: float = 0.0) -> Effect:
        """Return it in another unit."""
        agreed = None if self.agreed is None else unit**2 * self.agreed
        return Effect(
            self.site,
            shift + unit * self.value,
            unit**2 * self.sampling,
            unit**2 * self.privacy,
            unit**4 * self.doubt,
            agreed,
        )


@dataclass(frozen=True)
class HeterogeneityTest:
    """Cochran's Q, its degrees of freedom (infinitely many of the second kind if variances are known), P."""

    statistic: float
    freedom: tuple[float, float]
    p_value: float


@dataclass(frozen=True)
class _Weighted:
    """Values with variances, weighted by one over these."""

    values: Floats
    variances: Floats
    doubts: Floats

    @property
    def many(self) -> int:
        return len(self.values)

    @cached_property
    def weights(self) -> Floats:
        return np.asarray(1 / self.variances)

    @cached_property
    def mean(self) -> float:
        return float(self.weights @ self.values / self.weights.sum())

    @cached_property
    def q(self) -> float:
        """Cochran's Q."""
        return float(self.weights @ (self.values - self.mean) ** 2)

    @cached_property
    def _relative(self) -> Floats:
        """For each site one over the degrees of freedom of its variance."""
        return np.asarray(self.doubts / (2 * self.variances**2))

    @property
    def freedom(self) -> float:
        """The second degrees of freedom of Welch's F."""
        unsure = self._unsure
        return _MOST_FREEDOM if unsure <= 0 else min((self.many**2 - 1) / (3 * unsure), _MOST_FREEDOM)

    @property
    def _unsure(self) -> float:
        shares = self.weights / self.weights.sum()
        return float((1 - shares) ** 2 @ self._relative)

    def tail(self) -> float:
        """Return the probability of a larger Q, were these the true variances: Welch's F."""
        k, freedom = self.many, self.freedom
        statistic = self.q / (k - 1) / (1 + 2 * (k - 2) / (k * k - 1) * self._unsure)
        if freedom == _MOST_FREEDOM:
            return float(chdtrc(k - 1, (k - 1) * statistic))
        return float(fdtrc(k - 1, freedom, statistic))

    @property
    def inflated(self) -> float:
        """How many times larger the mean's variance is because weights are estimated (Meier)."""
        shares = self.weights / self.weights.sum()
        return 1 + 4 * float((shares * (1 - shares)) @ self._relative)

    @property
    def factor(self) -> float:
        """Hartung and Knapp's factor on the variance of the mean, at least 1."""
        return max(self.q / (self.many - 1), 1.0)

    @property
    def variance(self) -> float:
        """The variance of the mean, with that factor."""
        return self.factor / float(self.weights.sum())


@dataclass(frozen=True)
class Synthesis:
    """The estimates of two sites or more, brought together.

    Attributes:
        effects: one for each site that says something.
        most: the largest tau² that is possible.
    """

    effects: tuple[Effect, ...]
    most: float = math.inf

    def without(self, site: str) -> Synthesis:
        """Return what the other sites say."""
        return replace(self, effects=tuple(each for each in self.effects if each.site != site))

    @property
    def many(self) -> int:
        """The number of sites."""
        return len(self.effects)

    @cached_property
    def test(self) -> HeterogeneityTest:
        """The test of whether all sites agree."""
        agreed = [each.total if each.agreed is None else each.agreed for each in self.effects]
        found = replace(self._at(0.0), variances=np.array(agreed))
        return HeterogeneityTest(found.q, (found.many - 1.0, found.freedom), found.tail())

    @cached_property
    def tau2(self) -> float:
        """Paule and Mandel's variance between sites."""
        if self._at(0.0).q <= self.many - 1:
            return 0.0
        return quantile(lambda tau2: -self._at(tau2).q, -(self.many - 1.0), self._start, self.most)

    def tau2_interval(self, level: float) -> tuple[float, float]:
        """Return the tau² for which Q is as likely as `level` says: its Q-profile, not below 0."""
        ends = (1 - level) / 2, (1 + level) / 2
        low, high = (
            quantile(lambda tau2: self._at(tau2).tail(), end, self._start, self.most) for end in ends
        )
        return low, high

    @property
    def tau2_errors(self) -> tuple[float, float]:
        """The errors of tau² from sites and people drawn, and from noise."""

        def error(variances: Floats) -> float:
            weights = 1 / (variances + max(self.tau2, 0.0))
            squares = float((weights**2).sum())
            known = squares - float(2 * (weights**3).sum() / weights.sum() - _part(weights))
            return 2 / max(known, _ROUNDED * squares)  # of one site alone it is 0, but for rounding

        total, drawn = error(self._totals), error(self._samplings)
        return math.sqrt(drawn), math.sqrt(max(total - drawn, 0.0))

    def i2(self, tau2: float) -> float:
        """Return the part of the variance of estimates without noise that is due to differences of sites."""
        typical = self.typical
        return tau2 / (tau2 + typical) if tau2 + typical > 0 else 0.0

    @property
    def moment_tau2(self) -> float:
        """DerSimonian and Laird's tau²."""
        found = self._at(0.0)
        return max(found.q - (self.many - 1), 0.0) / _spread(found.weights)

    @property
    def fixed(self) -> float:
        """The effect that all sites share, if they agree."""
        return self._at(0.0).mean

    def fixed_interval(self, level: float) -> tuple[float, float]:
        """Return its interval."""
        found = self._at(0.0)
        reach = float(ndtri((1 + level) / 2)) * math.sqrt(found.inflated / float(found.weights.sum()))
        return found.mean - reach, found.mean + reach

    @property
    def random(self) -> float:
        """The mean of the effects of all sites that there could be."""
        return self._at(self.tau2).mean

    def random_interval(self, level: float) -> tuple[float, float]:
        """Return its interval, over the tau² that it may have."""
        return self._mixture(0.0)(level)

    def errors(self, tau2: float) -> tuple[float, float]:
        """Return the errors of the weighted mean from sites and people drawn, and from noise."""
        found = self._at(tau2)
        shares = found.weights / found.weights.sum()
        privacy = float(shares**2 @ np.array([each.privacy for each in self.effects]))
        total = found.variance if tau2 > 0 else 1 / float(found.weights.sum())
        return math.sqrt(max(total - privacy, 0.0)), math.sqrt(privacy)

    def prediction_interval(self, level: float) -> tuple[float, float]:
        """Return the interval of the true effect at a site that is not among these."""
        return self._mixture(1.0)(level)

    def _mixture(self, new: float) -> Mixture:
        """Return the mean of all sites that there could be, with `new` times the variance of one of them."""
        compatible = quantiles(lambda tau2: self._at(tau2).tail(), _MIXED, self._start, self.most)
        each = [self._at(float(tau2)) for tau2 in compatible]
        errors = np.sqrt([1 / found.weights.sum() for found in each] + new * compatible)
        return Mixture.of(np.array([found.mean for found in each]), errors)

    def _at(self, tau2: float) -> _Weighted:
        values = np.array([each.value for each in self.effects])
        return _Weighted(values, self._totals + tau2, np.array([each.doubt for each in self.effects]))

    @cached_property
    def _totals(self) -> Floats:
        return np.array([each.total for each in self.effects])

    @cached_property
    def _samplings(self) -> Floats:
        return np.array([each.sampling for each in self.effects])

    @property
    def typical(self) -> float:
        """The typical sampling variance (Higgins and Thompson)."""
        if (self._samplings <= 0).any():
            return 0.0
        return (self.many - 1) / _spread(1 / self._samplings)

    @property
    def _start(self) -> float:
        """A tau² of the size of the variances."""
        return float(self._totals.mean())


def _spread(weights: Floats) -> float:
    return float(weights.sum() - (weights**2).sum() / weights.sum())


def _part(weights: Floats) -> float:
    return float((weights**2).sum() / weights.sum()) ** 2
