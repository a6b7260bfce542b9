"""Seeds that are fixed and printed: run number i of a figure has seed FIRST_SEED + i, unless told otherwise.

Noise under a key that everyone can make protects nobody. It is right here, where data is public or made up
and a second run has to give the same numbers, and nowhere else.
"""

from __future__ import annotations

import hashlib

from cape.core import check
from cape.noise import SecureStream

__all__ = ["FIRST_SEED", "public_stream", "seeds"]

FIRST_SEED = 2021


def seeds(first: int, runs: int) -> tuple[int, ...]:
    """Return as many different seeds as there are runs."""
    first = check.integer("seed", first, least=0)
    return tuple(range(first, first + check.integer("runs", runs, least=1)))


def public_stream(seed: int, *labels: str) -> SecureStream:
    """Return the stream that anyone can make from a seed and labels."""
    # the first word is that of every run that was published: it stays
    text = "/".join(["cape.paper", str(check.integer("seed", seed, least=0)), *labels])
    return SecureStream(hashlib.sha256(text.encode()).digest())
