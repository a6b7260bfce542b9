"""How far predictions of a number lie from it: root mean squared error and R², from sums with noise.

With t the scaled target, e half its distance from the prediction (both scaled), m the mean of e² and v the
variance of t: RMSE = 2 half sqrt(m), R² = 1 - 4 m / v. A row moves m by e² - m and 1 - R² by (4 e² - (1 -
R²)(t - mean)²) / v, to first order; the second stage asks for the sums of squares of these, cut at `_REACH`
times their mean size or at what is possible (see `influence`), so that intervals hold for residuals that are
not normal. Where tails beyond that reach matter, sampling errors are too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cape.blocks.squares import Form
from cape.data import Number
from cape.engine.query import Answer
from cape.stats.estimates import Estimate, unknown
from cape.stats.moments import Sums, edge, likely
from cape.stats.proportions import quantile

__all__ = ["ERRORS_WEIGHT", "ErrorSums"]

ERRORS_WEIGHT = 16.0
"""One over the squared scale of the sum of e²: residuals are a small part of the bounds."""
_REACH = 50.0
_TINY = 1e-9
RMSE, R_SQUARED = "root mean squared error", "R²"
_UNKNOWN = replace(unknown(R_SQUARED, -math.inf, 1.0, 0.0), privacy=1.0)


@dataclass(frozen=True)
class ErrorSums:
    """The noisy sums of a target and of squared errors of its predictions."""

    target: Sums
    errors: float
    errors_noise: float

    @classmethod
    def of(cls, answer: Answer, columns: Sequence[str]) -> ErrorSums:
        """Return the sums of the first stage."""
        count, count_noise = answer.complete_rows(columns)
        (_, first, second, errors), noise = answer.sums[0], answer.noise[0]
        sums = Sums(count, float(first[0]), float(second[0]), count_noise, noise[1], noise[2])
        return cls(sums, float(errors[0]), noise[3])

    @property
    def known(self) -> bool:
        """Whether there are enough rows to divide by."""
        return self.target.enough

    @property
    def mean(self) -> float:
        """The mean of e², at least 0."""
        return min(max(self.errors / self.target.count, 0.0), 1.0)

    @property
    def mean_noise(self) -> float:
        return math.hypot(self.errors_noise, self.mean * self.target.count_noise) / self.target.count

    @property
    def likely_mean(self) -> float:
        return max(likely(self.mean, self.mean_noise), _TINY)

    @property
    def _spread(self) -> float:
        """The variance of t among the rows themselves, never 0."""
        n = self.target.count
        return max(self.target.likely_variance * (n - 1) / n, _TINY)

    @property
    def ratio(self) -> float:
        """1 - R²."""
        return 4 * self.mean / self._spread

    def forms(self) -> tuple[Form, ...]:
        """Return the influences of a row (e, t - mean) on m, and on 1 - R² times the variance."""
        ratio = 4 * self.likely_mean / self._spread
        first = Form(((0, 0, 1.0),), min(1.0, _REACH * self.likely_mean))
        most = max(4.0, 4.0 * ratio)
        second = Form(((0, 0, 4.0), (1, 1, -ratio)), min(most, 2 * _REACH * 4 * self.likely_mean))
        return first, second

    def estimates(self, column: Number, spreads: Sequence[float] | None) -> list[Estimate]:
        """Return RMSE and R²; `spreads` are the variances of the two influences, None if not known."""
        unit = 2 * column.half
        if not self.known or spreads is None:
            return [unknown(RMSE, 0.0, unit), _UNKNOWN]
        n, m, v = self.target.count, self.mean, self._spread
        sampling, noise = math.sqrt(spreads[0] / n), self.mean_noise
        root = math.sqrt(m)
        at = _Root(m, self.likely_mean, sampling / self.likely_mean, noise, unit)
        slope = math.sqrt(m + sampling) + root, math.sqrt(m + noise) + root
        rmse = Estimate(
            RMSE,
            unit * root,
            unit * sampling / slope[0] if sampling else 0.0,
            unit * noise / slope[1] if noise else 0.0,
            (0.0, unit),
            at,
        )
        blurred = math.hypot(4 * self.errors_noise / n, self.ratio * self.target.variance_noise) / v
        if v <= 3 * self.target.variance_noise:
            return [rmse, _UNKNOWN]
        r_squared = 1 - self.ratio
        explained = Estimate(R_SQUARED, r_squared, math.sqrt(spreads[1] / n) / v, blurred, (-math.inf, 1.0))
        return [rmse, explained]

    def spreads(self, answer: Answer) -> list[float]:
        """Return the likely variances of the influences, from the second stage."""
        (sums,), (noise,) = answer.sums[0], answer.noise[0]
        sizes = self.likely_mean, 8 * self.likely_mean
        means = self.likely_mean, 0.0
        found = []
        for form, total, size, mean in zip(self.forms(), sums, sizes, means, strict=True):
            unit = form.bound**2 / self.target.count
            most = max(form.bound * size - mean**2, _TINY)
            found.append(likely(float(total) * unit - mean**2, noise * unit, most))
        return found


@dataclass(frozen=True)
class _Root:
    """The interval of the root of a mean square: M with |m - M| <= z sqrt(r² m M + noise²)."""

    centre: float
    at: float
    relative: float
    noise: float
    unit: float

    def __call__(self, level: float) -> tuple[float, float]:
        z = quantile(level)

        def holds(other: float) -> bool:
            return (self.centre - other) ** 2 <= z * z * (self.relative**2 * self.at * other + self.noise**2)

        ends = edge(holds, self.centre, 0.0), edge(holds, self.centre, 1.0)
        return self.unit * math.sqrt(ends[0]), self.unit * math.sqrt(ends[1])
