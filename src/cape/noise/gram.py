"""Second moments, exactly: sums of x and x x' over rows on a grid, at the speed of BLAS.

Claim. The sums are the true integer sums, whatever the order of the rows, the number of threads and the
BLAS: the same multiset of rows gives the same bits.
Reason. On the grid of 2^-b every product is an integer number of 2^-2b, and float64 adds such numbers
without rounding while every partial sum stays below 2^53 of them. Whichever rows of a chunk BLAS adds up
first, no partial sum exceeds the largest diagonal entry (Cauchy-Schwarz over those rows; the diagonal
only grows), so a diagonal below 2^53 proves that nothing was rounded. Chunks are added as int64.
Tested in tests/unit/noise/test_gram.py against Python integers, under permutations, and at the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape.core import check
from cape.core.errors import InvalidInput, OverflowRisk

__all__ = ["Gram", "exact_gram", "exact_products"]

_CHUNK_ROWS = 4096
_EXACT = 2.0**53

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Gram:
    """Exact sums over rows: x in units of 2^-bits, xx in units of 2^-(2 bits)."""

    rows: int
    x: Int64
    xx: Int64


def exact_gram(x: ArrayLike, *, bits: int = 20, rounding: Literal["toward-zero"] | None = None) -> Gram:
    """Return the exact sums of x and x x' over the rows of `x`.

    Args:
        x: rows by columns, float64, of magnitude at most 1 (or what fits: see Raises).
        bits: the grid is the multiples of 2^-bits. Up to 20 run at full speed; each bit more
            quarters the chunk that BLAS gets, up to 24.
        rounding: "toward-zero" puts the values on the grid, and can only shrink a record. None
            says that they are there already, which is checked.

    Raises:
        InvalidInput: values that are not finite, or not on the grid when `rounding` is None.
        OverflowRisk: values so large, or rows so many, that a sum may not be exact.
    """
    bits = check.integer("bits", bits, least=1, most=24)
    if rounding not in (None, "toward-zero"):
        raise InvalidInput(f"rounding must be 'toward-zero' or None, not {rounding!r}")
    matrix = _matrix(x)
    size, width = min(_CHUNK_ROWS, 1 << (52 - 2 * bits)), matrix.shape[1]
    first, second = np.zeros(width, np.int64), np.zeros((width, width), np.int64)
    buffer, ones = np.empty((size, width)), np.ones(size)
    unit = 2.0**bits if rounding is None else 1.0  # a chunk that is rounded is in whole steps
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused
        for start in range(0, len(matrix), size):
            chunk = matrix[start : start + size]
            there = buffer[: len(chunk)]
            if rounding is None:
                _require_on_grid(chunk, there, bits)
            else:
                np.multiply(chunk, 2.0**bits, out=there)
                chunk = np.trunc(there, out=there)
            _add_squares(second, chunk.T @ chunk, unit)
            first += _whole(ones[: len(chunk)] @ chunk, unit)
    return Gram(len(matrix), first, second)


def exact_products(steps: Float64) -> Int64:
    """Return the exact sums of products of every two rows of `steps`, which holds whole numbers.

    What `exact_gram` computes, for (columns, rows) in steps already: nothing is checked but that the sums
    are exact. Contiguous rows of `steps`, not a power of two apart, are fastest.

    Raises:
        InvalidInput: values that are not finite.
        OverflowRisk: values larger than 2^20, so that a sum may not be exact.
    """
    total = np.zeros((len(steps), len(steps)), np.int64)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused
        for start in range(0, steps.shape[1], _CHUNK_ROWS):
            chunk = steps[:, start : start + _CHUNK_ROWS]
            _add_squares(total, chunk @ chunk.T, 1.0)
    return total


def _require_on_grid(chunk: Float64, buffer: Float64, bits: int) -> None:
    # Adding and subtracting 1.5 * 2^(52 - bits) rounds to the grid: the sum has no finer bits.
    magic = 1.5 * 2.0 ** (52 - bits)
    np.add(chunk, magic, out=buffer)
    np.subtract(buffer, magic, out=buffer)
    if not (buffer == chunk).all():
        raise InvalidInput(
            f"x must hold finite multiples of 2^-{bits}; at least one value is not "
            "(rounding='toward-zero' puts them there)"
        )


def _add_squares(total: Int64, chunk: Float64, unit: float) -> None:
    """Add x'x of a chunk, once its diagonal has proved that all of the chunk's sums are exact."""
    largest = float(np.max(np.diagonal(chunk), initial=0.0)) * unit * unit
    if not largest < _EXACT:
        if not np.isfinite(largest):
            raise InvalidInput("x must hold finite numbers; at least one value is not")
        raise OverflowRisk("a sum over rows is not exact: x must be of magnitude at most 1")
    if np.max(np.diagonal(total), initial=0) >= 2**63 - 2**53:
        raise OverflowRisk("a sum over all rows may exceed 64 bits; use fewer bits or fewer rows")
    total += _whole(chunk, unit * unit)


def _whole(sums: Float64, unit: float) -> Int64:
    return (sums * unit).astype(np.int64)


def _matrix(values: ArrayLike) -> Float64:
    matrix = np.asarray(values)
    if matrix.dtype != np.float64:
        raise InvalidInput(f"x must be an array of float64, not {matrix.dtype}")
    if matrix.ndim != 2:
        raise InvalidInput(f"x must have rows and columns, not {matrix.ndim} dimensions")
    return matrix
