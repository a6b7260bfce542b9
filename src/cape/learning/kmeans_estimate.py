"""What noisy sums and counts say of clusters: where they are looked for, their centres, sizes and errors.

A step moves each centre as far as the rows of its cluster can be seen (`Clusters.step`). Tested in
tests/unit/learning/test_kmeans.py.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from cape.blocks.units import Units
from cape.core.arrays import Flags, Floats, Integers
from cape.core.errors import TooNoisyWarning, outside
from cape.learning.seeds import Spread
from cape.stats.estimates import Estimate, unknown
from cape.stats.law import GAUSSIAN, Law, coarse

__all__ = ["Clusters", "Sizes", "clear", "label", "reach", "share_noise", "summarise"]

_CLEAR = 3.0  # noise in a count, in standard deviations, that it must exceed for a centre to be moved


@dataclass(frozen=True)
class Clusters:
    """Where centres are, in units of x, with the noise in each entry.

    `variance` is that of the noise, and `fourth` a third of its fourth cumulant: 0 if it is Gaussian.
    """

    centres: Floats
    variance: Floats
    fourth: Floats | float = 0.0

    def within(self, units: Units) -> Clusters:
        """Return them moved to where means of rows can be."""
        return replace(self, centres=units.within(self.centres))

    def laws(self) -> list[list[Law]]:
        """Return the law of the noise in each entry, by its kurtosis."""
        fourth = np.broadcast_to(self.fourth, self.variance.shape)
        shapes = np.where(fourth > 0, self.variance**2 / np.where(fourth > 0, fourth, 1.0), np.inf)
        return [[coarse(Law(max(shape, 0.5))) for shape in row] for row in shapes.tolist()]

    def step(self, counts: Floats, sums: Floats, noise: tuple[float, float], law: Law = GAUSSIAN) -> Clusters:
        """Return the centres after a step of Lloyd's, less what noise does to it.

        A mean of rows has noise of variance v = (s² + m² c²) / n², s in the sum, c in the count. It replaces
        the old centre by as much as the two deserve: the old one, of variance u, may have been that of other
        rows, at a distance whose square d² is what it is beyond noise, and the gain is (u + d²) / (u + d² +
        v). Once rows stay where they are, d² is about 0, and centres are averages over steps, by
        inverse variance; a centre that moved for good is replaced. A count that noise hides has no gain.
        """
        count_noise, sum_noise = noise
        seen = clear(counts, count_noise, law)
        n = np.where(seen, counts, 1.0)[:, None]
        means = sums / n
        middles = np.clip(means, -1.0, 1.0)
        fresh = (sum_noise**2 + middles**2 * count_noise**2) / n**2
        fourth = (sum_noise**4 + middles**4 * count_noise**4) / n**4 / law.shape
        old, new = self.variance.mean(axis=1), fresh.mean(axis=1)
        moved = np.maximum(((means - self.centres) ** 2).mean(axis=1) - old - new, 0.0)
        trusted = old + moved
        gain = np.where(new > 0, trusted / np.where(new > 0, trusted + new, 1.0), 1.0)[:, None]
        error = gain**2 * fresh + (1 - gain) ** 2 * (self.variance + moved[:, None])
        return replace(
            self,
            centres=np.where(seen[:, None], self.centres + gain * (means - self.centres), self.centres),
            variance=np.where(seen[:, None], error, self.variance),
            fourth=np.where(seen[:, None], gain**4 * fourth + (1 - gain) ** 4 * self.fourth, self.fourth),
        )


def reach(law: Law, deviates: float) -> float:
    """Return the standard deviations that noise exceeds as seldom as a Gaussian does these."""
    return deviates if law.gaussian else float(law.quantile(float(ndtr(deviates))))


def clear(counts: Floats, noise: float, law: Law = GAUSSIAN) -> Flags:
    """Return which counts stand out of the noise."""
    return np.asarray(counts > max(reach(law, _CLEAR) * noise, 0.5))


def summarise(
    seeds: Spread, counts: Floats, sums: Floats, noise: tuple[float, float], law: Law = GAUSSIAN
) -> tuple[Floats, Floats]:
    """Return a point and a weight for each cell of the first release.

    Of many counts of 0, the largest noise is about sqrt(2 log m) standard deviations, or what Laplace noise
    exceeds as seldom: what is not above that has no weight, or k-means would put centres on noise far from
    all rows. A cell's point is its mean as far as noise lets it be seen, against the spread of a cell that is
    evenly filled, else its middle.
    """
    count_noise, sum_noise = noise
    limit = max(count_noise * reach(law, math.sqrt(2 * math.log(max(len(counts), 2)))), 0.5)
    weights = np.where(counts > limit, counts, 0.0)
    if not weights.any():  # noise hides every cell: the best that there is
        weights = np.maximum(counts, 0.0)
    if not weights.any():
        return seeds.points, np.ones(len(counts))
    n = np.where(weights > 0, counts, 1.0)
    variance = (sum_noise**2 + (seeds.points**2).sum(axis=1) * count_noise**2) / n**2
    spare = seeds.variance + variance
    gain = np.where(spare > 0, seeds.variance / np.where(spare > 0, spare, 1.0), 0.0) * (weights > 0)
    return seeds.points + gain[:, None] * (sums / n[:, None] - seeds.points), weights


def label(cluster: int, name: str) -> str:
    """Return the label of an estimate of a cluster."""
    return f"cluster {cluster + 1}: {name}"


def share_noise(share: float, clusters: int, public: bool) -> float:
    """Return the noise in n_j / total, in units of that in one count over the total, to first order."""
    if public:  # counts are made to add up to the total
        return math.sqrt(1 - 1 / clusters)
    return math.sqrt((1 - share) ** 2 + (clusters - 1) * share**2)


@dataclass(frozen=True)
class Sizes:
    """How many rows belong to each cluster, from noisy counts that add up to the rows if these are public.

    Attributes:
        noise: in each count; `raw_noise` before counts were made to add up.
        rows: how many rows there are, if that is public.
    """

    counts: Floats
    noise: float
    raw_noise: float
    law: Law
    rows: int | None

    @cached_property
    def total(self) -> float:
        """The number of rows."""
        return float(self.counts.sum()) if self.rows is None else float(self.rows)

    @cached_property
    def known(self) -> bool:
        """Whether there clearly are rows."""
        noise = 0.0 if self.rows is not None else self.noise * math.sqrt(len(self.counts))
        return self.total > max(reach(self.law, _CLEAR) * noise, 0.5)

    @cached_property
    def seen(self) -> Flags:
        """Which clusters stand out of the noise."""
        return clear(self.counts, self.noise, self.law) & self.known

    @cached_property
    def order(self) -> Integers:
        """The places of the clusters, the largest first."""
        return np.argsort(-self.counts, kind="stable")

    @cached_property
    def shares(self) -> Floats:
        """The share of each cluster; the same for all if nothing is known."""
        many = len(self.counts)
        return np.clip(self.counts / self.total, 0.0, 1.0) if self.known else np.full(many, 1 / many)

    def size(self, cluster: int, name: str) -> Estimate:
        """Return the percentage of rows in a cluster."""
        many = len(self.counts)
        if not self.known:
            return unknown(name, 0.0, 100.0, 100 / many)
        share = float(self.shares[cluster])
        error = share_noise(share, many, self.rows is not None) * self.raw_noise / self.total
        other = share if self.rows is None else 1 / many
        law = coarse(self.law.combined(1 - other, *[other] * (many - 1)))
        return Estimate(name, 100 * share, 0.0, 100 * error, (0.0, 100.0), law=law)

    def estimates(self, found: Clusters, units: Units) -> list[Estimate]:
        """Return sizes and centres, the largest cluster first; centres are unknown where noise hides it."""
        raw, errors = units.back(found.centres), np.sqrt(found.variance) * units.unit
        laws, seen = found.laws(), self.seen
        estimates = []
        for i, place in enumerate(self.order.tolist()):
            estimates.append(self.size(place, label(i, "% of rows")))
            for j, name in enumerate(units.names):
                low, high, value = float(units.low[j]), float(units.high[j]), float(raw[place, j])
                if seen[place]:
                    error, its = float(errors[place, j]), laws[place][j]
                    estimates.append(Estimate(label(i, name), value, 0.0, error, (low, high), law=its))
                else:
                    estimates.append(unknown(label(i, name), low, high, value))
        return estimates

    def warn(self) -> None:
        """Warn of clusters that noise hides."""
        many, clearly = len(self.counts), reach(self.law, _CLEAR)
        hidden = int((~self.seen).sum())
        if not hidden:
            return
        if self.noise == 0:
            why = "no row is nearest to them: use fewer clusters"
        elif not self.known:
            why = f"noise of {self.noise:.0f} rows hides how many rows there are at all"
        else:
            needed = clearly * self.noise * many / self.total
            why = f"they have no more rows than {clearly:.0f} times the noise of {self.noise:.0f}"
            why += (
                f"; about {needed:.1f} times the rows or the epsilon would show clusters of equal size"
                if needed > 1
                else f"; clusters of equal size would have {self.total / many:.0f}: use fewer clusters"
            )
        warnings.warn(
            f"{hidden} of {many} clusters are hidden, and their centres are not reliable: {why}",
            TooNoisyWarning,
            stacklevel=outside(),
        )
