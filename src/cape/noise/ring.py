"""Integers modulo 2^32 or 2^64: where masks are uniform and sums must not wrap.

Claim. If `require_fits` passes, the centred value of the sum modulo 2^bits *is* the sum, with certainty:
the samplers never exceed `gaussian.largest`, so the bound below always holds.
Reason. |sum + noise| <= magnitude + sites * largest(std) < 2^(bits - 1), and `decode` is the inverse of
`encode` on that range. Masks that cancel add a multiple of 2^bits and change nothing.
Tested in tests/unit/noise/test_ring.py, at the edges of the range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import InvalidInput, OverflowRisk
from cape.noise.gaussian import largest

__all__ = ["Ring", "zero_sum_share"]

Int64 = NDArray[np.int64]
Words = NDArray[Any]


@dataclass(frozen=True)
class Ring:
    """The integers modulo 2^bits, for bits of 32 or 64, as unsigned machine words."""

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise InvalidInput(f"bits must be 32 or 64, not {self.bits!r}")

    @classmethod
    def fitting(cls, magnitude: int, noise_std: float | None = None, sites: int = 1) -> Ring:
        """Return the narrowest ring in which the sum and its noise cannot wrap."""
        narrow, wide = cls(32), cls(64)
        if _bound(magnitude, noise_std, sites) < narrow.half:
            return narrow
        wide.require_fits(magnitude, noise_std, sites)
        return wide

    @property
    def dtype(self) -> np.dtype[Any]:
        """The unsigned word that holds an element."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def half(self) -> int:
        """2^(bits - 1): sums must stay below it in magnitude."""
        return 1 << (self.bits - 1)

    def require_fits(self, magnitude: int, noise_std: float | None = None, sites: int = 1) -> None:
        """Raise `OverflowRisk` unless a sum cannot wrap.

        Args:
            magnitude: a bound on |sum over all sites| of the data's part, from public bounds.
            noise_std: the scale of the discrete Gaussian that each site adds, if any.
            sites: how many of them add it.
        """
        bound = _bound(magnitude, noise_std, sites)
        if bound >= self.half:
            raise OverflowRisk(
                f"a sum with its noise may reach {bound:.3g} in magnitude, and {self.bits} bits hold "
                f"less than {self.half:.3g}; use a coarser step or a wider ring"
            )

    def encode(self, values: Int64) -> Words:
        """Return integers as elements of the ring (a new array)."""
        return cast(Int64, check.array_of("int64", "values", values)).astype(self.dtype)

    def decode(self, elements: Words) -> Int64:
        """Return elements as the integers nearest to zero: -2^(bits-1) ... 2^(bits-1) - 1."""
        return self._own("elements", elements).view(f"i{self.bits // 8}").astype(np.int64)

    def add(self, target: Words, other: Words) -> None:
        """Add `other` to `target`, in place."""
        np.add(self._own("target", target), self._own("other", other), out=target)

    def subtract(self, target: Words, other: Words) -> None:
        """Subtract `other` from `target`, in place."""
        np.subtract(self._own("target", target), self._own("other", other), out=target)

    def _own(self, name: str, words: Words) -> Words:
        return cast(Words, check.array_of(self.dtype.name, name, words))


def zero_sum_share(total: Int64, sites: int, index: int) -> Int64:
    """Return what site `index` of `sites` subtracts, so that together they subtract `total` exactly.

    With total = sites * q + r and 0 <= r < sites, the first r sites subtract q + 1 and the others q
    (in each coordinate): integers, and their sum is the total with no rounding left over.
    """
    sites = check.integer("sites", sites, least=1)
    index = check.integer("index", index, least=0, most=sites - 1)
    quotient, remainder = np.divmod(check.array_of("int64", "total", total), sites)
    return np.asarray(quotient + (index < remainder), np.int64)


def _bound(magnitude: int, noise_std: float | None, sites: int) -> int:
    bound = check.integer("magnitude", magnitude, least=0)
    if noise_std is not None:
        bound += check.integer("sites", sites, least=1) * largest(noise_std)
    return bound
