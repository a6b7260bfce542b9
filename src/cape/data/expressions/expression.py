"""A parsed expression: what it reads, what it gives, within which bounds, and how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.expressions.tree import Node, ordered

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sqlglot import exp

    from cape.data.columns import Column

__all__ = ["Expression", "parse"]

_MOST_SQL = 1_000  # nodes of an expression that a database gets
_WHY = {
    "div": "its divisor may be 0",
    "ln": "its argument may be near 0",
    "log10": "its argument may be near 0",
    "null": "it is missing",
}


@dataclass(frozen=True)
class Expression:
    """An expression over the columns of one row; two are equal if their text and their columns are.

    `text` is its canonical spelling, and `columns` are the names that it reads, in order. `kind` is "number",
    "boolean", "text" or "date". What operations mean: `cape.data.expressions.tree`.
    """

    text: str
    columns: tuple[str, ...]
    root: Node = field(compare=False, repr=False)

    @property
    def kind(self) -> str:
        """What it gives: "number", "boolean", "text" or "date"."""
        return self.root.kind

    @property
    def values(self) -> tuple[str, ...]:
        """The texts that it can give, in the order of their codes; empty for other kinds."""
        return self.root.values

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Between which numbers or days all its values lie, or `InvalidInput` if nobody can know."""
        if self.kind not in ("number", "date"):
            raise InvalidInput(f"{check.plain(self.text)} is a {self.kind} and has no bounds")
        interval = self.root.interval
        if interval.known:
            return interval.low, interval.high
        why = next(_WHY.get(node.op, "it may become too large") for node in ordered(self.root) if _lost(node))
        raise InvalidInput(
            f"the bounds of {check.plain(self.text)} cannot be computed, because {why}; give low and high"
        )

    @property
    def possible(self) -> bool:
        """Whether bounds and categories leave a row of which this condition is true."""
        from cape.data.expressions.possible import can_hold

        return can_hold(self.root)

    @property
    def pushable(self) -> bool:
        """Whether every database gives the same values as `evaluate`, bit for bit."""
        return self.root.exact and self.root.size <= _MOST_SQL

    def evaluate(self, cells: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the values of rows, given their columns as read by the schema.

        Numbers and dates are float64 with NaN where missing; conditions are int8 codes 0, 1 and -1 for NULL;
        texts are codes of `values`, -1 where missing.
        """
        from cape.data.expressions.evaluate import evaluate

        return evaluate(self.root, cells, self.columns)

    def sql(self, lookup: Callable[[str], exp.Expression]) -> exp.Expression:
        """Return the same as SQL, for any database that sqlglot can write for.

        `lookup` gives the SQL of a column: its clamped double, or its integer code; NULL if missing.
        """
        if not self.pushable:
            raise InvalidInput(f"{check.plain(self.text)} is computed at the site, not in a database")
        from cape.data.expressions.sql import to_sql

        return to_sql(self.root, lookup)


def _lost(node: Node) -> bool:
    """Return whether bounds are known of all arguments, but not of the result."""
    if node.kind not in ("number", "date") or node.interval.known:
        return False
    return all(each.interval.known for each in node.args if each.kind in ("number", "date"))


def parse(text: str, columns: Mapping[str, Column]) -> Expression:
    """Return the expression that a text says, over these columns, or raise `InvalidInput` with the place."""
    if not isinstance(text, str):
        raise InvalidInput(f"an expression must be text, as in 'age >= 65', not {check.show(text)}")
    from cape.data.expressions.grammar import read  # loads sqlglot

    root, canonical, names = read(text, columns)
    return Expression(canonical, names, root)
