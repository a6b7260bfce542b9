"""Exact Laplace noise on the integers: P(x) proportional to exp(-|x| / scale), for pure epsilon.

Claim. Given a uniform stream the law is exact: not truncated, so epsilon = sensitivity / scale holds
with delta = 0.
Reason. |x| is geometric, so with w = 2^k <= scale its quotient and remainder by w are independent. The
remainder is uniform on 0 ... w - 1 accepted with probability exp(-remainder / scale); the quotient counts
how many powers exp(-i w / scale) exceed a uniform u, and beyond the table the count starts again, since a
geometric law has no memory. A sign is drawn, and minus zero is drawn again. Every comparison of a uniform
number with an exponential is made on 64 bits when they decide it, else on as many more as it takes.
Tested in tests/unit/reproduction/literature/test_laplace.py, with the rare paths forced.

It is simple rather than fast: CAPE's own releases use Gaussian noise.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.noise.stream import SecureStream, require_stream

__all__ = ["discrete_laplace"]

_MIN_SCALE = 1 / 16
_MAX_SCALE = 2.0**40
_REACH = 30  # the table of powers ends near exp(-30); what lies beyond starts again
_CLEAR = 2.0**-40

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]


def discrete_laplace(scale: float, size: int | tuple[int, ...], stream: SecureStream) -> Int64:
    """Return independent samples with P(x) proportional to exp(-|x| / scale), as int64.

    `scale` is from 1/16 to 2^40. A sum of integers with L1 sensitivity s plus this noise is
    (s / scale)-differentially private.
    """
    scale = check.real("scale", scale, least=_MIN_SCALE, most=_MAX_SCALE)
    require_stream(stream)
    out = np.empty(check.shape("size", size), np.int64)
    flat = out.reshape(-1)
    left = np.arange(flat.size)
    while left.size:
        magnitude = _geometric(left.size, scale, stream)
        negative = (stream.words(left.size, np.uint8) & 1).astype(bool)
        flat[left] = np.where(negative, -magnitude, magnitude)
        left = left[negative & (magnitude == 0)]
    return out


def _low_bits(scale: float) -> int:
    return max(0, math.floor(math.log2(scale)))


@lru_cache(maxsize=32)
def _powers(scale: float) -> UInt64:
    """Return floor(2^64 exp(-i w / scale)) for i = n ... 1: ascending."""
    width = 1 << _low_bits(scale)
    count = max(1, math.floor(_REACH * scale / width))
    with localcontext(Context(prec=60)):
        powers = [(-Decimal(i * width) / Decimal(scale)).exp() for i in range(count, 0, -1)]
        return np.array([int(power * (1 << 64)) for power in powers], np.uint64)


def _geometric(count: int, scale: float, stream: SecureStream) -> Int64:
    """Return integers from 0 on with P(m) proportional to exp(-m / scale)."""
    low_bits = _low_bits(scale)
    out = _quotient(count, scale, stream) << low_bits
    left = np.arange(count) if low_bits else np.arange(0)
    while left.size:
        remainder = (stream.words(left.size) >> np.uint64(64 - low_bits)).astype(np.int64)
        bits = stream.words(left.size)
        gap = np.exp(-remainder / scale) - bits * 2.0**-64
        accepted = gap > 0
        for i in np.flatnonzero(np.abs(gap) <= _CLEAR):
            accepted[i] = _below(int(bits[i]), int(remainder[i]), scale, stream)
        out[left[accepted]] += remainder[accepted]
        left = left[~accepted]
    return out


def _quotient(count: int, scale: float, stream: SecureStream) -> Int64:
    """Return how many of exp(-w / scale), exp(-2 w / scale), ... exceed a uniform number."""
    powers = _powers(scale)
    width = 1 << _low_bits(scale)
    out = np.zeros(count, np.int64)
    left = np.arange(count)
    while left.size:
        bits = stream.words(left.size)
        at_most = np.searchsorted(powers, bits, side="right")
        found = powers.size - at_most
        for i in np.flatnonzero((at_most > 0) & (powers[np.maximum(at_most - 1, 0)] == bits)):
            found[i] += _below(int(bits[i]), (int(found[i]) + 1) * width, scale, stream)
        out[left] += found
        left = left[found == powers.size]
    return out


def _below(bits: int, steps: int, scale: float, stream: SecureStream) -> bool:
    """Return whether 0.bits... < exp(-steps / scale), drawing bits until it is certain."""
    width = 64
    while True:
        with localcontext(Context(prec=width // 3 + 30)):
            threshold = int((-Decimal(steps) / Decimal(scale)).exp() * (1 << width))
        if abs(bits - threshold) > 1:  # `threshold` is the floor, give or take one
            return bits < threshold
        bits = (bits << 64) | int.from_bytes(stream.bytes(8), "big")
        width += 64
