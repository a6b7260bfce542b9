"""Where a mixed model asks for scores, and how these are clipped: features centred at each site and whitened,
residuals at each site's own coefficients.

*Coordinates.* u holds own entries first: the effects in `random`, whitened over all sites. The others are
features less what own entries explain of them at their site, whitened. So the curvature is about the number
of rows times the identity, and noise in it has little to multiply. Own entries are made longer by
`size`, a fourth root of the number of sites: noise in a site's own effects counts in what all sites have in
common, where features have another mean at that site than is known.

Constants were chosen as `mixed_steps` says; no sensitivity depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.regression.score_query import Parts
from cape.analyses.sites.site_scores import SQUARES
from cape.blocks import Design, SiteScores
from cape.core.arrays import Floats
from cape.data import Schema
from cape.stats.score_norms import Beyond, Lengths, edges_around
from cape.stats.score_steps import EXACT_CURVE, FIRST_BOUND, MOST_CURVE

__all__ = ["PARTS", "SHARES", "Point", "cap_of", "first_point", "whitening"]

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
_SMALLEST = 1e-150


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
    turn[:own, :own] = whitening(gram[:own, :own])
    rest = gram[own:, own:]
    if order[0] == 0:
        explained = np.linalg.solve(gram[:own, :own], gram[:own, own:])
        turn[own:, :own] = -explained.T
        rest = rest - gram[own:, :own] @ explained
    turn[own:] = whitening(rest) @ turn[own:] if own < len(order) else turn[own:]
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


def whitening(gram: Floats, most: float = 1e9) -> Floats:
    """Return what whitens by a matrix, from the first entry on; directions of hardly any size stay small."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    if not float(values[-1]) > _SMALLEST:
        return np.eye(len(gram))
    values = np.clip(values, float(values[-1]) / most, None)
    return np.asarray(np.linalg.inv(np.linalg.cholesky((vectors * values) @ vectors.T)))


def cap_of(schema: Schema, target: str, ends: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return caps of the target in units of t."""
    if ends is None:
        return None
    column = schema.number(target)
    low, high = ((end - column.middle) / column.half for end in ends)
    return max(low, -1.0), min(high, 1.0)
