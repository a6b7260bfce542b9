"""Clipped scores by site: where they are asked for, how far one person moves them, and what comes back.

Claim. One person moves the sums of `Point.query`, each divided by its scale, by at most its sensitivity.
Reason. By `blocks.SiteScores` a row adds, in the block's units, a score, a place and a level of length at
most 1 each, and matrices zz' and ss' with |z| <= 1 and |s| <= 1, of Frobenius norm at most 1: entries above
the diagonal count twice, so that they have twice the weight; and 0 or 1 to how many are inside. Weights are 1
for scores, b for the curvature, m for the spread, p for places, l for the level and i for the inside: any
positive numbers, whatever earlier answers they are chosen by.

- *Added or left out*: sums move, squared, by at most 1 + b + m + p + l + i, and a count by 1.
- *Replaced in its group*: two vectors of length at most 1 are at most 2 apart, two numbers from 0 to 1 at
  most 1, and |zz' - yy'|² = |z|⁴ + |y|⁴ - 2 (z·y)² <= 2: by at most 4 + 2 b + 2 m + 4 p + 4 l + i. Counts do
  not move if nothing may be missing: they are the public sizes of sites. Else a row may be replaced by an
  incomplete one: a single row, and 1 in a count.
- *Replaced by a row of another group*: entries by group then hold both rows apart, |u|² + |u'|² in place of
  |u - u'|², which for vectors is no more than was counted for them. Of the curvature, with z·y = p + q, p of
  own entries and q of the others, 2 - 2 (p + q)² becomes 2 - 2 (p + q)² + 2 p². As |p| + |q| <= 1, it is
  largest for p = 2/3 and q = -1/3: by 2 b / 3 more at most. What is inside is not by group. Two counts move
  by 1.

No pair of rows attains what is counted for a row of another group: in one group no count moves, which leaves
less than 0.9 of it, 1 / sqrt(1.25); in two groups own entries of scores move by at most 2, squared, where 4
is counted, and with random intercepts every score has such an entry. The audit finds 0.91 (docs/audit.md).

Integers hold every vector to its length, so that rounding adds nothing: products are those of integers.
That numbers by site become public, and what that means, is said in `site_sums`. Tested in
tests/unit/analyses/sites/test_site_scores.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.sites.site_sums import PUBLIC, stays
from cape.blocks import Design, SiteScores
from cape.core.arrays import Floats
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query
from cape.stats.matrices import symmetric

__all__ = ["Point", "ScoreSums", "moved_squared"]

_SPREAD, _INSIDE = 0.03, 0.04
_COUNT = 1 / 8  # of what moves besides, where counts are private
_SHAPE = 0.1  # by how much of their middle entries of the diagonal are expected to differ
_LEAST = 0.02  # of the curvature a row has: as of hardly any row that is not cut
_CLEAR = 1.0  # how many times the largest eigenvalue of noise a curvature must be


def moved_squared(curve: float, place: float, level: float, neighbours: Neighbours = "replace-one") -> float:
    """Return how far one row moves all sums but counts, squared: proof at the head of the module."""
    if neighbours == "add-remove":
        return 1 + curve + _SPREAD + place + level + _INSIDE
    return 4 + 2 * curve + 2 * _SPREAD + 4 * place + 4 * level + _INSIDE


@dataclass(frozen=True)
class Point:
    """Where scores are asked for, and how they are clipped: see `SiteScores`.

    Attributes:
        weights: coefficients of (1, x) of each group.
        turns: what makes z of (1, x) in each group.
        own: how many entries of z, the first ones, differ from group to group.
        sizes: how much each entry of z counts.
        residual: the SD of residuals, about.
        cut: where residuals are cut.
        longest: the longest that a score may be, over `cut`.
        square: the largest curvature.
        level: where residuals are cut for their mean.
        curve_weight, place_weight, level_weight: weights of these arrays.
        unsure: the variance of the mean of z in each group, beside the own entries, which is taken to be 0.
        own_doubt: about how well own coefficients of z are known in each group: the variance of each.
        doubt: that of the others, a covariance.
    """

    weights: Floats
    turns: Floats
    own: int
    sizes: Floats
    residual: float
    cut: float
    longest: float
    square: float
    level: float
    curve_weight: float
    place_weight: float
    level_weight: float
    unsure: Floats
    own_doubt: Floats
    doubt: Floats

    @property
    def width(self) -> int:
        return len(self.sizes)

    def block(self, design: Design, by: str) -> SiteScores:
        """Return the block that is asked for."""
        return SiteScores(
            design,
            by,
            tuple(tuple(map(float, each)) for each in self.weights),
            tuple(tuple(tuple(map(float, row)) for row in turn) for turn in self.turns),
            self.own,
            tuple(map(float, self.sizes)),
            float(self.cut),
            float(self.longest),
            float(self.square),
            float(self.level),
        )

    def query(self, design: Design, by: str, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the question for scores here."""
        block = self.block(design, by)
        curve, beside = self.curve_weight, (self.curve_weight, self.place_weight, self.level_weight)
        alone, total = moved_squared(*beside, "add-remove"), moved_squared(*beside, neighbours)
        missing = design.missing(schema) or schema[by].missing
        count = PUBLIC
        if neighbours == "add-remove":
            count = _COUNT * alone
            total += count
        elif not stays(schema, by):
            count = _COUNT * total
            total += 2 * curve / 3 + 2 * count
        elif missing:
            count = total - alone
        weights = {
            "count": count,
            "own score": 1.0,
            "score": 1.0,
            "own square": curve,
            "own cross": 2 * curve,
            "square": curve,
            "cross": 2 * curve,
            "spread square": _SPREAD,
            "spread cross": 2 * _SPREAD,
            "place": self.place_weight,
            "level": self.level_weight,
            "inside": _INSIDE,
        }
        scales = tuple(1 / math.sqrt(weights[array.name]) for array in block.arrays(schema))
        return Query((block,), (scales,), math.sqrt(total) * (1 + 1e-12))


@dataclass(frozen=True)
class ScoreSums:
    """Noisy sums of scores at a point, in units of z and of the target, with the SDs of their noise.

    Attributes:
        scores: of each group, its own entries.
        rest: the other entries, over all groups.
        own: the curvature of own entries of each group.
        curvature: that of all entries over all groups; what is by group is added up.
        spread: the sum of ss' over all groups.
        places: sums of z in each group.
        level: the mean residual, cut far out.
        inside: the share of rows whose residual was not cut, within what it can be.
        score_noise: of each entry of scores.
        curve_noise: of a diagonal entry of a curvature; off the diagonal sqrt(1/2) of it.
    """

    point: Point
    counts: Floats
    scores: Floats
    rest: Floats
    own: Floats
    curvature: Floats
    spread: Floats
    places: Floats
    level: float
    inside: float
    score_noise: Floats
    curve_noise: float
    place_noise: float
    level_noise: float

    @classmethod
    def of(cls, answer: Answer, block: SiteScores, point: Point, counts: Floats) -> ScoreSums:
        """Return what the answer to a point's query holds; counts are those that were found before."""
        names = [array.name for array in block.arrays(answer.schema)]
        sums = dict(zip(names, answer.sums[0], strict=True))
        noise = dict(zip(names, answer.noise[0], strict=True))
        own, width, groups = block.own, block.width, len(block.weights)
        bound, root = block.longest * block.cut, math.sqrt(block.square)
        by_group = np.zeros((groups, own, own))
        curvature = np.zeros((width, width))
        by_group[:, range(own), range(own)] = sums["own square"]
        for place, (i, j) in enumerate(block.own_pairs):
            by_group[:, i, j] = by_group[:, j, i] = sums["own cross"][:, place]
        curvature[:own, :own] = by_group.sum(axis=0)
        for place, entry in enumerate(range(own, width)):
            curvature[entry, entry] = sums["square"][place]
        for place, (i, j) in enumerate(block.pairs):
            curvature[i, j] = curvature[j, i] = sums["cross"][place]
        crossed = sums.get("spread cross", np.zeros(0))
        total, sizes = max(float(counts.sum()), 1.0), point.sizes
        return cls(
            point,
            counts,
            bound * sums["own score"] / sizes[:own],
            bound * sums.get("score", np.zeros(0)) / sizes[own:],
            block.square * by_group,
            block.square * curvature,
            bound**2 * symmetric(sums["spread square"], crossed) / np.outer(sizes, sizes),
            root * sums["place"],
            block.level * float(sums["level"][0]) / total,
            min(max(float(sums["inside"][0]) / total, _LEAST), 1 - _LEAST),
            bound * noise["own score"] / sizes,
            block.square * noise["own square"],
            root * noise["place"],
            block.level * noise["level"] / total,
        )

    def possible(self) -> ScoreSums:
        """Return them held to what so many rows can add up to, whatever was answered."""
        point, total = self.point, self.total
        n = np.maximum(self.counts, 2.0)[:, None]
        bound, root = point.longest * point.cut / point.sizes, math.sqrt(point.square)
        most, square = total * np.outer(bound, bound), total * point.square
        return replace(
            self,
            scores=np.clip(self.scores, -n * bound[: point.own], n * bound[: point.own]),
            rest=np.clip(self.rest, -total * bound[point.own :], total * bound[point.own :]),
            curvature=np.clip(self.curvature, -square, square),
            spread=np.clip(self.spread, -most, most),
            places=np.clip(self.places, -n * root, n * root),
        )

    @property
    def total(self) -> float:
        """The number of rows."""
        return max(float(self.counts.sum()), 1.0)

    @property
    def per_row(self) -> tuple[Floats, float]:
        """The curvature a row has on average, and the variance of its first entry.

        Rows are whitened, so that its diagonal is about the same everywhere: noise in one entry of it is
        less where it is drawn to all others.
        """
        own, many = self.point.own, len(self.counts)
        found = self.curvature / self.total
        noise = np.full(len(found), self.curve_noise**2 / self.total**2)
        noise[:own] *= many
        diagonal = np.diag(found)
        if not noise.all():
            return found, 0.0
        middle = max(float((diagonal / noise).sum() / (1 / noise).sum()), _LEAST)
        apart = max(float(((diagonal - middle) ** 2 - noise).mean()), (_SHAPE * middle) ** 2)
        kept = apart / (apart + noise)
        np.fill_diagonal(found, np.maximum(middle + kept * (diagonal - middle), _LEAST))
        return found, float(1 / (1 / noise).sum() + kept[0] * noise[0])

    def clear(self, places: Sequence[int]) -> bool:
        """Return whether the curvature of some entries stands out from its noise."""
        found = self.curvature[np.ix_(places, places)]
        noise = self.curve_noise * math.sqrt(len(self.counts) if min(places) < self.point.own else 1)
        return bool(np.linalg.eigvalsh(found)[0] > _CLEAR * 2 * math.sqrt(len(places) / 2) * noise)
