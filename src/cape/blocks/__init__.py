"""Sums over rows that a site can be asked for, each of exact integers: one module per kind of sum, a subclass
of `Block`; clipping of rows, persons and scores; sampling of records for a step of training; tables in memory
and batches.

Not here: noise, and what a sum is asked for. Nothing is released here (`engine`).

`Table` loads polars and narwhals, and is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cape.core.lazy import exports

if TYPE_CHECKING:
    from cape.blocks.block import Array, Block, VectorBlock
    from cape.blocks.choices import Choices
    from cape.blocks.counts import Axis, Counts
    from cape.blocks.custom import Custom
    from cape.blocks.design import Design
    from cape.blocks.follow_up import FollowUp
    from cape.blocks.gradient import Gradient
    from cape.blocks.gram import Gram
    from cape.blocks.grouped import Grouped
    from cape.blocks.hazard_scores import HazardScores
    from cape.blocks.law_scores import LawScores
    from cape.blocks.leaving import Leaving
    from cape.blocks.merged import Merged
    from cape.blocks.moments import Moments
    from cape.blocks.nearest import Nearest
    from cape.blocks.outside_bounds import OutsideBounds
    from cape.blocks.products import GroupedProducts
    from cape.blocks.residuals import Residuals
    from cape.blocks.sandwich import Sandwich
    from cape.blocks.scores import Scores
    from cape.blocks.site_scores import SiteScores
    from cape.blocks.squares import Form, Squares
    from cape.blocks.table import Table
    from cape.blocks.tensors import Tensors, Term
    from cape.blocks.times import Times
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "cape.blocks.block": ["Array", "Block", "VectorBlock"],
            "cape.blocks.choices": ["Choices"],
            "cape.blocks.counts": ["Axis", "Counts"],
            "cape.blocks.custom": ["Custom"],
            "cape.blocks.design": ["Design"],
            "cape.blocks.follow_up": ["FollowUp"],
            "cape.blocks.gradient": ["Gradient"],
            "cape.blocks.gram": ["Gram"],
            "cape.blocks.grouped": ["Grouped"],
            "cape.blocks.hazard_scores": ["HazardScores"],
            "cape.blocks.law_scores": ["LawScores"],
            "cape.blocks.leaving": ["Leaving"],
            "cape.blocks.merged": ["Merged"],
            "cape.blocks.moments": ["Moments"],
            "cape.blocks.nearest": ["Nearest"],
            "cape.blocks.outside_bounds": ["OutsideBounds"],
            "cape.blocks.products": ["GroupedProducts"],
            "cape.blocks.residuals": ["Residuals"],
            "cape.blocks.sandwich": ["Sandwich"],
            "cape.blocks.scores": ["Scores"],
            "cape.blocks.site_scores": ["SiteScores"],
            "cape.blocks.squares": ["Form", "Squares"],
            "cape.blocks.table": ["Table"],
            "cape.blocks.tensors": ["Tensors", "Term"],
            "cape.blocks.times": ["Times"],
        },
    )

__all__ = [
    "Array",
    "Axis",
    "Block",
    "Choices",
    "Counts",
    "Custom",
    "Design",
    "FollowUp",
    "Form",
    "Gradient",
    "Gram",
    "Grouped",
    "GroupedProducts",
    "HazardScores",
    "LawScores",
    "Leaving",
    "Merged",
    "Moments",
    "Nearest",
    "OutsideBounds",
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
