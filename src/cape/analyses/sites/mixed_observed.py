"""What the last scores by site show of a linear mixed model.

The model: y = x'b + z'u + e at each site, with u ~ N(0, D) of the site and e ~ N(0, s²) of the row. With a =
b_Z + u the own coefficients of a site, and b_R those that all sites have in common, all that the likelihood
needs is

- the least squares of the rows by a of each site and b_R: they are N((b_Z, b_R), D and s² J^-1), J being the
  sums of products of features of these coefficients;
- what is left of the squares of y, s² times a chi-square.

Without noise that is lossless: the restricted likelihood is that of the rows (as in Luo and others 2022,
DLMM). Scores of rows are linear in a and b_R, so one step from any point is that least squares.

*Two covariances.* The likelihood weights by s² J^-1, as the model has it: estimates are those of the model.
Intervals count what these estimates vary by where it is wrong: the spread of scores between J^-1 on both
sides, within sites (the sandwich). Each site has the spread of all sites in proportion to its rows, times
what its own has apart from that as far as it is more than noise.

*Other errors* are in both, as more independent errors: the noise of scores; that of the curvature times the
step; what lies beyond the bound on scores, spread over directions as scores are; and where noise hides the
curvature of common features, all that is possible of their coefficients. The residual variance is that of
the squares of residuals, cut far out, and half of what that may have taken; its interval counts the other
half, and a kurtosis of residuals like that of the lengths of scores, which is no smaller unless long rows
have small residuals.

A site whose rows do not vary in a random effect shows its intercept alone, or nothing; what that leaves is
part of what all sites show of b_R.
Tested in tests/unit/analyses/sites/test_mixed.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.analyses.sites.mixed_steps import Step
from cape.core.arrays import Floats
from cape.stats.matrices import nearest_positive, symmetric_root

__all__ = ["Observed", "inverted", "observed"]

_FLOOR = 1e-10  # of a row: what rounding leaves
_HIDDEN = 0.2  # of what is usual: the least that squares and spreads are taken to be where noise hides them
_HARDLY = 1e-6  # of noise: so much of it is hardly any
_LEAST = 1e-3  # of the curvature times these squares: the spread that there is at least


@dataclass(frozen=True)
class Observed:
    """What sites show, one after the other, and then all of them together.

    Attributes:
        values: the sites' own coefficients, and those that they have in common.
        design: their mean is this times the fixed effects.
        loads: for each site, by how much its random effects move them.
        of_residual: their covariance over s², besides, if the model is right.
        sampling: their covariance from having drawn rows, whatever is right.
        noise: their covariance from noise, and from what was limited for it.
        squares: what is left of the squares of y, per degree of freedom.
        freedom: the degrees of freedom of that, noise counted.
        rows: these without noise.
        drawn, blurred: the relative errors of `squares` from rows and from noise.
        places: for each value of a site, which random effect it shows.
        varying: the places of random effects among the fixed ones.
        clipped: the part of `noise` that is from what was limited.
        beyond: how many rows had scores that were shortened, about.
    """

    values: Floats
    design: Floats
    loads: tuple[Floats, ...]
    of_residual: Floats
    sampling: Floats
    noise: Floats
    squares: float
    freedom: float
    rows: float
    drawn: float
    blurred: float
    places: tuple[int, ...]
    varying: tuple[int, ...]
    clipped: Floats
    beyond: float = 0.0

    @property
    def random(self) -> int:
        """The number of random effects."""
        return int(self.loads[0].shape[1])

    def covariance(self, residual: float, between: Floats) -> Floats:
        """Return the covariance of the values if the model is right."""
        found = residual * self.of_residual + self.noise
        for load in self.loads:
            found = found + load @ between @ load.T
        return np.asarray(found)

    def pulls(self, residual: float, effects: Floats) -> Floats:
        """Return what makes fixed effects of the values, for what random effects add to their covariance: one
        matrix, or one for each of a stack.

        Coefficients that sites have in common are weighted as without noise, the others, given these, with
        it.
        """
        modelled = residual * self.of_residual + effects + _HARDLY * self.noise
        common = [place for place in range(self.design.shape[1]) if place not in self.varying]
        found = _weighed(modelled, self.design)
        if self.noise.any():
            own, rest = self.design[:, list(self.varying)], self.design[:, common]
            left = np.eye(len(self.values)) - rest @ found[..., common, :]
            found = found.copy()
            found[..., list(self.varying), :] = _weighed(modelled + self.noise, own) @ left
        return found

    def actual(self, between: Floats) -> Floats:
        """Return the covariance of the values, whatever residuals are like."""
        found = self.sampling + self.noise
        for load in self.loads:
            found = found + load @ between @ load.T
        return np.asarray(found)

    def between(self, i: int, j: int) -> Floats:
        """Return the derivative of the covariance by D_ij."""
        unit = np.zeros((self.random, self.random))
        unit[i, j] = unit[j, i] = 1.0
        return np.asarray(sum(load @ unit @ load.T for load in self.loads))


def inverted(matrix: Floats) -> Floats:
    """Return the inverse, or the inverses of a stack."""
    return np.asarray(np.linalg.inv(matrix), np.float64)


def _weighed(spread: Floats, design: Floats) -> Floats:
    """Return what makes least squares of values with these covariances."""
    weighted = np.linalg.solve(spread, np.broadcast_to(design, (*spread.shape[:-2], *design.shape)))
    turned = np.swapaxes(weighted, -1, -2)
    return np.asarray(np.linalg.solve(turned @ design, turned))


def observed(step: Step, possible: Floats, reference: Floats, kurtosis: float) -> Observed | None:
    """Return what the last step shows; no weight of (1, x) is taken to be larger than what is possible.

    None where sites do not show the fixed effects. `reference` makes coefficients, and an intercept where
    random effects are measured, of weights of own entries; `kurtosis` is that of lengths of scores.
    """
    point, sums = step.point, step.sums
    own, width = point.own, point.width
    rest, sites = width - own, len(sums.counts)
    back = point.turns  # of weights: T'u
    size = sites * own + rest
    total, doubt = _squares(step)
    least = _HIDDEN * step.sums.total * point.residual**2 if step.private else _FLOOR * step.sums.total
    curvature, spread = _stacked(step, size, max(total, least) / step.sums.total)
    common = np.zeros((rest, size))  # of the step of what sites have in common
    turned = back[0, own:, own:].T
    at = np.linalg.solve(turned, np.eye(rest))  # from weights of the others to units of u
    shown_rest, hidden = turned, np.zeros((rest, rest))
    if step.step is not None:
        for k in range(sites):
            common[:, k * own : (k + 1) * own] = -step.crossed[k].T @ step.inverses[k]
        common[:, sites * own :] = np.eye(rest)
        common = step.step.inverse @ common
        hidden = step.step.pull @ at
        if not step.private and step.step.flat.size:
            shown_rest = np.linalg.svd(step.step.flat)[0][:, step.step.flat.shape[1] :].T
    # how values follow from scores
    rows: list[Floats] = []
    values: list[float] = []
    design: list[Floats] = []
    effects: list[tuple[int, Floats]] = []  # by site, of random effects
    places: list[int] = []
    unseen: list[Floats] = []  # what is off by as much as hidden coefficients are
    for k in range(sites):
        shown = np.diag(step.inverses[k]) > 0
        if not shown.any():
            continue
        mine = step.inverses[k] @ (np.eye(size)[k * own : (k + 1) * own] - step.crossed[k] @ common)
        first = back[k, :own, :own]  # own coefficients in units of u to those of (1, x)
        level = point.weights[k, :own] + back[k, own:, :own].T @ step.rest
        further = back[k, own:, :own].T @ common
        if shown.all():
            rows += list(reference @ (first.T @ mine + further))
            values += list(reference @ (level + first.T @ step.own[k]))
            pattern = np.eye(own)
            by_rest = reference @ (back[k, own:, :own].T - first.T @ step.inverses[k] @ step.crossed[k])
        else:  # the intercept alone
            curved = step.own_curvature[k]
            pattern = (np.linalg.solve(first.T, np.eye(own)).T @ (curved[0] / curved[0, 0]))[None, :]
            rows += list(mine[:1] + pattern @ further)
            values += list(pattern @ level + step.own[k][:1])
            by_rest = pattern @ back[k, own:, :own].T - (step.inverses[k] @ step.crossed[k])[:1]
            pattern = pattern @ np.linalg.inv(reference)
        for row, off in zip(pattern, by_rest @ hidden, strict=True):
            mean = np.zeros(width)
            mean[:own] = row
            unseen.append(off)
            if not step.private:  # coefficients that no site shows by itself
                mean[own:] -= off
                values[len(design)] -= float(off @ point.weights[0, own:])
            design.append(mean)
            effects.append((k, row))
        places += list(range(len(pattern)))
    many = len(rows)
    rows += list(shown_rest @ common)
    of_rest = shown_rest @ (step.rest + at @ point.weights[0, own:])
    below = np.hstack([np.zeros((len(of_rest), own)), shown_rest @ at])
    loads = []
    for k in range(sites):
        load = np.zeros((many + len(of_rest), own))
        for place, (site, row) in enumerate(effects):
            if site == k:
                load[place] = row
        if rest:
            # what a site does not show of its own effects is part of what all show
            missed = step.crossed[k].T - step.crossed[k].T @ step.inverses[k] @ step.own_curvature[k]
            if np.abs(missed).max(initial=0.0) > _FLOOR * max(float(sums.counts[k]), 1.0):
                missed = shown_rest @ step.step.inverse @ missed @ np.linalg.inv(back[k, :own, :own]).T  # type: ignore[union-attr]
                of_rest = of_rest + missed @ point.weights[k, :own]
                missed = missed @ np.linalg.inv(reference)
                load[many:] = missed
                below[:, :own] += missed
        loads.append(load)
    h = np.vstack([*(each[None, :] for each in design), below]) if design else below
    h = h[:, np.argsort(point.places)]
    if many == 0 or np.linalg.matrix_rank(h) < width:
        return None
    found = np.concatenate([np.array(values), of_rest])
    to = np.array(rows).reshape(len(found), size)

    def seen(matrix: Floats) -> Floats:
        turned = to @ matrix @ to.T
        return np.asarray((turned + turned.T) / 2)

    beyond = point.beyond
    shape = spread / max(float(np.trace(spread)), 1e-300)
    clipped = seen((beyond.excess**2 if beyond else 0.0) * shape)
    limit = np.array(possible)[np.array(point.places[own:], dtype=int)]
    noise = seen(np.diag(_noise(step))) + clipped
    if rest and step.private:
        off = np.vstack([*unseen, turned @ hidden])
        noise += (off * limit**2) @ off.T
        error = np.sqrt(np.maximum(np.diag(noise)[many:], 1e-300))
        most = np.concatenate([np.ones(many), np.minimum(1.0, 2 * limit / error)])
        noise, clipped = (most[:, None] * each * most for each in (noise, clipped))
        off = most[many:] < 1
        found[many:] = np.where(off, np.clip(found[many:], -limit, limit), found[many:])
    freedom = max(float(sums.counts.sum()) - len(found), 1.0)
    # at the least squares, from where the point is away
    explained, unsure = _explained(step, curvature)
    total, doubt = max(total - explained, least), math.hypot(doubt, unsure)
    blurred = doubt / total
    return Observed(
        found,
        h,
        tuple(loads),
        seen(curvature),
        seen(spread + (beyond.spread if beyond else 0.0) * shape),
        noise,
        total / freedom,
        2 / (2 / freedom + blurred**2),
        freedom,
        math.sqrt(max(kurtosis - 1, 0.5) / freedom),
        blurred,
        tuple(places),
        point.places[:own],
        clipped,
        beyond.rows if beyond else 0.0,
    )


def _stacked(step: Step, size: int, squares: float) -> tuple[Floats, Floats]:
    """Return the curvature and the spread of scores of all sites: own entries of each, and common ones.

    The spread is what the model has, `squares` per row times the curvature, and what it has besides as far as
    that is more than noise.
    """
    sums, own = step.sums, step.point.own
    sites = len(sums.counts)
    last, total = slice(sites * own, size), sums.total
    curvature, spread = np.zeros((size, size)), np.zeros((size, size))
    curvature[last, last] = sums.curvature
    if step.step is not None and step.private:
        explained = np.swapaxes(step.crossed, 1, 2) @ step.inverses @ step.crossed
        curvature[last, last] = step.step.likely + explained.sum(axis=0)
    spread[last, last] = sums.spread
    for k in range(sites):
        mine = slice(k * own, (k + 1) * own)
        curvature[mine, mine], curvature[mine, last] = step.own_curvature[k], step.crossed[k]
        spread[mine, mine], spread[mine, last] = sums.own_spread[k], sums.crossed_spread[k]
        curvature[last, mine], spread[last, mine] = curvature[mine, last].T, spread[mine, last].T
    if not step.private:
        return curvature, spread
    one, noise = step.point.size, sums.spread_noise
    rest = squares * curvature[last, last]
    rest = _seen(sums.spread, rest, noise)
    crossed = _part(sums.crossed_spread.sum(axis=0), math.sqrt(sites) * noise / one)
    usual = squares * step.own_curvature.sum(axis=0)
    whole = _seen(sums.own_spread.sum(axis=0), usual, math.sqrt(sites) * noise / one**2)
    # sites by themselves have what all have, times a number
    n = np.maximum(sums.counts, 1.0)
    parts = n / total * float(np.trace(whole))
    of_noise = 2 * own * (noise / one**2) ** 2 / parts**2
    apart = np.trace(sums.own_spread, axis1=1, axis2=2) / parts - 1
    between = max(float(np.average(apart**2 - of_noise, weights=1 / (1 + of_noise))), 0.0)
    times = np.clip(1 + between / np.maximum(between + of_noise, 1e-300) * apart, 0.1, 10.0)
    spread[last, last] = rest
    for k in range(sites):
        mine, part = slice(k * own, (k + 1) * own), sums.counts[k] / total
        spread[mine, mine] = part * times[k] * whole
        spread[mine, last] = part * math.sqrt(times[k]) * crossed
        spread[last, mine] = spread[mine, last].T
    return curvature, nearest_positive(spread + _LEAST * squares * curvature)


def _part(matrix: Floats, noise: float) -> Floats:
    """Return a matrix as far as it is more than noise."""
    square = float((matrix**2).sum())
    return matrix * max(0.0, 1 - matrix.size * noise**2 / max(square, 1e-300))


def _seen(matrix: Floats, usual: Floats, noise: float) -> Floats:
    """Return a spread as far as it differs from the usual one by more than noise, and no less than a part of
    that."""
    if not len(usual):
        return usual
    root = symmetric_root(usual)
    back = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(back @ (usual + _part(matrix - usual, noise)) @ back)
    return np.asarray(root @ (vectors * np.maximum(values, _HIDDEN)) @ vectors.T @ root)


def _noise(step: Step) -> Floats:
    """Return the variance of the noise in each score, with that of the curvature times the step."""
    noise, size = step.sums.score_noise**2, step.point.size
    own, rest = step.own**2, step.rest**2
    mine = noise / size**2 + (step.own_doubt * own[:, None, :]).sum(axis=2) + step.crossed_doubt @ rest
    left = 0.0 if step.step is None else step.step.curvature_left**2
    others = noise + (step.crossed_doubt * own[:, :, None]).sum(axis=(0, 1)) + left * float(rest.sum())
    return np.concatenate([mine.ravel(), others])


def _explained(step: Step, curvature: Floats) -> tuple[float, float]:
    """Return by how much squares of residuals are less at the least squares than at the point, and the noise
    in that."""
    change = np.concatenate([step.own.ravel(), step.rest])
    found = float(change @ curvature @ change)
    if not step.private:
        return found, 0.0
    noise = _noise(step)
    inverse = np.diag(np.linalg.pinv(curvature))
    mean = float(noise @ inverse)
    unsure = 4 * float(change**2 @ noise) + 2 * float(((noise * inverse) ** 2).sum())
    return max(found - mean, 0.0), math.sqrt(unsure)


def _squares(step: Step) -> tuple[float, float]:
    """Return the sum of squares of residuals, and the noise in it."""
    sums, point, own = step.sums, step.point, step.point.own
    if step.private and point.square:
        return sums.squares + point.lost / 2, math.hypot(sums.squares_noise, point.lost / 2)
    by_site = point.centred
    constant = float(point.turns[0, 0, 0] if by_site else point.turns[0, own, own]) ** 2
    found = float(sums.own_spread[:, 0, 0].sum() if by_site else sums.spread[0, 0])
    noise = math.sqrt(2) * sums.spread_noise
    if by_site:
        noise *= math.sqrt(len(sums.counts)) / point.size**2
    return found / constant, noise / constant
