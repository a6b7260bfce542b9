"""What noisy sums of clipped scores by site show of a linear mixed model.

At coefficients w of a site, residuals are (b + u - w)'v + e with v = (1, x), and scores over the site's rows
have the mean J d for d = T^-T (b + u - w), the change in units of z = Tv, up to second order in what is left
of it; J is their curvature, without the rows that are cut. Of a distribution of e that is the same in all
rows, cutting moves the intercept and nothing else, because weights of rows depend on x alone. So

- each site's own scores show its own coefficients, t = J_ZZ^-1 s_Z, with d_Z + J_ZZ^-1 J_ZR d_R as mean: the
  random effects and, up to a shift of the intercept, the fixed ones;
- scores over all sites show the common effects, J_RR d_R plus what own entries add;
- the mean of all residuals, cut far out, shows what the shift is, once for all sites.

Scores of several points show the same effects, with independent noise and about the same error from rows:
they are combined so that noise is least (`_combined`).

The sampling covariance is that of the spread: it assumes no distribution. Noise in the curvature is
multiplied by the change, and counted so, as is that the mean of a site's features is not quite known. A site
has the curvature of all sites in proportion to its rows, unless it clearly has another. The residual variance
is that of the moments. Tested in tests/unit/analyses/sites/test_mixed.py; measured by `glm.mixed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cape.analyses.sites.mixed_likelihood import MixedFit, maximised
from cape.analyses.sites.mixed_observed import Observed, squares_noise
from cape.analyses.sites.site_scores import ScoreSums
from cape.analyses.sites.site_sums import SiteSums
from cape.core.arrays import Floats
from cape.stats.matrices import nearest_positive
from cape.stats.moments import enough

__all__ = ["fit_scores"]

_LEAST = 1e-3  # of the largest eigenvalue of a spread
_BEND = 0.2
_CLEARED = 0.25  # of the square of a change: what is left of it at least without its errors
_NEARER, _NOTHING = 0.7, 1e6  # of where a mean is cut; how many times the noise of what says nothing
_FURTHEST = 4.0  # how many times a variance of residuals may be smaller than scores were cut for


def fit_scores(sums: SiteSums, scores: Sequence[ScoreSums], random: Sequence[int]) -> MixedFit | None:
    """Return the model that scores show, of one point after the other; None if noise hides it."""
    told = scores[-1]
    used = tuple(enough(float(n), sums.count_noise) and float(n) > len(random) + 1 for n in told.counts)
    own, width = told.point.own, told.point.width
    if sum(used) < 2 or (width > own and not told.clear(range(own, width))):
        return None
    residual, freedom = told.point.residual**2, max(told.total - width, 1.0)
    found: MixedFit | None = None
    for _ in range(2):
        seen = _observed(sums, told, random, used, residual, freedom)
        for before in scores[-2::-1]:
            if seen is not None and before.clear(range(width)):
                shown = _observed(sums, before, random, used, residual, freedom)
                near = before.point.level < _NEARER * told.point.level
                seen = _combined(seen, told, shown, near)
        found = None if seen is None else maximised(seen, found)
        if found is None:
            return None
        residual, freedom = _left(sums, told, random, found)
    if found is None or not all(found.tau2(place, 1.0).known for place in range(len(random))):
        return None
    return replace(found, used=used)


def _observed(
    sums: SiteSums,
    told: ScoreSums,
    random: Sequence[int],
    used: Sequence[bool],
    residual: float,
    freedom: float,
) -> Observed | None:
    point, own, size = told.point, told.point.own, told.point.width
    n, total = np.maximum(told.counts, 2.0), told.total
    rest, many = size - own, own * sum(used)
    of_curve, first_noise = told.per_row
    of_spread = _positive(told.spread / total)
    values, design = np.zeros(many + rest + 1), np.zeros((many + rest + 1, size + 1))
    sampling, noise = (np.zeros((len(values), len(values))) for _ in range(2))
    within, cross = total * of_curve[own:, own:], told.rest.copy()
    among, below = range(many, many + rest), len(values) - 1
    of_scores = np.diag(told.score_noise**2)
    noise[np.ix_(among, among)] = of_scores[own:, own:]
    to = np.linalg.inv(point.turns).transpose(0, 2, 1)  # from coefficients of (1, x) to those of z
    common = to[0, own:]
    loads: list[Floats] = []
    moves: list[tuple[int, Floats]] = []
    start, places = 0, list(random)
    apart = told.own - n[:, None, None] * of_curve[:own, :own]
    of_one = told.curve_noise**2 / n**2
    differing = max(float((apart**2 / n[:, None, None] ** 2).mean() - of_one.mean()), 0.0)
    for group in range(len(n)):
        load = np.zeros((len(values), own))
        centre = sums.groups[group, 0, :size] / n[group]
        if 0 in random:
            centre = np.linalg.solve(point.turns[group], np.eye(size)[0])
        share, spread = float(n[group]) / total, float(n[group]) * of_spread
        load[below] = share * centre[places]
        design[below, :-1] += share * centre
        values[below] += share * float(centre @ point.weights[group])
        loads.append(load)
        if not used[group]:
            sampling[np.ix_(among, among)] += spread[own:, own:]
            continue
        kept = differing / (differing + of_one[group]) if of_one[group] else 1.0
        curve = float(n[group]) * of_curve[:own, :own] + kept * apart[group]
        if np.linalg.eigvalsh(curve)[0] <= 0:
            curve = float(n[group]) * of_curve[:own, :own]
        unsure = float(n[group]) ** 2 * (kept * of_one[group] + (1 - kept) ** 2 * first_noise)
        inverse = np.linalg.inv(curve)
        crossed = float(n[group]) * of_curve[:own, own:]
        pulled, t = inverse @ crossed, inverse @ told.scores[group]
        moves.append((group, t))
        here = range(start, start + own)
        mine = np.linalg.inv(to[group, :own][:, places])
        whole = to[group, :own] + pulled @ common
        values[here] = mine @ (t + whole @ point.weights[group])
        design[here, :-1] = mine @ whole
        design[np.ix_(here, places)] = np.eye(own)
        load[here] = np.eye(own)
        pull, back = np.hstack([-pulled.T, np.eye(rest)]), mine @ inverse
        moved = unsure / 2 * (float(t @ t) * np.eye(own) + np.outer(t, t))
        moved = moved + _bent(t, point.residual) * np.outer(told.scores[group], told.scores[group])
        sampling[np.ix_(here, here)] = back @ spread[:own, :own] @ back.T
        noise[np.ix_(here, here)] = back @ (of_scores[:own, :own] + moved) @ back.T
        if rest:
            for matrix, between in (
                (sampling, back @ spread[:own] @ pull.T),
                (noise, -back @ of_scores[:own, :own] @ pulled),
            ):
                matrix[np.ix_(here, among)] = between
                matrix[np.ix_(among, here)] = between.T
            off = float(n[group]) ** 2 * float(of_curve[0, 0] ** 2 * point.unsure[group])
            off *= _square(t, inverse @ (spread[:own, :own] + of_scores[:own, :own]) @ inverse)
            noise[np.ix_(among, among)] += pulled.T @ of_scores[:own, :own] @ pulled + off * np.eye(rest)
            sampling[np.ix_(among, among)] += pull @ spread @ pull.T
            within -= crossed.T @ pulled
            cross -= crossed.T @ t
        start += own
    if rest:
        change = np.asarray(np.linalg.solve(within, cross), np.float64)
        usual = sum((n[group] / total * t for group, t in moves), np.zeros(own))
        noise[np.ix_(among, among)] += told.curve_noise**2 / 2 * float(usual @ usual) * np.eye(rest)
        values[among] = cross + within @ common @ point.weights[0]
        design[among, :-1] = within @ common
        design[np.ix_(among, places)] = 0.0  # as turns are triangular, up to rounding
        noise[np.ix_(among, among)] += _bent(change, point.residual) * np.outer(cross, cross)
        back = np.linalg.inv(within)
        errors = back @ (sampling + noise)[np.ix_(among, among)] @ back
        part = _square(change, errors) / max(float(change @ change), 1e-300)
        curved = float(change @ change) * np.eye(rest) + np.outer(change, change)
        noise[np.ix_(among, among)] += told.curve_noise**2 / 2 * part * curved
    values[below] += told.level
    design[below, -1] = 1.0
    sampling[below, below], noise[below, below] = residual / total, told.level_noise**2
    if np.linalg.matrix_rank(design) <= size:
        return None
    return Observed(
        values,
        design,
        tuple(loads),
        sampling / residual,
        noise,
        residual,
        freedom,
        max(total - many - rest, 1.0),
        tuple(range(own)) * sum(used),
        level=True,
    )


def _combined(seen: Observed, told: ScoreSums, before: Observed | None, near: bool) -> Observed:
    """Return what scores show together with those of another point, whose noise is independent.

    Both have about the same error from sampling rows, because the rows are the same: weights are those by
    which noise is least. What was seen before is told in the terms of what was seen now: there, sites' own
    values are where features are centred now, and common ones in the present units. The mean of residuals
    that were cut nearer to it says nothing.
    """
    if before is None:
        return seen
    own, last = len(seen.places), len(seen.values) - 1
    among, size = slice(own, last), told.point.width
    at = told.counts @ told.point.weights / max(float(told.counts.sum()), 1.0)
    turn = np.eye(len(seen.values))
    if last > own:
        columns = [place for place in range(size) if np.abs(seen.design[among, place]).max() > 0]
        turn[among, among] = seen.design[among, columns] @ np.linalg.inv(before.design[among, columns])
    values = turn @ before.values + (seen.design - turn @ before.design)[:, :-1] @ at
    noise = turn @ before.noise @ turn.T
    noise[last, last] += _NOTHING * float(seen.noise[last, last]) if near else 0.0
    pull = np.linalg.solve(noise + seen.noise, seen.noise).T
    left = seen.noise - pull @ seen.noise
    return replace(
        seen,
        values=seen.values + pull @ (values - seen.values),
        noise=np.asarray((left + left.T) / 2),
    )


def _bent(change: Floats, residual: float) -> float:
    """Return which part of a change, squared, may be off because scores are not linear in it.

    Of normal residuals that are cut near their SD, a step is too large by about a fifth of the square of
    what it changes them by, in SDs.
    """
    return (_BEND * float(change @ change) / residual**2) ** 2


def _square(change: Floats, errors: Floats) -> float:
    """Return the square of a change that is known with these errors, which make it look larger."""
    found = float(change @ change)
    return max(found - float(np.trace(errors)), _CLEARED * found)


def _positive(spread: Floats) -> Floats:
    """Return a spread that noise made indefinite as one that is not."""
    found = nearest_positive(spread)
    return np.asarray(found + _LEAST * float(np.linalg.norm(found, 2)) * np.eye(len(found)))


def _left(sums: SiteSums, told: ScoreSums, random: Sequence[int], found: MixedFit) -> tuple[float, float]:
    """Return the residual variance that moments have at these effects, and its degrees of freedom."""
    size, z = told.point.width, list(random)
    r = [place for place in range(size) if place not in z]
    b = found.values[:size].copy()
    b[0] += found.values[-1]
    squares = float(sums.whole[-1, -1]) - 2 * float(b[r] @ sums.whole[r, -1])
    squares += float(b[r] @ sums.whole[np.ix_(r, r)] @ b[r])
    for group, own in zip(sums.groups, found.predicted, strict=True):
        at = b[z] + own
        squares += float(at @ group[np.ix_(z, z)] @ at) + 2 * float(at @ group[np.ix_(z, r)] @ b[r])
        squares -= 2 * float(at @ group[z, -1])
    freedom = max(told.total - len(sums.groups) * len(z) - len(r), 1.0)
    second = b**2
    second[z] += np.diag(found.between)
    unsure = squares_noise(sums, second)
    variance = max(squares, 0.5 * unsure, told.total * told.point.residual**2 / _FURTHEST) / freedom
    return variance, 2 / (2 / freedom + (unsure / (variance * freedom)) ** 2)
