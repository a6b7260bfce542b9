"""What a site holds and allows: the schema of its columns, its table, and the sums it can be asked for.

`Table` and the sources load polars and narwhals, and are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cape.site.blocks import (
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
from cape.site.design import Design
from cape.site.schema import Category, Number, Schema, Site

if TYPE_CHECKING:
    from cape.site.sources import Csv, Database
    from cape.site.table import Table

__all__ = [
    "Axis",
    "Block",
    "Category",
    "Counts",
    "Csv",
    "Custom",
    "Database",
    "Design",
    "Gram",
    "Moments",
    "Nearest",
    "Newton",
    "Number",
    "Schema",
    "Site",
    "Table",
    "Tensors",
    "Term",
]


def __getattr__(name: str) -> Any:
    if name == "Table":
        from cape.site.table import Table

        return Table
    if name in ("Csv", "Database"):
        from cape.site import sources

        return getattr(sources, name)
    raise AttributeError(f"module 'cape.site' has no attribute {name!r}")
