"""The power with which a cost grows, when a constant stands beside it: a + b x^p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from cape.core.errors import InvalidInput

__all__ = ["Power", "grows"]

_MOST = 4.0


@dataclass(frozen=True)
class Power:
    """The fit a + b x^p, and the largest relative error of it."""

    constant: float
    factor: float
    exponent: float
    error: float


def grows(x: Sequence[float], y: Sequence[float]) -> Power:
    """Return the fit with the smallest relative errors, with a and b not below 0."""
    if len(x) < 3 or len(x) != len(y):
        raise InvalidInput(f"x and y must have the same length of at least 3, not {len(x)} and {len(y)}")
    places, values = np.asarray(x, float), np.asarray(y, float)

    def fit(exponent: float) -> tuple[float, float, float]:
        powers = places**exponent
        best = math.inf, 0.0, 0.0
        for columns in ([np.ones_like(powers), powers], [powers]):  # with a constant, or without
            design = np.stack(columns, axis=1) / values[:, None]
            found = np.linalg.lstsq(design, np.ones_like(values), rcond=None)[0]
            misses = float(np.sum((design @ found - 1) ** 2))
            constant, factor = (
                (float(found[0]), float(found[1])) if len(found) == 2 else (0.0, float(found[0]))
            )
            if constant >= 0 and factor >= 0 and misses < best[0]:
                best = misses, constant, factor
        return best

    chosen = minimize_scalar(
        lambda p: fit(p)[0], bounds=(0.05, _MOST), method="bounded", options={"xatol": 1e-6}
    )
    exponent = float(chosen.x)
    _, constant, factor = fit(exponent)
    error = float(np.max(np.abs((constant + factor * places**exponent) / values - 1)))
    return Power(constant, factor, exponent, error)
