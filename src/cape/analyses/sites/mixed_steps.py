"""Linear mixed models by clipped scores: from rough moments to where scores are asked for, and on from there.

All of it is post-processing of released sums, and decides only how large noise is: whatever the point is,
its sums and their noise are counted as they are.

Features are centred at each site, where intercepts differ, and whitened: then effects that are common to all
sites need scores over all sites alone, whose noise is that of one release, and each site its own. Scores are
`z g` with residuals g cut near their SD, so that noise does not grow with bounds. How much of the noise each
entry bears is chosen by how well it needs to be known: less where sites differ by more than their rows do
anyway, and less for an effect that all sites say together.

Each point is known from all that came before: a step is drawn to where it began, by how well that was known
already (`Point.doubt`). The share of residuals that were not cut says how large they are, and the curvature,
over that share, how large features are.
Tested in tests/unit/analyses/sites/test_mixed_steps.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from cape.analyses.sites.site_scores import Point, ScoreSums, moved_squared
from cape.analyses.sites.site_sums import SiteSums
from cape.core.arrays import Floats
from cape.stats.matrices import shrunk

__all__ = ["SHARES", "first_point", "next_point", "silent"]

# Choices, made by looking at widths with five sites, 5,000 rows and epsilon 1, over features with bounds of
# 3.5 to 10 SDs (`python -m benchmarks glm.mixed`); no sensitivity depends on them.
SHARES = 0.1, 0.1, 0.25, 0.55  # of moments, and of scores, each at a better point
_CUT = 1.1  # SDs, where noise is large
_FAR = 4.0  # SDs: the furthest cut
_BEYOND, _WIDE = 2.8, 7.0  # SDs: where residuals are cut for their mean, and where if they are skewed
_SEEN = 2.5  # SDs by which cutting must be seen to move the mean
_NOISY = 0.1  # of the sampling variance: noise that a cut further out may leave
_LONGEST = 0.8  # of what common entries of a typical row add to its length
_SQUARE = 1.2  # of the square of the length
_CURVE, _FEW = 0.12, 5  # the weight of the curvature for each common effect, and for how many at most
_PLACE, _UNUSED = 0.25, 0.002  # weights of places before the last stage, and in it
_LITTLE = 0.02  # the weight of what is hardly needed
_LEVEL, _EARLY = 0.7, 0.5  # weights of levels in the last stage, and before it
_LIKELY = 0.3  # of the variance of the target: what features are expected to explain
_STILL = 0.3  # of the variance of residuals: what a step leaves of it at least
_DOUBT = 0.5  # of the variance of residuals: that of an effect before scores are seen, in units of z
_USUAL = 0.75  # the curvature of a row that is not cut, on average, in units of z
_SHORT = 0.45  # the curvature that a step takes a row to have at least, where many are cut
_HIDDEN = 0.75  # of the curvature: what it is taken to be at least where noise hides it
_AGAIN = 2.0  # how many times as large the SD of residuals may turn out to be
_FLAT = 0.1  # of the mean eigenvalue: the smallest that rows are whitened by
_UNSEEN = 0.3  # of the error of an effect at a site: what it may be off by where sites are seen to agree
_SURE = 2.0  # SDs by which sites must be seen to differ
_MOST_APART, _APART_EARLY = 100.0, 3.0  # how many times as far as by rows sites are taken to differ
_SILENT = 0.02  # of the sampling variance: noise that needs no scores
_NARROW = 30.0  # half the width of the bounds, in the smallest SD of residuals that is expected
_ALIKE = 1e-9  # the least that features are taken to vary by, squared
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
    around = _floored(shrunk(second, unclear)[0], max(unclear, _ALIKE))
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
    own_doubt = np.full((many, len(random)), _DOUBT * left)
    if centred:
        own_doubt[:, 0] = means.target_doubt(sums, n, variance)
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
        _CURVE * min(max(size - len(random), 1), _FEW),
        _PLACE if centred and size > len(random) else _LITTLE,
        _LITTLE,
        unsure,
        own_doubt,
        _DOUBT * left * np.eye(size - len(random)),
    )
    return _clipped(asked, n, apart, math.inf, centred)


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


def next_point(told: ScoreSums, random: Sequence[int], unit: float = math.inf) -> Point:
    """Return where to ask next: a step on, with features centred and whitened anew.

    `unit` is the noise of the last stage for a sensitivity of 1; infinite before that.
    """
    told = told.possible()
    point, n, total = told.point, np.maximum(told.counts, 2.0), told.total
    own, size, many, early = point.own, point.width, len(told.counts), math.isinf(unit)
    usual = _USUAL * told.inside  # the curvature of a row
    curvature, seen = (_floored(told.per_row[0], least) for least in (_SHORT, _HIDDEN * usual))
    noise = told.score_noise**2
    sampling = np.maximum(np.diag(told.spread) / total, 0.0)
    # common effects, drawn to where they were
    doubt, change, at = point.doubt, np.zeros(size), np.linalg.inv(curvature[:own, :own])
    if size > own:
        crossed = curvature[own:, :own] @ at
        inner = total * (curvature[own:, own:] - crossed @ curvature[:own, own:])
        curved = told.curve_noise**2 * float(np.trace(point.doubt)) / 2
        spread = noise[own:] + total * sampling[own:] + curved
        precise = inner / spread[:, None]
        doubt = np.linalg.inv(inner.T @ precise + np.linalg.inv(point.doubt))
        alone = told.rest - crossed @ told.scores.sum(axis=0)
        change[own:] = doubt @ precise.T @ alone
    # each site's own: all of them move together, and apart from that they are drawn to where they were
    scores = told.scores / n[:, None] - curvature[:own, own:] @ change[own:]
    moved = scores @ at.T
    errors = np.diag(at) ** 2 * (noise[:own] / n[:, None] ** 2 + sampling[:own] / n[:, None])
    middle = n @ moved / total
    start = np.array([turn[:own] for turn in np.linalg.inv(point.turns).transpose(0, 2, 1)])
    found = moved + np.einsum("kij,kj->ki", start, point.weights)  # own coefficients of z
    apart = np.maximum(((found - n @ found / total) ** 2 - errors).mean(axis=0), 0.0)
    likely = np.minimum(point.own_doubt, apart)
    kept = likely / np.maximum(likely + errors, 1e-300)
    moved = middle + kept * (moved - middle)
    skewed = _skewed(told, middle, errors) if 0 in random else True
    changes = np.hstack([moved, np.tile(change[own:], (many, 1))])
    weights = point.weights + np.einsum("kij,ki->kj", point.turns, changes)
    turns, unsure = point.turns.copy(), point.unsure
    centred = 0 in random
    if centred:
        places, off = told.places / n[:, None], told.place_noise**2 / n**2
        middle = n @ places / total
        between = max(float(((places - middle)[:, 1:] ** 2).mean() - off.mean()), 0.0) if size > 1 else 0.0
        part = between / np.maximum(between + off, 1e-300)
        places = middle + part[:, None] * (places - middle)
        turns[:, 1:] -= places[:, 1:, None] * turns[:, :1]
        unsure = part * off
    gram = seen / usual
    if centred:
        gram[0], gram[:, 0] = 0.0, 0.0
        gram[0, 0] = 1.0
    root = np.linalg.cholesky(_floored(gram))
    turns = np.linalg.inv(root) @ turns
    asked = replace(
        point,
        weights=weights,
        turns=turns,
        residual=_residual(point, told.inside, changes),
        unsure=unsure,
        own_doubt=(np.maximum(kept, _UNSEEN) * errors) @ root[:own, :own] ** 2,
        doubt=root[own:, own:].T @ doubt @ root[own:, own:],
        place_weight=point.place_weight if early else _UNUSED,
        level_weight=_EARLY if early else _LEVEL,
    )
    unclear = _SURE * math.sqrt(2 / max(many - 1, 1)) * errors.mean(axis=0)
    asked = _clipped(asked, n, np.where(apart > unclear, apart, 0.0), unit, centred)
    return replace(asked, level=_WIDE * asked.residual) if skewed else asked


def _skewed(told: ScoreSums, moved: Floats, errors: Floats) -> bool:
    """Return whether the mean of residuals is seen to be elsewhere than that of cut ones."""
    n, total = np.maximum(told.counts, 2.0), told.total
    noise = told.level_noise**2 + float(n**2 @ errors[:, 0]) / total**2
    return abs(told.level - float(moved[0])) > _SEEN * math.sqrt(noise)


def _clipped(point: Point, n: Floats, apart: Floats, unit: float, centred: bool) -> Point:
    """Return the point with sizes of entries and bounds that fit it.

    `apart` is the variance of own coefficients of z between sites. An entry that needs to be known to an
    error of e gets a size of about 1 / sqrt(e), so that noise adds the least to all squared errors, each in
    units of what it is without noise. Before the last stage own entries bear less of it, because features
    whose middle at a site is not quite known need its level.
    """
    many, width = len(n), point.width
    early = math.isinf(unit) and width > point.own
    most = _APART_EARLY if early else _MOST_APART
    further = 1 + np.minimum(apart * float(n.mean()) / point.residual**2, most)
    sizes = np.concatenate([further**-0.25, np.full(width - point.own, float(many) ** -0.25)])
    sizes /= sizes.max()
    longest = float(np.linalg.norm(np.append(sizes[: point.own], _LONGEST * sizes[point.own :])))
    level = max(point.level_weight / float(further[0] if centred else 1.0), _LITTLE)
    moved = math.sqrt(moved_squared(point.curve_weight, point.place_weight, level))
    cut = math.sqrt(_NOISY * float(n.mean())) / (max(unit, 1e-300) * moved * longest)
    return replace(
        point,
        sizes=sizes,
        longest=longest,
        level_weight=level,
        cut=point.residual * min(max(cut, _CUT), _FAR),
        level=point.residual * _BEYOND,
    )


def _residual(point: Point, inside: float, changes: Floats) -> float:
    """Return the SD of residuals after a step, from how many were cut before it, as of normal ones."""
    before = point.cut / float(ndtri((1 + inside) / 2))
    before = point.residual * min(max(before / point.residual, 1 / _AGAIN), _AGAIN)
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
        return np.asarray(middle + self._kept(sums, n, variance)[0] * (targets - middle))

    def target_doubt(self, sums: SiteSums, n: Floats, variance: float) -> Floats:
        """Return about how well these means are known."""
        kept, error = self._kept(sums, n, variance)
        return np.asarray(np.maximum(kept, _UNSEEN) * error)

    def _kept(self, sums: SiteSums, n: Floats, variance: float) -> tuple[Floats, Floats]:
        error = sums.group_noise[0, -1] / n**2 + variance / n
        return self.between_targets / np.maximum(self.between_targets + error, 1e-300), error
