"""Sums computed inside a database: columns as SQL, statements that answer for several blocks, and totals.

Not here: connections and dialects (`data/databases`), and `where` as SQL (`data/expressions`).
"""

from __future__ import annotations

from cape.blocks.sql.columns import MOST_EDGES, SqlColumns
from cape.blocks.sql.values import Ask, Several, Totals, Value

__all__ = ["MOST_EDGES", "Ask", "Several", "SqlColumns", "Totals", "Value"]
