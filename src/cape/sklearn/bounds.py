"""Public bounds of rows and targets, and the columns of a schema made from them.

Claim. With given bounds or a given norm, each row is cut to the bounds and shortened to the norm by itself,
and nothing else here depends on the data, so that one person changes one row. Where they are not given they
are taken from the data, which no guarantee protects: one warning per fit says so.
Tested in tests/unit/sklearn/test_bounds.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import InvalidInput, PrivacyLeakWarning, outside
from cape.data import Number

__all__ = ["Box", "Interval", "box", "intervals", "warn_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Box:
    """The bounds that rows of X are cut to, and the schema's columns for them.

    Attributes:
        low, high: the bounds of each feature.
        longest: the norm that longer rows are shortened to, or None.
        middle, half: of the schema's columns: a cell enters as t = (x - middle) / half.
        norm: the longest row in units of t; None for what the schema allows.
    """

    low: Floats
    high: Floats
    longest: float | None
    middle: Floats
    half: Floats
    norm: float | None

    @property
    def at_sites(self) -> bool:
        """Whether the schema's columns have these bounds, so that sites cut rows to them anyway."""
        own = np.array_equal(self.middle, self.low / 2 + self.high / 2)
        return self.longest is None and own and np.array_equal(self.half, self.high / 2 - self.low / 2)

    def cut(self, X: Floats) -> Floats:
        """Return rows within the bounds and no longer than the norm, as sites see them: a copy."""
        cut = np.clip(X, self.low, self.high)
        if self.longest is not None:
            length = np.sqrt(np.einsum("ij,ij->i", cut, cut))
            longer = length > self.longest
            if longer.any():
                cut[longer] *= (self.longest / length[longer])[:, None]
        return np.asarray(cut)

    def columns(self) -> list[Number]:
        """Return a column of the schema for each feature."""
        return [
            Number(float(m - h), float(m + h), missing=False)
            for m, h in zip(self.middle, self.half, strict=True)
        ]


@dataclass(frozen=True)
class Interval:
    """The bounds that a target is cut to, and its column."""

    low: float
    high: float
    column: Number


def box(
    X: Floats, bounds: Any, data_norm: Any, taken: list[str], *, about_zero: bool = False, alike: bool = False
) -> Box:
    """Return the box of the features.

    Args:
        X: read only if neither bounds nor a norm are given; `taken` then says so.
        bounds: (low, high), each a number or one for each feature.
        data_norm: the longest row, in X's own units: features are then taken about zero.
        taken: receives the names of parameters that were taken from the data.
        about_zero: whether 0 of a feature must be 0 for the sites, as without an intercept.
        alike: whether all features have the same unit at the sites, so that lengths there are lengths in X.
    """
    width = X.shape[1]
    longest = None if data_norm is None else check.real("data_norm", data_norm, above=0.0)
    if bounds is not None:
        low, high = _pair("bounds_X", bounds, width)
    elif longest is not None:
        low, high = np.full(width, -longest), np.full(width, longest)
    else:
        taken.append("bounds_X")
        low, high = _widened(X.min(axis=0), X.max(axis=0))
    if not about_zero and not alike and longest is None:
        return Box(low, high, None, low / 2 + high / 2, high / 2 - low / 2, None)
    centred = about_zero or longest is not None
    middle = np.zeros(width) if centred else low / 2 + high / 2
    half = np.maximum(np.abs(low), np.abs(high)) if centred else high / 2 - low / 2
    if not alike and longest is None:
        return Box(low, high, None, middle, half, None)
    if longest is not None:
        half = np.minimum(half, longest)
    unit = float(half.max())
    reach = float(np.linalg.norm(half / unit))
    norm = reach if longest is None else min(reach, longest / unit)
    return Box(low, high, longest, middle, np.full(width, unit), norm)


def intervals(y: Floats, bounds: Any, taken: list[str], *, about_zero: bool = False) -> list[Interval]:
    """Return the bounds of each target, a column of y, which is read only if none are given."""
    if bounds is not None:
        lows, highs = _pair("bounds_y", bounds, y.shape[1])
    else:
        taken.append("bounds_y")
        lows, highs = _widened(y.min(axis=0), y.max(axis=0))
    found = []
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        reach = max(abs(low), abs(high))
        ends = (-reach, reach) if about_zero else (low, high)
        found.append(Interval(low, high, Number(*ends, missing=False)))
    return found


def warn_of(taken: Sequence[str], *, norm: bool = True) -> None:
    """Warn once of what was taken from the data; `norm`: whether `data_norm` would do in place of bounds."""
    if not taken:
        return
    named = " and ".join(taken)
    asked = [f"{name}=(low, high)" for name in taken]
    if norm and "bounds_X" in taken:
        asked[0] += " or data_norm"
    warnings.warn(
        f"{named} {'was' if len(taken) == 1 else 'were'} not given and taken from the data, as its least and "
        "largest values: the guarantee does not protect them. Give "
        f"{' and '.join(asked)}, from what is known without the data",
        PrivacyLeakWarning,
        stacklevel=outside(),
    )


def _pair(name: str, bounds: Any, width: int) -> tuple[Floats, Floats]:
    try:
        low, high = bounds
        ends = [np.array(np.broadcast_to(np.asarray(end, np.float64), (width,))) for end in (low, high)]
    except (TypeError, ValueError):
        each = f" or {width} numbers each" if width > 1 else ""
        raise InvalidInput(f"{name} must be (low, high), two numbers{each}, not {bounds!r}") from None
    if not (np.isfinite(ends).all() and (ends[0] < ends[1]).all()):
        raise InvalidInput(f"{name} must be finite and rise, as in (-1, 1), not {bounds!r}")
    return ends[0], ends[1]


def _widened(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return bounds with low < high, also where a column is constant."""
    flat = high / 2 - low / 2 <= 1e-12 * np.maximum(np.abs(low), np.abs(high)) + 1e-300
    more = np.where(flat, np.maximum(np.abs(low), 1.0), 0.0)
    return np.asarray(low - more), np.asarray(high + more)
