"""Means of groups compared: Welch's tests and intervals, with privacy noise in every sum.

Claim. For groups of the same mean, the difference of two released means over the root of its variance is
Student's t with the degrees of freedom below, to the accuracy of Welch's own approximation.
Reason. A released mean m = S / N of a group has the error (e - m d) / N, e and d the noise in sum and
count, so its variance is v / n from sampling plus (s² + m² c²) / n² from noise: `Sums.mean_noise`. The
second is known. The first is estimated from a sample and through noise, with the variance 2 (v / n)² / (n -
1) + (noise of v)² / n². Satterthwaite's degrees of freedom match it: 2 (total variance)² over the sum of
these. Without noise they are Welch's.
Of several groups the statistic is his F, with one over the estimated total variance as weights. The part of
it that noise adds is known, and what is left is not negative: an estimate of it is never far below the truth,
however large the noise in it, and degrees of freedom, which know of no such limit, would make the test timid.
So P is a mixture (`_mixture`): over estimates of the variances as sampling and noise draw them, with a fixed
seed, of the chance that the statistic with these weights is as large.
Tested in tests/unit/stats/test_welch.py, tests/unit/analyses/compare/test_difference.py and by compare.size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc, fdtrc, ndtri, stdtr, stdtrit

from cape.stats.laplace_tails import as_normal, excess, stretched
from cape.stats.law import GAUSSIAN, Law
from cape.stats.moments import Sums, likely
from cape.stats.simulation import normals

__all__ = ["Contrast", "Group", "MeansTest", "Pair", "Standardised", "equal"]

_LEAST_FREEDOM = 8.0  # where noise, rather than a small sample, leaves fewer
_MOST_FREEDOM = 1e9
_SEED = 20


@dataclass(frozen=True)
class MeansTest:
    """A test of equal means: t² or Welch's F, its degrees of freedom, and the P value."""

    statistic: float
    freedom: tuple[float, float]
    p_value: float


@dataclass(frozen=True)
class Group:
    """What the sums of a group say of its mean, in units of t."""

    sums: Sums
    common: float | None = None
    """The mean of all groups, for tests: what noise in the count does to a mean that they have in common."""

    @property
    def mean(self) -> float:
        """The mean, not cut to the bounds: a cut one would make tests timid."""
        return self.sums.first / self.sums.count

    @property
    def sampled(self) -> float:
        """The variance of the mean from sampling."""
        return self.sums.variance / self.sums.count

    @property
    def noises(self) -> tuple[float, float]:
        """The variances of the mean from noise in the sum and from noise in the count."""
        mean = self.sums.mean if self.common is None else self.common
        of_sum, of_count = self.sums.first_noise, mean * self.sums.count_noise
        return (of_sum / self.sums.count) ** 2, (of_count / self.sums.count) ** 2

    @property
    def blurred(self) -> float:
        """The variance of the mean from noise."""
        return sum(self.noises)

    @property
    def total(self) -> float:
        """Both."""
        return self.sampled + self.blurred

    @property
    def doubt(self) -> float:
        """The variance of the estimate of that variance."""
        of_sample = 2 * self.sampled**2 / (self.sums.count - 1)
        return of_sample + (self.sums.variance_noise / self.sums.count) ** 2


class _Combined(ABC):
    """A sum of weights times the means of groups."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[tuple[float, Group]]:
        """The weight of each group's mean."""

    @property
    def value(self) -> float:
        return sum(weight * group.mean for weight, group in self.parts)

    @property
    def sampled(self) -> float:
        """The variance from sampling."""
        return sum(weight**2 * group.sampled for weight, group in self.parts)

    @property
    def blurred(self) -> float:
        """The variance from noise."""
        return sum(weight**2 * group.blurred for weight, group in self.parts)

    @property
    def total(self) -> float:
        return self.sampled + self.blurred

    @property
    def law(self) -> Law:
        """The law of the noise."""
        stds = [abs(w) * math.sqrt(part) for w, group in self.parts for part in group.noises]
        return self.parts[0][1].sums.law.combined(*stds)

    @property
    def freedom(self) -> float:
        """The degrees of freedom of t."""
        doubt = sum(weight**4 * group.doubt for weight, group in self.parts)
        matched = _MOST_FREEDOM if doubt == 0 else 2 * self.total**2 / doubt
        noisy = any(group.sums.variance_noise > 0 for _, group in self.parts)
        people = sum(group.sums.count - 1 for _, group in self.parts)
        return min(max(matched, min(_LEAST_FREEDOM, people) if noisy else 0.0), _MOST_FREEDOM)

    @property
    def test(self) -> MeansTest | None:
        """The t-test that it is 0; None if nothing varies."""
        if self.total <= 0:
            return None
        t = self.value / math.sqrt(self.total)
        as_if = as_normal(self.law, t, math.sqrt(self.blurred), math.sqrt(self.sampled))
        return MeansTest(t * t, (1.0, self.freedom), float(2 * stdtr(self.freedom, -abs(as_if))))

    def interval(self, level: float) -> tuple[float, float]:
        """Return Welch's interval."""
        if self.total <= 0:
            return self.value, self.value
        reach = float(stdtrit(self.freedom, (1 + level) / 2)) * math.sqrt(self.total)
        reach *= float(stretched(self.law, level, math.sqrt(self.blurred), math.sqrt(self.sampled)))
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class Contrast(_Combined):
    """Means of groups with weights that add up to 0; `weighted` has the weight of each."""

    weighted: tuple[tuple[float, Group], ...]

    @property
    def parts(self) -> Sequence[tuple[float, Group]]:
        """The groups, each with its weight."""
        return self.weighted


@dataclass(frozen=True)
class Pair(_Combined):
    """The mean of one group less that of another."""

    one: Group
    other: Group

    @property
    def parts(self) -> Sequence[tuple[float, Group]]:
        """One group less the other."""
        return (1.0, self.one), (-1.0, self.other)

    @property
    def test(self) -> MeansTest | None:
        """The t-test of equal means; None if nothing varies."""
        return equal([self.other, self.one])

    @property
    def standardised(self) -> Standardised | None:
        """The difference over the root of the mean of both variances; None if nothing varies."""
        each = (self.one.sums, self.other.sums)
        noise = math.hypot(*(sums.variance_noise for sums in each)) / 2
        variance = likely(sum(sums.variance for sums in each) / 2, noise)
        if variance <= 0:
            return None
        drawn = math.hypot(*(sums.variance * sums.relative_sampling for sums in each)) / 2
        return Standardised(self.value, variance, self.sampled, self.blurred, drawn, noise, self.law)


@dataclass(frozen=True)
class Standardised:
    """A difference over a standard deviation, with the errors of both.

    Attributes:
        variance: whose root the difference is divided by.
        sampled, blurred: the variance of the difference from sampling and from noise.
        drawn, noise: the errors of the variance from sampling and from noise.
    """

    difference: float
    variance: float
    sampled: float
    blurred: float
    drawn: float
    noise: float
    law: Law = GAUSSIAN

    @property
    def value(self) -> float:
        """The difference over the standard deviation."""
        return self.difference / math.sqrt(self.variance)

    def error(self, of_difference: float, of_variance: float) -> float:
        """Return the error of the ratio, to first order."""
        of_ratio = self.value * of_variance / (2 * self.variance)
        return math.hypot(math.sqrt(of_difference / self.variance), of_ratio)

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the ratios r for which difference - r SD is within its errors (Fieller).

        Where noise could make the SD zero, any ratio is possible.
        """
        further = float(stretched(self.law, level, math.sqrt(self.blurred), math.sqrt(self.sampled)))
        q2 = (further * float(ndtri((1 + level) / 2))) ** 2
        spread = (self.drawn**2 + self.noise**2) / (4 * self.variance)  # of the SD
        leading = self.variance - q2 * spread
        if leading <= 0:
            return -math.inf, math.inf
        d, total = self.difference, self.sampled + self.blurred
        centre = d * math.sqrt(self.variance) / leading
        reach = math.sqrt(q2 * (leading * total + d * d * spread)) / leading
        return centre - reach, centre + reach


def equal(each: Sequence[Group]) -> MeansTest | None:
    """Return Welch's test that the means of several groups are equal; None if nothing varies.

    If they are, noise in a count counts with the mean of all groups, which is better known than that of a
    small one: the square of a noisy mean is too large. Variances are not drawn together in the same way:
    where those of small groups are larger, the test would reject too often.
    """
    total = sum(group.sums.first for group in each) / sum(group.sums.count for group in each)
    groups = [replace(group, common=min(max(total, -1.0), 1.0)) for group in each]
    if len(groups) == 2:
        return Contrast(((1.0, groups[1]), (-1.0, groups[0]))).test
    if any(group.total <= 0 for group in groups):
        return None
    many = len(groups)
    weights = np.array([1 / group.total for group in groups])
    means = np.array([group.mean for group in groups])
    shares = weights / weights.sum()
    between = float(weights @ (means - shares @ means) ** 2) / (many - 1)
    doubts = np.array([group.doubt / (2 * group.total**2) for group in groups])
    unsure = float((1 - shares) ** 2 @ doubts)
    statistic = between / (1 + 2 * (many - 2) / (many**2 - 1) * unsure)
    freedom = _MOST_FREEDOM if unsure == 0 else min((many**2 - 1) / (3 * unsure), _MOST_FREEDOM)
    if any(group.sums.variance_noise > 0 for group in groups):
        p = _mixture(groups, between * (many - 1))
    elif freedom == _MOST_FREEDOM:
        p = float(chdtrc(many - 1, (many - 1) * statistic))
    else:
        p = float(fdtrc(many - 1, freedom, statistic))
    return MeansTest(statistic, (many - 1.0, freedom), p)


def _mixture(groups: Sequence[Group], statistic: float) -> float:
    """Return how likely equal means make a weighted sum of squares between groups that is as large.

    Given the weights w, the statistic is a quadratic form of independent normals with the variances v of the
    groups' means: its first two moments, tr A and 2 tr A² with A = diag(w v) - w (w v)' / sum(w), are matched
    by a multiple of chi-square; noise of an excess kurtosis k adds k times the squared diagonal to the
    second. The weights are drawn: one over the known variance from noise plus what is
    estimated of that from sampling, where it is not negative.
    """
    known, spread, wide, degrees = (
        np.array(each)
        for each in zip(
            *(
                (
                    group.blurred,
                    group.sums.likely_variance / group.sums.count,
                    group.sums.variance_noise / group.sums.count,
                    group.sums.count - 1,
                )
                for group in groups
            ),
            strict=True,
        )
    )
    drawn, blurred = np.split(normals(_SEED, 2 * len(groups)), 2, axis=1)
    part = 2 / (9 * degrees)  # chi-square, by Wilson and Hilferty's cube
    sampled = spread * np.maximum(1 - part + drawn * np.sqrt(part), 0.0) ** 3 + wide * blurred
    weights = 1 / (known + np.maximum(sampled, 0.0))
    parts = weights * (known + spread)
    total = weights.sum(axis=1)
    trace = parts.sum(axis=1) - (weights * parts).sum(axis=1) / total
    square = (parts**2).sum(axis=1) - 2 * (weights * parts**2).sum(axis=1) / total
    square += ((weights * parts).sum(axis=1) / total) ** 2
    heavy = np.array([excess(group.sums.law, group.noises, group.total) for group in groups])
    square += ((parts * (1 - weights / total[:, None])) ** 2 * heavy).sum(axis=1) / 2
    return float(np.mean(chdtrc(trace**2 / square, statistic * trace / square)))
