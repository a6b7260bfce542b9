"""Exact parts of Laplace noise on the integers: differences of two negative binomial (Polya) variables.

A Polya variable of shape a and scale s has P(k) = C(k + a - 1, k) p^k (1 - p)^a for k = 0, 1, ..., with
p = exp(-1/s). Shapes add: independent variables of shapes that add up to 1 have a geometric sum, and the
difference of two geometric variables is discrete Laplace, P(k) proportional to exp(-|k|/s). So sites whose
shapes add up to 1 make Laplace noise together, exactly, and none of them makes it alone.

Claim. Given a uniform stream, the samples of `polya_difference` are independent, and the law of each is
within 2^-90 (in fact 2^-100) of that of X - Y, X and Y independent Polya variables, in statistical distance.

How it samples. X and Y are drawn one after the other. The integers up to 72 s are cut into blocks of 2^b
neighbours: single integers up to 64, then 32 blocks in each octave, none wider than s/32, wider again where
the law is below a cell. Probability is counted in cells of 2^-16. As shapes are at most 1, P falls with k: of
a block, n = floor(2^16 w P(last)) cells are handed out as a *uniform* part, so that 16 bits name a block, b
bits the place in it, and the sample is done. About 1 in 40 falls into the cells that are left. Those draw
from the rest of the law, P(k) - n / (2^16 w), by rejection: a block with probability proportional to
d = 2^16 w P(first) - n, a uniform place k in it, accepted when n + u d < 2^16 w P(k) for a uniform u.

Why that is the law. Per integer the two parts add up to P(k). The approximations, each as a distance, for one
Polya variable:
  - integers beyond 72 s are never drawn: at most exp(-72) < 2^-103, because a Polya variable of shape at most
    1 is at most a geometric one (add the missing shape), whose tail is p^k;
  - the block of the rest is found with 64 bits, and with 192 when these tie with a boundary; boundaries are
    rounded to 2^-192: at most (blocks, fewer than 2^12) 2^-191 < 2^-179;
  - an acceptance is decided in float64 when it is clear by 2^-38 relative, over 100 times the float error,
    else with 192 bits in 60-digit arithmetic: at most 2^-150;
  - heights 2^16 w P(k) are off by less than 2^-160 relative (see `_Heights`): at most 2^-158.
Tested in tests/unit/noise/test_polya.py, with the rare paths forced, tables against mpmath, and sums against
discrete Laplace; wrong shapes and scales are rejected there.

What a table costs. It is made in about 0.1 s and holds 0.5 MB; the 64 used last are kept.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import InvalidInput
from cape.noise.stream import SecureStream, require_stream

__all__ = ["MAX_SCALE", "MIN_SCALE", "SAMPLER", "largest", "polya", "polya_difference"]

SAMPLER = b"polya difference 1"
"""Which noise a key gives: another name from the first change on after which it gives other numbers."""

MIN_SCALE = 0.5
MAX_SCALE = 2.0**36
_REACH = 72  # in scales
_THIN = 14  # scales beyond which no block has a cell worth having
_CELLS = 1 << 16
_SINGLES = 64  # integers that are blocks by themselves; Stirling's series begins there
_OCTAVE = 32  # blocks in an octave, and at least in a scale
_BATCH = 1 << 15
_CLEAR = 2.0**-38
_POINT = 224  # bits behind the point of an exact height
_PRECISE = Context(prec=60)
_TERMS = 25  # of the asymptotic series
_TERMS_OF_POWER = 42

Int64 = NDArray[np.int64]


def polya_difference(
    shape: Fraction, scale: float, size: int | tuple[int, ...], stream: SecureStream
) -> Int64:
    """Return independent differences of two Polya variables of this shape and scale, as int64.

    Args:
        shape: above 0 and at most 1, as a fraction.
        scale: in steps, from 0.5 to 2^36.
        size: how many, or the shape of the array.
        stream: the source of the bits.

    The standard deviation is sqrt(2 shape p)/(1 - p), which is scale sqrt(2 shape) for large scales.
    Formal guarantee: see the module. No sample exceeds `largest(scale)` in magnitude.
    """
    table = _table_of(_shape(shape), _scale(scale))
    out = np.empty(check.shape("size", size), np.int64)
    flat, stream = out.reshape(-1), require_stream(stream)
    _fill_polya(flat, table, stream)
    other = np.empty(min(flat.size, 8 * _BATCH), np.int64)
    for start in range(0, flat.size, max(other.size, 1)):
        part = flat[start : start + other.size]
        _fill_polya(other[: part.size], table, stream)
        part -= other[: part.size]
    return out


def polya(shape: Fraction, scale: float, size: int | tuple[int, ...], stream: SecureStream) -> Int64:
    """Return independent Polya variables: one side of `polya_difference`."""
    table = _table_of(_shape(shape), _scale(scale))
    out = np.empty(check.shape("size", size), np.int64)
    _fill_polya(out.reshape(-1), table, require_stream(stream))
    return out


def largest(scale: float) -> int:
    """Return a magnitude that no sample at this scale exceeds, whatever its shape."""
    first, width = _blocks(_scale(scale))
    return first[-1] + width[-1] - 1


def _shape(shape: Fraction) -> Fraction:
    if not isinstance(shape, Fraction) or not 0 < shape <= 1:
        raise InvalidInput(f"shape must be a Fraction above 0 and at most 1, not {shape!r}")
    return shape


def _scale(scale: float) -> float:
    return check.real("scale", scale, least=MIN_SCALE, most=MAX_SCALE)


@lru_cache(maxsize=64)
def _blocks(scale: float) -> tuple[list[int], list[int]]:
    """Return the first integer and the width of each block."""
    widest = 1 << max(0, math.floor(math.log2(scale / _OCTAVE)))
    end, thin = math.ceil(_REACH * scale), math.ceil(_THIN * scale)
    first, width = [], []
    at = 0
    while at < end:
        octave = 1 << max(0, at.bit_length() - 6)
        wide = 1 if at < _SINGLES else min(octave, widest if at < thin else 16 * widest)
        first.append(at)
        width.append(wide)
        at += wide
    return first, width


class _Heights:
    """P(k) in 60 digits, for one shape and scale.

    Up to 64, from P(0) = (1 - p)^a by P(k + 1) = P(k) p (k + a)/(k + 1). Beyond, by P(k) = P(64) p^(k - 64)
    g(k)/g(64) with g(k) = Gamma(k + a)/Gamma(k + 1) = w^(a - 1) C(1/w²), w = k + a/2. C is an asymptotic
    series: log C = -2 sum over odd n of B_n(a/2) / (n (n - 1) w^(n - 1)), from Stirling's series of both
    Gammas around w. What is left out of each is at most its next term: with 24 terms and w >= 64 below 1e-60.
    """

    def __init__(self, shape: Fraction, scale: float) -> None:
        with localcontext(_PRECISE):
            self.a = Decimal(shape.numerator) / shape.denominator
            self.rate = 1 / Decimal(scale)
            self.p = (-self.rate).exp()
            self.low = [(self.a * (1 - self.p).ln()).exp()]
            for k in range(_SINGLES):
                self.low.append(self.low[-1] * self.p * (k + self.a) / (k + 1))
            self.series = _series(self.a)
            self._start = self.low[-1] / self._c(_SINGLES)
            binomial = [Decimal(1)]  # of (1 + x)^(a - 1), for x up to 1/32
            for n in range(1, _TERMS_OF_POWER):
                binomial.append(binomial[-1] * (self.a - n) / n)
            self._binomial = binomial[::-1]
            self._decays: dict[int, Decimal] = {}

    def at(self, k: int) -> Decimal:
        """Return P(k)."""
        if k <= _SINGLES:
            return self.low[k]
        with localcontext(_PRECISE):
            power = (self.a - 1) * ((k + self.a / 2) / (_SINGLES + self.a / 2)).ln()
            return self._start * self._c(k) * (power - (k - _SINGLES) * self.rate).exp()

    def after(self, k: int, chance: Decimal, steps: int) -> Decimal:
        """Return P(k + steps), given P(k), for k from 64 on and steps of at most k/31: without a logarithm.

        Terms of (1 + x)^(a - 1) fall by 1/31, so that what is left out is below 1e-60.
        """
        x, power = steps / (k + self.a / 2), Decimal(0)
        for coefficient in self._binomial:
            power = power * x + coefficient
        if steps not in self._decays:
            self._decays[steps] = (-steps * self.rate).exp()
        return chance * self._decays[steps] * power * self._c(k + steps) / self._c(k)

    def _c(self, k: int) -> Decimal:
        square, total = (k + self.a / 2) ** -2, Decimal(0)
        for coefficient in reversed(self.series):
            total = total * square + coefficient
        return total


@cache
def _bernoulli() -> list[Fraction]:
    found = [Fraction(1)]
    for n in range(1, 2 * _TERMS):
        found.append(-sum((math.comb(n + 1, k) * found[k] for k in range(n)), Fraction(0)) / (n + 1))
    return found


def _series(a: Decimal) -> list[Decimal]:
    """Return the coefficients of C: the exponential of a power series whose coefficients are known."""
    numbers = [Decimal(each.numerator) / each.denominator for each in _bernoulli()]
    logs = [Decimal(0)]
    for n in range(3, 2 * _TERMS, 2):
        terms = (math.comb(n, k) * numbers[k] * (a / 2) ** (n - k) for k in range(n + 1))
        polynomial = sum(terms, Decimal(0))
        logs.append(-2 * polynomial / (n * (n - 1)))
    found = [Decimal(1)]
    for n in range(1, len(logs)):
        found.append(sum((j * logs[j] * found[n - j] for j in range(1, n + 1)), Decimal(0)) / n)
    return found


@dataclass(frozen=True)
class _Table:
    """What depends on shape and scale alone. Arrays over blocks are in the order of the integers."""

    heights: _Heights
    shape: float
    scale: float
    series: list[float]  # the first coefficients of C
    word: np.dtype[np.unsignedinteger]  # 16 bits for the cell, and those of the widest block
    fast_cells: int
    base: NDArray[np.signedinteger]  # cell -> first integer of its block; cells from fast_cells on are left
    shift: NDArray[np.unsignedinteger]  # cell -> by how much a word is shifted to leave the place
    first: Int64
    bits: NDArray[np.uint64]
    covered: NDArray[np.float64]  # n
    rest: NDArray[np.float64]  # d
    peak: NDArray[np.float64]  # 2^16 w P(first)
    bounds: list[int]  # cumulative `rest`, in units of 2^-192 of its total
    top_bounds: NDArray[np.uint64]  # their leading 64 bits


@lru_cache(maxsize=64)
def _table_of(shape: Fraction, scale: float) -> _Table:
    heights = _Heights(shape, scale)
    first, width = _blocks(scale)
    peak, covered = [], []
    with localcontext(_PRECISE):
        k, chance = 0, heights.at(0)  # the first integer of a block
        for wide in width:
            cells = Decimal(_CELLS * wide)
            last = chance if wide == 1 else heights.after(k, chance, wide - 1)
            peak.append(int(chance * cells * (1 << _POINT)))
            covered.append(int(last * cells))
            chance = last * heights.p * (k + wide - 1 + heights.a) / (k + wide)
            k += wide
    rest = [high - (low << _POINT) for high, low in zip(peak, covered, strict=True)]
    whole = sum(rest)
    bounds = [(running << 192) // whole for running in accumulate(rest[:-1])]
    bits = [wide.bit_length() - 1 for wide in width]
    word = np.dtype("u4" if max(b for b, n in zip(bits, covered, strict=True) if n) <= 16 else "u8")
    fast_cells = sum(covered)
    # with at most 16 bits in a block no cell's integer reaches 2^31; a small table is faster
    base = np.zeros(_CELLS, np.dtype("i4" if word == np.uint32 else "i8"))
    base[:fast_cells] = np.repeat(np.array(first, np.int64), covered)
    shift = np.zeros(_CELLS, word)
    shift[:fast_cells] = np.repeat(8 * word.itemsize - np.array(bits), covered)
    return _Table(
        heights=heights,
        shape=float(shape),
        scale=scale,
        series=[float(each) for each in heights.series[:7]],
        word=word,
        fast_cells=fast_cells,
        base=base,
        shift=shift,
        first=np.array(first, np.int64),
        bits=np.array(bits, np.uint64),
        covered=np.array(covered, float),
        rest=np.array(rest, float) * 2.0**-_POINT,
        peak=np.array(peak, float) * 2.0**-_POINT,
        bounds=bounds,
        top_bounds=np.array([bound >> 128 for bound in bounds], np.uint64),
    )


def _fill_polya(out: Int64, table: _Table, stream: SecureStream) -> None:
    """Fill a flat array with Polya variables: in batches from the uniform parts, then the rest in one go."""
    words = np.empty(min(out.size, _BATCH), table.word)
    cells = np.empty(words.size, np.intp)
    shifts = np.empty(words.size, table.word)
    bases = np.empty(words.size, table.base.dtype)
    undone = []
    for start in range(0, out.size, _BATCH):
        part = out[start : start + _BATCH]
        word, cell = words[: part.size], cells[: part.size]
        shift, base = shifts[: part.size], bases[: part.size]
        stream.fill(word)
        np.bitwise_and(word, _CELLS - 1, out=cell, casting="unsafe")
        np.take(table.base, cell, out=base, mode="clip")
        np.take(table.shift, cell, out=shift, mode="clip")
        undone.append(start + np.flatnonzero(cell >= table.fast_cells))
        np.right_shift(word, shift, out=word)  # a shift by all bits leaves 0: a single integer
        base += word.view(base.dtype)
        part[:] = base
    if undone:
        left = np.concatenate(undone)
        out[left] = _left(left.size, table, stream)


def _left(count: int, table: _Table, stream: SecureStream) -> Int64:
    """Draw from the rest of the law, by rejection until all are accepted."""
    out = np.empty(count, np.int64)
    done = 0
    while done < count:
        tries = 2 * (count - done) + 32
        for_block, for_place, for_height = stream.words((3, tries))
        block = _rest_block(for_block, table, stream)
        bits = table.bits[block]
        place = np.where(bits > 0, for_place >> (np.uint64(64) - np.maximum(bits, np.uint64(1))), 0)
        x = table.first[block] + place.astype(np.int64)
        x = x[_keep(for_height, x, block, table, stream)][: count - done]
        out[done : done + x.size] = x
        done += x.size
    return out


def _rest_block(bits: NDArray[np.uint64], table: _Table, stream: SecureStream) -> Int64:
    """Return the block whose share of the rest holds the uniform number 0.bits..."""
    found = np.searchsorted(table.top_bounds, bits, side="right")
    tied = (found > 0) & (table.top_bounds[np.maximum(found - 1, 0)] == bits)
    for i in np.flatnonzero(tied):
        found[i] = bisect.bisect_right(table.bounds, _extend(int(bits[i]), stream))
    return found


def _keep(
    bits: NDArray[np.uint64], x: Int64, block: Int64, table: _Table, stream: SecureStream
) -> NDArray[np.bool_]:
    """Return whether n + u d < 2^16 w P(x), with u = 0.bits..."""
    first, peak = table.first[block], table.peak[block]
    inside = x > first  # then a block is wider than 1, and begins at 64 or later
    w = np.maximum(first, _SINGLES) + table.shape / 2
    away = (x - first).astype(float)
    fall = (table.shape - 1) * np.log1p(away / w) - away / table.scale
    fall += _log_c(w + away, table) - _log_c(w, table)
    gap = peak * np.exp(fall) - (table.covered[block] + bits * 2.0**-64 * table.rest[block])
    accepted: NDArray[np.bool_] = gap > 0
    accepted[~inside] = True  # the height of the first integer is the whole block's
    for i in np.flatnonzero((np.abs(gap) <= _CLEAR * peak) & inside):
        accepted[i] = _keep_exactly(int(bits[i]), int(x[i]), int(block[i]), table, stream)
    return accepted


def _log_c(w: NDArray[np.float64], table: _Table) -> NDArray[np.float64]:
    """Return log C(1/w²) for w from 64 on, off by less than 1e-16."""
    square = w**-2
    total = np.zeros(w.size)
    for coefficient in table.series[:0:-1]:
        total = (total + coefficient) * square
    return np.log1p(total)


def _keep_exactly(bits: int, x: int, block: int, table: _Table, stream: SecureStream) -> bool:
    with localcontext(_PRECISE):
        u = Decimal(_extend(bits, stream)) / (1 << 192)
        cells = Decimal(_CELLS << int(table.bits[block]))
        peak, height = (table.heights.at(k) * cells for k in (int(table.first[block]), x))
        covered = Decimal(int(table.covered[block]))
        return covered + u * (peak - covered) < height


def _extend(bits: int, stream: SecureStream) -> int:
    """Return the 64 bits followed by 128 fresh ones."""
    return (bits << 128) | int.from_bytes(stream.bytes(16), "big")
