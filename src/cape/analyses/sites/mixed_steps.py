"""Where a mixed model asks for scores: features centred at each site and whitened, residuals at each site's
own coefficients.

The equations are those of a regression whose random effects are coefficients of each site: linear ones, so
that a step from any point ends where scores add up to 0. Steps before the last make residuals and scores
short, by which noise is measured, and say how long scores should be (`cape.stats.score_norms`). They count
for nothing else: the last stage alone is what is estimated (`mixed_observed`).

*Coordinates.* u holds own entries first: the effects in `random`, whitened over all sites. The others are
features less what own entries explain of them at their site, whitened. So the curvature is about the number
of rows times the identity, and noise in it has little to multiply. Own entries are made longer by
`size`, a fourth root of the number of sites: noise in a site's own effects counts in what all sites have in
common, where features have another mean at that site than is known.

*Noise.* What a site's curvature has apart from that of all, and what its coefficients have, is kept as far as
it is more than noise. Constants were chosen on half of the settings of `python -m benchmarks truth.mixed`,
which says which; no sensitivity depends on them. Tested in tests/unit/analyses/sites/test_mixed_steps.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cape.analyses.regression.score_query import Parts
from cape.analyses.sites.site_scores import SQUARES, SiteScoreSums
from cape.blocks import Design, SiteScores
from cape.core.arrays import Floats
from cape.data import Schema
from cape.stats.matrices import nearest_positive, shrunk
from cape.stats.moments import enough
from cape.stats.score_norms import Beyond, Lengths, edges_around
from cape.stats.score_steps import (
    EXACT_CURVE,
    FIRST_BOUND,
    MOST_CURVE,
    ScoreStep,
)
from cape.stats.score_steps import Point as Whitened

__all__ = ["PARTS", "SHARES", "Point", "Step", "first_point", "next_point"]

MARGINALS = 0.06  # the share of the first stage
PARTS = (
    Parts(0.10, 1.0, 0.3, 0.5),
    Parts(0.08, 1.0, 0.3, 0.5),
    Parts(0.16, 0.5, 0.5, 0.8),
    Parts(0.60, 0.5, 0.2, 0.0),
)
SHARES = (MARGINALS, *((1 - MARGINALS) * part.share / sum(each.share for each in PARTS) for part in PARTS))
_SIZE = 1.0  # of own entries, in fourth roots of the number of sites
_STEEP, _LEAST_CURVE = 0.05, 2.5  # as in `score_steps`, shorter: noise in curvatures by site counts for more
_STEEPEST = 20.0  # times the mean: eigenvalues that noise may hide
_UNSURE, _FLAT = (
    2.0,
    0.3,
)  # times noise, and of what sites have: the least that a site's curvature is taken for
_SURE = 1.0  # SDs by which sites must be seen to differ before they are asked apart
_HALVINGS = 40
_SMALLEST = 1e-150
_NOTHING = 1e-10  # of a row: what rounding leaves


@dataclass(frozen=True)
class Point:
    """Where scores are asked for, and how they are clipped.

    Attributes:
        places: of (1, x), first those of random effects.
        weights: coefficients of (1, x) of each site, in that order.
        turns: what makes u of (1, x) at each site; its rows in that order too.
        own: how many entries of u, the first ones, differ from site to site.
        size: how much longer own entries count.
        residual: the SD of residuals, about.
        bound: the longest that a score may be.
        curve: the largest that the curvature of a row may be.
        edges: between which lengths are counted; none if they are not asked for.
        beyond: what the bound is expected to leave out.
        square, lost: the largest square of a residual that counts, 0 if they are not asked for, and what
            that leaves out.
        doubt: the variance of each site's own coefficients in units of u, about.
    """

    places: tuple[int, ...]
    weights: Floats
    turns: Floats
    own: int
    size: float
    residual: float
    bound: float
    curve: float
    edges: tuple[float, ...]
    beyond: Beyond | None
    doubt: Floats
    square: float = 0.0
    lost: float = 0.0

    @property
    def width(self) -> int:
        """How many entries u has."""
        return len(self.places)

    @property
    def squared(self) -> float:
        """The mean square of the length of u, with own entries made longer."""
        return self.size**2 * self.own + self.width - self.own

    @property
    def centred(self) -> bool:
        """Whether the intercept is an own entry, so that others are centred at each site."""
        return self.places[0] == 0

    def block(self, design: Design, by: str, cap: tuple[float, float] | None) -> SiteScores:
        """Return the block that is asked for."""
        back = np.argsort(self.places)
        sizes = np.array([self.size] * self.own + [1.0] * (self.width - self.own))
        turns = (self.turns * sizes[:, None])[:, :, back]
        return SiteScores(
            design,
            by,
            tuple(tuple(map(float, each)) for each in self.weights[:, back]),
            tuple(tuple(tuple(map(float, row)) for row in turn) for turn in turns),
            self.own,
            float(self.bound),
            float(self.curve),
            self.edges,
            float(self.square),
            cap,
        )

    def counting(self, lengths: Lengths, noise: float, falls: float) -> Point:
        """Return it with a bound on squares of residuals, as lengths of scores have it."""
        if not noise:
            return self
        # a row whose features are further out than usual has a smaller residual than this takes it to have
        bounds = lengths.edges
        lost = np.array([lengths.beyond(float(bound), falls).spread for bound in bounds]) / self.squared
        squares = bounds**2 / self.squared
        best = int(np.argmin(np.hypot(noise / math.sqrt(SQUARES) * squares, lost)))
        return replace(self, square=float(squares[best]), lost=float(lost[best]))

    def clipped(self, noise: float, total: float, *, lengths: bool) -> Point:
        """Return it with bounds for the next stage, whose noise is that of a sum of rows at most 1 long."""
        width, square = self.width, self.squared
        typical = self.residual * math.sqrt(square)
        bound = FIRST_BOUND * typical if self.beyond is None else self.beyond.bound
        most = EXACT_CURVE
        if noise > 0:
            most = _STEEP * total / (math.sqrt(2 * width) * noise * square)
            most = min(max(most, _LEAST_CURVE), MOST_CURVE)
        edges = edges_around(typical) if lengths else ()
        return replace(self, bound=bound, curve=most * square, edges=edges)


def first_point(
    gram: Floats, places: Sequence[int], sites: int, level: float, variance: float, noise: float, total: float
) -> Point:
    """Return where to ask first: at a constant; `gram` is what is expected of the mean of (1, x)(1, x)'."""
    order = (*places, *(place for place in range(len(gram)) if place not in places))
    gram, own = gram[np.ix_(order, order)], len(places)
    turn = np.eye(len(order))
    turn[:own, :own] = _whitening(gram[:own, :own])
    rest = gram[own:, own:]
    if order[0] == 0:
        explained = np.linalg.solve(gram[:own, :own], gram[:own, own:])
        turn[own:, :own] = -explained.T
        rest = rest - gram[own:, :own] @ explained
    turn[own:] = _whitening(rest) @ turn[own:] if own < len(order) else turn[own:]
    weights = np.zeros((sites, len(order)))
    weights[:, order.index(0)] = level
    point = Point(
        order,
        weights,
        np.tile(turn, (sites, 1, 1)),
        own,
        _SIZE * float(sites) ** 0.25,
        math.sqrt(variance),
        1.0,
        1.0,
        (),
        None,
        np.zeros(sites),
    )
    return point.clipped(noise, total, lengths=True)


def _whitening(gram: Floats, most: float = 1e9) -> Floats:
    """Return what whitens by a matrix, from the first entry on; directions of hardly any size stay small."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    if not float(values[-1]) > _SMALLEST:
        return np.eye(len(gram))
    values = np.clip(values, float(values[-1]) / most, None)
    return np.asarray(np.linalg.inv(np.linalg.cholesky((vectors * values) @ vectors.T)))


@dataclass(frozen=True)
class Step:
    """What sums at a point say, in units of u without sizes.

    Attributes:
        used: which sites have own coefficients that are seen.
        own_curvature, crossed: the curvature of own entries of each site, and between them and the others, as
            far as they are more than noise.
        inverses: those of the first, over what is seen of own coefficients.
        step: the others, given these.
        own, rest: how far own coefficients of each site, and the others, are from the point.
        own_doubt, crossed_doubt: the variances of what is left of noise in entries of the curvature.
    """

    point: Point
    sums: SiteScoreSums
    used: tuple[bool, ...]
    own_curvature: Floats
    crossed: Floats
    inverses: Floats
    step: ScoreStep | None
    own: Floats
    rest: Floats
    own_doubt: Floats
    crossed_doubt: Floats
    seen: Curvatures

    @classmethod
    def of(cls, point: Point, sums: SiteScoreSums, earlier: Step | None = None) -> Step:
        """Return what these sums say; they are in units of u with sizes.

        Curvatures are those of all stages so far: noise in them is independent, and rows are the same.
        """
        size, own = point.size, point.own
        sums = replace(
            sums,
            own=sums.own / size,
            own_curvature=sums.own_curvature / size**2,
            crossed=sums.crossed / size,
            own_spread=sums.own_spread / size**2,
            crossed_spread=sums.crossed_spread / size,
        )
        used = tuple(enough(float(n), sums.count_noise) and float(n) > own + 1 for n in sums.counts)
        seen = Curvatures.of(point, sums)
        if earlier is not None and seen.own_noise:
            seen = seen.beside(earlier.seen, point.turns @ np.linalg.inv(earlier.point.turns))
        own_curvature, crossed, own_doubt, crossed_doubt = _by_site(point, sums, seen)
        inverses = np.array(
            [
                _inverse(each, max(float(n), 1.0), intercept=point.centred) if known else np.zeros((own, own))
                for each, known, n in zip(own_curvature, used, sums.counts, strict=True)
            ]
        )
        step, rest = None, np.zeros(point.width - own)
        if len(rest):
            pull = np.swapaxes(crossed, 1, 2) @ inverses
            score = sums.rest - (pull @ sums.own[:, :, None])[:, :, 0].sum(axis=0)
            curvature = sums.curvature - (pull @ crossed).sum(axis=0)
            between = pull @ sums.crossed_spread
            spread = sums.spread - (between + np.swapaxes(between, 1, 2)).sum(axis=0)
            spread = spread + (pull @ sums.own_spread @ np.swapaxes(pull, 1, 2)).sum(axis=0)
            noise = sums.score_noise * math.sqrt(1 + float((pull**2).sum()) / size**2 / len(rest))
            whitened = Whitened(
                point.weights[0, own:],
                point.turns[0, own:, own:],
                point.residual,
                1.0,
                0.0,
                point.bound,
                point.curve,
                exact=not sums.score_noise,
            )
            step = ScoreStep(
                whitened,
                sums.total,
                score,
                (curvature + curvature.T) / 2,
                spread,
                noise,
                sums.curvature_noise,
                sums.spread_noise,
                None,
                False,
            )
            if earlier is not None and earlier.step is not None:
                step = step.with_earlier(earlier.step, 0.0)
            rest = step.change
        moved = (inverses @ (sums.own - crossed @ rest)[:, :, None])[:, :, 0]
        return cls(
            point,
            sums,
            used,
            own_curvature,
            crossed,
            inverses,
            step,
            moved,
            rest,
            own_doubt,
            crossed_doubt,
            seen,
        )

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.sums.score_noise > 0

    @property
    def own_errors(self) -> Floats:
        """The variance of the own coefficients of each site, from rows and noise, about: one number each."""
        inverses = np.diagonal(self.inverses, axis1=1, axis2=2)
        noise = (self.sums.score_noise / self.point.size) ** 2
        return np.asarray((self.point.residual**2 * inverses + noise * inverses**2).mean(axis=1))


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


def _by_site(point: Point, sums: SiteScoreSums, seen: Curvatures) -> tuple[Floats, Floats, Floats, Floats]:
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
        kept = _kept(_surely_between(apart.reshape(many, -1), of_noise), of_noise)
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
        kept = _kept(_surely_between(away[:, :, j], of_noise), of_noise)
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


def _inverse(curvature: Floats, rows: float, *, intercept: bool) -> Floats:
    """Return the inverse of a site's curvature of own entries; where they do not vary there, that of its
    intercept alone."""
    values, vectors = np.linalg.eigh(curvature)
    if values[0] > _NOTHING * rows:
        return np.asarray((vectors / values) @ vectors.T)
    alone = np.zeros_like(curvature)
    if intercept and curvature[0, 0] > _NOTHING * rows:
        alone[0, 0] = 1 / curvature[0, 0]
    return alone


def next_point(step: Step, noise: float, falls: float, *, last: bool) -> Point:
    """Return where to ask next; `noise` is that of a sum whose rows are at most 1 long."""
    point, sums, own = step.point, step.sums, step.point.own
    n, total = np.maximum(sums.counts, 1.0), sums.total
    rest, moved, doubt = step.rest, step.own, point.doubt
    used = np.array(step.used)
    errors = step.own_errors
    if step.private:
        rest = step.step.drawn if step.step is not None else rest
        # sites move together, and apart as far as they are surely seen to
        share = n * used / max(float(n @ used), 1.0)
        middle = share @ moved
        of_noise = own * float(share**2 @ errors)
        middle = middle * max(0.0, 1 - of_noise / max(float(middle @ middle), 1e-300))
        away = np.where(used[:, None], moved - middle, 0.0)
        likely = np.maximum(doubt, _surely_between(away[used], errors[used]))
        kept = likely / np.maximum(likely + errors, 1e-300)
        doubt = kept * errors
        moved = middle + kept[:, None] * away
        # changes explain no more of residuals than there is
        size = share @ (moved**2).sum(axis=1) + float(rest @ rest)
        short = min(1.0, point.residual / math.sqrt(max(float(size), 1e-300)))
        moved, rest = short * moved, short * rest
    weights = point.weights.copy()
    changes = np.hstack([moved, np.tile(rest, (len(n), 1))])
    weights += np.einsum("kij,ki->kj", point.turns, changes)
    found = replace(point, weights=weights, doubt=doubt)
    lengths = sums.lengths
    typical = None if lengths is None else lengths.typical()
    if typical is not None:
        found = replace(found, residual=typical / math.sqrt(point.squared))
    if last:
        if lengths is not None:
            found = replace(found, beyond=lengths.best(noise, max(round(point.squared), 1), falls))
            found = found.counting(lengths, noise, falls)
        return found.clipped(noise, total, lengths=False)
    return _turned(found, step).clipped(noise, total, lengths=True)


def _surely_between(values: Floats, errors: Floats) -> float:
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


def _turned(point: Point, step: Step) -> Point:
    """Return the point with features centred at each site and whitened anew."""
    own, turns, total = point.own, point.turns.copy(), step.sums.total
    mean = step.own_curvature.sum(axis=0) / total
    if point.centred and step.step is not None:
        pull = np.swapaxes(step.crossed, 1, 2) @ step.inverses
        turns[:, own:] -= pull @ turns[:, :own]
    most = _STEEPEST if step.private else 1e12
    if own > 1:
        turns[:, :own] = _whitening(mean, most) @ turns[:, :own]
    if step.step is not None:
        likely = step.step.likely if point.centred else nearest_positive(step.sums.curvature)
        if not point.centred and step.private:
            likely, _ = shrunk(likely, step.sums.curvature_noise)
        turns[:, own:] = _whitening(likely / total, most) @ turns[:, own:]
    return replace(point, turns=turns)


def cap_of(schema: Schema, target: str, ends: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return caps of the target in units of t."""
    if ends is None:
        return None
    column = schema.number(target)
    low, high = ((end - column.middle) / column.half for end in ends)
    return max(low, -1.0), min(high, 1.0)
