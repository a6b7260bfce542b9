"""What a mixed model's sums say of curvature at each site, as far as it is more than noise.

What a site's curvature has apart from that of all is kept as far as sites are surely seen to differ in it.
Constants were chosen as `mixed_steps` says; no sensitivity depends on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.analyses.sites.mixed_points import Point
from cape.analyses.sites.site_scores import SiteScoreSums
from cape.core.arrays import Floats

__all__ = ["Curvatures", "curvatures_by_site", "surely_between"]

# Times noise, and of what sites have: the least that a site's curvature is taken for.
_UNSURE, _FLAT = 2.0, 0.3
_SURE = 1.0  # SDs by which sites must be seen to differ before they are asked apart
_HALVINGS = 40


@dataclass(frozen=True)
class Curvatures:
    """Curvatures of own entries by site, and between them and the others, with the SDs of their noise: one
    for all own entries, and one for each of the others."""

    own: Floats
    crossed: Floats
    own_noise: float
    crossed_noise: Floats

    @classmethod
    def of(cls, point: Point, sums: SiteScoreSums) -> Curvatures:
        noise = sums.curvature_noise
        each = np.full(point.width - point.own, noise / point.size)
        return cls(sums.own_curvature, sums.crossed, noise / point.size**2, each)

    def beside(self, earlier: Curvatures, turns: Floats) -> Curvatures:
        """Return them with earlier ones, from whose coordinates these turns lead here, for each site."""
        own = self.own.shape[1]
        first, last, below = turns[:, :own, :own], turns[:, own:, own:], turns[:, own:, :own]
        there = first @ earlier.own @ np.swapaxes(first, 1, 2)
        across = first @ earlier.crossed @ np.swapaxes(last, 1, 2)
        across = across + first @ earlier.own @ np.swapaxes(below, 1, 2)
        # of the entries of a matrix, in which noise is alike
        size = float((first**2).sum(axis=2).mean())
        own_noise = earlier.own_noise * size
        variances = (
            last**2 @ earlier.crossed_noise**2 + (below**2).sum(axis=2) * earlier.own_noise**2
        ) * size
        one, noise = _weighed(self.own, np.array([self.own_noise]), there, np.array([own_noise]))
        other, between = _weighed(self.crossed, self.crossed_noise, across, np.sqrt(variances.mean(axis=0)))
        return Curvatures(one, other, float(noise[0]), between)


def _weighed(one: Floats, noise: Floats, other: Floats, beside: Floats) -> tuple[Floats, Floats]:
    """Return the mean of two, each with the weight that its noise leaves it, and the noise of that."""
    here, there = noise**-2, np.maximum(beside, 1e-300) ** -2
    return (here * one + there * other) / (here + there), (here + there) ** -0.5


def curvatures_by_site(
    point: Point, sums: SiteScoreSums, seen: Curvatures
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the curvatures of sites as far as they are more than noise, and the variances of what is left of
    noise in their entries."""
    n, many = np.maximum(sums.counts, 1.0), len(sums.counts)
    own, own_curvature, crossed = point.own, seen.own, seen.crossed
    nothing = np.zeros(own_curvature.shape), np.zeros(crossed.shape)
    if not sums.curvature_noise:
        return own_curvature, crossed, *nothing
    own_doubt, crossed_doubt = nothing
    noise = seen.own_noise
    if own == 1 and point.centred:
        own_curvature = n[:, None, None].copy()  # that of the intercept
    else:
        # rows are whitened: what they have in common is about the identity
        one, of_noise = np.eye(own), noise**2 / n**2
        mean = own_curvature.sum(axis=0) / float(n.sum()) - one
        of_mean = own**2 * many * noise**2 / float(n.sum()) ** 2
        mean = _definite(one + mean * max(0.0, 1 - of_mean / max(float((mean**2).sum()), 1e-300)))
        apart = own_curvature / n[:, None, None] - mean
        kept = _kept(surely_between(apart.reshape(many, -1), of_noise), of_noise)
        found = mean + kept[:, None, None] * apart
        if point.centred:
            found[:, 0, 0] = 1.0
        least = _FLAT * np.minimum(_UNSURE * noise / n, 1.0)
        each = zip(n, found, least, strict=True)
        own_curvature = np.array([n_k * _floored(matrix, at) for n_k, matrix, at in each])
        own_doubt += _doubt(kept, apart.size)[:, None, None] * noise**2
    if point.width == own:
        return own_curvature, crossed, own_doubt, crossed_doubt
    noises = seen.crossed_noise**2
    middle = crossed.sum(axis=0) / float(n.sum())
    of_middle = many * own * noises / float(n.sum()) ** 2
    middle = middle * np.maximum(0.0, 1 - of_middle / np.maximum((middle**2).sum(axis=0), 1e-300))
    away = crossed / n[:, None, None] - middle
    found = np.zeros(crossed.shape)
    # each entry of the others by itself: some differ between sites and others do not
    for j, variance in enumerate(noises):
        of_noise = variance / n**2
        kept = _kept(surely_between(away[:, :, j], of_noise), of_noise)
        found[:, :, j] = n[:, None] * (middle[:, j] + kept[:, None] * away[:, :, j])
        crossed_doubt[:, :, j] = (_doubt(kept, own * many) * variance)[:, None]
    return own_curvature, found, own_doubt, crossed_doubt


def _kept(between: Any, of_noise: Floats) -> Floats:
    """Return which part of what sites have apart is kept."""
    return np.asarray(between / np.maximum(between + of_noise, 1e-300))


def _doubt(kept: Floats, entries: int) -> Floats:
    """Return which part of the variance of noise is left: what is kept, or what noise could hide of that."""
    return np.maximum(kept, math.sqrt(2 / entries))


def _definite(matrix: Floats) -> Floats:
    return _floored(matrix, _FLAT)


def _floored(matrix: Floats, least: float) -> Floats:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def surely_between(values: Floats, errors: Floats) -> float:
    """Return the least variance between sites that these values, one row for each, are compatible with."""
    freedom = max(values.shape[1] * (len(values) - 1), 1)
    return _between(values, errors, freedom + _SURE * math.sqrt(2 * freedom))


def _between(values: Floats, errors: Floats, statistic: float) -> float:
    """Return the variance between sites for which the sum of the squares of these values, each over its own
    variance, is that; 0 if it is less without any."""
    squares = (values**2).sum(axis=1)
    if not len(squares) or float((squares / np.maximum(errors, 1e-300)).sum()) <= statistic:
        return 0.0
    low, high = 0.0, float(squares.sum()) / statistic
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = float((squares / (middle + errors)).sum()) > statistic
        low, high = (middle, high) if above else (low, middle)
    return high
