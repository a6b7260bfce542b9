"""What noisy second moments of (1, x, y), y = -1 or 1, say about log-odds: logistic regression in one round.

The logistic loss log(1 + exp(-m)), m = y (x·w + w0), is replaced by a quadratic a0 - m/2 + c m². Its
minimiser is 1 / (4 c) times the least-squares fit d of y on x, so that the second moments are all that is
needed. c is 1/8 for Taylor's at 0; for the quadratic of least error on |m| <= R it is log(cosh(R / 2)) /
R²: log(2 cosh(m / 2)) is concave in m², and its chord has the best slope.

*Scale.* Only the scale depends on c, and one more equation gives a better one. If log-odds are z = x·w + w0
and x is normal, cov(x, y) = 2 cov(x) w E[s'(z)], s the logistic function (Stein's lemma): so w = d / (2
E[s'(z)]), and E[s(z)] is the share of the positive class. Both expectations depend on the variance v =
w'cov(x) w and the mean of z alone, which are solved for; where noise leaves v uncertain, the least that it
can well be is taken for the *cautious* slopes, which predict best. They are too small where noise is large:
the *bold* ones, for which all that is uncertain goes the other way, end the interval on the other side. For
people whose x is not normal it is an approximation, as a quadratic is for
everyone: no claim is made that the weights are the maximum-likelihood ones.

*Noise.* cov(x, y) = cov(x) d + noise of known size, in cov(x, y) and in cov(x) itself. cov(x) is drawn to a
multiple of the identity as far as its noise asks for (`matrices.shrunk`). In its eigenvectors, with
eigenvalues l_i, a weight d_i with variance k² before anything is seen gets the mean l_i k² c_i / (l_i² k² +
v_i): the minimiser of a quadratic with a ridge, which always exists. k is what makes the released numbers
most likely; where they look like noise it is 0, and so are the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from cape.analyses.matrices import shrunk, spectral

__all__ = ["Fit", "Lean", "SecondMoments", "curvature", "fit_odds"]

Floats = NDArray[np.float64]
Lean = Literal[-1, 0, 1]

_Z = np.linspace(-8.0, 8.0, 161)
_NORMAL = np.exp(-(_Z**2) / 2)
_NORMAL /= _NORMAL.sum()
_MOST_SPREAD = 6.0  # of log-odds, as a standard deviation: nobody could tell more from 0 and 1
_KAPPAS = np.concatenate([[0.0], np.logspace(-6.0, math.log10(2 / math.pi), 97)])
_SURE = 2.5  # standard deviations of noise that a mean of y must exceed
_TIE = 1e-3
_USUAL = 0.4  # how far from 0 it is thought to be
_MARGIN = 0.25  # the same, for the variance of x·w
_SAFE = 2.0  # standard deviations of noise that cautious slopes are drawn in by
_BOLD = 1.0  # and that bold ones are let out by; an interval adds their own error
_ROUGHLY = 0.15  # what features that are not normal do to a slope: skewed ones were found to do twice that
_LEAST_LEFT = 0.25  # of the variance of x, however much of it may be noise
_UNSEEN = 2.0  # how much more weights may vary, as a variance, where noise hides them
_LIKELY = 2.0  # in units of log-likelihood: what is not excluded


def curvature(fit: str, reach: float) -> float:
    """Return c of the quadratic a0 - m/2 + c m²."""
    if fit == "taylor":
        return 0.125
    half = reach / 2
    return (half + math.log1p(math.exp(-2 * half)) - math.log(2.0)) / reach**2


@dataclass(frozen=True)
class SecondMoments:
    """Sums over complete rows and their noise; for `xx` the noise is that above the diagonal."""

    count: float
    y: float
    x: Floats
    xy: Floats
    xx: Floats
    y_noise: float
    x_noise: float
    xy_noise: float
    xx_noise: float
    centred: bool = True  # whether there is an intercept, so that means are taken off

    def merged(self, other: SecondMoments) -> SecondMoments:
        """Return the weighted average of two answers to the same question: what one for both would give."""
        if self.xy_noise == 0 or other.xy_noise == 0:
            return self if self.xy_noise == 0 else other
        mine = 1 / (1 + (self.xy_noise / other.xy_noise) ** 2)
        noise = math.sqrt(mine)  # of both, in units of the first
        return SecondMoments(
            mine * self.count + (1 - mine) * other.count,
            mine * self.y + (1 - mine) * other.y,
            mine * self.x + (1 - mine) * other.x,
            mine * self.xy + (1 - mine) * other.xy,
            mine * self.xx + (1 - mine) * other.xx,
            noise * self.y_noise,
            noise * self.x_noise,
            noise * self.xy_noise,
            noise * self.xx_noise,
            self.centred,
        )

    @cached_property
    def mean_y(self) -> float:
        """The mean of y, drawn to 0 as far as noise asks for; its sign is kept, to break ties by."""
        mean, noise = self.y / self.count, self.y_noise / self.count
        if mean == 0.0:
            return 0.0
        beyond = max(0.0, 1 - (_SURE * noise / mean) ** 2)
        usual = _USUAL**2 / (_USUAL**2 + noise**2)
        drawn = max(abs(mean) * beyond * usual, min(_TIE, abs(mean)))
        return math.copysign(min(drawn, 0.9999), mean)

    @cached_property
    def mean_x(self) -> Floats:
        """The mean of x, drawn to 0 as far as noise asks for."""
        return np.clip(_toward_zero(self.x, self.x_noise) / self.count, -1.0, 1.0)

    @property
    def square(self) -> Floats:
        """The covariance of x with all its noise."""
        return np.asarray(self.xx / self.count - np.outer(self.mean_x, self.mean_x))

    @cached_property
    def covariance(self) -> tuple[Floats, float]:
        """The covariance of x (its mean square, if there is no intercept), and how much noise is left.

        Too large a matrix makes slopes too small, which does less harm than too large ones: this is the
        largest that is not excluded.
        """
        return self.drawn(-1)

    def drawn(self, lean: Lean) -> tuple[Floats, float]:
        """Return the covariance for cautious, plain or bold slopes: as large, likely or small as can be."""
        square = self.square
        width, noise = len(square), self.xx_noise / self.count
        mean = float(np.trace(square)) / width
        # what noise does to the mean of the diagonal
        off = (_SAFE if lean < 0 else _BOLD) * math.sqrt(2 / width) * noise
        wanted = (max(mean - off, _LEAST_LEFT * mean), mean, min(mean + off, max(1 / width, mean)))[1 - lean]
        return shrunk(square + (wanted - mean) * np.eye(width), noise)

    @property
    def varies(self) -> bool:
        """Whether x varies at all by more than noise."""
        width = len(self.x)
        mean = float(np.trace(self.square)) / width
        return mean * (1 - _LEAST_LEFT) > _BOLD * math.sqrt(2 / width) * self.xx_noise / self.count

    def bare(self) -> SecondMoments:
        """Return the same with means that are not drawn to 0."""
        plain = SecondMoments(*(getattr(self, each.name) for each in fields(self)))
        plain.__dict__["mean_y"] = min(max(self.y / self.count, -0.9999), 0.9999)
        plain.__dict__["mean_x"] = np.clip(self.x / self.count, -1.0, 1.0)
        return plain

    def hessian(self, weights: Floats) -> Floats:
        """Return the Hessian of the loss, a row, at weights of (1, x), if x is normal."""
        covariance, mean = self.drawn(0)[0], self.mean_x
        along = covariance @ weights[1:]
        variance = max(float(weights[1:] @ along), 0.0)
        spread = math.sqrt(variance)
        odds = expit(float(weights[0] + mean @ weights[1:]) + spread * _Z)
        bend = _NORMAL * odds * (1 - odds)
        # moments of s' with (z - its mean) / spread; x is its mean, plus `push` for each unit of that, and
        # a part that has nothing to do with z
        zeroth, first, second = float(bend.sum()), float(bend @ _Z), float(bend @ _Z**2)
        push = along / spread if spread > 0 else np.zeros_like(along)
        beside = first * np.outer(mean, push)
        inner = zeroth * (np.outer(mean, mean) + covariance) + beside + beside.T
        inner = inner + (second - zeroth) * np.outer(push, push)
        edge = zeroth * mean + first * push
        return np.block([[np.full((1, 1), zeroth), edge[None, :]], [edge[:, None], inner]])

    @property
    def second(self) -> Floats:
        """The mean of xx', shrunken as the covariance is."""
        return np.asarray(self.covariance[0] + np.outer(self.mean_x, self.mean_x))

    @property
    def product(self) -> Floats:
        """The covariance of x and y."""
        return np.asarray(self.xy / self.count - self.mean_x * self.mean_y)

    @property
    def product_noise(self) -> float:
        """The noise in it, as a variance."""
        mean_square = float((self.mean_x**2).mean())
        parts = (
            self.xy_noise**2 + (self.mean_y * self.x_noise) ** 2 + mean_square * self.y_noise**2,
            (self.x_noise * self.y_noise / self.count) ** 2,
        )
        return sum(parts) / self.count**2


def _toward_zero(values: Floats, noise: float) -> Floats:
    """Return James and Stein's positive part: values less the share of them that is noise."""
    size = float(values @ values)
    if size == 0.0:
        return values
    return np.asarray(values * max(0.0, 1 - len(values) * noise**2 / size))


@dataclass(frozen=True)
class Fit:
    """Weights in units of x, the intercept first, and the covariances of their errors."""

    weights: Floats
    sampling: Floats
    privacy: Floats
    spread: float  # the standard deviation of log-odds over people
    slope: float  # E[s'(z)]
    signal: float  # twice the log of how much likelier it is that anything but noise is there


def fit_odds(
    moments: SecondMoments, *, scale: float | None = None, ridge: float | None = None, lean: Lean = -1
) -> Fit:
    """Return the weights; `scale` is 1 / (4 c) of a quadratic, None for the scale that fits normal x.

    `ridge` is added to the mean of xx' in place of what the noise asks for. Weights are cautious ones, as
    small as noise lets them be; with `lean` 0 the likely ones, and with 1 as large as it lets them be.
    """
    if lean == 1:
        moments, ridge = moments.bare(), None
    square, keep = moments.drawn(lean)
    values, vectors = np.linalg.eigh(square)
    values = np.maximum(values, 0.0)
    found = vectors.T @ moments.product
    sampled = values * (1 - moments.mean_y**2) / moments.count
    noise = np.full(len(values), moments.product_noise)
    left = keep if lean < 1 else 1.0  # what drawing the matrix to the identity leaves out is noise as well
    in_square = len(values) * (left * moments.xx_noise / moments.count) ** 2
    prior = _Prior(values, found, sampled, noise, in_square)
    if ridge is None:
        weight = prior.weights((prior.safe, prior.likeliest, prior.likely)[lean + 1])
    else:
        floor = max(spectral(len(values), keep * moments.xx_noise / moments.count), 1e-12) if not ridge else 0
        weight = found / (np.maximum(values, floor) + ridge)
    weight, explained, doubt = _checked(moments, vectors, values, weight, sampled + noise, lean)
    sure = min(max(0.0, explained + lean * (_SAFE if lean < 0 else _BOLD) * doubt), 1.0)
    centre, spread, slope = _normal_odds(sure, (1 + moments.mean_y) / 2, moments.centred)
    factor = 1 / (2 * slope) if scale is None else scale
    most = _MOST_SPREAD / math.sqrt(explained) if explained > 0 else math.inf
    factor = min(factor, most)
    slopes = factor * (vectors @ weight)
    if scale is not None:
        centre = scale * moments.mean_y
        spread = factor * math.sqrt(explained)
    approximation = np.diag((_ROUGHLY * slopes) ** 2) if scale is None else 0.0
    intercept = centre - float(moments.mean_x @ slopes) if moments.centred else 0.0
    parts = [
        _with_intercept(factor**2 * (vectors * each) @ vectors.T + rough, moments, slope, slopes, kind)
        for kind, (each, rough) in enumerate(zip(prior.variances(lean), (approximation, 0.0), strict=True))
    ]
    return Fit(np.concatenate([[intercept], slopes]), parts[0], parts[1], spread, slope, prior.signal)


def _checked(
    moments: SecondMoments, vectors: Floats, values: Floats, weight: Floats, errors: Floats, lean: Lean
) -> tuple[Floats, float, float]:
    """Return the weights, no larger than the variance of x·w allows; what they explain; and its error.

    Drawing cov(x) to the identity makes it too small where x varies most, which is where w often points.
    Along the one direction w it is known much better than as a whole.
    """
    along = vectors @ weight
    size = float(weight @ weight)
    of_noise = math.sqrt(2) * moments.xx_noise / moments.count * size
    told = float((values * weight**2).sum())
    seen = float(along @ moments.square @ along) + (_MARGIN * of_noise if lean < 0 else 0.0)
    factor = min(1.0, told / seen) if seen > 0 and lean < 1 else 1.0
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

    def _errors(self, k: float) -> Floats:
        return np.asarray(self.sampled + self.noise + self.in_square * k)

    @cached_property
    def grid(self) -> Floats:
        """Possible k: k sum(values) is the share of the variance of y that x explains."""
        total = float(self.values.sum())
        return _KAPPAS / total if total > 0 else np.zeros(1)

    @cached_property
    def likelihoods(self) -> Floats:
        """Twice the log-likelihood of each k, less that of 0."""
        k = self.grid[:, None]
        variance = np.maximum(self.values**2 * k + self.sampled + self.noise + self.in_square * k, 1e-300)
        told = -(np.log(variance) + self.found**2 / variance).sum(axis=1)
        return np.asarray(told - told[0])

    @property
    def safe(self) -> float:
        """The smallest k that is not excluded: 0 where all may be noise."""
        return float(self.grid[self._kept[0]])

    @property
    def _kept(self) -> NDArray[np.int64]:
        return np.nonzero(self.likelihoods >= self.likelihoods.max() - 2 * _LIKELY)[0]

    @property
    def likely(self) -> float:
        """The largest k that is not excluded."""
        return float(self.grid[self._kept[-1]])

    @property
    def likeliest(self) -> float:
        """The likeliest k."""
        return float(self.grid[int(np.argmax(self.likelihoods))])

    @property
    def signal(self) -> float:
        return float(self.likelihoods.max())

    def weights(self, k: float) -> Floats:
        """Return the mean of the weights once they are seen."""
        variance = self.values**2 * k + self._errors(k)
        return np.asarray(self.values * k * self.found / np.maximum(variance, 1e-300))

    def variances(self, lean: Lean) -> tuple[Floats, Floats]:
        """Return the mean square errors of the weights, if they vary by `likely`.

        What shrinking leaves out counts as noise, since noise is what asks for it.
        """
        k = (self.safe, self.likeliest, self.likely)[lean + 1]
        kept = self.values**2 * k
        kept = kept / np.maximum(kept + self._errors(k), 1e-300)
        per_value = kept**2 / np.maximum(self.values, 1e-150) ** 2
        left_out = (1 - kept) ** 2 * self.likely * (1.0 if lean < 0 else _UNSEEN)
        of_noise = per_value * (self.noise + self.in_square * k) + left_out
        return np.asarray(per_value * self.sampled), np.asarray(of_noise)


def _with_intercept(slopes: Floats, moments: SecondMoments, slope: float, at: Floats, kind: int) -> Floats:
    """Return the covariance of the intercept and the slopes, given that of the slopes.

    The intercept is the centre of log-odds less mean(x)·slopes; the centre moves by 1 / (2 E[s']) of what
    the mean of y does.
    """
    if not moments.centred:
        return np.pad(slopes, (1, 0))
    if kind == 0:
        of_mean = (1 - moments.mean_y**2) / moments.count / (2 * slope) ** 2
    else:
        of_mean = (moments.y_noise / moments.count / (2 * slope)) ** 2
        of_mean += float(at @ at) * (moments.x_noise / moments.count) ** 2
    beside = -slopes @ moments.mean_x
    corner = of_mean - float(moments.mean_x @ beside)
    return np.block([[np.array([[corner]]), beside[None, :]], [beside[:, None], slopes]])


def _normal_odds(explained: float, share: float, centred: bool) -> tuple[float, float, float]:
    """Return the mean of normal log-odds, their standard deviation, and E[s'].

    With v their variance, the least-squares fit explains 4 v E[s']² of the variance of y, and E[s] is
    `share`.
    """

    def centre(spread: float) -> float:
        if not centred or share == 0.5:
            return 0.0
        # E[s(z)] < E[exp(z)] = exp(centre + spread²/2): it is below `share` at one end, above at the other
        far = spread**2 / 2 - math.log(min(share, 1 - share))
        return float(brentq(lambda at: _NORMAL @ expit(at + spread * _Z) - share, -far, far))

    def excess(spread: float) -> float:
        return 4 * spread**2 * _mean_slope(centre(spread), spread) ** 2 - explained

    if explained <= 0:
        spread = 0.0
    else:
        spread = _MOST_SPREAD if excess(_MOST_SPREAD) <= 0 else float(brentq(excess, 0.0, _MOST_SPREAD))
    at = centre(spread)
    return at, spread, _mean_slope(at, spread)


def _mean_slope(centre: float, spread: float) -> float:
    odds = expit(centre + spread * _Z)
    return max(float(_NORMAL @ (odds * (1 - odds))), 1e-4)
