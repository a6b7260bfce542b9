"""How much noise of honest sites is left in a sum: from what they added and what was taken off again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cape.engine.calibration import RESOLUTION
from cape.secagg.surplus import Surplus, SurplusKey

__all__ = ["held", "shortfall", "stays"]


def stays(key: SurplusKey, parts: int, length: int) -> NDArray[np.int64]:
    """Return the first parts of a site's surplus, from the key of all of them."""
    words = np.zeros(length, np.int64)
    key.apply(words, 1)
    key.at(parts).apply(words, -1)
    return words


def held(surplus: Surplus, parts: Iterable[int]) -> Fraction:
    """Return the variance of the noise of sites of which so many surplus parts are left each.

    In units of a site's base part.
    """
    squares = [(Fraction(std) / RESOLUTION) ** 2 for std in surplus.stds]
    return sum((1 + sum(squares[:left], Fraction(0)) for left in parts), Fraction(0))


def shortfall(surplus: Surplus, left: Mapping[str, int], honest: int) -> str:
    """Return what is to be said of a sum that holds less noise than `honest` base parts, "" if it holds all.

    `left` has, for each honest site in the sum, how many parts of its surplus are still in it.
    """
    found = held(surplus, left.values())
    if found >= honest:
        return ""
    return f"a sum over {len(left)} honest sites holds {float(found / honest):.0%} of the noise that it must"
