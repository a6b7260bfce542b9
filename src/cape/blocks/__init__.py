"""Sums over rows that a site can be asked for, each of exact integers, and the tables that compute them.

No noise is added here, and nothing is released (`cape.engine`).
`Table` loads polars and narwhals, and is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cape.blocks.block import (
    Axis,
    Block,
    Counts,
    Custom,
    Gram,
    Moments,
    Nearest,
    Newton,
    Tensors,
    Term,
)
from cape.blocks.design import Design

if TYPE_CHECKING:
    from cape.blocks.table import Table

__all__ = [
    "Axis",
    "Block",
    "Counts",
    "Custom",
    "Design",
    "Gram",
    "Moments",
    "Nearest",
    "Newton",
    "Table",
    "Tensors",
    "Term",
]


def __getattr__(name: str) -> Any:
    if name == "Table":
        from cape.blocks.table import Table

        return Table
    raise AttributeError(f"module 'cape.blocks' has no attribute {name!r}")
