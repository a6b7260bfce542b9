"""The mean, the variance and the standard deviation of a scaled column from noisy sums, with intervals.

A cell t of a scaled column lies in [-1, 1]. The count, the sum of t and the sum of t² carry noise of known
sizes; intervals count it beside the error of having sampled people.
Tested in tests/unit/stats/test_moments.py and, on skewed, zero-inflated, rare and missing cells, in
tests/unit/analyses/test_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from cape.core.arrays import Floats
from cape.stats.estimates import Estimate, Interval, unknown
from cape.stats.laplace_tails import stretched
from cape.stats.law import GAUSSIAN, Law

__all__ = ["NORMAL", "Range", "Sums", "edge", "enough", "kurtosis", "likely", "present"]

_CLEAR = 3.0  # noise in a count, in standard deviations, that it must exceed for a ratio to mean anything
_LEAST_FREEDOM = 8.0
_MOST_FREEDOM = 1e9
_HALVINGS = 60
NORMAL = 3.0  # the kurtosis of a normal population


class Range(Protocol):
    """What is known of a column before anybody looks: its bounds, their middle and half their distance."""

    @property
    def low(self) -> float:
        """The lower bound."""

    @property
    def high(self) -> float:
        """The upper bound."""

    @property
    def middle(self) -> float:
        """What t = 0 stands for."""

    @property
    def half(self) -> float:
        """How much t = 1 lies above it."""


def kurtosis(counts: Floats, noise: float) -> float:
    """Return the likely kurtosis of a column from noisy counts in equal bins: larger where noise hides it.

    It is at most (range / SD)², which a column with all its deviating rows at one end of its bounds has.
    """
    total = float(counts.sum())
    if total <= 0:
        return math.inf
    shares = counts / total
    middles = (2 * np.arange(counts.size) + 1) / counts.size - 1
    from_mean = middles - shares @ middles
    spread = float(shares @ from_mean**2)
    if spread <= 0:
        return math.inf
    found = float(shares @ from_mean**4) / spread**2
    pull = from_mean**4 / spread**2 - 2 * found * from_mean**2 / spread  # of one more row in each bin
    error = noise * float(np.linalg.norm(pull)) / total
    return 1 + likely(found - 1, error, 4 / spread)


def enough(count: float, noise: float) -> bool:
    """Return whether a noisy count can be divided by."""
    return count > max(2.0, _CLEAR * noise)


def present(count: float, noise: float) -> bool:
    """Return whether a noisy count is enough for a test, which compares sums and divides by no count.

    A test that asked for more would be made only where noise made a small group larger, and then reject too
    often among those that it is made of.
    """
    return count > max(2.0, noise)


def likely(value: float, noise: float, most: float = 1.0) -> float:
    """Return the expected size of a quantity in [0, most] that was released as `value`: never 0.

    The mean of a normal one that is known to be positive, value + noise phi(v) / Phi(v) with v = value /
    noise: 0.8 of the noise where the release says 0, and the release itself, to half a percent of the
    noise, from three times the noise on. A sampling error computed from the cut value would be 0; this
    one errs on the large side, and only where noise outweighs it.
    """
    if noise == 0:
        return min(max(value, 0.0), most)
    v = max(value, 0.0) / noise
    mean = max(value, 0.0) + noise * math.exp(-v * v / 2) / math.sqrt(2 * math.pi) / float(ndtr(v))
    return min(mean, most)


@dataclass(frozen=True)
class Sums:
    """The noisy sums of one scaled column, and the noise in each; no noise in a count that is public."""

    count: float
    first: float
    second: float
    count_noise: float
    first_noise: float
    second_noise: float
    kurtosis: float = NORMAL
    law: Law = field(default=GAUSSIAN, kw_only=True)

    @property
    def enough(self) -> bool:
        """Whether the count is large enough to divide by."""
        return enough(self.count, self.count_noise)

    @property
    def mean(self) -> float:
        """The mean of t, which lies in [-1, 1]."""
        return min(max(self.first / self.count, -1.0), 1.0)

    @property
    def mean_noise(self) -> float:
        """Its privacy error: that of a ratio, to first order."""
        return math.hypot(self.first_noise, self.mean * self.count_noise) / self.count

    @property
    def variance(self) -> float:
        """The unbiased variance of t, 0 if noise makes it negative.

        The square of a noisy mean is too large by the noise's variance, which is known and given back.
        """
        mean = self.first / self.count
        spread = self.second / self.count - mean**2 + (self.first_noise / self.count) ** 2
        return min(max(spread * self.count / (self.count - 1), 0.0), 1.0)

    @property
    def variance_noise(self) -> float:
        """Its privacy error, with the second-order term of the squared mean."""
        mean, square = self.mean, min(max(self.second / self.count, 0.0), 1.0)
        linear = math.hypot(
            self.second_noise, 2 * mean * self.first_noise, (square - 2 * mean**2) * self.count_noise
        )
        return math.hypot(linear / self.count, math.sqrt(2) * (self.first_noise / self.count) ** 2)

    @property
    def likely_variance(self) -> float:
        """The variance that sampling errors count on, at most 1 as between bounds (Popoviciu): `likely`."""
        return likely(self.variance, self.variance_noise)

    def with_spread(self, spread: float) -> Sums:
        """Return it with the kurtosis that the variance of the influence says."""
        return replace(self, kurtosis=1 + spread / self.likely_variance**2)

    @property
    def relative_sampling(self) -> float:
        """The sampling error of the variance over the variance, which depends on the kurtosis."""
        excess = min(self.kurtosis - 1, 4 / self.likely_variance) if self.likely_variance > 0 else 0.0
        return math.sqrt(max(excess, 0.0) / (self.count - 1))

    @property
    def variance_sampling(self) -> float:
        """The sampling error of the variance."""
        return self.likely_variance * self.relative_sampling

    def mean_interval(self, level: float) -> tuple[float, float]:
        """Return Fieller's interval for the population's mean of t.

        For the true mean m, sum(t) - m count has mean 0 and variance n v + noise² + m² (count's noise)².
        The m for which it lies within q standard errors solve a quadratic: no ratio of normals is
        approximated, and where noise could make the count 0 the interval is all of [-1, 1]. q is Student's,
        with the degrees of freedom (Satterthwaite) that match how well v is known, from a sample and
        through noise, stretched if the noise is not a Gaussian. They already allow for the v that noise cut
        to 0; `likely_variance` would allow for it twice.
        """
        sampled = self.count * self.variance
        first = min(max(self.first, -self.count), self.count)
        certain = self.first_noise**2 + (self.mean * self.count_noise) ** 2
        doubt = 2 * sampled**2 / (self.count - 1) + (self.count * self.variance_noise) ** 2
        matched = _MOST_FREEDOM if doubt == 0 else 2 * (certain + sampled) ** 2 / doubt
        freedom = min(max(matched, min(_LEAST_FREEDOM, self.count - 1)), _MOST_FREEDOM)
        law = self.law.combined(self.first_noise, abs(self.mean) * self.count_noise)
        further = float(stretched(law, level, math.sqrt(certain), math.sqrt(sampled)))
        q2 = (further * float(stdtrit(freedom, (1 + level) / 2))) ** 2
        leading = self.count**2 - q2 * self.count_noise**2
        if leading <= 0:
            return -1.0, 1.0
        spread = self.first_noise**2 + sampled
        reach = math.sqrt(q2 * (leading * spread + (first * self.count_noise) ** 2)) / leading
        centre = first * self.count / leading
        return max(centre - reach, -1.0), min(centre + reach, 1.0)

    def variance_interval(self, level: float) -> tuple[float, float]:
        """Return the V in [0, 1] with |estimate - V| <= z sqrt((r L)² + noise²).

        r is the relative sampling error, and L the logarithmic mean of V and the likely variance: without
        noise the interval ends where ln V is z r from the logarithm of the estimate. It leans to the right as
        the distribution of a sample's variance does, and is never negative.
        """
        z, centre, at = float(ndtri((1 + level) / 2)), self.variance, self.likely_variance
        relative, noise = self.relative_sampling, self.variance_noise

        def holds(other: float) -> bool:
            return abs(centre - other) <= z * math.hypot(relative * _logarithmic_mean(at, other), noise)

        return edge(holds, centre, 0.0), edge(holds, centre, 1.0)

    def deviation_interval(self, level: float) -> tuple[float, float]:
        """Return the roots of the ends of `variance_interval`."""
        low, high = self.variance_interval(level)
        return math.sqrt(low), math.sqrt(high)

    def mean_estimate(self, label: str, column: Range) -> Estimate:
        """Return the population's mean, in the column's unit."""
        if not self.enough:
            return unknown(label, column.low, column.high)
        return Estimate(
            label,
            column.middle + column.half * self.mean,
            column.half * math.sqrt(self.likely_variance / self.count),
            column.half * self.mean_noise,
            (column.low, column.high),
            _InUnits(self.mean_interval, column.middle, column.half),
        )

    def variance_estimate(self, label: str, column: Range) -> Estimate:
        """Return the population's variance, in the column's unit squared."""
        unit = column.half**2
        if not self.enough:
            return unknown(label, 0.0, unit)
        return Estimate(
            label,
            unit * self.variance,
            unit * self.variance_sampling,
            unit * self.variance_noise,
            (0.0, unit),
            _InUnits(self.variance_interval, 0.0, unit),
        )

    def deviation_estimate(self, label: str, column: Range) -> Estimate:
        """Return the population's standard deviation: the root of the variance and of its interval.

        The error of a root is e / (sqrt(V + e) + sqrt(V)): e / (2 sqrt V) where e is small, sqrt(e) at V = 0.
        That of sampling is taken at the likely V, of which e is then a small part.
        """
        if not self.enough:
            return unknown(label, 0.0, column.half)

        def of_root(error: float, at: float) -> float:
            return column.half * error / (math.sqrt(at + error) + math.sqrt(at)) if error else 0.0

        return Estimate(
            label,
            column.half * math.sqrt(self.variance),
            of_root(self.variance_sampling, self.likely_variance),
            of_root(self.variance_noise, self.variance),
            (0.0, column.half),
            _InUnits(self.deviation_interval, 0.0, column.half),
        )


def edge(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return where a condition that holds at `inside` ceases to, on the way to `outside`."""
    if holds(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _logarithmic_mean(a: float, b: float) -> float:
    """Return (a - b) / (ln a - ln b), which lies between a and b; 0 if one of them is 0."""
    if min(a, b) <= 0:
        return 0.0
    apart = math.log(a / b)
    return a if abs(apart) < 1e-9 else (a - b) / apart


@dataclass(frozen=True)
class _InUnits:
    """An interval of a scaled quantity, in the column's unit."""

    scaled: Interval
    middle: float
    unit: float

    def __call__(self, level: float) -> tuple[float, float]:
        low, high = self.scaled(level)
        return self.middle + self.unit * low, self.middle + self.unit * high
