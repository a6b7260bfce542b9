"""Sums over rows that a site can be asked for, each of exact integers, and the tables that compute them.

One module for each kind of sum; what it must say is in `Block`. No noise is added here, and nothing is
released (`cape.engine`). `Table` loads polars and narwhals, and is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cape.blocks.block import Array, Block, VectorBlock
from cape.blocks.choices import Choices
from cape.blocks.counts import Axis, Counts
from cape.blocks.custom import Custom
from cape.blocks.design import Design
from cape.blocks.exposure import Exposure
from cape.blocks.follow_up import FollowUp
from cape.blocks.gradient import Gradient
from cape.blocks.gram import Gram
from cape.blocks.grouped import Grouped
from cape.blocks.martingale import Martingale
from cape.blocks.merged import Merged
from cape.blocks.moments import Moments
from cape.blocks.nearest import Nearest
from cape.blocks.products import GroupedProducts
from cape.blocks.residuals import Residuals
from cape.blocks.sandwich import Sandwich
from cape.blocks.scores import Scores
from cape.blocks.site_scores import SiteScores
from cape.blocks.squares import Form, Squares
from cape.blocks.tensors import Tensors, Term
from cape.blocks.times import Times

if TYPE_CHECKING:
    from cape.blocks.table import Table

__all__ = [
    "Array",
    "Axis",
    "Block",
    "Choices",
    "Counts",
    "Custom",
    "Design",
    "Exposure",
    "FollowUp",
    "Form",
    "Gradient",
    "Gram",
    "Grouped",
    "GroupedProducts",
    "Martingale",
    "Merged",
    "Moments",
    "Nearest",
    "Residuals",
    "Sandwich",
    "Scores",
    "SiteScores",
    "Squares",
    "Table",
    "Tensors",
    "Term",
    "Times",
    "VectorBlock",
]


def __getattr__(name: str) -> Any:
    if name == "Table":
        from cape.blocks.table import Table

        return Table
    raise AttributeError(f"module 'cape.blocks' has no attribute {name!r}")
