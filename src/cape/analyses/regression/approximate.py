"""A polynomial in place of a loss of the margin m = y x·w: Taylor's at 0, or the one of least largest
error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.polynomial import chebyshev
from scipy.optimize import linprog

from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput

__all__ = ["Approximation", "Fitting", "approximate"]

Fitting = Literal["minimax", "taylor"]

_POINTS = 1001
_CHECKED = 8001
_NEAR = 0.5  # where derivatives at 0 are taken from
_ORDER = 24


@dataclass(frozen=True)
class Approximation:
    """sum of polynomial[j] m^j, which is within `error` of a loss for |m| <= range."""

    polynomial: tuple[float, ...]
    range: float
    error: float

    @property
    def coefficients(self) -> dict[int, tuple[float, ...]]:
        """The polynomials c_j(y) of (x·w)^j, for y = -1 or 1: polynomial[j] y^j."""
        return {j: (0.0,) * j + (a,) for j, a in enumerate(self.polynomial) if j and a}


def approximate(
    function: Callable[[Floats], Floats], degree: int, range: float, fit: Fitting = "minimax"
) -> Approximation:
    """Return the polynomial for a function of the margin, which is given and returns arrays.

    The minimax fit is a linear program over 1,001 Chebyshev points; the error is looked up at 8,001.
    """
    degree = check.integer("degree", degree, least=1, most=4)
    range = check.real("range", range, above=0.0, most=1e3)
    if fit not in ("minimax", "taylor"):
        raise InvalidInput(f"fit must be 'minimax' or 'taylor', not {fit!r}")
    if fit == "taylor":
        polynomial = _taylor(function, degree, min(_NEAR, range))
    else:
        polynomial = _minimax(function, degree, range)
    fine = np.linspace(-range, range, _CHECKED)
    error = float(np.abs(np.polynomial.polynomial.polyval(fine, polynomial) - _values(function, fine)).max())
    return Approximation(tuple(map(float, polynomial)), range, error)


def _values(function: Callable[[Floats], Floats], at: Floats) -> Floats:
    with np.errstate(all="ignore"):
        values = np.asarray(function(at), np.float64)
    if values.shape != at.shape or not np.isfinite(values).all():
        raise InvalidInput("the loss must return one finite number for each margin of an array")
    return values


def _taylor(function: Callable[[Floats], Floats], degree: int, near: float) -> Floats:
    """Return the first derivatives at 0, from an interpolant around it, which is exact to many digits."""
    nodes = near * np.cos(math.pi * (np.arange(_ORDER + 1) + 0.5) / (_ORDER + 1))
    fitted = np.asarray(chebyshev.chebfit(nodes / near, _values(function, nodes), _ORDER), np.float64)
    powers = _powers(fitted)[: degree + 1] / near ** np.arange(degree + 1)
    return np.where(np.abs(powers) < 1e-9, 0.0, powers)


def _minimax(function: Callable[[Floats], Floats], degree: int, range: float) -> Floats:
    """Return the polynomial whose largest error on [-range, range] is least."""
    at = np.cos(math.pi * np.arange(_POINTS) / (_POINTS - 1))
    values = _values(function, range * at)
    size = max(float(np.abs(values).max()), 1e-300)
    basis = chebyshev.chebvander(at, degree)
    ones = np.ones((len(at), 1))
    found = linprog(
        np.concatenate([np.zeros(degree + 1), [1.0]]),
        A_ub=np.block([[basis, -ones], [-basis, -ones]]),
        b_ub=np.concatenate([values, -values]) / size,
        bounds=[(None, None)] * (degree + 1) + [(0, None)],
        method="highs",
    )
    if found.status != 0:
        raise InvalidInput("no polynomial could be fitted to this loss; is it smooth on its range?")
    powers = size * _powers(found.x[: degree + 1]) / range ** np.arange(degree + 1)
    return np.where(np.abs(powers) < 1e-9 * np.abs(powers).max(), 0.0, powers)


def _powers(coefficients: Floats) -> Floats:
    """Return the coefficients of 1, m, m², ..., as many as there were; zeros at the end are kept."""
    found = chebyshev.cheb2poly(coefficients)
    return np.concatenate([found, np.zeros(len(coefficients) - len(found))])
