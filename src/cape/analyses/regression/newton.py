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
from functools import cached_property

import numpy as np

from cape.analyses.matrices import CLEAR, spectral, symmetric
from cape.analyses.regression.normal_odds import MOST_SPREAD
from cape.arrays import Flags, Floats
from cape.blocks import Design, Newton
from cape.blocks.block import T_BITS
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query

__all__ = ["Step", "newton_query"]


_HESSIAN: dict[str, float] = {"replace-one": 24.0, "add-remove": 11.0}
_COUNT: dict[str, float] = {"replace-one": 2.0, "add-remove": 0.125}
_FLOAT = 1 + 1e-12
_FLOOR = 1e-9  # of the largest eigenvalue: where there is no noise there is still rounding


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
        _, gradient, square, cross = answer.sums[0]
        _, gradient_noise, _, hessian_noise = answer.noise[0]
        count, _ = answer.complete_rows(design.columns)
        return cls(
            weights, gradient, symmetric(square, cross), gradient_noise, hessian_noise, max(count, 1.0)
        )

    @cached_property
    def spread(self) -> tuple[Floats, Floats]:
        """The eigenvalues of the Hessian, rising, and its eigenvectors as columns."""
        values, vectors = np.linalg.eigh(self.hessian)
        return values, vectors

    def _above(self, times: float) -> Flags:
        """Return which eigenvalues would stand out if noise were so many times as large."""
        values, _ = self.spread
        floor = _FLOOR * max(self.count, float(np.abs(values).max(initial=0.0)))
        return values > max(CLEAR * times * spectral(len(values), self.hessian_noise), floor)

    @cached_property
    def clear(self) -> Flags:
        """Which eigenvalues stand out from the noise."""
        return self._above(1.0)

    def would_show(self, times: float) -> bool:
        """Return whether a direction that noise hides would stand out if it were `times` as large."""
        return bool((self._above(times) & ~self.clear).any())

    @property
    def _inverses(self) -> Floats:
        """1 / eigenvalue, and 0 along directions that do not stand out."""
        values, _ = self.spread
        return np.where(self.clear, 1 / np.where(self.clear, values, 1.0), 0.0)

    @property
    def inverse(self) -> Floats:
        """The inverse of the Hessian, along directions that stand out; 0 along the others."""
        _, vectors = self.spread
        return np.asarray((vectors * self._inverses) @ vectors.T)

    @property
    def hidden(self) -> Floats:
        """What takes a vector to its part along directions that do not stand out."""
        vectors = self.spread[1][:, ~self.clear]
        return np.asarray(vectors @ vectors.T)

    @cached_property
    def change(self) -> Floats:
        """The step, in the directions that stand out from noise; nothing in the others.

        From a start at which nearly all rows are sure to be in one category, a Newton step goes much too far:
        it changes log-odds by no more than they are thought to vary.
        """
        step = -self.inverse @ self.gradient
        return np.asarray(step * min(1.0, MOST_SPREAD / max(self.moved(step), 1e-300)))

    def moved(self, step: Floats) -> float:
        """Return by how much a step changes log-odds, as a standard deviation over people, or a bit less.

        step'H step is the sum of h (x·step)² over rows, with h <= 1/4.
        """
        return 2 * math.sqrt(max(float(step @ self.hessian @ step), 0.0) / self.count)

    def errors(self, before: Floats) -> tuple[Floats, Floats]:
        """Return the covariances of the weights after the step: of sampling people, and of privacy noise.

        Sampling: the inverse of the Hessian. Noise: e in the gradient and E in the Hessian move the
        step by -H^-1 (e + E step). In directions that do not stand out it is `before`, that of the weights
        before the step.
        """
        _, vectors = self.spread
        change = self.change
        moved = self.gradient_noise**2 + self.hessian_noise**2 * (
            float(change @ change) + (vectors.T @ change) ** 2
        )
        privacy = (vectors * (self._inverses**2 * moved)) @ vectors.T + self.hidden @ before @ self.hidden
        return self.inverse, np.asarray(privacy)
