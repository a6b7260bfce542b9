"""Whether a condition can be true of any row, by the public bounds and categories alone.

Claim. If `can_hold` says no, the condition is true of no row, whatever its cells. The converse does not hold:
what is not looked into counts as possible.
Reason. Every value lies in its node's interval, or is missing, and a comparison with what is missing is not
true.
Tested in tests/unit/data/test_expressions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cape.data.expressions.tree import Interval, Node, ordered

__all__ = ["can_hold"]


class _Truth(NamedTuple):
    """Whether a condition may be true of some row, and whether it may be false."""

    true: bool
    false: bool


_EITHER = _Truth(True, True)


def can_hold(condition: Node) -> bool:
    """Return whether bounds and categories leave a row of which a condition is true."""
    found: dict[Node, _Truth] = {}
    for node in ordered(condition):
        if node.kind == "boolean":
            found[node] = _truth(node, [found.get(each, _EITHER) for each in node.args])
    return found[condition].true


def _truth(node: Node, args: list[_Truth]) -> _Truth:
    if node.op == "literal":
        return _Truth(bool(node.data), not node.data)
    if node.op == "among":
        return _Truth(any(node.data), not all(node.data))
    if node.op == "and":
        return _Truth(all(each.true for each in args), any(each.false for each in args))
    if node.op == "or":
        return _Truth(any(each.true for each in args), all(each.false for each in args))
    if node.op == "not":
        return _Truth(args[0].false, args[0].true)
    if any(each.kind not in ("number", "date") for each in node.args):
        return _EITHER
    ends = [each.interval for each in node.args]
    if node.op == "in":
        return _Truth(any(ends[0].low <= each <= ends[0].high for each in node.data), True)
    return _COMPARED[node.op](*ends) if node.op in _COMPARED else _EITHER


def _less(x: Interval, y: Interval) -> _Truth:
    return _Truth(x.low < y.high, x.high >= y.low)


def _at_most(x: Interval, y: Interval) -> _Truth:
    return _Truth(x.low <= y.high, x.high > y.low)


def _equal(x: Interval, y: Interval) -> _Truth:
    return _Truth(x.low <= y.high and y.low <= x.high, not x.low == x.high == y.low == y.high)


def _unequal(x: Interval, y: Interval) -> _Truth:
    true, false = _equal(x, y)
    return _Truth(false, true)


def _between(x: Interval, low: Interval, high: Interval) -> _Truth:
    true = x.high >= low.low and x.low <= high.high and low.low <= high.high
    return _Truth(true, True)


_COMPARED: dict[str, Callable[..., _Truth]] = {
    "lt": _less,
    "le": _at_most,
    "gt": lambda x, y: _less(y, x),
    "ge": lambda x, y: _at_most(y, x),
    "eq": _equal,
    "ne": _unequal,
    "between": _between,
}
