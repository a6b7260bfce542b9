"""Linear mixed models by clipped scores: from rough moments to where scores are asked for, and on from there.

All of it is post-processing of released sums, and decides only how large noise is: whatever the point is,
its sums and their noise are counted as they are.

Features are centred at each site, where intercepts differ, and whitened: then effects that are common to all
sites need scores over all sites alone, whose noise is that of one release, and each site its own. Scores are
`z g` with residuals g cut near their SD, so that noise does not grow with bounds. How much of the noise each
entry bears is chosen by how well it needs to be known: less where sites differ by more than their rows do
anyway, and less for an effect that all sites say together.
Tested in tests/analyses/test_mixed_steps.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from cape.analyses.matrices import shrunk
from cape.analyses.site_scores import Point, ScoreSums, moved_squared
from cape.analyses.site_sums import SiteSums
from cape.arrays import Floats

__all__ = ["LAST", "ROUGH", "SECOND", "first_point", "next_point", "silent"]

# Choices, made by looking at widths with five sites, 5,000 rows and epsilon 1, over features with bounds of
# 3.5 to 10 SDs (`python -m benchmarks glm.mixed`); no sensitivity depends on them.
ROUGH, SECOND, LAST = 0.1, 0.2, 0.7  # the shares of moments, of scores to go by, and of scores to report
_CUT = 1.2  # SDs, where noise is large
_FAR = 4.0  # SDs: the furthest cut, and where residuals are cut for their mean
_NOISY = 0.1  # of the sampling variance: noise that a cut further out may leave
_LONGEST = 0.9  # of the length of a typical row
_SQUARE = 1.5  # of the square of it
_PLACE, _LEVEL, _LITTLE = 0.5, 0.7, 0.02  # weights of places in the second stage, and of levels in the last
_LIKELY = 0.3  # of the variance of the target: what features are expected to explain
_STILL = 0.3  # of the variance of residuals: what a step leaves of it at least
_DOUBT = 0.5  # of the variance of residuals: that of a common effect before scores are seen, in units of z
_USUAL = 0.6  # the curvature a row has on average, in units of z, if residuals are cut where they should be
_SHORT = 0.75  # of it: what a step takes it to be at least, where most rows were cut
_FLAT = 0.1  # of the mean eigenvalue: the smallest that rows are whitened by
_MOST_APART = 100.0  # how many times as far as by rows sites are taken to differ
_SILENT = 0.02  # of the sampling variance: noise that needs no scores
_NARROW = 30.0  # half the width of the bounds, in the smallest SD of residuals that is expected
_EXPLAINED = 0.05  # of the variance of the target: what residuals have at least


def first_point(sums: SiteSums, random: Sequence[int]) -> Point:
    """Return where to ask first: at means by site, and slopes drawn to 0 as far as noise hides them."""
    size, many = len(sums.whole) - 1, len(sums.groups)
    order = [*random, *(place for place in range(size) if place not in random)]
    n = np.maximum(sums.counts, 2.0)
    # products of numbers up to 1 add up to no more than their number, whatever was answered
    sums = replace(
        sums,
        groups=np.clip(sums.groups, -n[:, None, None], n[:, None, None]),
        whole=np.clip(sums.whole, -n.sum(), n.sum()),
    )
    total, centred = float(n.sum()), 0 in random
    noise = (sums.whole_noise + many * sums.group_noise) / total**2
    means = _Means.of(sums, n) if centred else _Means.none(many, size)
    among = [place for place in order if place or not centred]
    # of features about the means of sites, or of all
    centres = means.x if centred else np.tile(sums.groups[:, 0, :size].sum(axis=0) / total, (many, 1))
    second = sums.whole[1:-1, 1:-1] / total - (n / total * centres.T[1:]) @ centres[:, 1:]
    off = float((centres**2).max() * noise[0, 1:-1].max())  # what noise in means adds
    unclear = math.sqrt(float(noise[1:-1, 1:-1].max()) / 2 + 2 * off)
    around = _floored(shrunk(second, unclear)[0], unclear)
    gram = np.zeros((size, size))
    gram[1:, 1:] = around
    if not centred:
        middle = np.append(1.0, centres[0, 1:])
        gram += np.outer(middle, middle)
    gram = gram[np.ix_(among, among)]
    white = np.linalg.inv(np.linalg.cholesky(gram))
    variance = float(sums.whole[-1, -1]) / total - float(sums.groups[:, 0, -1].sum() / total) ** 2
    doubt = math.sqrt(float(noise[-1, -1]))
    variance = max(variance, doubt, _NARROW**-2.0)
    own = means.of_target(sums, n, variance)
    # slopes of z, drawn to 0
    cross = white @ (sums.whole[:-1, -1] / total - (n / total * own) @ means.x)[among]
    likely = _LIKELY * variance / len(cross)
    kept = 1 / (1 + float(noise[1:-1, -1].max()) * (white**2).sum(axis=1) / likely)
    slopes = np.zeros(size)
    slopes[among] = white.T @ (kept * cross)
    weights = np.tile(slopes, (many, 1))
    explained = float((kept * cross) @ (kept * cross))
    apart = np.zeros(len(random))
    if centred:
        weights[:, 0] = own - means.x[:, 1:] @ slopes[1:]
        apart[0] = means.between_targets
        explained += float(n @ (own - n @ own / total) ** 2) / total
    else:
        explained = max(explained - float(sums.groups[:, 0, -1].sum() / total) ** 2, 0.0)
    left = max(variance - explained, doubt, _EXPLAINED * variance, _NARROW**-2.0)
    left += likely * float((1 - kept).sum())  # what slopes that noise hides add to residuals here
    turns = np.zeros((many, size, size))
    turns[:, range(size), order] = 1.0
    turns[:, 1:, 0] -= means.x[:, order[1:]] if centred else 0.0
    turn = np.eye(size)
    turn[size - len(among) :, size - len(among) :] = white
    unsure = (white**2 @ means.doubt[:, among].T).mean(axis=0) if centred else np.zeros(many)
    asked = Point(
        weights,
        turn @ turns,
        len(random),
        np.ones(size),
        math.sqrt(min(left, 1.0)),
        1.0,
        1.0,
        _SQUARE * size,
        1.0,
        _PLACE if centred else _LITTLE,
        _LITTLE,
        unsure,
    )
    return _clipped(asked, n, apart, math.inf)


def silent(sums: SiteSums, point: Point) -> bool:
    """Return whether noise in moments is hardly any part of the errors that rows leave.

    It is compared, in units of z, with what residuals leave of scores: over all sites, and of each site.
    """
    size, n = point.width, np.maximum(sums.counts, 2.0)
    largest = float((1 + (point.weights**2).sum(axis=1)).max())  # of products with coefficients
    whole = sums.whole_noise + len(n) * sums.group_noise
    stretch = float((point.turns[:, :, 1:] ** 2).sum(axis=2).max())
    common = stretch * largest * float(whole[1:size].max()) / float(n.sum())
    own = max(1.0, stretch if point.own > 1 else 0.0) * largest * float((sums.group_noise[0].max() / n).max())
    return bool(max(common, own) <= _SILENT * point.residual**2)


def next_point(told: ScoreSums, random: Sequence[int], unit: float) -> Point:
    """Return where to ask last: a step on, with features centred and whitened anew.

    `unit` is the noise of the last stage for a sensitivity of 1.
    """
    told = told.possible()
    point, n, total = told.point, np.maximum(told.counts, 2.0), told.total
    own, size, many = point.own, point.width, len(told.counts)
    seen, _ = told.per_row
    curvature = _floored(seen, _SHORT * _USUAL)
    noise = told.score_noise**2
    sampling = np.maximum(np.diag(told.spread) / total, 0.0)
    # common effects, drawn to where they were
    change, at = np.zeros(size), np.linalg.inv(curvature[:own, :own])
    if size > own:
        crossed = curvature[own:, :own] @ at
        inner = total * (curvature[own:, own:] - crossed @ curvature[:own, own:])
        spread = noise[own:] + total * sampling[own:]
        precise = inner / spread[:, None]
        prior = np.eye(size - own) / (_DOUBT * point.residual**2)
        alone = told.rest - crossed @ told.scores.sum(axis=0)
        change[own:] = np.linalg.solve(inner.T @ precise + prior, precise.T @ alone)
    # each site's own, drawn to their mean
    scores = told.scores / n[:, None] - curvature[:own, own:] @ change[own:]
    moved = scores @ at.T
    errors = np.diag(at) ** 2 * (noise[:own] / n[:, None] ** 2 + sampling[:own] / n[:, None])
    usual = n @ moved / total
    start = np.array([turn[:own] for turn in np.linalg.inv(point.turns).transpose(0, 2, 1)])
    found = moved + np.einsum("kij,kj->ki", start, point.weights)  # own coefficients of z
    apart = np.maximum(((found - n @ found / total) ** 2 - errors).mean(axis=0), 0.0)
    kept = apart / (apart + errors)
    moved = usual + kept * (moved - usual)
    changes = np.hstack([moved, np.tile(change[own:], (many, 1))])
    weights = point.weights + np.einsum("kij,ki->kj", point.turns, changes)
    turns, unsure = point.turns.copy(), point.unsure
    centred = 0 in random
    if centred:
        places, doubt = told.places / n[:, None], told.place_noise**2 / n**2
        middle = n @ places / total
        between = max(float(((places - middle)[:, 1:] ** 2).mean() - doubt.mean()), 0.0) if size > 1 else 0.0
        part = between / np.maximum(between + doubt, 1e-300)
        places = middle + part[:, None] * (places - middle)
        turns[:, 1:] -= places[:, 1:, None] * turns[:, :1]
        unsure = part * doubt
    gram = curvature.copy()
    if centred and size > 1:
        gram /= float(np.trace(gram[1:, 1:])) / (size - 1)
        gram[0], gram[:, 0] = 0.0, 0.0
        gram[0, 0] = 1.0
    else:
        gram /= float(np.trace(gram)) / size
    turns = np.linalg.inv(np.linalg.cholesky(_floored(gram))) @ turns
    asked = replace(
        point,
        weights=weights,
        turns=turns,
        residual=_residual(point, float(np.diag(seen).mean()), changes),
        unsure=unsure,
        place_weight=_LITTLE,
        level_weight=_LEVEL,
    )
    return _clipped(asked, n, apart, unit)


def _clipped(point: Point, n: Floats, apart: Floats, unit: float) -> Point:
    """Return the point with sizes of entries and bounds that fit it.

    `apart` is the variance of own coefficients of z between sites. An entry that needs to be known to an
    error of e gets a size of about 1 / sqrt(e), so that noise adds the least to all squared errors, each in
    units of what it is without noise.
    """
    many, width = len(n), point.width
    further = 1 + np.minimum(apart * float(n.mean()) / point.residual**2, _MOST_APART)
    sizes = np.concatenate([further**-0.25, np.full(width - point.own, float(many) ** -0.25)])
    sizes /= sizes.max()
    longest = _LONGEST * float(np.linalg.norm(sizes))
    level = max(point.level_weight / float(further[0]), _LITTLE)
    moved = math.sqrt(moved_squared(point.place_weight, level))
    cut = math.sqrt(_NOISY * float(n.mean())) / (max(unit, 1e-300) * moved * longest)
    return replace(
        point,
        sizes=sizes,
        longest=longest,
        level_weight=level,
        cut=point.residual * min(max(cut, _CUT), _FAR),
        level=point.residual * _FAR,
    )


def _residual(point: Point, curvature: float, changes: Floats) -> float:
    """Return the SD of residuals after a step, from how many were cut before it, as of normal ones."""
    part = min(max(curvature / _USUAL, 0.1), 1.2) * (2 * float(ndtr(_CUT)) - 1)
    before = point.residual * min(max(_CUT / float(ndtri((1 + part) / 2)), 0.5), 2.0)
    moved = float((changes**2).sum(axis=1).mean())
    return min(math.sqrt(max(before**2 - moved, _STILL * before**2)), 1.0)


def _floored(gram: Floats, least: float = 1e-12) -> Floats:
    """Return a symmetric matrix without eigenvalues that are far below the others."""
    values, vectors = np.linalg.eigh(gram)
    least = max(_FLAT * float(values.mean()), least)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


@dataclass(frozen=True)
class _Means:
    """Means of (0, x) at each site, drawn to the mean of all as far as noise hides that they differ."""

    x: Floats
    doubt: Floats
    between_targets: float = 0.0

    @classmethod
    def none(cls, many: int, size: int) -> _Means:
        return cls(np.zeros((many, size)), np.zeros((many, size)))

    @classmethod
    def of(cls, sums: SiteSums, n: Floats) -> _Means:
        size, total = len(sums.whole) - 1, float(n.sum())
        x, doubt = np.zeros((len(n), size)), np.zeros((len(n), size))
        found, noise = sums.groups[:, 0, 1:size] / n[:, None], float(sums.group_noise[0, 1]) / n**2
        middle = n @ found / total
        between = np.maximum(n @ (found - middle) ** 2 / total - n @ noise / total, 0.0)
        kept = between / np.maximum(between + noise[:, None], 1e-300)
        x[:, 1:], doubt[:, 1:] = middle + kept * (found - middle), kept * noise[:, None]
        targets = sums.groups[:, 0, -1] / n
        error = float(n @ (sums.group_noise[0, -1] / n**2)) / total
        apart = max(float(n @ (targets - n @ targets / total) ** 2) / total - error, 0.0)
        return cls(x, doubt, apart)

    def of_target(self, sums: SiteSums, n: Floats, variance: float) -> Floats:
        """Return the means of the target, drawn likewise."""
        targets = sums.groups[:, 0, -1] / n
        middle = float(n @ targets) / float(n.sum())
        error = sums.group_noise[0, -1] / n**2 + variance / n
        kept = self.between_targets / np.maximum(self.between_targets + error, 1e-300)
        return np.asarray(middle + kept * (targets - middle))
