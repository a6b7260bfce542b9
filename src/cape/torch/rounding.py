"""What floating point may add to the bound on one record when gradients are measured, shrunk and added up.

Claim. Let a batch have B records and let S be the computed sum. Adding, removing or replacing one record
moves S by no more than it moves a sum of vectors that are each of norm at most C, plus
`rounding_slack(B) * C`.
Reason, in three parts.
(1) Norms are never measured too short by as much as a part in 2^10. Products of norms and Gram matrices
are computed in float64. A Gram matrix can cancel, so 2^-26 |X|^2 |G|^2 is added to what it gives; its own
rounding is below (I + O + T^2) 2^-53 |X|^2 |G|^2, which is less: T^2 is at most 2^26 there. What is
measured in float32, gradients that are kept and the factors of a product, is added up in blocks of 2048,
with relative error below 2^-12 in the square, and the smallest normal number per entry is added for
squares that underflow. `factors` aims at C (1 - 2^-10), which allows for all of it: a vector that is added
is no longer than C.
(2) The sum is made in float64. With u = 2^-53, an entry whose terms are added K at a time, and then k
such partial sums, is off by at most (K + k) u times the sum of its terms' magnitudes, in any order. For
gradients that are kept, K + k is at most B, and a record's magnitudes have norm at most C. For those that
are only added up as products, K is at most 2^13 and k at most B; a record's magnitudes are then at most
2^13 C, by the 2^-26 above.
(3) Both adjacent data sets' sums are off by that much: a factor of 2.
Assumed: that a library's kernel gives every *other* record the same bits when one record of a batch is
another. In a batch of another size it may not: gradients then differ in their last bits, which one would
have to count for every record. Fixed batch sizes avoid the question, and `cape.torch.train` has them (`keep`
says which records count), also where it samples.
Tested in tests/torch/test_rounding.py, with exact rational sums.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from cape.core import check

__all__ = ["GRAM_FLOOR", "ROWS", "SHRINK", "factors", "rounding_slack", "squares_of"]

SHRINK = 1.0 - 2.0**-10
"""Aim this much below the bound, so that a norm that was measured too short is still within it."""

ROWS = 1 << 13
"""How many terms a float64 product adds up before they join the total."""

GRAM_FLOOR = 2.0**-26
"""The part of |X|^2 |G|^2 that a squared norm from a Gram matrix is taken to be longer."""

_BLOCK = 2048


def rounding_slack(batch: int) -> float:
    """Return what rounding adds to a record's bound in a batch of that size, in units of the bound."""
    batch = check.integer("batch", batch, least=0)
    terms = ROWS + batch + 8  # 8: the products, the factor and the scaling
    return 2.0 * math.sqrt(1.0 / GRAM_FLOOR) * batch * terms * 2.0**-53


def factors(squares: Any, clip: float) -> Any:
    """Return what each record's gradient is multiplied by, given (upper bounds of) squared norms."""
    return (clip * SHRINK / squares.sqrt()).clamp_(max=1.0)


def squares_of(rows: Any) -> Any:
    """Return upper bounds, in float64, of the squared norms of rows; relative error below 2^-12."""
    width = rows.shape[1]
    whole = width // _BLOCK * _BLOCK if width > _BLOCK else 0
    squares = torch.linalg.vector_norm(rows[:, whole:], dim=1).double().square_()
    if whole:
        blocks = rows[:, :whole].unflatten(1, (-1, _BLOCK))
        squares += torch.linalg.vector_norm(blocks, dim=2).double().square_().sum(1)
    return squares.add_(width * torch.finfo(rows.dtype).tiny)
