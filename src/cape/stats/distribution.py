"""A distribution function from noisy counts in bins, and quantiles read off it, with their errors.

Tested in tests/unit/stats/test_distribution.py, tests/unit/analyses/describe/test_quantiles.py and, for
coverage, in tests/unit/analyses/test_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.core.arrays import Floats
from cape.stats.estimates import Estimate
from cape.stats.law import GAUSSIAN, Law
from cape.stats.moments import enough
from cape.stats.tree import Tree

__all__ = ["Curve"]


@dataclass(frozen=True)
class Curve:
    """The share of a column's rows below each edge, with its privacy error.

    The prefix sums of noisy counts need not rise. `shares` is half way between their running maximum and the
    running minimum from the right: both rise, and neither is ever further from a rising truth than the noisy
    curve was at its worst.
    """

    edges: Floats
    shares: Floats
    count: float
    within: Floats
    root: float
    law: Law = GAUSSIAN

    @classmethod
    def of(cls, edges: Sequence[float], tree: Tree, law: Law = GAUSSIAN) -> Curve | None:
        """Return the curve, or None if there is too much noise in the number of rows."""
        count = float(tree.prefixes[-1])
        if not enough(count, math.sqrt(tree.root)):
            return None
        noisy = np.clip(tree.prefixes / count, 0.0, 1.0)
        rising = np.maximum.accumulate(noisy)
        from_right = np.minimum.accumulate(noisy[::-1])[::-1]
        return cls(np.asarray(edges), (rising + from_right) / 2, count, tree.within, tree.root, law)

    def noise(self, shares: Floats | float) -> Floats:
        """Return the privacy error at each edge if these shares lie below; none at the ends."""
        even = np.linspace(0.0, 1.0, len(self.edges))
        error = np.sqrt(self.within + (even - shares) ** 2 * self.root) / self.count
        error[[0, -1]] = 0.0
        return error

    def value(self, share: float) -> float:
        """Return where the curve reaches a share, straight between edges."""
        share = min(max(share, 0.0), 1.0)
        i = max(int(np.searchsorted(self.shares, share)), 1)
        low, high = self.shares[i - 1], self.shares[i]
        part = (share - low) / (high - low) if high > low else 0.5
        return float(self.edges[i - 1] + part * (self.edges[i] - self.edges[i - 1]))

    def quantile(self, label: str, prob: float) -> Estimate:
        """Return a quantile of the population."""
        value = self.value(prob)
        sampling = math.sqrt(prob * (1 - prob) / self.count)
        # straight between edges, as the curve is: where prefixes share their noise that is exact
        privacy = float(np.interp(value, self.edges, self.noise(prob)))
        drawn, noise = ((self.value(prob + e) - self.value(prob - e)) / 2 for e in (sampling, privacy))
        bounds = float(self.edges[0]), float(self.edges[-1])
        within = math.hypot(drawn, self.rounding(value))
        return Estimate(label, value, within, noise, bounds, _QuantileInterval(self, prob))

    def rounding(self, value: float) -> float:
        """Return the root mean square distance from a value to a place anywhere in its bin.

        Counts do not tell where in a bin cells lie: on a column of many zeros all lie at its edge. With width
        w and the value a part p of it above the lower edge, that is w sqrt(1/12 + (p - 1/2)²).
        """
        width = float(self.edges[1] - self.edges[0])
        part = (value - float(self.edges[0])) / width % 1.0
        return width * math.sqrt(1 / 12 + (part - 0.5) ** 2)


@dataclass(frozen=True)
class _QuantileInterval:
    """Between the last edge whose share is clearly below the probability and the first clearly above.

    A quantile lies above an edge if fewer than `prob` of the population lie below that edge; the test of it
    counts sampling, prob (1 - prob) / n, and privacy noise (Woodruff's interval). The ends are edges, so
    the width of the bins is counted: the interval covers at least at its level, whatever lies inside a bin.
    """

    curve: Curve
    prob: float

    def __call__(self, level: float) -> tuple[float, float]:
        curve, prob = self.curve, self.prob
        drawn = math.sqrt(prob * (1 - prob) / curve.count)
        reach = np.array(curve.law.quantile((1 + level) / 2, curve.noise(prob), drawn))
        reach[[0, -1]] = 0.0
        first = int(np.argmax(curve.shares + reach >= prob))
        last = len(reach) - 1 - int(np.argmax((curve.shares - reach <= prob)[::-1]))
        return float(curve.edges[max(first - 1, 0)]), float(curve.edges[min(last + 1, len(reach) - 1)])
