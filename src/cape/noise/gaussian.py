"""Exact Gaussian noise on the integers: P(x) proportional to exp(-x^2 / (2 std^2)).

Claim. Given a uniform stream, each sample is independent and its law is within 2^-64 (in fact 2^-90) of
the discrete Gaussian in statistical distance.

How it samples. The integers within 12 std are cut into blocks of w = 2^k neighbours, and probability is
counted in cells of 2^-16. Within a block the law is nearly flat: n = floor(2^16 w min P) cells are handed
to it as a *uniform* part, so 16 bits that fall into one of them name the block, k bits the place in it,
and the sample is done. About 1 in 80 falls into the cells that are left. Those draw from the rest of the law,
P(x) - n / (2^16 w), by rejection: a block b with probability proportional to
d = 2^16 w P(near) - n, `near` its likeliest member; a uniform place x in it; accepted when
n + u d < 2^16 w P(x) for a uniform u.

Why that is the law. Per integer, the two parts add up to n / (2^16 w) + (P(x) - n / (2^16 w)) = P(x).
The approximations, each as a statistical distance:
  - integers beyond 12 std are never drawn: at most 2 exp(-72) < 2^-102 (a discrete Gaussian is
    sub-Gaussian with its own std);
  - the block of the second part is found with 64 bits, and with 192 when these tie with a boundary;
    boundaries are rounded to 2^-192: at most (number of blocks) 2^-191 < 2^-178;
  - an acceptance is decided in float64 when it is clear by 2^-40 relative, over 100 times the float
    error, else with 192 bits in 80-digit arithmetic: at most 2^-180.
Tested in tests/noise/test_gaussian.py, with the rare paths forced.

Why not a library: OpenDP 0.16's exact sampler made 93,000 samples per second where this one made 150 million
(std 1000, one core); numpy's are floats from a predictable generator.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.noise.stream import SecureStream, require_stream

__all__ = ["MAX_STD", "MIN_STD", "SAMPLER", "discrete_gaussian", "largest"]

SAMPLER = b"discrete gaussian 1"
"""Which noise a key gives: another name from the first change on after which it gives other numbers."""

MIN_STD = 0.5
MAX_STD = 2.0**40
_REACH = 12  # in standard deviations
_CELLS = 1 << 16
_BLOCKS_PER_STD = 64  # at least; fewer leave more to rejection, more leave more to rounding to cells
_BATCH = 1 << 15
_CLEAR = 2.0**-40
_PRECISE = Context(prec=80)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")

Int64 = NDArray[np.int64]


def discrete_gaussian(std: float, size: int | tuple[int, ...], stream: SecureStream) -> Int64:
    """Return independent samples of the discrete Gaussian with parameter `std`, as int64.

    Args:
        std: the scale, from 0.5 to 2^40. The standard deviation equals it to 1e-7 from 1 upwards
            (it is 7% smaller at 0.5).
        size: how many, or the shape of the array.
        stream: the source of the bits.

    Formal guarantee: see the module; the statistical distance to the ideal is below 2^-64 a sample.
    No sample exceeds `largest(std)` in magnitude.
    """
    table = _table(check.real("std", std, least=MIN_STD, most=MAX_STD))
    out = np.empty(check.shape("size", size), np.int64)
    _fill(out.reshape(-1), table, require_stream(stream))
    return out


def largest(std: float) -> int:
    """Return the largest magnitude that `discrete_gaussian(std, ...)` can ever return."""
    return _table(check.real("std", std, least=MIN_STD, most=MAX_STD)).largest


@dataclass(frozen=True)
class _Table:
    """What depends on `std` alone. Arrays over blocks are in the order of the integers."""

    std: float
    low_bits: int  # k: a block holds 2^k integers
    word: np.dtype[np.unsignedinteger]  # 16 bits for the cell and at least k for the place
    fast_cells: int
    base: Int64  # cell -> first integer of its block; cells from fast_cells on are left
    first: Int64  # block -> its first integer
    near: Int64  # block -> its likeliest integer
    covered: NDArray[np.float64]  # n
    rest: NDArray[np.float64]  # d
    peak: NDArray[np.float64]  # 2^16 w P(near)
    exact_rest: list[Decimal]
    exact_peak: list[Decimal]
    bounds: list[int]  # cumulative `rest`, in units of 2^-192 of its total
    top_bounds: NDArray[np.uint64]  # their leading 64 bits
    largest: int


@lru_cache(maxsize=32)
def _table(std: float) -> _Table:
    low_bits = max(0, math.floor(math.log2(std / _BLOCKS_PER_STD)))
    width = 1 << low_bits
    half = math.ceil(_REACH * std / width) + 1
    first = np.arange(-half, half, dtype=np.int64) * width
    last = first + (width - 1)
    near, far = np.where(first >= 0, first, last), np.where(first >= 0, last, first)
    with localcontext(_PRECISE):
        scale = _CELLS * width / _total(std)
        peak = [scale * _weight(int(x), std) for x in near]
        covered = [int(scale * _weight(int(x), std)) for x in far]
        rest = [high - low for high, low in zip(peak, covered, strict=True)]
        whole, running, bounds = sum(rest), Decimal(0), []
        for part in rest[:-1]:
            running += part
            bounds.append(int(running / whole * (1 << 192)))
    fast_cells = sum(covered)
    base = np.zeros(_CELLS, np.int64)
    base[:fast_cells] = np.repeat(first, covered)
    word = np.uint16 if low_bits == 0 else np.uint32 if low_bits <= 16 else np.uint64
    return _Table(
        std=std,
        low_bits=low_bits,
        word=np.dtype(word),
        fast_cells=fast_cells,
        base=base,
        first=first,
        near=near,
        covered=np.array(covered, float),
        rest=np.array(rest, float),
        peak=np.array(peak, float),
        exact_rest=rest,
        exact_peak=peak,
        bounds=bounds,
        top_bounds=np.array([bound >> 128 for bound in bounds], np.uint64),
        largest=half * width,
    )


def _weight(x: int, std: float) -> Decimal:
    """Return exp(-x^2 / (2 std^2)), correctly rounded at the context's precision."""
    return (-Decimal(x * x) / (2 * Decimal(std) ** 2)).exp()


def _total(std: float) -> Decimal:
    """Return the sum of all weights; from std = 8 on the integral differs by less than 1e-548."""
    if std >= 8:
        return Decimal(std) * (2 * _PI).sqrt()
    return 1 + 2 * sum((_weight(x, std) for x in range(1, math.ceil(20 * std))), Decimal(0))


def _fill(out: Int64, table: _Table, stream: SecureStream) -> None:
    """Fill a flat array: in equal batches from the uniform parts, then the rest in one go."""
    place_shift = 8 * table.word.itemsize - table.low_bits
    words = np.empty(min(out.size, _BATCH), table.word)
    cells = np.empty(words.size, np.intp)
    undone = []
    for start in range(0, out.size, _BATCH):
        part = out[start : start + _BATCH]
        word, cell = words[: part.size], cells[: part.size]
        stream.fill(word)
        np.bitwise_and(word, _CELLS - 1, out=cell, casting="unsafe")
        np.take(table.base, cell, out=part, mode="clip")
        undone.append(start + np.flatnonzero(cell >= table.fast_cells))
        if table.low_bits:
            word >>= place_shift
            np.add(part, word, out=part, casting="unsafe")
    if undone:
        left = np.concatenate(undone)
        out[left] = _rest(left.size, table, stream)


def _rest(count: int, table: _Table, stream: SecureStream) -> Int64:
    """Draw from the rest of the law, by rejection until all are accepted."""
    out = np.empty(count, np.int64)
    left = np.arange(count)
    while left.size:
        block = _block(stream.words(left.size), table, stream)
        if table.low_bits == 0:  # a block is one integer: there is nothing to reject
            out[left] = table.first[block]
            break
        place = stream.words(left.size) >> np.uint64(64 - table.low_bits)
        x = table.first[block] + place.astype(np.int64)
        accepted = _accept(stream.words(left.size), x, block, table, stream)
        out[left[accepted]] = x[accepted]
        left = left[~accepted]
    return out


def _block(bits: NDArray[np.uint64], table: _Table, stream: SecureStream) -> Int64:
    """Return the block whose share of the rest holds the uniform number 0.bits..."""
    block = np.searchsorted(table.top_bounds, bits, side="right")
    tied = (block > 0) & (table.top_bounds[np.maximum(block - 1, 0)] == bits)
    for i in np.flatnonzero(tied):
        block[i] = bisect.bisect_right(table.bounds, _extend(int(bits[i]), stream))
    return block.astype(np.int64, copy=False)


def _accept(
    bits: NDArray[np.uint64], x: Int64, block: Int64, table: _Table, stream: SecureStream
) -> NDArray[np.bool_]:
    """Return whether n + u d < 2^16 w P(x), with u = 0.bits..."""
    near, peak = table.near[block], table.peak[block]
    # x^2 - near^2 as a product of two exact floats, so that its relative error is one rounding
    drop = (x - near).astype(float) * (x + near).astype(float) / (2 * table.std * table.std)
    gap = peak * np.exp(-drop) - (table.covered[block] + bits * 2.0**-64 * table.rest[block])
    accepted: NDArray[np.bool_] = gap > 0
    for i in np.flatnonzero(np.abs(gap) <= _CLEAR * peak):
        accepted[i] = _accept_exactly(int(bits[i]), int(x[i]), int(block[i]), table, stream)
    return accepted


def _accept_exactly(bits: int, x: int, block: int, table: _Table, stream: SecureStream) -> bool:
    with localcontext(_PRECISE):
        u = Decimal(_extend(bits, stream)) / (1 << 192)
        near = int(table.near[block])
        drop = Decimal(x * x - near * near) / (2 * Decimal(table.std) ** 2)
        height = table.exact_peak[block] * (-drop).exp()
        return int(table.covered[block]) + u * table.exact_rest[block] < height


def _extend(bits: int, stream: SecureStream) -> int:
    """Return the 64 bits followed by 128 fresh ones."""
    return (bits << 128) | int.from_bytes(stream.bytes(16), "big")
