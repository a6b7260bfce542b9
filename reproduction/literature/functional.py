"""The functional mechanism (Zhang et al. 2012): Laplace noise on every coefficient of a quadratic objective.

Least squares: sum (y - x·w)², with the coefficients y², -2 y x_j, x_j² and 2 x_j x_k for j < k. Logistic
regression: Taylor's quadratic at 0, sum -(y/2) x·w + (x·w)²/8 for y = -1 or 1 (its constant is public).
Each coefficient, a sum over rows, gets noise of scale sensitivity / epsilon. Off the diagonal of the matrix
of the quadratic that is half of it, the two entries being one coefficient.

**Sensitivities** in the L1 norm, when one row is replaced; D is the width of x, ||x|| <= 1.

- *published*: 2 (D + 1)² and D²/4 + 3 D, which use |x_j| <= 1 alone.
- *tight*: twice the most that one row adds, which is what their lemma says. With |x|_1 <= sqrt(D) a row adds
  y² + 2 |y| |x|_1 + |x|_1² = (|y| + |x|_1)², so 2 (1 + sqrt D)²; and |x|_1 / 2 + |x|_1² / 8, so
  sqrt(D) + D/4.
- *pairs*: no two rows are that far apart. With v = (x, y), t = (z, u) the change is the sum of the magnitudes
  of vv' - tt', which is v'Sv - t'St for the matrix S of its signs. For any c > 0 let A be S with its last row
  and column divided by sqrt(c): v'Sv <= (1 + c) max(0, largest eigenvalue of A), since |x|² + c y² <= 1 + c,
  and the same for t. Two eigenvalues are at most sqrt(2) |A|_F apart, |A|_F = D + 1/c: with c = 1 / sqrt(D)
  the change is at most sqrt(2) (1 + sqrt D)². For logistic regression v = (x, 2), t = (z, 2), signs of y gone
  into x and z, an eighth of the change, and 0 in the corner of S: sqrt(2)/8 (1 + 4 c) sqrt(D² + 2 D/c),
  least where 4 D c² + 4 c = 1.

A minimiser exists by what they do after it: 4 standard deviations of the noise are added to the diagonal of
the matrix of the quadratic, and directions whose eigenvalue is still not above 0 are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import T_BITS
from cape.noise import SecureStream, exact_gram
from reproduction.literature.data import Pooled
from reproduction.literature.noise import laplace_sums

__all__ = ["LEAST_SQUARES", "LOGISTIC", "Form", "functional_mechanism"]

Floats = NDArray[np.float64]

_RIDGE = 4.0  # standard deviations of the noise


def _published_linear(width: int) -> float:
    return 2.0 * (width + 1) ** 2


def _tight_linear(width: int) -> float:
    return 2 * (1 + math.sqrt(width)) ** 2


def _pairs_linear(width: int) -> float:
    return math.sqrt(2) * (1 + math.sqrt(width)) ** 2


def _published_logistic(width: int) -> float:
    return width**2 / 4 + 3 * width


def _tight_logistic(width: int) -> float:
    return width / 4 + math.sqrt(width)


def _pairs_logistic(width: int) -> float:
    c = (math.sqrt(1 + width) - 1) / (2 * width)
    return math.sqrt(2) / 8 * (1 + 4 * c) * math.sqrt(width**2 + 2 * width / c)


@dataclass(frozen=True)
class Form:
    """A quadratic: its coefficients as integers, in units of 2^-bits, and how far one row moves them."""

    constant: bool  # whether the sum of y² is one of them
    first: int  # the coefficient of y x, where that of x_j² is 1
    bits: int
    sensitivities: dict[str, Callable[[int], float]]

    def coefficients(self, data: Pooled) -> list[int]:
        """Return the exact sums."""
        sums = exact_gram(np.column_stack([data.x, data.y]), bits=T_BITS).xx
        xx, xy, yy = sums[:-1, :-1], sums[:-1, -1], sums[-1, -1]
        constant = [int(yy)] if self.constant else []
        above = xx[np.triu_indices(data.width, 1)]
        return [
            *constant,
            *(self.first * int(each) for each in xy),
            *(int(each) for each in np.diag(xx)),
            *(2 * int(each) for each in above),
        ]

    def parts(self, coefficients: Floats, width: int) -> tuple[Floats, Floats]:
        """Return a and M of the quadratic a·w + w'M w."""
        kept = coefficients[int(self.constant) :]
        matrix = np.diag(kept[width : 2 * width])
        above = np.triu_indices(width, 1)
        matrix[above] = kept[2 * width :] / 2
        return kept[:width], matrix + np.triu(matrix, 1).T


LEAST_SQUARES = Form(
    True,
    -2,
    2 * T_BITS,
    {"dp-fm": _published_linear, "dp-fm-tight": _tight_linear, "dp-fm-pairs": _pairs_linear},
)
LOGISTIC = Form(
    False,
    -4,
    2 * T_BITS + 3,
    {"dp-fm": _published_logistic, "dp-fm-tight": _tight_logistic, "dp-fm-pairs": _pairs_logistic},
)


def functional_mechanism(
    data: Pooled, form: Form, sensitivity: float, epsilon: float, stream: SecureStream
) -> tuple[Floats, float]:
    """Return the weights of x, and what was added to the mean of the quadratic's matrix."""
    noisy, scale = laplace_sums(form.coefficients(data), form.bits, sensitivity, epsilon, stream)
    first, matrix = form.parts(noisy, data.width)
    ridge = _RIDGE * math.sqrt(2) * scale
    return _trimmed(first, matrix + ridge * np.eye(data.width)), ridge / data.rows


def _trimmed(first: Floats, matrix: Floats) -> Floats:
    """Return the minimiser of first·w + w'matrix w over the directions in which the matrix is above 0."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 0
    along = vectors[:, kept]
    return np.asarray(-along @ (along.T @ first / values[kept]) / 2)
