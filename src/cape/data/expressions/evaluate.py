"""Values of an expression for many rows at once, with numpy.

Inside, a condition is 0 for false, 1 for NULL and 2 for true, so that AND is the least of them and OR the
greatest. A missing number is NaN, and a missing text has the code -1. Tested with `tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.data.expressions import days
from cape.data.expressions.tree import TINY, TOP, Node, ordered

__all__ = ["evaluate"]

Cells = NDArray[Any]
_EXACT = 2.0**52
_CODES = np.array([0, -1, 1], dtype=np.int8)
_NULLS: dict[str, Any] = {
    "number": np.float64(np.nan),
    "date": np.float64(np.nan),
    "boolean": np.int8(1),
    "text": np.int64(-1),
}


def evaluate(root: Node, cells: Mapping[str, Cells], columns: Sequence[str]) -> Cells:
    """Return the values of a tree; the columns are all equally long."""
    found: dict[Node, Cells] = {}
    with np.errstate(all="ignore"):
        for node in ordered(root):
            found[node] = _value(node, [found[each] for each in node.args], cells)
    rows = len(cells[columns[0]])
    result = np.broadcast_to(found[root], (rows,))
    if root.kind == "boolean":
        return np.take(_CODES, result)
    return np.asarray(result + 0.0 if root.kind in ("number", "date") else np.array(result, dtype=np.int64))


def _value(node: Node, args: list[Cells], cells: Mapping[str, Cells]) -> Cells:
    if node.op == "column":
        return np.asarray(cells[node.data], dtype=np.int64 if node.kind == "text" else np.float64)
    if node.op == "literal":
        return _literal(node)
    if node.op == "null":
        return np.asarray(_NULLS[node.kind])
    if node.op in _OF_KIND:
        return _OF_KIND[node.op](node, args)
    if node.data is not None:
        return _WITH_DATA[node.op](node.data, *args)
    return _PLAIN[node.op](*args)


def _literal(node: Node) -> Cells:
    if node.kind == "boolean":
        return np.asarray(np.int8(2 if node.data else 0))
    return np.asarray(node.data, dtype=np.int64 if node.kind == "text" else np.float64)


def _missing(kind: str, values: Cells) -> Cells:
    if kind == "boolean":
        return np.equal(values, 1)
    return np.less(values, 0) if kind == "text" else np.isnan(values)


def _checked(values: Cells) -> Cells:
    """Return numbers, missing where they are none or beyond TOP."""
    return np.where(np.abs(values) <= TOP, values, np.nan)


def _truth(flags: Cells, missing: Cells) -> Cells:
    return np.where(missing, np.int8(1), flags * np.int8(2)).astype(np.int8)


def _compare(of: Callable[[Cells, Cells], Cells]) -> Callable[[Node, list[Cells]], Cells]:
    def compare(node: Node, args: list[Cells]) -> Cells:
        x, y = args
        kind = node.args[0].kind
        return _truth(of(x, y), _missing(kind, x) | _missing(kind, y))

    return compare


def _between(x: Cells, low: Cells, high: Cells) -> Cells:
    above = _truth(x >= low, np.isnan(x) | np.isnan(low))
    return np.minimum(above, _truth(x <= high, np.isnan(x) | np.isnan(high)))


def _is_null(node: Node, args: list[Cells]) -> Cells:
    return _truth(_missing(node.args[0].kind, args[0]), np.asarray(False))


def _case(node: Node, args: list[Cells]) -> Cells:
    result = args[-1]
    for at in range(len(args) - 3, -1, -2):
        result = np.where(args[at] == 2, args[at + 1], result)
    return result


def _coalesce(node: Node, args: list[Cells]) -> Cells:
    result = args[0]
    for each in args[1:]:
        result = np.where(_missing(node.kind, result), each, result)
    return result


def _table(entries: Sequence[Any], missing: Any, dtype: Any, codes: Cells) -> Cells:
    """Return the entry of each code; that of -1 stands last."""
    return np.array([*entries, missing], dtype=dtype)[codes]


def _whole(of: Callable[[Cells], Cells]) -> Callable[[Cells], Cells]:
    def whole(x: Cells) -> Cells:
        return np.where(np.abs(x) < _EXACT, of(x), x)

    return whole


def _round(digits: int, x: Cells) -> Cells:
    scale = 10.0 ** abs(digits)
    moved = x * scale if digits >= 0 else x / scale
    whole = np.trunc(moved)
    whole = whole + np.where(np.abs(moved - whole) >= 0.5, np.copysign(1.0, moved), 0.0)
    return np.where(np.abs(moved) < _EXACT, whole / scale if digits >= 0 else whole * scale, x)


def _cut(points: tuple[float, ...], x: Cells) -> Cells:
    return np.where(np.isnan(x), -1, np.searchsorted(np.array(points), x, side="right"))


def _power(x: Cells, y: Cells) -> Cells:
    return _checked(np.where(np.isnan(x) | np.isnan(y), np.nan, np.power(x, y)))  # NaN to the 0 is 1


def _calendar(x: Cells) -> tuple[Cells, Cells, Cells]:
    """Return year, month and day of the month, any where the date is missing."""
    whole = np.floor(np.clip(np.where(np.isnan(x), 0.0, x), days.FIRST, days.LAST)).astype(np.int64)
    date = whole.astype("datetime64[D]")
    months = date.astype("datetime64[M]").astype(np.int64)
    day = whole - date.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return months // 12 + 1970, months % 12 + 1, day


def _year(x: Cells) -> Cells:
    return np.where(np.isnan(x), np.nan, _calendar(x)[0])


def _month(x: Cells) -> Cells:
    return np.where(np.isnan(x), np.nan, _calendar(x)[1])


def _years_between(x: Cells, y: Cells) -> Cells:
    first, second = np.minimum(x, y), np.maximum(x, y)
    (year, month, day), (later, month_2, day_2) = _calendar(first), _calendar(second)
    years = later - year - ((month_2 < month) | ((month_2 == month) & (day_2 < day)))
    return np.where(np.isnan(first), np.nan, np.where(y < x, -years, years))


_OF_KIND: dict[str, Callable[[Node, list[Cells]], Cells]] = {
    "lt": _compare(np.less),
    "le": _compare(np.less_equal),
    "gt": _compare(np.greater),
    "ge": _compare(np.greater_equal),
    "eq": _compare(np.equal),
    "ne": _compare(np.not_equal),
    "isnull": _is_null,
    "case": _case,
    "coalesce": _coalesce,
    "least": lambda node, args: np.minimum.reduce(np.broadcast_arrays(*args)),
    "greatest": lambda node, args: np.maximum.reduce(np.broadcast_arrays(*args)),
    "and": lambda node, args: np.minimum.reduce(np.broadcast_arrays(*args)),
    "or": lambda node, args: np.maximum.reduce(np.broadcast_arrays(*args)),
}
_WITH_DATA: dict[str, Callable[..., Cells]] = {
    "recode": lambda codes, x: _table(codes, -1, np.int64, x),
    "decode": lambda numbers, x: _table(numbers, np.nan, np.float64, x),
    "among": lambda flags, x: _table([2 * flag for flag in flags], 1, np.int8, x),
    "in": lambda numbers, x: _truth(np.isin(x, numbers), np.isnan(x)),
    "round": _round,
    "cut": _cut,
}
_PLAIN: dict[str, Callable[..., Cells]] = {
    "same": lambda x: x,
    "not": lambda x: (np.int8(2) - x).astype(np.int8),
    "between": _between,
    "neg": np.negative,
    "add": lambda x, y: _checked(x + y),
    "sub": lambda x, y: _checked(x - y),
    "mul": lambda x, y: _checked(x * y),
    "div": lambda x, y: _checked(x / y),
    "mod": lambda x, y: _checked(np.fmod(x, y)),
    "flush": lambda x: np.where(np.abs(x) < TINY, 0.0, x),
    "abs": np.abs,
    "sign": np.sign,
    "floor": _whole(np.floor),
    "ceil": _whole(np.ceil),
    "ln": lambda x: np.where(x > 0, np.log(x), np.nan),
    "log10": lambda x: np.where(x > 0, np.log10(x), np.nan),
    "exp": lambda x: _checked(np.exp(x)),
    "sqrt": lambda x: np.where(x >= 0, np.sqrt(x), np.nan),
    "power": _power,
    "year": _year,
    "month": _month,
    "years_between": _years_between,
}
