"""Which records take part in a step: each by its own coin, and nobody but the site learns which.

Claim. Every record is chosen independently with probability exactly floor(2^32 rate) / 2^32, which is never
more than `rate`, for anyone who cannot predict the stream.
Reason. A record is chosen when its own uniform 32-bit word is below the integer floor(2^32 rate); 2^32 rate
is exact in float64. A sampled mechanism is the more private the smaller the probability.
Tested in tests/unit/blocks/test_sampling.py, which also rejects a wrong rate.
"""

from __future__ import annotations

import math

import numpy as np

from cape.core import check
from cape.core.arrays import Integers
from cape.core.errors import InvalidInput
from cape.noise.stream import SecureStream, require_stream

__all__ = ["RATE_BITS", "exact_rate", "sample"]

RATE_BITS = 32
_BLOCK = 1 << 20


def exact_rate(rate: float) -> float:
    """Return the probability with which `sample` chooses a record: `rate`, rounded down to 2^-32."""
    return _threshold(rate) / 2.0**RATE_BITS


def sample(stream: SecureStream | None, rows: int, rate: float) -> Integers:
    """Return the numbers of the chosen ones of `rows` records, in rising order (a Poisson sample)."""
    if stream is None:
        raise InvalidInput("a sample of rows needs a stream to draw it from")
    require_stream(stream)
    rows = check.integer("rows", rows, least=0)
    threshold = _threshold(rate)
    if threshold == 1 << RATE_BITS:
        return np.arange(rows)
    chosen = [
        start + np.flatnonzero(stream.words(min(_BLOCK, rows - start), np.uint32) < np.uint32(threshold))
        for start in range(0, rows, _BLOCK)
    ]
    return np.concatenate([np.empty(0, np.int64), *chosen])


def _threshold(rate: float) -> int:
    rate = check.real("rate", rate, above=0.0, most=1.0)
    threshold = math.floor(rate * 2.0**RATE_BITS)
    if threshold == 0:
        raise InvalidInput(f"rate must be at least 2^-{RATE_BITS}, not {rate!r}")
    return threshold
