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
    error, else with 192 bits in 110-digit arithmetic: at most 2^-180;
  - the heights 2^16 w P(x) are integers in units of 2^-320, off by less than 2^-265 (see `_heights`): at most
    (number of blocks) 2^-265 < 2^-253.
Tested in tests/unit/noise/test_gaussian.py, with the rare paths forced, and tables against mpmath.

What a std costs. Its table has up to 3,100 blocks, is made in 3 to 6 ms and holds 0.6 to 1.1 MB. The 128
tables used last are kept, at most 145 MB (128 around std 2^20: 75 to 110 MB).

Why not a library: OpenDP 0.16's exact sampler made 93,000 samples per second where this one made 150 million
(std 1000, one core); numpy's are floats from a predictable generator.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.noise.stream import SecureStream, require_stream

__all__ = ["MAX_STD", "MIN_STD", "SAMPLER", "discrete_gaussian", "largest"]

SAMPLER = b"discrete gaussian 2"
"""Which noise a key gives: another name from the first change on after which it gives other numbers."""

MIN_STD = 0.5
MAX_STD = 2.0**40
_REACH = 12  # in standard deviations
_CELLS = 1 << 16
_BLOCKS_PER_STD = 64  # at least; fewer leave more to rejection, more leave more to rounding to cells
_BATCH = 1 << 15
_CLEAR = 2.0**-40
_PRECISE = Context(prec=110)
_POINT = 320  # bits behind the point of an exact number
_SLICES = 14  # leading bits with which the search for a block begins
_TABLES = 128  # that are kept

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
    low_bits, half = _blocks(check.real("std", std, least=MIN_STD, most=MAX_STD))
    return half << low_bits


def _blocks(std: float) -> tuple[int, int]:
    """Return k, where a block holds 2^k integers, and how many blocks there are on each side of 0."""
    low_bits = max(0, math.floor(math.log2(std / _BLOCKS_PER_STD)))
    return low_bits, math.ceil(_REACH * std / (1 << low_bits)) + 1


@dataclass(frozen=True)
class _Table:
    """What depends on `std` alone. Arrays over blocks are in the order of the integers."""

    std: float
    low_bits: int  # k: a block holds 2^k integers
    word: np.dtype[np.unsignedinteger]  # 16 bits for the cell and at least k for the place
    fast_cells: int
    base: NDArray[np.signedinteger]  # cell -> first integer of its block; cells from fast_cells on are left
    first: Int64  # block -> its first integer
    near: Int64  # block -> its likeliest integer
    covered: NDArray[np.float64]  # n
    rest: NDArray[np.float64]  # d
    peak: NDArray[np.float64]  # 2^16 w P(near)
    exact_peak: list[int]  # in units of 2^-320
    bounds: list[int]  # cumulative `rest`, in units of 2^-192 of its total
    top_bounds: NDArray[np.uint64]  # their leading 64 bits
    below: NDArray[np.int16]  # j -> how many of `top_bounds` are below j 2^50


@lru_cache(maxsize=_TABLES)
def _table(std: float) -> _Table:
    low_bits, half = _blocks(std)
    width = 1 << low_bits
    first = np.arange(-half, half, dtype=np.int64) * width
    near = np.where(first >= 0, first, first + (width - 1))
    # by distance from 0: multiples of the width, and the integers after and before them
    start, after, before = _heights(std, width, half)
    peak = after[half - 1 :: -1] + start[:half]
    far = start[half:0:-1] + before[:half]
    covered = [height >> _POINT for height in far]
    rest = [high - (low << _POINT) for high, low in zip(peak, covered, strict=True)]
    whole = sum(rest)
    bounds = [(running << 192) // whole for running in accumulate(rest[:-1])]
    top_bounds = np.array([bound >> 128 for bound in bounds], np.uint64)
    slices = np.arange(1 << _SLICES, dtype=np.uint64) << np.uint64(64 - _SLICES)
    fast_cells = sum(covered)
    word = np.dtype("u2" if low_bits == 0 else "u4" if low_bits <= 16 else "u8")
    # with at most 16 low bits no sample reaches 2^27; a small table and narrow additions are faster
    base = np.zeros(_CELLS, np.dtype("i4" if word == np.uint32 else "i8"))
    base[:fast_cells] = np.repeat(first, covered)
    return _Table(
        std=std,
        low_bits=low_bits,
        word=word,
        fast_cells=fast_cells,
        base=base,
        first=first,
        near=near,
        covered=np.array(covered, float),
        rest=np.array(rest, float) * 2.0**-_POINT,
        peak=np.array(peak, float) * 2.0**-_POINT,
        exact_peak=peak,
        bounds=bounds,
        top_bounds=top_bounds,
        below=np.append(np.searchsorted(top_bounds, slices), len(bounds)).astype(np.int16),
    )


def _heights(std: float, width: int, half: int) -> tuple[list[int], list[int], list[int]]:
    """Return 2^16 w P(x), in units of 2^-320, at x = n w (n = 0, ..., half), n w + 1 and n w + w - 1.

    The sum of all weights is w times the sum at the multiples of w: for w > 1 both are the integral, to
    2 exp(-2 pi^2 (std/w)^2) < 2^-100000 relative (Poisson summation; std/w >= 64). Of the multiples, those
    beyond 24 std are left out, below 2^-400. So 2^16 w P(x) = 2^16 weight(x) / (sum at the multiples).

    Error: 2^13 weights at most, each off by less than 2^25 units, make a sum that is off by less than 2^38;
    it is at least 1, and no height exceeds 2^16: a height is off by less than 2^55 units, or 2^-265.
    """
    multiples = _weights(0, width, 2 * half + 1, std)
    scale = (_CELLS << 2 * _POINT) // (2 * sum(multiples) - (1 << _POINT))
    start = [weight * scale >> _POINT for weight in multiples[: half + 1]]
    if width == 1:  # the same numbers again: computed twice, they could differ in their last bits
        return start, start[1:], start
    return (
        start,
        [weight * scale >> _POINT for weight in _weights(1, width, half, std)],
        [weight * scale >> _POINT for weight in _weights(width - 1, width, half, std)],
    )


def _weights(start: int, step: int, count: int, std: float) -> list[int]:
    """Return exp(-x^2 / (2 std^2)) at x = start, start + step, ..., in units of 2^-320.

    From x to x + step the weight is multiplied by exp(-step (2 x + step) / (2 std^2)), and from one step to
    the next that ratio is multiplied by exp(-2 step^2 / (2 std^2)). So a weight takes two products, and no
    exponential.

    Error, in units: the three exponentials are off by less than 2 (110 digits, cut to 96). All numbers are at
    most 1, so the error of a product is at most the errors of its factors, and 1 where it is cut: the n-th
    ratio is off by less than 4 n + 2, and the n-th weight by less than 2 (n + 1)^2. That is below 2^25, as n
    is below 3,100.
    """
    with localcontext(_PRECISE):
        exponents = start * start, step * (2 * start + step), 2 * step * step
        of_two = 2 * Decimal(std) ** 2
        weight, ratio, bend = (int((-Decimal(e) / of_two).exp() * (1 << _POINT)) for e in exponents)
    weights = []
    for _ in range(count):
        weights.append(weight)
        weight = weight * ratio >> _POINT
        ratio = ratio * bend >> _POINT
    return weights


def _fill(out: Int64, table: _Table, stream: SecureStream) -> None:
    """Fill a flat array: in equal batches from the uniform parts, then the rest in one go."""
    place_shift = 8 * table.word.itemsize - table.low_bits
    words = np.empty(min(out.size, _BATCH), table.word)
    cells = np.empty(words.size, np.intp)
    narrow = None if table.base.dtype == out.dtype else np.empty(words.size, table.base.dtype)
    undone = []
    for start in range(0, out.size, _BATCH):
        part = out[start : start + _BATCH]
        word, cell = words[: part.size], cells[: part.size]
        base = part if narrow is None else narrow[: part.size]
        stream.fill(word)
        np.bitwise_and(word, _CELLS - 1, out=cell, casting="unsafe")
        np.take(table.base, cell, out=base, mode="clip")
        undone.append(start + np.flatnonzero(cell >= table.fast_cells))
        if table.low_bits:
            word >>= place_shift
            base += word.view(base.dtype)
        if narrow is not None:
            part[:] = base
    if undone:
        left = np.concatenate(undone)
        out[left] = _rest(left.size, table, stream)


def _rest(count: int, table: _Table, stream: SecureStream) -> Int64:
    """Draw from the rest of the law, by rejection until all are accepted."""
    if table.low_bits == 0:  # a block is one integer: there is nothing to reject
        return table.first[_block(stream.words(count), table, stream)]
    out = np.empty(count, np.int64)
    done = 0
    while done < count:
        tries = 2 * (count - done) + 32  # half are accepted: mostly enough at once
        for_block, for_place, for_height = stream.words((3, tries))
        block = _block(for_block, table, stream)
        x = table.first[block] + (for_place >> np.uint64(64 - table.low_bits)).astype(np.int64)
        x = x[_accept(for_height, x, block, table, stream)][: count - done]
        out[done : done + x.size] = x
        done += x.size
    return out


def _block(bits: NDArray[np.uint64], table: _Table, stream: SecureStream) -> Int64:
    """Return the block whose share of the rest holds the uniform number 0.bits..."""
    start = (bits >> np.uint64(64 - _SLICES)).astype(np.intp)
    block = table.below[start].astype(np.int64)
    mixed = np.flatnonzero(block != table.below[start + 1])  # the others have no boundary near them
    value = bits[mixed]
    found = np.searchsorted(table.top_bounds, value, side="right")
    block[mixed] = found
    tied = (found > 0) & (table.top_bounds[np.maximum(found - 1, 0)] == value)
    for i in mixed[tied]:
        block[i] = bisect.bisect_right(table.bounds, _extend(int(bits[i]), stream))
    return block


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
        near, peak = int(table.near[block]), table.exact_peak[block]
        covered = int(table.covered[block]) << _POINT
        drop = Decimal(x * x - near * near) / (2 * Decimal(table.std) ** 2)
        height = peak * (-drop).exp()
        return covered + u * (peak - covered) < height


def _extend(bits: int, stream: SecureStream) -> int:
    """Return the 64 bits followed by 128 fresh ones."""
    return (bits << 128) | int.from_bytes(stream.bytes(16), "big")
