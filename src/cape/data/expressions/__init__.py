"""Expressions over the columns of one row, in SQL's words: conditions (`where`) and derived columns.

    parse("bmi >= 30 and sex = 'male'", schema)

`words` and `grammar` read a text and refuse what is not on their lists, `build` gives it types, `intervals`
computes bounds, `possible` says which conditions they rule out, `evaluate` computes with numpy, and `sql`
writes it for a database. What an expression means stands at `cape.data.expressions.tree`, and for people in
docs/expressions.md.
Nothing here sees a raw cell, reads a table or mixes rows.
"""

from __future__ import annotations

from cape.data.expressions.expression import Expression, parse

__all__ = ["Expression", "parse"]
