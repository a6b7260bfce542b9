"""The cuts of a column that a tree of counts asks for: one axis for each level below the root."""

from __future__ import annotations

import numpy as np

from cape.blocks import Axis
from cape.data import Number
from cape.stats.tree import sizes

__all__ = ["level_axes"]


def level_axes(name: str, column: Number, bins: int, laplace: bool = False) -> list[Axis]:
    """Return the cuts of each level below the root; coarse edges are among the fine ones, exactly."""
    edges = np.linspace(column.low, column.high, bins + 1)
    return [Axis(name, edges[:: bins // parts]) for parts in sizes(bins, laplace)]
