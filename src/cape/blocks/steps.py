"""A numeric cell in whole steps of its grid: the one formula that every engine computes.

Claim. k = trunc(2^20 (clamp(x) - middle) / half) is a whole number with |k| <= 2^20, whatever x is, and
every engine gets the same k.
Reason. f(x) = (x - middle) / size, with size = half / 2^20, is made of two float64 operations that round
to nearest: it never falls when x rises, so f(clamp(x)) is f(x) held between f(low) and f(high), and one
clip does that and the bound 2^20 together. Truncation only shrinks. Subtraction, division, minimum and
truncation are exactly specified by IEEE 754, so numpy, polars, DuckDB and pandas agree to the bit; dividing
by size is exactly 2^20 times dividing by half, because size is not subnormal (`Number` sees to that).
Tested in tests/unit/blocks/test_steps.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cape.core.arrays import Floats
from cape.data.schema import Number

__all__ = ["ONE", "T_BITS", "Steps"]


T_BITS = 20
"""A scaled value is a whole number of steps of 2^-T_BITS."""

ONE = 2.0**T_BITS
"""How many steps a scaled value of 1 has."""


@dataclass(frozen=True)
class Steps:
    """What turns a cell of a numeric column into whole steps of 2^-20."""

    middle: float
    size: float
    least: float
    most: float

    @classmethod
    def of(cls, number: Number, length: float = 1.0, most: float = ONE) -> Steps:
        """Return the steps of a column with these bounds; divided by `length`, and held within `most`."""
        middle, size = number.middle, number.half / ONE * length
        return cls(
            middle, size, max((number.low - middle) / size, -most), min((number.high - middle) / size, most)
        )

    def count(self, values: Floats) -> Floats:
        """Return k for every value, as float64; NaN stays NaN."""
        with np.errstate(over="ignore"):  # what overflows is far outside, and clipped
            steps = self.scale(values, np.empty(values.shape))
        return np.trunc(steps, out=steps)

    def scale(self, values: Floats, out: Floats) -> Floats:
        """Return what `count` truncates, in `out`. Numpy may warn of an overflow, which does not matter."""
        np.subtract(values, self.middle, out=out)
        np.divide(out, self.size, out=out)
        return out.clip(self.least, self.most, out=out)
