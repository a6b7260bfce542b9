"""Second moments, exactly: sums of x, x x' and x y over rows on a grid, at the speed of BLAS.

Claim. The sums are the true integer sums, whatever the order of the rows, the number of threads and the
BLAS: the same multiset of rows gives the same bits.
Reason. On the grid of 2^-b every product is an integer number of 2^-2b, and float64 adds such numbers
without rounding while every partial sum stays below 2^53 of them. Whichever rows of a chunk BLAS adds up
first, no partial sum exceeds the largest diagonal entry (Cauchy-Schwarz over those rows; the diagonal
only grows), so a diagonal below 2^53 proves that nothing was rounded. Chunks are added as int64.
Tested in tests/noise/test_gram.py against Python integers, under permutations, and at the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape import check
from cape.errors import InvalidInput, OverflowRisk

__all__ = ["Gram", "exact_gram", "exact_products"]

_CHUNK_ROWS = 4096
_EXACT = 2.0**53

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Gram:
    """Exact sums over rows: first moments in units of 2^-bits, second ones in units of 2^-(2 bits)."""

    rows: int
    bits: int
    x: Int64
    xx: Int64
    y: Int64 | None = None
    xy: Int64 | None = None
    yy: Int64 | None = None


def exact_gram(
    x: ArrayLike,
    y: ArrayLike | None = None,
    *,
    bits: int = 20,
    rounding: Literal["toward-zero"] | None = None,
) -> Gram:
    """Return the exact sums of x, x x' (and y, x y, y y') over the rows of `x` (and `y`).

    Args:
        x: rows by columns, float64, of magnitude at most 1 (or what fits: see Raises).
        y: as many rows, one column or several.
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
    left = _matrix("x", x)
    right = None if y is None else _matrix("y", y)
    if right is not None and len(right) != len(left):
        raise InvalidInput(f"y must have as many rows as x ({len(left)}), not {len(right)}")
    rows = min(_CHUNK_ROWS, 1 << (52 - 2 * bits))
    sums = _Sums(rows, bits, left.shape[1], 0 if right is None else right.shape[1])
    for start in range(0, len(left), rows):
        stop = start + rows
        sums.add(left[start:stop], None if right is None else right[start:stop], rounding is not None)
    one_column = y is not None and np.ndim(y) == 1
    return sums.result(len(left), one_column)


def exact_products(steps: Float64) -> Int64:
    """Return the exact sums of products of every two rows of `steps`, which holds whole numbers.

    What `exact_gram` computes, for (columns, rows) in steps already: nothing is checked but that the sums
    are exact. Contiguous rows of `steps`, not a power of two apart, are fastest.

    Raises:
        InvalidInput: values that are not finite.
        OverflowRisk: values larger than 2^20, so that a sum may not be exact.
    """
    total = _zeros(len(steps), len(steps))
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused
        for start in range(0, steps.shape[1], _CHUNK_ROWS):
            chunk = steps[:, start : start + _CHUNK_ROWS]
            _add_squares(total, chunk @ chunk.T, 1.0)
    return total


class _Sums:
    """Integer accumulators and the buffers that a chunk passes through."""

    def __init__(self, rows: int, bits: int, columns: int, targets: int) -> None:
        self.bits = bits
        self.buffer_x, self.buffer_y = np.empty((rows, columns)), np.empty((rows, targets))
        self.ones = np.ones(rows)
        self.x, self.xx = _zeros(columns), _zeros(columns, columns)
        self.y, self.xy, self.yy = (
            _zeros(targets),
            _zeros(columns, targets),
            _zeros(targets, targets),
        )

    def add(self, x: Float64, y: Float64 | None, round_it: bool) -> None:
        ones = self.ones[: len(x)]
        unit = 1.0 if round_it else 2.0**self.bits
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused below
            x = self._on_grid("x", x, self.buffer_x, round_it)
            _add_squares(self.xx, x.T @ x, unit)
            self.x += _whole(ones @ x, unit)
            if y is not None:
                y = self._on_grid("y", y, self.buffer_y, round_it)
                _add_squares(self.yy, y.T @ y, unit)
                self.y += _whole(ones @ y, unit)
                self.xy += _whole(x.T @ y, unit * unit)

    def _on_grid(self, name: str, chunk: Float64, buffer: Float64, round_it: bool) -> Float64:
        """Return the chunk in whole steps if it is to be rounded, else as it is, once checked."""
        buffer = buffer[: len(chunk)]
        if round_it:
            np.multiply(chunk, 2.0**self.bits, out=buffer)
            return np.trunc(buffer, out=buffer)
        # Adding and subtracting 1.5 * 2^(52 - bits) rounds to the grid: the sum has no finer bits.
        magic = 1.5 * 2.0 ** (52 - self.bits)
        np.add(chunk, magic, out=buffer)
        np.subtract(buffer, magic, out=buffer)
        if not (buffer == chunk).all():
            raise InvalidInput(
                f"{name} must hold finite multiples of 2^-{self.bits}; at least one value is not "
                "(rounding='toward-zero' puts them there)"
            )
        return chunk

    def result(self, rows: int, one_column: bool) -> Gram:
        if not self.y.size:
            return Gram(rows, self.bits, self.x, self.xx)
        if one_column:
            return Gram(rows, self.bits, self.x, self.xx, self.y[0], self.xy[:, 0], self.yy[0, 0])
        return Gram(rows, self.bits, self.x, self.xx, self.y, self.xy, self.yy)


def _add_squares(total: Int64, chunk: Float64, unit: float) -> None:
    """Add x'x of a chunk, once its diagonal has proved that all of the chunk's sums are exact."""
    largest = float(np.max(np.diagonal(chunk), initial=0.0)) * unit * unit
    if not largest < _EXACT:
        if not np.isfinite(largest):
            raise InvalidInput("x and y must hold finite numbers; at least one value is not")
        raise OverflowRisk("a sum over rows is not exact: x and y must be of magnitude at most 1")
    if np.max(np.diagonal(total), initial=0) >= 2**63 - 2**53:
        raise OverflowRisk("a sum over all rows may exceed 64 bits; use fewer bits or fewer rows")
    total += _whole(chunk, unit * unit)


def _whole(sums: Float64, unit: float) -> Int64:
    return (sums * unit).astype(np.int64)


def _matrix(name: str, values: ArrayLike) -> Float64:
    matrix = np.asarray(values)
    if matrix.dtype != np.float64:
        raise InvalidInput(f"{name} must be an array of float64, not {matrix.dtype}")
    if matrix.ndim == 1 and name == "y":
        matrix = matrix[:, None]
    if matrix.ndim != 2:
        raise InvalidInput(f"{name} must have rows and columns, not {matrix.ndim} dimensions")
    return matrix


def _zeros(*shape: int) -> Int64:
    return np.zeros(shape, np.int64)
