"""Newton steps of logistic regression: how far one row moves them, and what a noisy one says.

Claim. With weight 1 on the sum of g x, b on that of h xx' (off-diagonals counted twice), h = |g| (1 - |g|),
and c on the count, one row changes the sums, each divided by its scale, by at most 2 under replace-one if b
<= 24 and c <= 2, and by sqrt(1 + c) under add-remove if b <= phi⁵ = 11.09..., phi the golden ratio: the
Hessian is free.
Reason. Let r = |g| ||x|| and q = h ||x||². As |g| >= r, q = r² (1 / |g| - 1) lies between
0 and r (1 - r). For two rows with cosine k between g x and -g'x' the change is

    f = r² + r'² + 2 r r' k + b (q² + q'² - 2 q q' k²).

It is convex in (q, q'), so each is at an end, 0 or r (1 - r). Write e = 1 - r and u(e) = (1 - e)² (1 + b e²).

- *One is 0, say q* (or both): f rises in k and in r, so k = r = 1, and f <= (1 + r')² + b r'² (1 - r')²,
  which is at most 4 as long as b <= (4 - e) / (e (1 - e)²) for every e: its least value is 24.68..., at e =
  0.354.
- *Neither is 0*: in k, f is concave with its top at 1 / (2 b e e'). If that is 1 or more, k = 1 and f = (r
  + r')² + b (q - q')² is less than in the first case. If not, f = u(e) + u(e') + t with t = 1 / (2 b e e')
  < 1. Let b = 24 and e <= e'. u is at most 1.7734; it is at most 1.113 for e <= 0.15, 1.301 up to 0.2152
  and 1.572 up to 0.309, because it falls from 1 and then rises up to e = 0.455. If t <= 0.45, f <= 2 *
  1.7734 + 0.45 < 4. Otherwise e e' < 0.0463, so e < 0.2152. If e <= 0.15, f < 1.113 + 1.7734 + 1 < 4. If
  not, e' < 0.309 and f < 1.301 + 1.572 + 1 < 4.
- *A row that is added, left out, or replaced by an incomplete one* changes the sums by u(e) + c: at most
  1.7734 + c for b = 24, and 1 + c as long as b <= (1 - r²) / (r² (1 - r)²), whose least value is phi⁵, at r
  = 1 / phi.

2 is attained: g near 1 and -1 for the same x. Rounding g and z = sqrt(h) x toward zero makes no row longer;
it changes g x by 2^-20 at most and zz' by (||z|| + ||z^||) ||z - z^|| <= 2^-20 sqrt(d), and a difference of
two rows by twice that, which is added.
Tested in tests/analyses/regression/test_logistic_sensitivity.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cape.analyses.matrices import spectral, symmetric
from cape.blocks import Design, Newton
from cape.blocks.block import T_BITS
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query

__all__ = ["CLEAR", "Step", "newton_query"]

Floats = NDArray[np.float64]

_HESSIAN: dict[str, float] = {"replace-one": 24.0, "add-remove": 11.0}
_COUNT: dict[str, float] = {"replace-one": 2.0, "add-remove": 0.125}
_FLOAT = 1 + 1e-12
CLEAR = 3.0  # times the noise's own eigenvalues that one of the Hessian's must be, to be divided by
_FARTHEST = 3.0  # the most that a step may change log-odds, as a standard deviation over people


def newton_query(design: Design, weights: Floats, schema: Schema, neighbours: Neighbours) -> Query:
    """Return the sums for a step from these weights: proof at the head of the module."""
    b, c = _HESSIAN[neighbours], _COUNT[neighbours]
    scales = (1 / math.sqrt(c), 1.0, 1 / math.sqrt(b), 1 / math.sqrt(2 * b))
    block = Newton(design, tuple(float(w) for w in weights))
    if neighbours == "add-remove":
        sensitivity = math.sqrt(1 + c)
    else:
        rounding = 1 + math.sqrt(b * design.width(schema))
        sensitivity = 2 + math.ldexp(rounding, 1 - T_BITS)
    return Query((block,), (scales,), sensitivity * _FLOAT)


@dataclass(frozen=True)
class Step:
    """The noisy gradient and Hessian of the loss, summed over rows, at some weights."""

    weights: Floats
    gradient: Floats
    hessian: Floats
    gradient_noise: float
    hessian_noise: float  # above the diagonal
    count: float

    @classmethod
    def of(cls, answer: Answer, design: Design, weights: Floats) -> Step:
        """Return what an answer to `newton_query` at these weights holds."""
        (block_sums,), (noise,) = answer.sums, answer.noise
        count, gradient, square, cross = block_sums
        public = answer.rows is not None and not design.missing(answer.schema)
        rows = float(answer.rows) if public and answer.rows is not None else answer.at_most(float(count[0]))
        return cls(
            weights,
            gradient,
            symmetric(square, cross),
            noise[1],
            noise[2] / math.sqrt(2),
            max(rows, 1.0),
        )

    def merged(self, other: Step) -> Step:
        """Return the weighted average of two answers at the same weights: what one for both would give."""
        if self.gradient_noise == 0 or other.gradient_noise == 0:
            return self if self.gradient_noise == 0 else other
        mine = 1 / (1 + (self.gradient_noise / other.gradient_noise) ** 2)
        return Step(
            self.weights,
            mine * self.gradient + (1 - mine) * other.gradient,
            mine * self.hessian + (1 - mine) * other.hessian,
            math.sqrt(mine) * self.gradient_noise,
            math.sqrt(mine) * self.hessian_noise,
            mine * self.count + (1 - mine) * other.count,
        )

    def would_show(self, noise: float) -> bool:
        """Return whether a direction that noise hides would stand out if it were `noise` times as large."""
        values, _ = self.spread
        floor = 1e-9 * max(self.count, float(np.abs(values).max(initial=0.0)))
        least = max(CLEAR * noise * spectral(len(values), self.hessian_noise), floor)
        return bool((values[~self.clear] > least).any())

    @property
    def inverse(self) -> Floats:
        """The inverse of the Hessian, along directions that stand out; 0 along the others."""
        values, vectors = self.spread
        kept = self.clear
        return np.asarray((vectors * np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)) @ vectors.T)

    @property
    def hidden(self) -> Floats:
        """What takes a vector to its part along directions that do not stand out."""
        vectors = self.spread[1][:, ~self.clear]
        return np.asarray(vectors @ vectors.T)

    @property
    def spread(self) -> tuple[Floats, Floats]:
        """The eigenvalues of the Hessian, rising, and its eigenvectors as columns."""
        values, vectors = np.linalg.eigh(self.hessian)
        return values, vectors

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which eigenvalues stand out from the noise."""
        values, _ = self.spread
        floor = 1e-9 * max(self.count, float(np.abs(values).max(initial=0.0)))
        return values > max(CLEAR * spectral(len(values), self.hessian_noise), floor)

    @property
    def change(self) -> Floats:
        """The step, in the directions that stand out from noise; nothing in the others.

        It changes log-odds by at most so much that a start far off comes nearer, and none gets lost.
        """
        values, vectors = self.spread
        along = vectors.T @ self.gradient
        kept = self.clear
        step = np.where(kept, -along / np.where(kept, values, 1.0), 0.0)
        size = math.sqrt(float((np.where(kept, values, 0.0) * step**2).sum()) / self.count)
        # sum of h (x·step)² over rows, with h <= 1/4: a standard deviation of 2 sqrt(...) at least
        return np.asarray(vectors @ (step * min(1.0, _FARTHEST / max(2 * size, 1e-300))))

    def errors(self, before: Floats) -> tuple[Floats, Floats]:
        """Return the covariances of the weights after the step: of sampling people, and of privacy noise.

        Sampling: the inverse of the Hessian. Noise: e in the gradient and E in the Hessian move the
        step by -H^-1 (e + E step). In directions that do not stand out it is `before`, that of the weights
        before the step.
        """
        values, vectors = self.spread
        kept = self.clear
        change = self.change
        inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
        across = float(change @ change)
        moved = self.gradient_noise**2 + self.hessian_noise**2 * (across + (vectors.T @ change) ** 2)
        privacy = (vectors * (inverse**2 * moved)) @ vectors.T + self.hidden @ before @ self.hidden
        return self.inverse, np.asarray(privacy)
