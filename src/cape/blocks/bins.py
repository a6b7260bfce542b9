"""Which bin a number falls into: by arithmetic where the edges are evenly spaced, else by search.

Claim. Both give what `numpy.searchsorted` gives for the edges as they stand, ends included.
Reason. Edges count as even only if e_i is exactly the float64 value of e_0 + i w (what `numpy.linspace`
computes), with w at least 2^-40 of the largest edge. Then n <= 2^41, each of the roundings in
floor((x - e_0) / w) moves the quotient by less than 2^-9, and the guess is off by one at most; one
comparison with e_0 + i w on each side puts it right.
Tested in tests/unit/blocks/test_bins.py, next to edges and for a hundred thousand bins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput

__all__ = ["Bins", "rising"]


_SEARCH = 16  # up to this many bins, a search is as fast
_WIDEST_RATIO = 2.0**-40


def rising(column: str, given: Iterable[float]) -> Floats:
    """Return edges as an array that nobody can change, or raise `InvalidInput`."""
    edges = given if isinstance(given, np.ndarray) else tuple(given)
    numeric = edges.dtype.kind in "fiu" if isinstance(edges, np.ndarray) else set(map(type, edges)) == {float}
    found = np.asarray(edges, np.float64) + 0.0 if numeric else None  # a copy; -0.0 becomes 0.0
    if found is None or not np.isfinite(found).all():
        found = np.array([check.real("edges", edge) + 0.0 for edge in edges])
    if found.ndim != 1 or len(found) < 2 or not (found[:-1] < found[1:]).all():
        raise InvalidInput(f"edges of {column!r} must be two or more numbers that rise")
    found.setflags(write=False)
    return found


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins between rising edges; `width` is their common width if they are even, else None."""

    edges: Floats
    width: float | None

    @classmethod
    def of(cls, edges: Floats) -> Bins:
        """Return the bins with these edges."""
        count, first, last = len(edges) - 1, float(edges[0]), float(edges[-1])
        width = (last - first) / count
        even = count > _SEARCH and width >= _WIDEST_RATIO * max(abs(first), abs(last))
        with np.errstate(over="ignore", invalid="ignore"):
            even = even and np.array_equal(edges[:-1], np.arange(count) * width + first)
        return cls(edges, width if even else None)

    @property
    def count(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def direct(self) -> bool:
        """Whether floor((x - e_0) / w) is the bin of every number between the first and the last edge.

        It never falls when x rises: so it is, if it is right at every edge and at the number below.
        """
        if self.width is None:
            return False
        inner, start = self.edges[1:-1], float(self.edges[0])
        i = np.arange(1, self.count)
        at, below = ((x - start) / self.width for x in (inner, np.nextafter(inner, -np.inf)))
        return bool(((at >= i) & (at < i + 1) & (below < i)).all())

    def find(self, values: Floats) -> Integers:
        """Return the bin of every value, -1 for NaN."""
        missing = np.isnan(values)
        if self.width is None:
            found = np.searchsorted(self.edges[1:-1], values, side="right")
        else:
            start, width = float(self.edges[0]), self.width
            with np.errstate(over="ignore", invalid="ignore"):
                guess = np.clip(np.floor((values - start) / width), 0, self.count - 1)
                guess -= values < guess * width + start
                guess += values >= (guess + 1) * width + start
            guess[missing] = 0
            found = np.clip(guess, 0, self.count - 1).astype(np.int64)
        found[missing] = -1
        return found
