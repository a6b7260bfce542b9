"""Plans that never grow with rows or with the budget.

What many steps say of typical rows has jumps: bounds and caps are chosen from a few, and are others where
there is a little less noise. A plan is therefore made at grid points of noise and rows, each of which takes
the largest of its own and its better neighbours', and is straight between them in logarithms: where a jump
is not larger than what two steps of the grid gain, nothing grows.
Tested in tests/unit/engine/test_steady.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cape.core.arrays import Floats
from cape.engine.query import Noise

__all__ = ["Grid", "steady"]

_STEPS = 2  # of the grid of noise, for a factor of 2
_LEAST = 1e-300

Grid = dict[tuple[int, int], Floats]
"""Logarithms of what is planned, by a place on the grid of noise and one on that of rows."""

Planned = Callable[[Noise, int], dict[str, float]]


def steady(planned: Planned, noise: Noise, rows: int, known: Grid | None = None) -> dict[str, float]:
    """Return what is planned at this noise and so many rows, from grid points around them.

    `known` keeps grid points for later calls, whose noise is a multiple of this one.
    """
    size = max((std for each in noise for std in each), default=0.0)
    here = planned(noise, rows)
    if not 0 < size < math.inf or rows < 1 or not here:
        return here
    labels = list(here)

    grid = {} if known is None else known

    def at(i: int, j: int) -> Floats:
        if (i, j) not in grid:
            times = 2.0 ** (i / _STEPS) / size
            found = planned([[times * std for std in each] for each in noise], 2**j)
            grid[i, j] = np.log(np.maximum([found[label] for label in labels], _LEAST))
        return grid[i, j]

    def corner(i: int, j: int) -> Floats:
        return np.asarray(np.maximum.reduce([at(i - a, j + b) for a in (0, 1) for b in (0, 1)]))

    across, along = _STEPS * math.log2(size), math.log2(rows)
    i, j = math.floor(across), math.floor(along)
    x, y = across - i, along - j
    mixed = (1 - x) * (1 - y) * corner(i, j)
    for part, a, b in ((x * (1 - y), 1, 0), ((1 - x) * y, 0, 1), (x * y, 1, 1)):
        if part:
            mixed = mixed + part * corner(i + a, j + b)
    values = np.exp(mixed)
    return {
        label: float(value) if 0 < here[label] < math.inf else here[label]
        for label, value in zip(labels, values, strict=True)
    }
