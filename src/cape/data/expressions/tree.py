"""The tree of an expression: what every operation means, in memory and in every database.

Claim. An expression never fails by value, never gives NaN or infinity, and where it is `exact` gives the same
double in memory and in every database. What it gives for a row depends on the cells of that row alone.

Meaning.
- A missing cell is NULL, and SQL's three-valued logic holds. A number is a double; NaN stands for NULL.
- Every function of a NULL is NULL, also `least` and `greatest`; `coalesce`, `case`, `is null`, `and` and `or`
  are the exceptions, as in SQL.
- What has no value is NULL: division or remainder by 0, `ln` and `log10` of 0 or less, `sqrt` of less than 0,
  a negative number to a fractional power, and any result beyond `TOP` in either direction.
- `/` divides doubles: 7 / 2 is 3.5. `%` takes the sign of the dividend. `round` rounds halves away from 0.
- In a product, a factor smaller than `TINY` counts as 0 where the product could become too small for a
  double: some databases raise an error there. Where bounds rule it out, nothing is replaced.
- Text is compared by the bytes of its UTF-8 (binary collation), and is a code into a public list of values.
- A date is a whole number of days since 1970-01-01.

Reason. Only operations that round correctly in IEEE 754 (+, - and *), or that only choose among values, are
exact; their bounds are known before any row is read, so that overflow is excluded or, where it is not, the
operation is not exact and is computed at the site, where what is too large becomes missing.
Tested in tests/unit/data/test_expressions.py, test_expressions_sql.py and test_expressions_fuzz.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["TINY", "TOP", "UNKNOWN", "Interval", "Node", "ordered"]

TOP = 1e300  # a result beyond it is missing
TINY = 2.0**-496  # the product of two that are not smaller is a normal double


@dataclass(frozen=True)
class Interval:
    """All values of a node lie in [low, high], and those that are not 0 are at least `least` away from it.

    An infinite end is one that nobody can know before the rows are read.
    """

    low: float
    high: float
    least: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", max(self.least, self.low, -self.high, 0.0))

    @property
    def size(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def known(self) -> bool:
        """Whether no value lies beyond TOP."""
        return self.size <= TOP


UNKNOWN = Interval(float("-inf"), float("inf"))


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. `kind` is "number", "date", "boolean" or "text", or "null" for a literal NULL.

    `data` is what the operation needs beside its arguments: a column's name, a literal, codes. `size` is how
    many nodes its SQL has, in which an argument may occur several times.
    """

    op: str
    kind: str
    args: tuple[Node, ...] = ()
    data: Any = None
    interval: Interval = UNKNOWN
    values: tuple[str, ...] = ()
    exact: bool = True
    size: int = 1


def ordered(root: Node) -> Iterable[Node]:
    """Yield every node once, each after its arguments."""
    done: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((each, False) for each in reversed(node.args))
