"""Expressions over the columns of one row, in SQL's words: conditions (`where`) and derived columns;
parsed, typed, bounded, computed with numpy, and written as SQL.

Not here: raw cells, tables, or anything that mixes rows.

    parse("bmi >= 30 and sex = 'male'", schema)

`words` and `grammar` read a text and refuse what is not on their lists, `build` gives it types, `intervals`
computes bounds, `possible` says which conditions they rule out, `evaluate` computes with numpy, and `sql`
writes it for a database. What an expression means stands at `cape.data.expressions.tree`, and for people in
docs/expressions.md.
"""

from __future__ import annotations

from cape.data.expressions.expression import Expression, parse

__all__ = ["Expression", "parse"]
