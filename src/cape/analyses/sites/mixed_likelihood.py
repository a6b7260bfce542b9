"""Linear mixed models from what sites show: restricted maximum likelihood, with the noise counted.

`mixed_observed` says what sums show: numbers that are linear in fixed and random effects, with a covariance
that is the model's, by which they are weighted, and the one that they have, which intervals count.

*Intervals.* The variance of a random effect: those values for which the weighted squares of the sites' own
coefficients about their mean are not too large and not too small (Q-profile). Fixed effects: normal given the
variances, and mixed over all that are compatible with the sums (`mixture`): Student's t where sites are all
that is known. Neither needs many sites.

Tested in tests/unit/analyses/sites/test_mixed.py against statsmodels; measured by `truth.mixed`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from scipy.special import fdtrc

from cape.analyses.sites.mixed_observed import Observed, inverted
from cape.core.arrays import Floats
from cape.stats.mixture import Mixture, quantile, quantiles

__all__ = ["MixedFit", "Tau2", "fit", "maximised"]

_MIXED = 101  # combinations of variances that an interval is mixed over: a prime, so that each of
_STRIDES = (1, 37, 64)  # these goes through all quantiles, in another order
_FAR = 20.0  # of log s² from where it must be
_STARTS = (0.7, 0.1)  # of the root of D, in units of how far sites differ
_FEWEST = 4.0  # degrees of freedom of a variance of residuals that noise hides
_HARDLY = 1e-12  # of noise: so much of it is hardly any


@dataclass(frozen=True)
class Tau2:
    """The Q-profile of one variance: values, their design, and their covariance beside it.

    The first `many` values are those of sites, each of which has the variance besides. Where there is noise,
    which is rather counted as more than as less, values that are nearer to each other than errors explain
    count as what these explain.
    """

    values: tuple[float, ...]
    design: tuple[tuple[float, ...], ...]
    covariance: tuple[tuple[float, ...], ...]
    many: int
    freedom: float
    unit: float = 1.0
    noisy: bool = False

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
        left = len(self.values) - len(self.design[0])
        return float(fdtrc(left, self.freedom, self._times * self._ratio(tau2)))

    @cached_property
    def _times(self) -> float:
        return float(max(1.0, 1 / max(self._ratio(0.0), 1e-300))) if self.noisy else 1.0

    def _ratio(self, tau2: float) -> float:
        """Return the weighted squares about the mean, per degree of freedom."""
        y, h = np.array(self.values), np.array(self.design)
        spread = np.array(self.covariance)
        spread[np.arange(self.many), np.arange(self.many)] += tau2
        inverse = np.linalg.inv(spread)
        b = np.linalg.solve(h.T @ inverse @ h, h.T @ inverse @ y)
        rest = y - h @ b
        return float(rest @ inverse @ rest) / (len(self.values) - len(self.design[0]))


@dataclass(frozen=True)
class MixedFit:
    """Coefficients of (1, x), D of the random effects, s², and the covariances of errors.

    Attributes:
        values: the fixed effects.
        between: D.
        residual: s².
        likelihood: twice the negative restricted log-likelihood, up to a constant.
    """

    values: Floats
    between: Floats
    residual: float
    likelihood: float
    observed: Observed

    @cached_property
    def _inverse(self) -> Floats:
        return inverted(self.observed.covariance(self.residual, self.between))

    @cached_property
    def _mixed(self) -> tuple[Floats, Floats]:
        """D at other variances, each as likely as the sums have it, and what makes fixed effects of values.

        Variances of random effects keep their correlations, and are taken to be known independently. Effects
        that all sites have in common are weighted as the model does without noise: where noise hides by how
        much sites differ, they are not made of differences between sites. Those that differ count noise.
        """
        seen, turns = self.observed, np.arange(_MIXED)
        each = [self.tau2(place, 1.0).quantiles(_MIXED) for place in range(seen.random)]
        sizes = np.sqrt([found[turns * _STRIDES[place] % _MIXED] for place, found in enumerate(each)]).T
        between = self._correlation * sizes[:, :, None] * sizes[:, None, :]
        effects = sum(load @ between @ load.T for load in seen.loads)
        return np.asarray(effects), seen.pulls(self.residual, np.asarray(effects))

    @cached_property
    def _parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Fixed effects at these variances, their covariances, and the means of those from noise, and from
        what was limited."""
        seen, (effects, pulls) = self.observed, self._mixed
        turned = np.swapaxes(pulls, 1, 2)
        actual = seen.sampling + seen.noise + effects
        noise, clipped = ((pulls @ each @ turned).mean(axis=0) for each in (seen.noise, seen.clipped))
        return pulls @ seen.values, pulls @ actual @ turned, noise, clipped

    def fixed(self, row: Floats, shift: float) -> tuple[float, float, float, Mixture]:
        """Return a combination of fixed effects, its errors from rows and sites and from noise, and its
        distribution.

        Without noise it is that of the restricted maximum likelihood.
        """
        values, covariances, noise, _ = self._parts
        found, squares = values @ row, np.maximum((covariances @ row) @ row, 0.0)
        mixture = Mixture.of(shift + found, np.sqrt(squares))
        if not self.observed.noise.any():
            effects = sum(load @ self.between @ load.T for load in self.observed.loads)
            pull = row @ self.observed.pulls(self.residual, np.asarray(effects))
            error = math.sqrt(max(float(pull @ (self.observed.sampling + effects) @ pull), 0.0))
            return shift + float(pull @ self.observed.values), error, 0.0, mixture
        of_noise = max(float(row @ noise @ row), 0.0)
        drawn = max(float(squares.mean()) - of_noise, 0.0) + float(found.var())
        return shift + float(found.mean()), math.sqrt(drawn), math.sqrt(of_noise), mixture

    def limited(self, row: Floats) -> float:
        """Return the error of a combination of fixed effects from what was limited."""
        return math.sqrt(max(float(row @ self._parts[3] @ row), 0.0))

    @cached_property
    def information(self) -> Floats:
        """The restricted information of s² and the entries of D."""
        seen, h, inverse = self.observed, self.observed.design, self._inverse
        places = [(i, j) for i in range(seen.random) for j in range(i + 1)]
        changes = [seen.of_residual, *(seen.between(i, j) for i, j in places)]
        turned = h.T @ inverse
        left = inverse - turned.T @ np.linalg.solve(turned @ h, turned)
        each = [left @ change for change in changes]
        found = np.array([[float((a * b.T).sum()) / 2 for b in each] for a in each])
        found[0, 0] += seen.freedom / (2 * self.residual**2)
        return found

    @property
    def _correlation(self) -> Floats:
        size = np.sqrt(np.diag(self.between))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.nan_to_num(self.between / np.outer(size, size))
        np.fill_diagonal(found, 1.0)
        return np.asarray(found)

    def tau2(self, place: int, unit: float) -> Tau2:
        """Return the interval of one diagonal entry of D, in another unit."""
        seen = self.observed
        sites = [row for row, shown in enumerate(seen.places) if shown == place]
        kept = [*sites, *range(len(seen.places), len(seen.values))]
        others = self.between.copy()
        others[place], others[:, place] = 0.0, 0.0
        spread = seen.actual(others)[np.ix_(kept, kept)]
        design = seen.design[kept]
        design = design[:, np.abs(design).max(axis=0) > 0]
        # of errors only those from rows have a scale that is not known
        known = np.median(np.diag(seen.noise)[sites] / np.maximum(np.diag(seen.sampling)[sites], 1e-300))
        return Tau2(
            tuple(map(float, seen.values[kept])),
            tuple(tuple(map(float, row)) for row in design),
            tuple(tuple(map(float, row)) for row in spread),
            len(sites),
            max(seen.freedom, _FEWEST) * (1 + float(known)) ** 2,
            unit,
            bool(seen.noise.any()),
        )

    def tau2_errors(self, place: int) -> tuple[float, float]:
        """Return the errors of a diagonal entry of D from sites and rows drawn, and from noise."""
        at = 1 + place * (place + 3) // 2
        silent = replace(self, observed=_silent(self.observed))
        total, drawn = (max(float(np.linalg.pinv(each.information)[at, at]), 0.0) for each in (self, silent))
        return math.sqrt(min(drawn, total)), math.sqrt(max(total - drawn, 0.0))


def _silent(seen: Observed) -> Observed:
    """Return the same with hardly any noise: without any, where rows leave no errors, there is no inverse."""
    return replace(seen, noise=_HARDLY * seen.noise)


def fit(seen: Observed) -> MixedFit | None:
    """Return the model that sites show; None if noise hides it."""
    if any(seen.places.count(place) < 2 for place in range(seen.random)):
        return None
    found = maximised(seen)
    if found is None or not all(found.tau2(place, 1.0).known for place in range(seen.random)):
        return None
    return found


def maximised(seen: Observed) -> MixedFit | None:
    """Return the restricted maximum likelihood, over log s² and a root of D with entries of one size.

    It begins at several places. Where there is noise s² is what is left of squares: what sites differ by
    says little of it then.
    """
    noisy = bool(seen.noise.any())
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
        by_residual = 0.0 if noisy else residual * found.by_residual
        return found.value, np.concatenate([[by_residual], slopes[lower]])

    best: OptimizeResult | None = None
    starts = [np.concatenate([[0.0], np.eye(q)[lower] * start]) for start in _STARTS]
    precision = 1e-4 if noisy else 1e-8
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
    return MixedFit(reached.values, root @ root.T, residual, reached.value, seen)


@dataclass(frozen=True)
class _Likelihood:
    """Twice the negative restricted log-likelihood, its slopes by s² and D, and the fixed effects."""

    value: float
    by_residual: float
    by_between: Floats
    values: Floats


def _likelihood(seen: Observed, residual: float, between: Floats) -> _Likelihood:
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
