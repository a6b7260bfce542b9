"""The types of arrays that annotations name, and integers that may need more than 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flags", "Floats", "Integers", "narrowed"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def narrowed(values: Any) -> Integers:
    """Return Python integers as an int64 array; as they are, in an array of objects, where one is larger."""
    wide = np.array(values, object)
    fits = all(-(2**63) <= value < 2**63 for value in wide.flat)
    return wide.astype(np.int64) if fits else wide
