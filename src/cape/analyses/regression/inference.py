"""Least-squares coefficients with errors, from second moments with known noise.

With G the sum of (1, x)(1, x)', g that of (1, x) y and b the coefficients of the released sums, G b = g.
Noise of g less (noise of G) b moves them by G^-1 of that, to first order: its covariance V is known, since
the noise is, and that of the coefficients is G^-1 V G^-1. Sampling adds s² G^-1, s² the residual variance,
which the released sums give too: sum of y² - g·b + tr(G^-1 V), the last term for what b gains by following
the noise.

To second order noise E in xx', of variance t² in its norm, makes the inverse too large: G^-1 E G^-1 E G^-1 is
on average G^-1 (t²/2) (tr G^-1 + G^-1) G^-1. That is taken off, by adding t²/2 (tr G^-1 + G^-1) to G.

All that holds where G, less its means, is clear of its noise in every direction: three times the largest
eigenvalue of noise. Where it is not, a ridge k makes it so, and the coefficients are wrong by k G^-1 b', b'
the true ones, of which nothing is known in those directions. They are then taken to be such that *no column
moves the target by more than its whole range as it goes through its own*. The interval counts the largest
error that allows; one that says no more than this assumption is called unknown. Tested in
tests/unit/analyses/regression/test_linear.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from cape.analyses.regression.moments import SecondMoments
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.engine.arguments import joined
from cape.stats.estimates import Estimate
from cape.stats.matrices import CLEAR, spectral

__all__ = [
    "Between",
    "Coefficients",
    "Reach",
    "Unsure",
    "coefficients",
    "ends",
    "largest",
    "unreliable",
    "widest",
    "z_and_p",
]


_ROUNDS = 20
_FLOOR = 1e-10
_HALVINGS = 100


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of (1, x), or of x, with the covariances of their errors.

    Attributes:
        values: the estimates.
        sampling: the covariance from having sampled rows.
        privacy: the covariance from noise.
        pull: how far they move, for each weight of x, as the ridge pulls that weight to 0.
        residual: the residual variance, in units of y.
        explained: the share of the variance of y that is explained, NaN if noise hides it.
        smallest: the smallest eigenvalue of the second moments about the means, per row.
        noise: the largest eigenvalue of noise in them, per row.
        hidden: for each entry of x, how much of it lies along directions that are not clear of it, from 0 to
            1.
        inverse: of G, as used.
        clear: the same sampling covariance, positive semidefinite, for several coefficients together.
        doubt: a'(sampling)a has noise of a'(doubt)a, for any a; none if it is not given.
    """

    values: Floats
    sampling: Floats
    privacy: Floats
    pull: Floats
    residual: float
    explained: float
    smallest: float
    noise: float
    hidden: Floats
    inverse: Floats
    clear: Floats
    doubt: Floats | None = None


def coefficients(sums: SecondMoments, *, centred: bool, loss: float) -> Coefficients:
    """Return the coefficients; `loss` is that of the ridge fit, which bounds the residual variance."""
    n, d = sums.count, sums.width
    means = sums.x / n
    spread = sums.xx
    if centred:
        spread = spread - n * np.outer(means, means) + sums.x_noise**2 / n * np.eye(d)
    eigenvalues = np.linalg.eigvalsh(spread)
    length = min(float(means @ means), 1.0)
    around = math.sqrt(sums.xx_noise**2 + 4 * sums.x_noise**2 * length / (d + 1))
    noise = spectral(d, around / math.sqrt(2))
    clear = CLEAR * noise + _FLOOR * n
    smallest, vectors = float(eigenvalues[0]), np.linalg.eigh(spread)[1]
    ridge = max(0.0, clear - smallest)
    inverse = _inverse(spread + ridge * np.eye(d), around)
    full = _uncentred(inverse, means, n, centred)
    g = np.concatenate([[sums.y], sums.xy])
    values = full @ g
    moved = _moved(sums, values)
    privacy = full @ moved @ full
    raw = full if ridge else _uncentred(np.asarray(np.linalg.inv(spread), np.float64), means, n, centred)
    gained = float(np.trace(full @ moved))
    rest = sums.yy - float(g @ raw @ g) + gained if not ridge else n * loss
    freedom = max(n - d - centred, 1.0)
    unsure = _loss_noise(sums, values)
    residual = min(max(rest / freedom, unsure / n, 0.0), 1.0)
    total = sums.yy - (sums.y**2 - sums.y_noise**2) / n if centred else sums.yy
    total_noise = math.hypot(sums.yy_noise, 2 * sums.y / n * sums.y_noise)
    known = total > max(3 * total_noise, 1e-12 * n)
    explained = min(max(1 - max(rest, 0.0) / total, 0.0), 1.0) if known else math.nan
    return Coefficients(
        values,
        residual * full,
        privacy,
        ridge * full[:, 1:],
        residual,
        explained,
        smallest / n,
        noise / n,
        (vectors[:, eigenvalues < clear] ** 2).sum(axis=1),
        full,
        residual * full,
    )


def _inverse(matrix: Floats, noise: float) -> Floats:
    """Return the inverse, less what noise adds to it: M = (matrix + noise²/2 (tr M + M))^-1, by iteration."""
    inverse = np.linalg.inv(matrix)
    for _ in range(_ROUNDS if noise else 0):
        extra = noise**2 / 2 * (np.trace(inverse) * np.eye(len(matrix)) + inverse)
        last, inverse = inverse, np.linalg.inv(matrix + extra)
        if np.abs(inverse - last).max() < 1e-9 * np.abs(inverse).max():
            break
    return np.asarray((inverse + inverse.T) / 2)


def _uncentred(inverse: Floats, means: Floats, n: float, centred: bool) -> Floats:
    """Return the inverse of G, from that of its centred part."""
    shift = -inverse @ means if centred else np.zeros(len(means))
    corner = 1 / n - float(means @ shift) if centred else 0.0
    return np.block([[np.full((1, 1), corner), shift[None, :]], [shift[:, None], inverse]])


def _moved(sums: SecondMoments, values: Floats) -> Floats:
    """Return the covariance of (noise of g) - (noise of G) b."""
    b, w = float(values[0]), values[1:]
    square = float(w @ w)
    s, t, u, v = (noise**2 for noise in (sums.xy_noise, sums.xx_noise, sums.x_noise, sums.y_noise))
    inner = (s + u * b * b + t / 2 * square) * np.eye(sums.width) + t / 2 * np.outer(w, w)
    corner = v + u * square + (sums.count_noise * b) ** 2
    return np.block([[np.full((1, 1), corner), u * b * w[None, :]], [u * b * w[:, None], inner]])


def _loss_noise(sums: SecondMoments, values: Floats) -> float:
    """Return the noise of the sum of squared residuals at given coefficients."""
    b, w = float(values[0]), values[1:]
    square = float(w @ w)
    return math.hypot(
        sums.yy_noise,
        2 * b * sums.y_noise,
        2 * math.sqrt(square) * sums.xy_noise,
        2 * b * math.sqrt(square) * sums.x_noise,
        square * sums.xx_noise,
        b * b * sums.count_noise,
    )


@dataclass(frozen=True)
class Reach:
    """An interval around an estimate with an error of at most `bias` beside a normal one."""

    value: float
    error: float
    bias: float

    def __call__(self, level: float) -> tuple[float, float]:
        reach = self.bias + float(ndtri((1 + level) / 2)) * self.error
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class Unsure:
    """An interval around an estimate whose squared error is itself seen through noise.

    The squared error is V = sampling + privacy, of which sampling was released with normal noise `doubt`
    (all three squared already), and may have come out below 0; beside it there is an error of at most `bias`.
    The reach of the interval is z sqrt(g), where g is the larger root of

        g = V + (1 + z²) / 4 doubt² / g,

    and at least what privacy alone asks for. To second order in doubt that is what makes up for not knowing V
    (for a V from a sample it is Student's quantile). Where doubt is larger than V it errs on the wide side:
    coverage is never below the level, whatever sampling is, and 98% for 95% where V is as large as doubt
    (tests/unit/analyses/regression/test_inference.py).
    """

    value: float
    sampling: float
    privacy: float
    doubt: float
    bias: float = 0.0

    def __call__(self, level: float) -> tuple[float, float]:
        z = float(ndtri((1 + level) / 2))
        reach = self.bias + z * math.sqrt(self.squared(z * z))
        return self.value - reach, self.value + reach

    def squared(self, z2: float, many: int = 1) -> float:
        """Return g at this z²; for `many` coefficients together many + z² stands for 1 + z² (Hotelling)."""
        total = self.sampling + self.privacy
        return max((total + math.hypot(total, math.sqrt(many + z2) * self.doubt)) / 2, self.privacy)

    def statistic(self, many: int = 1) -> float:
        """Return z² of the level at which the interval ends at 0: chi-square on `many` degrees of freedom."""
        r2 = max(abs(self.value) - self.bias, 0.0) ** 2
        if r2 == 0 or self.squared(0.0, many) == 0:
            return 0.0 if r2 == 0 else math.inf
        low, high = 0.0, r2 / self.squared(0.0, many)  # z² g rises with z²
        for _ in range(_HALVINGS if self.doubt else 0):
            middle = (low + high) / 2
            low, high = (low, middle) if middle * self.squared(middle, many) >= r2 else (middle, high)
        return high


@dataclass(frozen=True)
class Between:
    """An interval from one estimate to another, each with its normal error: the truth is between them."""

    values: tuple[float, float]
    errors: tuple[float, float]

    def __call__(self, level: float) -> tuple[float, float]:
        z = float(ndtri((1 + level) / 2))
        ends = list(zip(self.values, self.errors, strict=True))
        return min(value - z * error for value, error in ends), max(
            value + z * error for value, error in ends
        )


def largest(units: Units, most: float) -> Floats:
    """Return the largest weights of x, if no column changes the target by more than `most` in its range."""
    return units.reach * most * units.design.length(units.schema)


def widest(units: Units, most: float, intercept: float) -> Floats:
    """Return the same for coefficients, after the intercept: `intercept` in the middle of all bounds."""
    return np.asarray(np.abs(units.matrix) @ np.concatenate([[intercept], largest(units, most)]))


def ends(most: Floats, values: Floats, hidden: Floats) -> list[tuple[float, float]]:
    """Return between what numbers coefficients are taken to be, if `most` is the largest that is expected.

    The expectation counts where noise hides at least half of what is possible, as results then say. What the
    data shows may be larger: a column whose bounds are much wider than its values are has a steep slope.
    """
    limits = np.where(hidden >= most / 2, np.maximum(most, np.abs(values)), np.inf)
    return [(-float(limit), float(limit)) for limit in limits]


def unreliable(names: Sequence[str], hidden: Floats, *, noise: bool) -> str:
    """Return a sentence on unreliable coefficients: `hidden` is the part of each that noise hides."""
    found = [name for name, share in zip(names, hidden, strict=True) if share >= max(hidden) / 2]
    alone = len(found) == 1
    if noise:
        why = f"say too little about {found[0]}" if alone else f"cannot separate {joined(found)}"
        why, more = f"the data {why} at this budget", ", or spend more"
    else:
        varies = f"{joined(found)} does not vary" if alone else f"{joined(found)} do not vary independently"
        why, more = f"{varies} in the data", ""
    whose, drop = ("its coefficient is", "it") if alone else ("their coefficients are", "one of them")
    return f"{why}; {whose} unreliable. Drop {drop}{more}."


def z_and_p(estimate: Estimate) -> tuple[float, float]:
    """Return z and its two-sided P: NaN where the interval is not that of a test.

    z is the estimate over its standard error, and P is that of z, or z is NaN: where errors are seen through
    noise, or may be wrong by a bias, P is 1 less the level at which the interval ends at 0. So P is below 5%
    if and only if 0 is outside the interval of 95%.
    """
    at, (low, high) = estimate.at, estimate.within
    if isinstance(at, Unsure):
        return math.nan, 2 * float(ndtr(-math.sqrt(at.statistic())))
    if isinstance(at, Reach) and at.error > 0 and low <= 0 <= high:
        return math.nan, 2 * float(ndtr(-max(abs(at.value) - at.bias, 0.0) / at.error))
    error = estimate.standard_error
    if at is not None or not (error > 0 and low <= 0 <= high):
        return math.nan, math.nan
    z = estimate.value / error
    return z, 2 * float(ndtr(-abs(z)))
