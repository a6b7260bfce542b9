"""What a mixed model makes of scores, and where it asks next.

The equations are those of a regression whose random effects are coefficients of each site: linear ones, so
that a step from any point ends where scores add up to 0. Steps before the last make residuals and scores
short, by which noise is measured, and say how long scores should be (`cape.stats.score_norms`). They count
for nothing else: the last stage alone is what is estimated (`mixed_observed`). `mixed_points` says where
scores are asked for.

*Noise.* What a site's curvature has apart from that of all (`mixed_curvatures`), and what its coefficients
have, is kept as far as it is more than noise. Constants were chosen on half of the settings of
`python -m benchmarks truth.mixed`, which says which; no sensitivity depends on them. Tested in
tests/unit/analyses/sites/test_mixed_steps.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.sites.mixed_curvatures import Curvatures, curvatures_by_site, surely_between
from cape.analyses.sites.mixed_points import Point, whitening
from cape.analyses.sites.site_scores import SiteScoreSums
from cape.core.arrays import Floats
from cape.stats.matrices import nearest_positive, shrunk
from cape.stats.moments import enough
from cape.stats.score_steps import Point as Whitened
from cape.stats.score_steps import ScoreStep

__all__ = ["Step", "next_point"]

_STEEPEST = 20.0  # times the mean: eigenvalues that noise may hide
_NOTHING = 1e-10  # of a row: what rounding leaves


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
        own_curvature, crossed, own_doubt, crossed_doubt = curvatures_by_site(point, sums, seen)
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
        likely = np.maximum(doubt, surely_between(away[used], errors[used]))
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


def _turned(point: Point, step: Step) -> Point:
    """Return the point with features centred at each site and whitened anew."""
    own, turns, total = point.own, point.turns.copy(), step.sums.total
    mean = step.own_curvature.sum(axis=0) / total
    if point.centred and step.step is not None:
        pull = np.swapaxes(step.crossed, 1, 2) @ step.inverses
        turns[:, own:] -= pull @ turns[:, :own]
    most = _STEEPEST if step.private else 1e12
    if own > 1:
        turns[:, :own] = whitening(mean, most) @ turns[:, :own]
    if step.step is not None:
        likely = step.step.likely if point.centred else nearest_positive(step.sums.curvature)
        if not point.centred and step.private:
            likely, _ = shrunk(likely, step.sums.curvature_noise)
        turns[:, own:] = whitening(likely / total, most) @ turns[:, own:]
    return replace(point, turns=turns)
