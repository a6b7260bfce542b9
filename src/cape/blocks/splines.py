"""B-splines on public bounds: what a spline makes of a cell.

Claim. The functions are not negative, and those of a row add up to at most 1: their squares do, too. The
same cell gives the same numbers at every place.
Reason. They are a partition of unity, of which the first is left out. Cox and de Boor's recurrence adds and
multiplies numbers that are not negative, one row at a time, in operations that IEEE 754 specifies: at most
`_ROUNDINGS` of them for each function, so that a sum is at most 1 + 2^-46. What is returned is smaller by
2^-45 of itself.
Tested in tests/blocks/test_terms.py, against patsy and in fractions.
"""

from __future__ import annotations

import numpy as np

from cape.arrays import Floats
from cape.blocks.terms import Factor
from cape.data.schema import Number
from cape.errors import InvalidInput

__all__ = ["SplineBasis"]

_INWARD = 1 - 2.0**-45  # degree 5 has at most 5 * 6 divisions, products and sums: 30 roundings of 2^-53


class SplineBasis:
    """The B-splines of a factor between the bounds of its column; the first one is left out."""

    def __init__(self, factor: Factor, column: Number) -> None:
        spline = factor.spline
        assert spline is not None
        self.many, self._degree = spline.freedom, spline.degree
        self._low, self._high = float(column.low), float(column.high)
        inner = spline.knots
        if inner is None:
            pieces = spline.freedom - spline.degree + 1
            inner = tuple(np.linspace(self._low, self._high, pieces + 1)[1:-1].tolist())
        elif not self._low < inner[0] or not inner[-1] < self._high:
            raise InvalidInput(
                f"the knots of {str(factor)!r} must lie between the bounds of {factor.column!r}, "
                f"{self._low:g} and {self._high:g}"
            )
        self._inner = np.array(inner)
        ends = spline.degree + 1
        self._knots = np.concatenate([[self._low] * ends, self._inner, [self._high] * ends])

    def at(self, values: Floats) -> Floats:
        """Return the functions at values, (many, rows), NaN for NaN; a value outside is cut to the bounds."""
        x, degree, knots = np.clip(values, self._low, self._high), self._degree, self._knots
        piece = np.searchsorted(self._inner, x, side="right") + degree
        found = [np.ones(len(x))]
        left = [x] + [x - knots[piece + 1 - j] for j in range(1, degree + 1)]
        right = [x] + [knots[piece + j] - x for j in range(1, degree + 1)]
        for j in range(1, degree + 1):
            saved = np.zeros(len(x))
            for r in range(j):
                part = found[r] / (right[r + 1] + left[j - r])
                found[r] = saved + right[r + 1] * part
                saved = left[j - r] * part
            found.append(saved)
        out = np.zeros((self.many + 1, len(x)))
        rows = np.arange(len(x))
        for r, each in enumerate(found):
            out[piece - degree + r, rows] = each
        out[:, np.isnan(x)] = np.nan
        return np.asarray(out[1:] * _INWARD)

    def steepest(self) -> Floats:
        """Return the largest weight of each function, if the curve goes up and down by at most 1 in all.

        A curve that is 0 at the lower bound and within -1 and 1 has weights that follow from its values at as
        many points, by the inverse of a matrix.
        """
        degree = self._degree
        points = np.array([self._knots[i + 1 : i + degree + 1].mean() for i in range(1, self.many + 1)])
        return np.asarray(np.abs(np.linalg.inv(self.at(points).T)).sum(axis=1))
