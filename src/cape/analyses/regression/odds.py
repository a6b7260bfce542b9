"""What noisy second moments of (1, x, y), y = -1 or 1, say about log-odds: logistic regression in one round.

The logistic loss log(1 + exp(-m)), m = y (x·w + w0), is replaced by a quadratic a0 - m/2 + c m². Its
minimiser is 1 / (4 c) times the least-squares fit d of y on x, so that the second moments are all that is
needed. c is 1/8 for Taylor's at 0; for the quadratic of least error on |m| <= R it is log(cosh(R / 2)) /
R²: log(2 cosh(m / 2)) is concave in m², and its chord has the best slope.

*Scale.* Only the scale depends on c, and one more equation gives a better one. If log-odds are z = x·w + w0
and x is normal, cov(x, y) = 2 cov(x) w E[s'(z)], s the logistic function (Stein's lemma): so w = d / (2
E[s'(z)]), and E[s(z)] is the share of the positive class. Both expectations depend on the variance v =
w'cov(x) w and the mean of z alone, which are solved for (`normal_odds`). For people whose x is not normal it
is an approximation, as a quadratic is for everyone: no claim is made that the weights are the
maximum-likelihood ones.

*Noise.* cov(x, y) = cov(x) d + noise of known size, in cov(x, y) and in cov(x) itself. cov(x) is drawn to a
multiple of the identity as far as its noise asks for (`matrices.shrunk`). In its eigenvectors, with
eigenvalues l_i, a weight d_i with variance k before anything is seen gets the mean l_i k c_i / (l_i² k +
v_i): the minimiser of a quadratic with a ridge, which always exists. The likelihood of the released numbers
says which k are possible; where they look like noise 0 is one of them.

*Lean.* What noise leaves open is settled in one of three ways. The *likely* weights take the likeliest k,
and the mean of the variances of x and v as they were released. The *cautious* ones take the smallest k that
is not excluded, and the other two a standard deviation of their noise away, where weights are smaller: they
predict best. The *bold* ones do the opposite, and end the interval on the other side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cape.analyses.matrices import CLEAR, shrunk, spectral
from cape.analyses.regression.moments import SecondMoments
from cape.analyses.regression.normal_odds import MOST_SPREAD, normal_odds

__all__ = ["BOLD", "CAUTIOUS", "LIKELY", "Fit", "Lean", "Reading", "curvature", "fit_odds"]

Floats = NDArray[np.float64]
Lean = Literal[-1, 0, 1]

CAUTIOUS: Lean = -1
LIKELY: Lean = 0
BOLD: Lean = 1

TIE = 1e-3  # of a mean of y that noise hides: its sign is kept, so that the likelier category is predicted
NOT_EXCLUDED = 3.84  # twice a log-likelihood ratio: the 95% quantile of chi-square, one degree of freedom
GRID = 96  # possible k, about a tenth apart: twice as many change widths and losses by less than 1%
# The standard error, as a share of each slope, for features that are not normal. `python -m
# benchmarks.logistic_choices 40 ROUGHLY`: exponential ones lose 6% of coverage at half of it.
ROUGHLY = 0.25


def curvature(fit: str, reach: float) -> float:
    """Return c of the quadratic a0 - m/2 + c m²."""
    if fit == "taylor":
        return 0.125
    half = reach / 2
    return (half + math.log1p(math.exp(-2 * half)) - math.log(2.0)) / reach**2


@dataclass(frozen=True)
class Reading:
    """Means and covariances of x and y that noisy sums stand for, with one lean.

    Attributes:
        sums: what was released.
        centred: whether there is an intercept, so that means are taken off.
        lean: the cautious means are drawn to 0 as far as noise asks for.
    """

    sums: SecondMoments
    centred: bool
    lean: Lean = LIKELY

    @cached_property
    def mean_y(self) -> float:
        """The mean of y, as if each category had half a row more; the cautious one is 0 if noise hides it."""
        n = self.sums.count
        most = n / (n + 1)
        mean, noise = min(max(self.sums.y / n, -most), most), self.sums.y_noise / n
        if self.lean > CAUTIOUS or mean == 0.0:
            return mean
        return mean * max(TIE, 1 - (CLEAR * noise / mean) ** 2)

    @cached_property
    def mean_x(self) -> Floats:
        """The mean of x; the cautious one is less the share of it that is noise (James and Stein)."""
        x, noise = self.sums.x, self.sums.x_noise
        size = float(x @ x)
        if self.lean == CAUTIOUS and size > 0:
            x = x * max(0.0, 1 - len(x) * noise**2 / size)
        return np.clip(x / self.sums.count, -1.0, 1.0)

    @cached_property
    def released(self) -> Floats:
        """The covariance of x (its mean square, if there is no intercept) with all its noise."""
        return np.asarray(self.sums.xx / self.sums.count - np.outer(self.mean_x, self.mean_x))

    @property
    def square_noise(self) -> float:
        """The noise in it, above the diagonal."""
        return self.sums.xx_noise / math.sqrt(2) / self.sums.count

    @cached_property
    def _variance(self) -> tuple[float, float]:
        """The mean of its diagonal, and the noise in that."""
        width = self.sums.width
        return float(np.trace(self.released)) / width, math.sqrt(2 / width) * self.square_noise

    @property
    def varies(self) -> bool:
        """Whether x varies at all by more than noise."""
        mean, noise = self._variance
        return mean > CLEAR * noise

    @cached_property
    def covariance(self) -> tuple[Floats, float]:
        """The covariance of x, and what share of its noise is left in it; the cautious one is large."""
        width = self.sums.width
        mean, noise = self._variance
        wanted = min(max(mean - self.lean * noise, 0.0), max(1 / width, mean))  # ||x|| <= 1
        return shrunk(self.released + (wanted - mean) * np.eye(width), self.square_noise)

    @cached_property
    def product(self) -> Floats:
        """The covariance of x and y."""
        return np.asarray(self.sums.xy / self.sums.count - self.mean_x * self.mean_y)

    @cached_property
    def product_noise(self) -> float:
        """The noise in it, as a variance."""
        sums = self.sums
        mean_square = float((self.mean_x**2).mean())
        parts = (
            sums.xy_noise**2 + (self.mean_y * sums.x_noise) ** 2 + mean_square * sums.y_noise**2,
            (sums.x_noise * sums.y_noise / sums.count) ** 2,
        )
        return sum(parts) / sums.count**2


@dataclass(frozen=True)
class Fit:
    """Weights in units of x, the intercept first, and the covariances of their errors."""

    weights: Floats
    sampling: Floats
    privacy: Floats
    spread: float  # the standard deviation of log-odds over people
    seen: bool  # whether it is excluded that all is noise


def fit_odds(reading: Reading, *, scale: float | None = None, ridge: float | None = None) -> Fit:
    """Return the weights; `scale` is 1 / (4 c) of a quadratic, None for the scale that fits normal x.

    `ridge` is added to the mean of xx' in place of what the noise asks for; bold weights take no notice.
    """
    lean, sums = reading.lean, reading.sums
    square, keep = reading.covariance
    values, vectors = np.linalg.eigh(square)
    values = np.maximum(values, 0.0)
    found = vectors.T @ reading.product
    sampled = values * (1 - reading.mean_y**2) / sums.count
    noise = np.full(len(values), reading.product_noise)
    left = keep if lean < BOLD else 1.0  # what drawing the matrix to the identity leaves out is noise as well
    in_square = len(values) * (left * reading.square_noise) ** 2
    prior = _Prior(values, found, sampled, noise, in_square, 1 / sums.count)
    k = prior.possible[lean + 1]
    if ridge is None or lean == BOLD:
        weight = prior.weights(k)
    else:
        floor = max(spectral(len(values), keep * reading.square_noise), 1e-12) if not ridge else 0
        weight = found / (np.maximum(values, floor) + ridge)
    weight, explained, doubt = _checked(reading, vectors, values, weight, sampled + noise)
    surely = min(max(0.0, explained + lean * doubt), 1.0)
    centre, spread, slope = normal_odds(surely, (1 + reading.mean_y) / 2, reading.centred)
    factor = 1 / (2 * slope) if scale is None else scale
    factor = min(factor, MOST_SPREAD / math.sqrt(explained) if explained > 0 else math.inf)
    slopes = factor * (vectors @ weight)
    of_sampling, of_noise = (factor**2 * (vectors * each) @ vectors.T for each in prior.variances(k))
    if scale is None:
        of_sampling = of_sampling + np.diag((ROUGHLY * slopes) ** 2)
    else:
        centre, spread = scale * reading.mean_y, factor * math.sqrt(explained)
    # The centre of log-odds moves by 1 / (2 E[s']) of what the mean of y does.
    sampled_mean = (1 - reading.mean_y**2) / sums.count / (2 * slope) ** 2
    noisy_mean = (sums.y_noise / sums.count / (2 * slope)) ** 2
    noisy_mean += float(slopes @ slopes) * (sums.x_noise / sums.count) ** 2
    intercept = centre - float(reading.mean_x @ slopes) if reading.centred else 0.0
    return Fit(
        np.concatenate([[intercept], slopes]),
        _with_intercept(of_sampling, reading, sampled_mean),
        _with_intercept(of_noise, reading, noisy_mean),
        spread,
        prior.possible[0] > 0,
    )


def _checked(
    reading: Reading, vectors: Floats, values: Floats, weight: Floats, errors: Floats
) -> tuple[Floats, float, float]:
    """Return the weights, no larger than the variance of x·w allows; what they explain; and its error.

    Drawing cov(x) to the identity makes it too small where x varies most, which is where w often points.
    Along the one direction w it is known much better than as a whole.
    """
    along = vectors @ weight
    of_noise = math.sqrt(2) * reading.square_noise * float(weight @ weight)
    told = float((values * weight**2).sum())
    seen = float(along @ reading.released @ along)
    factor = min(1.0, told / seen) if seen > 0 and reading.lean < BOLD else 1.0
    weight = factor * weight
    explained = factor**2 * max(told, seen)
    doubt = math.hypot(2 * math.sqrt(float((weight**2 * errors).sum())), factor**2 * of_noise)
    return weight, explained, doubt


@dataclass(frozen=True)
class _Prior:
    """The least-squares weights along eigenvectors: normal with variance k before they are seen."""

    values: Floats
    found: Floats
    sampled: Floats
    noise: Floats
    in_square: float  # the noise of the matrix, per unit of k
    least: float  # the share of the variance of y, explained by x, that is as good as none

    def _errors(self, k: Floats | float) -> Floats:
        return np.asarray(self.sampled + self.noise + self.in_square * k)

    @cached_property
    def possible(self) -> tuple[float, float, float]:
        """The smallest k that is not excluded, 0 where all may be noise, the likeliest, and the largest.

        k sum(values) is the share of the variance of y that x explains: of signs of a normal variable, 2 / pi
        at most.
        """
        total = float(self.values.sum())
        if total <= 0:
            return 0.0, 0.0, 0.0
        shares = np.geomspace(min(self.least, 0.5), 2 / math.pi, GRID)
        grid = np.concatenate([[0.0], shares]) / total
        k = grid[:, None]
        variance = np.maximum(self.values**2 * k + self._errors(k), 1e-300)
        likelihood = -(np.log(variance) + self.found**2 / variance).sum(axis=1)  # twice its log
        kept = np.nonzero(likelihood >= likelihood.max() - NOT_EXCLUDED)[0]
        return float(grid[kept[0]]), float(grid[int(np.argmax(likelihood))]), float(grid[kept[-1]])

    def weights(self, k: float) -> Floats:
        """Return the mean of the weights once they are seen."""
        variance = self.values**2 * k + self._errors(k)
        return np.asarray(self.values * k * self.found / np.maximum(variance, 1e-300))

    def variances(self, k: float) -> tuple[Floats, Floats]:
        """Return the mean square errors of these weights from sampling and from noise.

        What shrinking leaves out, if weights vary by the largest k, counts as noise, which asks for it.
        """
        kept = self.values**2 * k
        kept = kept / np.maximum(kept + self._errors(k), 1e-300)
        per_value = kept**2 / np.maximum(self.values, 1e-150) ** 2
        of_noise = per_value * (self.noise + self.in_square * k) + (1 - kept) ** 2 * self.possible[2]
        return np.asarray(per_value * self.sampled), np.asarray(of_noise)


def _with_intercept(slopes: Floats, reading: Reading, centre: float) -> Floats:
    """Return the covariance of intercept and slopes, given that of the slopes and the variance of the centre.

    The intercept is the centre of log-odds less mean(x)·slopes.
    """
    if not reading.centred:
        return np.pad(slopes, (1, 0))
    beside = -slopes @ reading.mean_x
    corner = np.array([[centre - float(reading.mean_x @ beside)]])
    return np.block([[corner, beside[None, :]], [beside[:, None], slopes]])
