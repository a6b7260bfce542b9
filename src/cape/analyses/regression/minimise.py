"""The least value over a ball of a polynomial with noise in its coefficients.

All of this is post-processing: it sees released tensors and how large their noise is, nothing else.

F(w) = sum_j <T_j, w⊗...⊗w>, j = 1 to 4, plus k |w|², over |w| <= W. A continuous function on a ball has a
least value: a minimiser exists whatever noise has made of F. Up to degree 2 it is found exactly, by the
eigenvalues of T_2; above, by several descents from the best points of a fixed search, each of which ends no
higher than where it starts: no proof that nothing is lower, but never higher than w = 0.

*Ridge.* What noise adds to F at a w that follows it is known on average, by Stein's lemma: with noise of
variance t_j² in T_j, in its norm, H the Hessian of F + k |w|² at its minimiser w and d entries,

    L(k) = F(w) + sum_j t_j² j (|w|^(2j-2) tr H^-1 + (j - 1) |w|^(2j-4) w'H^-1 w)

estimates what F would be at w without noise. The k with the least L, plus a quarter of its standard
deviation, is taken, and w = 0 unless L is below 0 by 3 of them. For degree 2 this is the rule of `ridge`.
Tested in tests/unit/analyses/regression/test_polynomial.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.ridge import CAUTION, FLOOR, LEAST, MARGIN, SURE
from cape.core.arrays import Floats, Integers
from cape.stats.matrices import spectral

__all__ = ["Minimum", "Objective", "dense", "minimum"]


_STEPS = 48  # ridges tried up to degree 2
_FEW = 12  # and above
_STARTS = 6  # points of a search that descents start from
_MOST_WIDE = 12  # up to which it looks between any two axes
_HALVINGS = 200
_NEWTON = 100
_DONE = 1e-10


@dataclass(frozen=True)
class Objective:
    """A polynomial in w: symmetric tensors of degrees 1 to 4, and the noise in each, in its norm."""

    tensors: tuple[tuple[int, Floats], ...]
    noise: tuple[float, ...]
    width: int

    @property
    def degree(self) -> int:
        return max(j for j, _ in self.tensors)

    def value(self, w: Floats) -> float:
        return sum(float(_contract(tensor, w, j)) for j, tensor in self.tensors)

    def gradient(self, w: Floats) -> Floats:
        return np.asarray(sum((j * _contract(t, w, j - 1) for j, t in self.tensors), np.zeros(self.width)))

    def hessian(self, w: Floats) -> Floats:
        parts = (j * (j - 1) * _contract(t, w, j - 2) for j, t in self.tensors if j > 1)
        return np.asarray(sum(parts, np.zeros((self.width, self.width))))

    def part(self, degree: int) -> Floats:
        """Return the tensor of one degree, 1 or 2, zero if there is none."""
        shape = (self.width,) * degree
        return np.asarray(sum((t for j, t in self.tensors if j == degree), np.zeros(shape)))

    def noise_of(self, degree: int) -> float:
        """Return the noise of one degree."""
        return math.hypot(
            *(noise for (j, _), noise in zip(self.tensors, self.noise, strict=True) if j == degree)
        )

    def spread(self, square: float) -> float:
        """Return the standard deviation of the noise in F at a given w of this length, squared."""
        return math.sqrt(sum(n**2 * square**j for (j, _), n in zip(self.tensors, self.noise, strict=True)))


@dataclass(frozen=True)
class Minimum:
    """Where the least value is: w, the ridge that was added, the inverse Hessian there."""

    weights: Floats
    ridge: float
    inverse: Floats

    @property
    def hidden(self) -> bool:
        """Whether noise hides all there is."""
        return math.isinf(self.ridge)


def minimum(objective: Objective, ball: float, rows: float, ridge: float | None = None) -> Minimum:
    """Return the minimiser over |w| <= ball, with a ridge from the noise or the given one."""
    scale = max(rows, 1.0)
    second = objective.part(2)
    values = np.linalg.eigvalsh(second)
    edge = spectral(objective.width, objective.noise_of(2) / math.sqrt(2))
    for j in (3, 4):  # what noise of higher degree can do to the curvature within the ball
        edge += objective.noise_of(j) * math.sqrt(j * objective.width) * ball ** (j - 2)
    floor = (MARGIN if objective.degree > 2 else LEAST) * edge
    if objective.degree <= 2:
        floor = max(floor, MARGIN * edge - float(values[0]))
    floor += FLOOR * scale
    if ridge is not None:
        ridges = np.array([max(ridge, FLOOR * scale)])
    else:
        top = max(1e3 * floor, 10 * float(np.abs(values).max()), float(np.linalg.norm(objective.part(1))))
        ridges = np.geomspace(floor, top, _STEPS if objective.degree <= 2 else _FEW)
    best, best_score = Minimum(np.zeros(objective.width), math.inf, np.zeros_like(second)), 0.0
    start: Floats | None = None
    for k in ridges[::-1]:  # the strongest first: its minimiser is where the next descent starts
        w = _descend(objective, float(k), ball, start, k == ridges[0])
        start = w
        inverse = _inverse(objective, w, float(k), ball)
        estimated = objective.value(w) + _followed(objective, w, inverse)
        error = math.sqrt(2) * objective.spread(float(w @ w))
        score = estimated + CAUTION * error
        if ridge is not None or (score < best_score and estimated + SURE * error < 0):
            best, best_score = Minimum(w, float(k), inverse), score
    return best


def _contract(tensor: Floats, w: Floats, times: int) -> Floats:
    for _ in range(times):
        tensor = tensor @ w
    return tensor


def _inverse(objective: Objective, w: Floats, ridge: float, ball: float) -> Floats:
    """Return the inverse of the Hessian; on the sphere, of that with the constraint's multiplier."""
    hessian = objective.hessian(w) + 2 * ridge * np.eye(len(w))
    size = float(np.linalg.norm(w))
    if size > ball * (1 - 1e-6):
        gradient = objective.gradient(w) + 2 * ridge * w
        hessian = hessian + max(0.0, -float(gradient @ w) / size**2) * np.eye(len(w))
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, 2e-3 * ridge)  # a minimiser has none below 0, but for rounding
    return np.asarray((vectors / values) @ vectors.T)


def _followed(objective: Objective, w: Floats, inverse: Floats) -> float:
    """Return how much lower noise makes F at a w that follows it, on average."""
    square, trace, along = float(w @ w), float(np.trace(inverse)), float(w @ inverse @ w)
    total = 0.0
    for (j, _), noise in zip(objective.tensors, objective.noise, strict=True):
        turned = (j - 1) * square ** (j - 2) * along if j > 1 else 0.0
        total += noise**2 * j * (square ** (j - 1) * trace + turned)
    return total


def _descend(objective: Objective, ridge: float, ball: float, last: Floats | None, thorough: bool) -> Floats:
    """Return the minimiser of F + ridge |w|² over the ball, or the best of several descents."""
    first, second = objective.part(1), objective.part(2) + ridge * np.eye(objective.width)
    quadratic = _in_ball(first, second, ball)
    if objective.degree <= 2:
        return quadratic

    def total(w: Floats) -> float:
        return objective.value(w) + ridge * float(w @ w)

    zero = np.zeros(objective.width)
    starts: list[Floats] = [quadratic] + ([zero] if last is None else [last])
    if thorough:
        around = [
            length * v for v in _directions(objective.width) for length in (ball / 2, -ball / 2, ball, -ball)
        ]
        starts += sorted(around, key=total)[:_STARTS]
    ends = [zero, *(_newton(objective, ridge, ball, start) for start in starts)]
    best: Floats = min(ends, key=total)
    return best


def _newton(objective: Objective, ridge: float, ball: float, start: Floats) -> Floats:
    """Return where Newton steps lead: each minimises a quadratic over the ball, and none goes up.

    The quadratic is F's own at w, plus r |v - w|², where r falls after a step that went down and rises after
    one that would not.
    """
    eye = np.eye(objective.width)
    w = start
    value = objective.value(w) + ridge * float(w @ w)
    r = 0.0
    for _ in range(_NEWTON):
        gradient = objective.gradient(w) + 2 * ridge * w
        hessian = objective.hessian(w) + 2 * ridge * eye
        v = _in_ball(gradient - hessian @ w - 2 * r * w, hessian / 2 + r * eye, ball)
        there = objective.value(v) + ridge * float(v @ v)
        size = float(np.abs(hessian).max()) + float(np.abs(gradient).max()) / ball
        if there < value:
            close = value - there <= _DONE * abs(there)
            w, value, r = v, there, r / 4 if r > 1e-6 * size else 0.0
            if close and r <= 1e-3 * size:
                break
        else:
            if r > size / _DONE or float(np.abs(v - w).max()) <= _DONE * ball:
                break
            r = max(4 * r, 1e-3 * size)
    return w


def _directions(width: int) -> list[Floats]:
    """Return unit vectors along the axes and, if there are few, between any two of them."""
    axes = np.eye(width)
    found = list(axes)
    if width <= _MOST_WIDE:
        for i, j in itertools.combinations(range(width), 2):
            for angle in (math.pi / 8, math.pi / 4, 3 * math.pi / 8):
                found += [math.cos(angle) * axes[i] + s * math.sin(angle) * axes[j] for s in (1.0, -1.0)]
    return found


def _in_ball(first: Floats, second: Floats, ball: float) -> Floats:
    """Return the minimiser of first·w + w'second w over |w| <= ball: exact, by its one multiplier."""
    values, vectors = np.linalg.eigh(second)
    z = vectors.T @ first

    def at(multiplier: float) -> Floats:
        return np.asarray(-z / (2 * np.maximum(values + multiplier, 1e-300)))

    least = max(0.0, -float(values[0]))
    if values[0] > 0 and float(np.linalg.norm(at(0.0))) <= ball:
        return np.asarray(vectors @ at(0.0))
    low, high = least, least + float(np.linalg.norm(z)) / (2 * ball) + FLOOR
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if float(np.linalg.norm(at(middle))) > ball else (low, middle)
    w = at(high)
    size = float(np.linalg.norm(w))
    if size < ball * (1 - 1e-9) and values[0] < 0:  # the gradient has no part along the lowest direction
        w[0] += math.sqrt(ball**2 - size**2) * (1.0 if w[0] >= 0 else -1.0)
        size = float(np.linalg.norm(w))
    shortened: Floats = vectors @ w * min(1.0, ball / max(size, 1e-300))
    return shortened


def dense(degree: int, width: int, parts: Sequence[tuple[Integers, Floats]]) -> Floats:
    """Return the symmetric tensor with these entries at these indices i <= j <= ..., and all their orders."""
    tensor = np.zeros((width,) * degree)
    for places, values in parts:
        for order in _orders(degree):
            tensor[tuple(places[:, i] for i in order)] = values
    return tensor


def _orders(degree: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(degree)))
