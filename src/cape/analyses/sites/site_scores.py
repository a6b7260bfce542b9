"""Clipped scores by site: how far one person moves them, and what comes back.

Claim. One person moves the sums of `site_score_query`, each divided by its scale, by at most its sensitivity.
Reason. Write the score of a row at site k into a vector with `own` entries for each site and those that all
sites have in common: its own entries at the place of its site, 0 at all others. Then `blocks.SiteScores` has
the sums of a regression of so many entries (`regression.score_query`), without products that are 0 in all
rows. The proof there holds word for word: it asks only that the score, and what makes the curvature, are
parallel and at most 1 long, and that products above the diagonal have twice the weight. It also covers a row
that is replaced by one of another site: own entries of the two are then orthogonal.

What differs are the counts, one for each site. Where rows stay at their site (`stays`) and nothing may be
missing they are public, and cost nothing. Where a row may be replaced by an incomplete one, the sums move by
what one row adds, and a count by 1, which has the weight that this leaves. Where a row may be replaced by one
of another site two counts move by 1: by twice their weight more. Under add-remove one count moves.

Squares of residuals, numbers from 0 to 1, have a weight of `SQUARES` and move by 1 at most: by that much
more, squared.

That numbers by site become public, and what that means, is said in `site_sums`. Tested in
tests/unit/analyses/sites/test_site_scores.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.score_query import Parts
from cape.analyses.sites.site_sums import PUBLIC, stays
from cape.blocks import SiteScores
from cape.blocks.block import T_BITS
from cape.core.arrays import Floats
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query
from cape.stats.matrices import symmetric
from cape.stats.score_norms import Lengths

__all__ = ["SQUARES", "SiteScoreSums", "site_score_query"]

_COUNT = 1 / 8  # of what moves besides, where counts are private
SQUARES = 0.1  # the weight of squares of residuals
_FLOAT = 1 + 1e-12


def site_score_query(block: SiteScores, parts: Parts, schema: Schema, neighbours: Neighbours) -> Query:
    """Return the question for scores by site: proof at the head of the module."""
    alone, both = parts.alone, parts.both
    if not block.lengths:
        alone, both = alone - parts.lengths, both - 2 * parts.lengths
    if block.square:
        alone, both = alone + SQUARES, both + SQUARES
    count = PUBLIC
    if neighbours == "add-remove":
        count = _COUNT * alone
        moved = math.sqrt(alone + count)
    else:
        total = both
        if not stays(schema, block.by):
            count = _COUNT * both
            total += 2 * count
        elif block.design.missing(schema) or schema[block.by].missing:
            count = both - alone
        entries = math.sqrt(block.width) * (1 + 2 * math.sqrt(parts.curvature) + 2 * math.sqrt(parts.spread))
        moved = math.sqrt(total) + math.ldexp(entries, 3 - T_BITS)
    weights = {"count": count, "own score": 1.0, "score": 1.0, "lengths": parts.lengths, "squares": SQUARES}
    for what, weight in (("curvature", parts.curvature), ("spread", parts.spread)):
        for whose in ("own ", ""):
            weights[f"{whose}{what} square"] = weight
            weights[f"{whose}{what} cross"] = 2 * weight
    scales = tuple(1 / math.sqrt(weights[array.name]) for array in block.arrays(schema))
    return Query((block,), (scales,), moved * _FLOAT)


@dataclass(frozen=True)
class SiteScoreSums:
    """Noisy sums of scores, of their curvature and of their spread, in units of u and of the target.

    Attributes:
        counts: the number of rows of each site.
        own: the own entries of scores of each site; rest: the others, over all sites.
        own_curvature: what the curvature of own entries is at each site, (sites, own, own); crossed: that
            between own entries and the others, (sites, own, rest); curvature: of the others, over all sites.
        own_spread, crossed_spread, spread: the same of the spread.
        count_noise, score_noise: the noise of these numbers.
        curvature_noise, spread_noise: that above the diagonal; sqrt 2 times that on it.
        lengths: how many scores are how long, if that was asked.
        squares, squares_noise: the sum of squares of residuals, cut, if that was asked.
    """

    counts: Floats
    own: Floats
    rest: Floats
    own_curvature: Floats
    crossed: Floats
    curvature: Floats
    own_spread: Floats
    crossed_spread: Floats
    spread: Floats
    count_noise: float
    score_noise: float
    curvature_noise: float
    spread_noise: float
    lengths: Lengths | None
    squares: float = math.nan
    squares_noise: float = 0.0

    @classmethod
    def of(cls, answer: Answer, block: SiteScores) -> SiteScoreSums:
        """Return what the answer to `site_score_query` holds, within what so many rows can add up to."""
        names = [array.name for array in block.arrays(answer.schema)]
        sums = dict(zip(names, answer.sums[0], strict=True))
        noise = dict(zip(names, answer.noise[0], strict=True))
        own, width, groups = block.own, block.width, len(block.weights)
        counts = np.maximum(np.asarray(sums["count"], np.float64)[:, 0], 0.0)
        if answer.rows is not None and counts.sum() > answer.rows:
            counts = counts * (answer.rows / float(counts.sum()))
        total = max(float(counts.sum()), 1.0)

        def held(array: Floats, unit: float, *, by_site: bool) -> Floats:
            # rows add at most 1 each, whatever was answered
            most = np.maximum(counts, 1.0).reshape(-1, *[1] * (array.ndim - 1)) if by_site else total
            return np.asarray(unit * np.clip(array, -most, most))

        def matrices(what: str, unit: float) -> tuple[Floats, Floats, Floats]:
            full = np.zeros((groups, own, width))
            full[:, range(own), range(own)] = sums[f"own {what} square"]
            for place, (i, j) in enumerate(block.own_pairs):
                full[:, i, j] = sums[f"own {what} cross"][:, place]
                if j < own:
                    full[:, j, i] = full[:, i, j]
            empty = np.zeros(0)
            rest = symmetric(sums.get(f"{what} square", empty), sums.get(f"{what} cross", empty))
            full = held(full, unit, by_site=True)
            return full[:, :, :own], full[:, :, own:], held(rest, unit, by_site=False)

        lengths = None
        if block.lengths:
            edges, found = np.array(block.lengths), np.asarray(sums["lengths"], np.float64)
            lengths = Lengths.possible(edges, found, noise["lengths"], total, block.longest(answer.schema))
        return cls(
            counts,
            held(np.asarray(sums["own score"]), block.bound, by_site=True),
            held(np.asarray(sums.get("score", np.zeros(0))), block.bound, by_site=False),
            *matrices("curvature", block.curve),
            *matrices("spread", block.bound**2),
            noise["count"],
            block.bound * noise["own score"],
            block.curve * noise["own curvature square"] / math.sqrt(2),
            block.bound**2 * noise["own spread square"] / math.sqrt(2),
            lengths,
            *(
                (block.square * float(sums["squares"][0]), block.square * noise["squares"])
                if block.square
                else ()
            ),
        )

    @property
    def total(self) -> float:
        """The number of rows."""
        return max(float(self.counts.sum()), 1.0)
