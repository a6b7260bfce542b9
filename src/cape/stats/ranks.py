"""Quantiles of a column from noisy counts between edges: values, and intervals that end at edges.

*Fit.* The edges of all stages cut the bounds into atoms. Every count is a sum of atoms plus independent
noise of a known scale: weighted least squares gives all counts below edges, without bias, and their errors.
Intervals (Woodruff's) come from this fit and end at edges, so that they hold whatever lies between edges.
*Value.* Between edges the fit says nothing. The value is read off a second fit, in which densities of
neighbouring atoms are alike, up to a quarter of them: that matters only where noise outweighs the atoms, and
interpolates there.
Tested in tests/unit/analyses/describe/test_quantile_search.py and tests/unit/stats/test_ranks.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cape.core.arrays import Floats
from cape.stats.estimates import Estimate
from cape.stats.laplace_tails import coarse
from cape.stats.law import GAUSSIAN, Law

__all__ = ["Counted", "Ranks", "Woodruff"]

_ALIKE = 0.25  # how far densities of neighbouring atoms differ

_EXACT = 1e3  # how much better than any count a public total is known


@dataclass(frozen=True, eq=False)
class Counted:
    """Noisy counts between edges, or below the only one if there is one count."""

    edges: Floats
    counts: Floats
    noise: float

    def sums(self, edges: Floats) -> Floats:
        """Return which atoms between these edges each count is the sum of."""
        ends = np.searchsorted(edges, self.edges) + 1
        starts, ends = np.append(0, ends), np.append(ends, len(edges) + 1)
        place = np.arange(len(edges) + 1)
        many = len(self.counts)
        return ((place >= starts[:many, None]) & (place < ends[:many, None])).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Ranks:
    """What counts say of a column's distribution.

    Attributes:
        low, high: its bounds.
        counted: the stages so far.
        total: the number of rows, if it is public.
        law: the law of the noise.
    """

    low: float
    high: float
    counted: tuple[Counted, ...] = ()
    total: float | None = None
    law: Law = field(default=GAUSSIAN)

    @cached_property
    def edges(self) -> Floats:
        """All edges, with the bounds."""
        return np.concatenate([[self.low], self._inner, [self.high]])

    @cached_property
    def _inner(self) -> Floats:
        return np.unique(np.concatenate([each.edges for each in self.counted]))

    @property
    def noise(self) -> float:
        """The noise in each count of the last stage."""
        return self.counted[-1].noise

    @cached_property
    def _least(self) -> float:
        """The unit of noise: the least of all stages."""
        return min(each.noise for each in self.counted) or 1.0

    @cached_property
    def _system(self) -> tuple[Floats, Floats]:
        """Return sums of atoms and counts, each over its noise in units; last the total, if it is public."""
        units = [(each.noise or 1.0) / self._least for each in self.counted]
        sums = [each.sums(self._inner) / unit for each, unit in zip(self.counted, units, strict=True)]
        counts = [each.counts / unit for each, unit in zip(self.counted, units, strict=True)]
        if self.total is not None:
            sums.append(np.full((1, len(self._inner) + 1), _EXACT))
            counts.append(np.array([self.total * _EXACT]))
        return np.concatenate(sums), np.concatenate(counts)

    @cached_property
    def _inverse(self) -> Floats:
        sums, _ = self._system
        return np.asarray(np.linalg.inv(sums.T @ sums), np.float64)

    @cached_property
    def _atoms(self) -> Floats:
        sums, counts = self._system
        return np.asarray(self._inverse @ (sums.T @ counts))

    @cached_property
    def count(self) -> float:
        """The number of rows."""
        return float(self._atoms.sum()) if self.total is None else self.total

    @cached_property
    def count_noise(self) -> float:
        """The noise in it."""
        if self.total is not None or not self.noise:
            return 0.0
        return self._least * math.sqrt(max(float(self._inverse.sum()), 0.0))

    def over(self, prob: float) -> Floats:
        """Return how many rows more than this share lie below each edge."""
        return np.append(0.0, np.cumsum(self._atoms)) - prob * self.count

    def errors(self, prob: float) -> tuple[Floats, Law]:
        """Return the noise in that, none at the bounds, and its law near the quantile."""
        many = len(self._atoms)
        if not self.noise:
            return np.zeros(many + 1), self.law
        sums, _ = self._system
        noisy = sums if self.total is None else sums[:-1]
        asked = np.tri(many + 1, many, -1) - prob
        squares = (asked @ self._inverse @ noisy.T) ** 2
        squares[[0, -1]] = 0.0
        variances = squares.sum(axis=1)
        place = int(np.argmin(np.abs(self.over(prob)[1:-1]))) + 1 if many > 1 else 0
        return self._least * np.sqrt(variances), coarse(self.law.combined(*np.sqrt(squares[place])))

    def sampling(self, prob: float) -> float:
        """Return the sampling error of the number of rows below a quantile."""
        return math.sqrt(prob * (1 - prob) * max(self.count, 1.0))

    def between(self, prob: float, reach: Floats) -> tuple[float, float]:
        """Return the last edge that is clearly below a quantile and the first that is clearly above."""
        over, reach = self.over(prob), reach.copy()
        reach[[0, -1]] = 0.0
        over[0], over[-1] = -1.0, 1.0
        first = int(np.argmax(over + reach >= 0))
        last = len(over) - 1 - int(np.argmax((over - reach <= 0)[::-1]))
        return float(self.edges[max(first - 1, 0)]), float(self.edges[min(last + 1, len(over) - 1)])

    @cached_property
    def likely(self) -> Floats:
        """The share below each edge if neighbouring atoms are alike."""
        sums, counts = self._system
        wide = np.diff(self.edges) / (self.high - self.low)
        raw = _rising(np.append(0.0, np.cumsum(self._atoms)), self.count)
        if not self.noise or len(wide) < 2:
            return raw
        inner, right = sums.T @ sums, sums.T @ counts
        pair = wide[:-1] + wide[1:]
        for _ in range(2):
            atoms = np.diff(raw) * self.count
            unlike = _ALIKE * np.maximum(atoms[:-1] + atoms[1:], self.noise / 2) / pair
            bent = np.zeros((len(pair), len(wide)))
            place = np.arange(len(pair))
            bent[place, place] = self._least / (wide[:-1] * unlike)
            bent[place, place + 1] = -self._least / (wide[1:] * unlike)
            fit = np.linalg.solve(inner + bent.T @ bent, right)
            raw = _rising(np.append(0.0, np.cumsum(fit)), self.count)
        return raw

    def value(self, share: float) -> float:
        """Return where the likely distribution reaches a share, straight between edges."""
        share, shares = min(max(share, 0.0), 1.0), self.likely
        i = min(max(int(np.searchsorted(shares, share)), 1), len(shares) - 1)
        low, high = shares[i - 1], shares[i]
        part = (share - low) / (high - low) if high > low else 0.5
        start, end = self.edges[i - 1], self.edges[i]
        return float(min(max(start + part * (end - start), start), end))

    def estimate(self, label: str, prob: float) -> Estimate:
        """Return a quantile of the population."""
        value, (noise, law) = self.value(prob), self.errors(prob)
        place = int(np.searchsorted(self.edges[1:-1], value, side="right"))
        blurred = float(np.interp(value, self.edges, noise)) / self.count
        drawn = self.sampling(prob) / self.count
        sampled, privacy = ((self.value(prob + e) - self.value(prob - e)) / 2 for e in (drawn, blurred))
        low, high = float(self.edges[place]), float(self.edges[place + 1])
        part = (value - low) / (high - low)
        within = (high - low) * math.sqrt(1 / 12 + (part - 0.5) ** 2)  # cells may lie anywhere between edges
        errors = math.hypot(sampled, within), privacy
        return Estimate(label, value, *errors, (self.low, self.high), Woodruff(self, prob), law)


@dataclass(frozen=True, eq=False)
class Woodruff:
    """From the last edge that is clearly below the quantile to the first clearly above: it holds at least at
    its level, whatever lies between edges."""

    ranks: Ranks
    prob: float

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the interval at a level."""
        noise, law = self.ranks.errors(self.prob)
        reach = law.quantile((1 + level) / 2, noise, self.ranks.sampling(self.prob))
        low, high = self.ranks.between(self.prob, np.asarray(reach))
        value = self.ranks.value(self.prob)
        return min(low, value), max(high, value)


def _rising(prefixes: Floats, count: float) -> Floats:
    """Return shares that rise, half way between the running maximum and the running minimum from the
    right."""
    shares = np.clip(prefixes / max(count, 1.0), 0.0, 1.0)
    up = np.maximum.accumulate(shares)
    found = (up + np.minimum.accumulate(shares[::-1])[::-1]) / 2
    found[0], found[-1] = 0.0, 1.0
    return np.asarray(found)
