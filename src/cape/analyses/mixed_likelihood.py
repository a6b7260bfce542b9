"""Linear mixed models from noisy sums by site: restricted maximum likelihood, with the noise counted.

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

*Intervals.* The variance of a random effect: those values for which the weighted squares of the sites' own
coefficients about their mean are not too large and not too small (Q-profile). Fixed effects: normal given the
variances, and mixed over all that are compatible with the sums (`mixture`): Student's t where sites are all
that is known. Neither needs many sites.

A site of which noise hides how features vary shows its intercept alone, or nothing; its random slopes are
then part of what is within sites. Tested in tests/analyses/test_mixed.py against statsmodels; measured by
`glm.mixed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from scipy.special import chdtri, fdtrc

from cape.analyses.matrices import CLEAR, spectral
from cape.analyses.mixture import Mixture, quantile, quantiles
from cape.analyses.moments import enough
from cape.analyses.site_sums import SiteSums
from cape.arrays import Floats

__all__ = ["MixedFit", "ResidualVariance", "Tau2", "fit"]

_ROUNDS = 4  # of noise, which depends on coefficients, and coefficients
_FLOOR = 1e-10  # of a row: what rounding leaves
_MIXED = 101  # combinations of variances that an interval is mixed over: a prime, so that each of
_STRIDES = (1, 37, 64)  # these goes through all quantiles, in another order
_FAR = 20.0  # of log s² from where it must be
_AWAY = 0.05  # from a root of 0, where the slope by it is 0
_STARTS = (0.7, 0.1)  # of the root of D, in units of how far sites differ
_INVERSIONS = 20


@dataclass(frozen=True)
class ResidualVariance:
    """The interval of a variance that is known as from a sample with so many degrees of freedom."""

    value: float
    freedom: float

    def __call__(self, level: float) -> tuple[float, float]:
        ends = [
            self.freedom * self.value / float(chdtri(self.freedom, p))
            for p in ((1 - level) / 2, (1 + level) / 2)
        ]
        return ends[0], ends[1]


@dataclass(frozen=True)
class Tau2:
    """The Q-profile of one variance: values, their design, and their covariance beside it.

    The first `many` values are those of sites, each of which has the variance besides.
    """

    values: tuple[float, ...]
    design: tuple[tuple[float, ...], ...]
    covariance: tuple[tuple[float, ...], ...]
    many: int
    freedom: float
    unit: float = 1.0

    @property
    def known(self) -> bool:
        """Whether values are more than what they are fitted with: else they say nothing of a variance."""
        return len(self.values) > len(self.design[0])

    def __call__(self, level: float) -> tuple[float, float]:
        ends = (1 - level) / 2, (1 + level) / 2
        low, high = (self.unit * quantile(self._tail, end, self._start) for end in ends)
        return low, high

    def quantiles(self, many: int) -> Floats:
        """Return equally likely values."""
        return self.unit * quantiles(self._tail, many, self._start)

    @property
    def _start(self) -> float:
        return float(np.trace(np.array(self.covariance)[: self.many, : self.many])) / self.many

    def _tail(self, tau2: float) -> float:
        y, h = np.array(self.values), np.array(self.design)
        spread = np.array(self.covariance)
        spread[np.arange(self.many), np.arange(self.many)] += tau2
        inverse = np.linalg.inv(spread)
        b = np.linalg.solve(h.T @ inverse @ h, h.T @ inverse @ y)
        rest = y - h @ b
        left = len(y) - h.shape[1]
        return float(fdtrc(left, self.freedom, float(rest @ inverse @ rest) / left))


@dataclass(frozen=True)
class _Observed:
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


@dataclass(frozen=True)
class MixedFit:
    """Coefficients of (1, x), D of the random effects, s², and the covariances of errors.

    Attributes:
        values: the fixed effects.
        between: D.
        residual: s².
        used: which sites have all random effects of their own.
        likelihood: twice the negative restricted log-likelihood, up to a constant.
    """

    values: Floats
    between: Floats
    residual: float
    used: tuple[bool, ...]
    likelihood: float
    observed: _Observed

    @cached_property
    def _inverse(self) -> Floats:
        return _inverted(self.observed.covariance(self.residual, self.between))

    @cached_property
    def covariance(self) -> Floats:
        """The covariance of the fixed effects, from all errors."""
        h = self.observed.design
        return np.asarray(np.linalg.inv(h.T @ self._inverse @ h))

    @cached_property
    def privacy(self) -> Floats:
        """The part of it that noise makes."""
        pull = self.covariance @ self.observed.design.T @ self._inverse
        return np.asarray(pull @ self.observed.noise @ pull.T)

    @cached_property
    def information(self) -> Floats:
        """The restricted information of s² and the entries of D."""
        seen, h, inverse = self.observed, self.observed.design, self._inverse
        places = [(i, j) for i in range(seen.random) for j in range(i + 1)]
        changes = [seen.of_residual, *(seen.between(i, j) for i, j in places)]
        left = inverse - inverse @ h @ self.covariance @ h.T @ inverse
        each = [left @ change for change in changes]
        found = np.array([[float((a * b.T).sum()) / 2 for b in each] for a in each])
        found[0, 0] += seen.freedom / (2 * self.residual**2)
        return found

    @cached_property
    def _compatible(self) -> tuple[Floats, Floats]:
        """Fixed effects and their covariance at other variances, each as likely as the sums have it.

        Variances of random effects keep their correlations, and are taken to be known independently.
        """
        seen, turns = self.observed, np.arange(_MIXED)
        each = [self.tau2(place, 1.0).quantiles(_MIXED) for place in range(seen.random)]
        sizes = np.sqrt([found[turns * _STRIDES[place] % _MIXED] for place, found in enumerate(each)]).T
        between = self._correlation * sizes[:, :, None] * sizes[:, None, :]
        spread = self.residual * seen.of_residual + seen.noise
        spread = spread + sum(load @ between @ load.T for load in seen.loads)
        weighted = np.linalg.solve(spread, np.broadcast_to(seen.design, (_MIXED, *seen.design.shape)))
        turned = np.swapaxes(weighted, 1, 2)
        covariances = _inverted(turned @ seen.design)
        values: Floats = (covariances @ (turned @ seen.values)[:, :, None])[:, :, 0]
        return values, covariances

    @property
    def _correlation(self) -> Floats:
        size = np.sqrt(np.diag(self.between))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.nan_to_num(self.between / np.outer(size, size))
        np.fill_diagonal(found, 1.0)
        return np.asarray(found)

    def mixture(self, row: Floats, shift: float = 0.0) -> Mixture:
        """Return the distribution of a combination of fixed effects."""
        values, covariances = self._compatible
        return Mixture.of(shift + values @ row, np.sqrt(np.maximum((covariances @ row) @ row, 0.0)))

    def tau2(self, place: int, unit: float) -> Tau2:
        """Return the interval of one diagonal entry of D, in another unit."""
        seen = self.observed
        sites = [row for row, shown in enumerate(seen.places) if shown == place]
        kept = [*sites, *range(len(seen.places), len(seen.values))]
        others = self.between.copy()
        others[place], others[:, place] = 0.0, 0.0
        spread = seen.covariance(self.residual, others)[np.ix_(kept, kept)]
        design = seen.design[kept]
        design = design[:, np.abs(design).max(axis=0) > 0]
        return Tau2(
            tuple(map(float, seen.values[kept])),
            tuple(tuple(map(float, row)) for row in design),
            tuple(tuple(map(float, row)) for row in spread),
            len(sites),
            seen.freedom,
            unit,
        )

    def tau2_errors(self, place: int) -> tuple[float, float]:
        """Return the errors of a diagonal entry of D from sites and rows drawn, and from noise."""
        at = 1 + place * (place + 3) // 2
        silent = replace(self, observed=_silent(self.observed))
        total, drawn = (max(float(np.linalg.pinv(each.information)[at, at]), 0.0) for each in (self, silent))
        return math.sqrt(min(drawn, total)), math.sqrt(max(total - drawn, 0.0))


def _silent(seen: _Observed) -> _Observed:
    return replace(seen, noise=np.zeros_like(seen.noise))


def fit(sums: SiteSums, random: Sequence[int]) -> MixedFit | None:
    """Return the model with random effects at these places of (1, x); None if noise hides it."""
    shown = [_shown(group, sums.group_noise, random) for group in sums.groups]
    if any(sum(place in each for each in shown) < 2 for place in random):
        return None
    size = len(sums.whole) - 1
    values, between = np.zeros(size), np.zeros((size, size))
    found: MixedFit | None = None
    for _ in range(_ROUNDS if sums.group_noise.any() else 1):
        seen = _observed(sums, random, shown, values, between)
        found = None if seen is None else _maximised(seen, found)
        if found is None:
            return None
        values = found.values
        between[np.ix_(random, random)] = found.between
    if found is None or not all(found.tau2(place, 1.0).known for place in range(len(random))):
        return None
    return replace(found, used=tuple(len(each) == len(random) for each in shown))


def _shown(group: Floats, noise: Floats, random: Sequence[int]) -> list[int]:
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


def _inverted(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), np.float64)


def _corrected(matrix: Floats, noise: Floats) -> Floats:
    """Return the inverse, less what noise adds to it to second order."""
    inverse = _inverted(matrix)
    for _ in range(_INVERSIONS if noise.any() else 0):
        last, inverse = inverse, _inverted(matrix + _spread(np.zeros(len(matrix)), noise, inverse))
        if np.abs(inverse - last).max() < 1e-9 * np.abs(inverse).max():
            break
    return np.asarray((inverse + inverse.T) / 2)


def _observed(
    sums: SiteSums, random: Sequence[int], shown: Sequence[list[int]], values: Floats, between: Floats
) -> _Observed | None:
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
    unsure = math.hypot(_squares_noise(sums, np.diag(second)), math.sqrt(followed))
    per_row = max(squares, 0.5 * unsure, _FLOOR * n) / freedom
    nothing = np.zeros((many, len(cross)))
    return _Observed(
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


def _squares_noise(sums: SiteSums, squared: Floats) -> float:
    """Return the noise of the sum of squared residuals at coefficients with these squares."""
    total = 0.0
    for noise, many in ((sums.group_noise, len(sums.groups)), (sums.whole_noise, 1)):
        gram = noise[:-1, :-1]
        crossed = 2 * float(squared @ gram @ squared) - float(np.diag(gram) @ squared**2)
        total += many * (float(noise[-1, -1]) + 4 * float(noise[:-1, -1] @ squared) + crossed)
    return math.sqrt(total)


def _maximised(seen: _Observed, last: MixedFit | None) -> MixedFit | None:
    """Return the restricted maximum likelihood, over log s² and a root of D with entries of one size.

    It begins where it ended before, for other noise, or at some places.
    """
    q = seen.random
    lower = np.tril_indices(q)
    size = np.empty((q, 1))
    for place in range(q):
        rows = [row for row, shown in enumerate(seen.places) if shown == place]
        drawn = seen.squares * np.diag(seen.of_residual)[rows].mean()
        size[place] = math.sqrt(seen.values[rows].var() + drawn)

    def parts(at: Floats) -> tuple[float, Floats]:
        root = np.zeros((q, q))
        root[lower] = at[1:]
        return seen.squares * math.exp(min(max(float(at[0]), -_FAR), _FAR)), size * root

    def objective(at: Floats) -> tuple[float, Floats]:
        residual, root = parts(at)
        found = _likelihood(seen, residual, root @ root.T)
        slopes = 2 * size * (found.by_between @ root)
        return found.value, np.concatenate([[residual * found.by_residual], slopes[lower]])

    best: OptimizeResult | None = None
    starts = [np.concatenate([[0.0], np.eye(q)[lower] * start]) for start in _STARTS]
    if last is not None:
        root = np.linalg.cholesky(last.between / (size * size.T) + _AWAY**2 * np.eye(q))
        starts = [np.concatenate([[math.log(last.residual / seen.squares)], root[lower]])]
    precision = 1e-4 if seen.noise.any() else 1e-8
    for begun in starts:
        found = minimize(
            objective, begun, jac=True, method="BFGS", options={"gtol": precision, "maxiter": 300}
        )
        if best is None or found.fun < best.fun:
            best = found
    if best is None or not math.isfinite(best.fun):
        return None
    residual, root = parts(best.x)
    reached = _likelihood(seen, residual, root @ root.T)
    return MixedFit(reached.values, root @ root.T, residual, (), reached.value, seen)


@dataclass(frozen=True)
class _Likelihood:
    """Twice the negative restricted log-likelihood, its slopes by s² and D, and the fixed effects."""

    value: float
    by_residual: float
    by_between: Floats
    values: Floats


def _likelihood(seen: _Observed, residual: float, between: Floats) -> _Likelihood:
    h, q = seen.design, seen.random
    nothing = _Likelihood(math.inf, 0.0, np.zeros((q, q)), np.zeros(h.shape[1]))
    spread = seen.covariance(residual, between)
    sign, size = np.linalg.slogdet(spread)
    if sign <= 0:
        return nothing
    inverse = np.linalg.inv(spread)
    weighted = inverse @ h
    information = h.T @ weighted
    sign, held = np.linalg.slogdet(information)
    if sign <= 0:
        return nothing
    left = inverse - weighted @ np.linalg.solve(information, weighted.T)
    b = np.asarray(np.linalg.solve(information, weighted.T @ seen.values), np.float64)
    rest = left @ seen.values
    slope = left - np.outer(rest, rest)
    by_between = np.zeros((q, q))
    for load in seen.loads:
        by_between += load.T @ slope @ load
    drawn = seen.freedom * (math.log(residual) + seen.squares / residual)
    by_residual = float((slope * seen.of_residual).sum())
    by_residual += seen.freedom * (1 - seen.squares / residual) / residual
    return _Likelihood(drawn + float(size + held + seen.values @ rest), by_residual, by_between, b)
