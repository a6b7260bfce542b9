"""What noisy sums of second moments by site show of a linear mixed model.

The model: y = x'b + z'u + e at each site, with u ~ N(0, D) of the site and e ~ N(0, s²) of the row. With G
the sums of (1, x)(1, x)' of a site and g those of (1, x) y, and Z the places of random effects and R the
others, all that the likelihood needs is

- for each site its own coefficients t = G_ZZ^-1 g_Z, which are N(b_Z + B b_R, D + s² G_ZZ^-1), where
  B = G_ZZ^-1 G_ZR: no sum over products of two entries of R is needed by site;
- within sites, over all of them, t0 = X'y with X the entries of R less what Z explains of them at each
  site: N(X'X b_R, s² X'X);
- what is left of the squares of y, s² times a chi-square.

Without noise that is lossless: the restricted likelihood is that of the rows (as in Luo and others 2022,
DLMM). Noise E of G and e of g moves t by G_ZZ^-1 (e - E b)_Z and t0 likewise, to first order: its covariance
is known, since the noise is, for coefficients with mean b and variance D. It is added to that of t and t0,
and the residual variance gets back what coefficients gained by following the noise. To second order noise
makes an inverse too large; that is taken off as in `regression.inference`.

A site of which noise hides how features vary shows its intercept alone, or nothing; its random slopes are
then part of what is within sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.sites.site_sums import SiteSums
from cape.core.arrays import Floats
from cape.stats.matrices import CLEAR, spectral
from cape.stats.moments import enough

__all__ = ["Observed", "inverted", "of_moments", "shown_by", "squares_noise"]

_FLOOR = 1e-10  # of a row: what rounding leaves
_INVERSIONS = 20


@dataclass(frozen=True)
class Observed:
    """What sites show, one after the other, and then all of them together within sites.

    Attributes:
        values: the sites' own coefficients, and t0.
        design: their mean is this times the fixed effects.
        loads: for each site, by how much its random effects move them.
        of_residual: their covariance over s², besides.
        noise: their covariance from noise.
        squares: what is left of the squares of y, per degree of freedom.
        freedom: the degrees of freedom of that, noise counted.
        rows: these without noise.
        places: for each value of a site, which random effect it shows.
        level: whether the last value is the mean of all rows, and the last column of the design by how much
            the intercept is above that of the others.
    """

    values: Floats
    design: Floats
    loads: tuple[Floats, ...]
    of_residual: Floats
    noise: Floats
    squares: float
    freedom: float
    rows: float
    places: tuple[int, ...]
    level: bool = False

    @property
    def random(self) -> int:
        """The number of random effects."""
        return int(self.loads[0].shape[1])

    def covariance(self, residual: float, between: Floats) -> Floats:
        """Return the covariance of the values."""
        found = residual * self.of_residual + self.noise
        for load in self.loads:
            found += load @ between @ load.T
        return np.asarray(found)

    def between(self, i: int, j: int) -> Floats:
        """Return the derivative of the covariance by D_ij."""
        unit = np.zeros((self.random, self.random))
        unit[i, j] = unit[j, i] = 1.0
        return np.asarray(sum(load @ unit @ load.T for load in self.loads))


def shown_by(group: Floats, noise: Floats, random: Sequence[int]) -> list[int]:
    """Return the random effects that a site shows clear of noise: all, the intercept alone, or none."""
    n = float(group[0, 0])
    if not enough(n, math.sqrt(float(noise[0, 0]))) or n <= len(random) + 1:
        return []
    slopes = [place for place in random if place]
    alone: list[int] = [place for place in random if not place]
    if not slopes:
        return alone
    spread, means = group[np.ix_(slopes, slopes)], group[0, slopes] / n
    around = noise[slopes[0], slopes[0]]
    if alone:
        spread = spread - n * np.outer(means, means)
        around = around + 4 * noise[0, slopes[0]] * min(float(means @ means), 1.0)
    least = CLEAR * spectral(len(slopes), math.sqrt(around / 2)) + _FLOOR * n
    return list(random) if np.linalg.eigvalsh(spread)[0] > least else alone


def _spread(of_g: Floats, of_gram: Floats, second: Floats) -> Floats:
    """Return the covariance of e - E b, E symmetric with independent entries, for E[b b'] = second."""
    found = of_gram * second
    np.fill_diagonal(found, of_g + of_gram @ np.diag(second))
    return np.asarray(found)


def inverted(matrix: Floats) -> Floats:
    """Return the inverse, or the inverses of a stack."""
    return np.asarray(np.linalg.inv(matrix), np.float64)


def _corrected(matrix: Floats, noise: Floats) -> Floats:
    """Return the inverse, less what noise adds to it to second order."""
    inverse = inverted(matrix)
    for _ in range(_INVERSIONS if noise.any() else 0):
        last, inverse = inverse, inverted(matrix + _spread(np.zeros(len(matrix)), noise, inverse))
        if np.abs(inverse - last).max() < 1e-9 * np.abs(inverse).max():
            break
    return np.asarray((inverse + inverse.T) / 2)


def of_moments(
    sums: SiteSums, random: Sequence[int], shown: Sequence[list[int]], values: Floats, between: Floats
) -> Observed | None:
    """Return what sums show; their noise is that at these fixed effects and this D, of all of (1, x)."""
    size = len(values)
    r = [place for place in range(size) if place not in random]
    second = np.outer(values, values) + between
    of_group = _spread(sums.group_noise[:-1, -1], sums.group_noise[:-1, :-1], second)
    of_whole = _spread(sums.whole_noise[:-1, -1], sums.whole_noise[:-1, :-1], second)
    within, cross = sums.whole[np.ix_(r, r)].copy(), sums.whole[r, -1].copy()
    noise_within = of_whole[np.ix_(r, r)].copy()
    squares, n = float(sums.whole[-1, -1]), float(sums.counts.sum())
    followed = 0.0  # the variance of what coefficients gain by following the noise
    many = sum(map(len, shown))
    t, design, below = np.zeros(many), np.zeros((many, size)), np.zeros((len(r), size))
    of_residual, noise, mixed = np.zeros((many, many)), np.zeros((many, many)), np.zeros((many, len(r)))
    loads, rests = [], []
    start = 0
    for group, z in zip(sums.groups, shown, strict=True):
        rest = [place for place in random if place not in z]
        others = [place for place in range(size) if place not in z]
        here = slice(start, start + len(z))
        inverse = _corrected(group[np.ix_(z, z)], sums.group_noise[np.ix_(z, z)])
        t[here] = inverse @ group[z, -1]
        design[here, z], design[here, others] = np.eye(len(z)), inverse @ group[np.ix_(z, others)]
        of_residual[here, here] = inverse
        noise[here, here] = inverse @ of_group[np.ix_(z, z)] @ inverse
        b = design[here][:, r]
        pull = np.zeros((len(r), size))
        pull[:, z], pull[:, r] = -b.T, np.eye(len(r))
        noise_within += pull @ of_group @ pull.T
        mixed[here] = inverse @ of_group[z] @ pull.T
        within -= group[np.ix_(r, z)] @ b
        cross -= group[np.ix_(r, z)] @ t[here]
        gained = inverse @ of_group[np.ix_(z, z)]
        followed += 2 * float((gained * gained.T).sum())
        squares += float(np.trace(gained)) - float(t[here] @ group[z, -1])
        # what a site does not show of its random effects is part of what is within sites
        left = group[np.ix_(others, rest)] - group[np.ix_(others, z)] @ design[here][:, rest]
        among = [others.index(place) for place in r]
        below[:, rest] += left[among]
        inner = left[[others.index(place) for place in rest]]
        with_y = group[rest, -1] - group[np.ix_(rest, z)] @ t[here]
        fixed = values[rest]
        squares += float(fixed @ inner @ fixed) - 2 * float(fixed @ with_y)
        squares -= float((inner * between[np.ix_(rest, rest)]).sum())
        load = np.zeros((many, len(random)))
        load[here] = design[here][:, list(random)]
        loads.append(load)
        moved = np.zeros((len(r), len(random)))
        moved[:, [list(random).index(place) for place in rest]] = left[among]
        rests.append(moved)
        start += len(z)
    vectors = _clear_directions(within, sums, r, n)
    inner = vectors.T @ within @ vectors
    cross, noise_within, mixed = vectors.T @ cross, vectors.T @ noise_within @ vectors, mixed @ vectors
    below = vectors.T @ below
    freedom = n - many - len(inner)
    if len(inner):
        raw = sums.whole_noise[np.ix_(r, r)] + len(shown) * sums.group_noise[np.ix_(r, r)]
        inverse = _corrected(inner, float(raw.max()) * (1 + np.eye(len(inner))) / 2)
        inner = np.linalg.inv(inverse)
        alone = cross - below @ values
        gained = inverse @ noise_within
        followed += 2 * float((gained * gained.T).sum())
        squares += float(np.trace(gained)) - float(alone @ inverse @ alone)
    below[:, r] += inner @ vectors.T
    h = np.vstack([design, below])
    if freedom < 1 or np.linalg.matrix_rank(h) < size:
        return None
    unsure = math.hypot(squares_noise(sums, np.diag(second)), math.sqrt(followed))
    per_row = max(squares, 0.5 * unsure, _FLOOR * n) / freedom
    nothing = np.zeros((many, len(cross)))
    return Observed(
        np.concatenate([t, cross]),
        h,
        tuple(np.vstack([load, vectors.T @ moved]) for load, moved in zip(loads, rests, strict=True)),
        np.block([[of_residual, nothing], [nothing.T, inner]]),
        np.block([[noise, mixed], [mixed.T, noise_within]]),
        per_row,
        2 / (2 / freedom + (unsure / (per_row * freedom)) ** 2),
        freedom,
        tuple(list(random).index(place) for each in shown for place in each),
    )


def _clear_directions(within: Floats, sums: SiteSums, r: Sequence[int], n: float) -> Floats:
    """Return the directions in which features vary within sites, clear of noise, as columns."""
    if not r:
        return np.zeros((0, 0))
    noise = sums.whole_noise[np.ix_(r, r)] + len(sums.groups) * sums.group_noise[np.ix_(r, r)]
    values, vectors = np.linalg.eigh(within)
    least = CLEAR * spectral(len(r), math.sqrt(float(noise.max()) / 2)) + _FLOOR * n
    return np.asarray(vectors[:, values > least])


def squares_noise(sums: SiteSums, squared: Floats) -> float:
    """Return the noise of the sum of squared residuals at coefficients with these squares."""
    total = 0.0
    for noise, many in ((sums.group_noise, len(sums.groups)), (sums.whole_noise, 1)):
        gram = noise[:-1, :-1]
        crossed = 2 * float(squared @ gram @ squared) - float(np.diag(gram) @ squared**2)
        total += many * (float(noise[-1, -1]) + 4 * float(noise[:-1, -1] @ squared) + crossed)
    return math.sqrt(total)
