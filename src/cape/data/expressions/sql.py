"""An expression as SQL: comparisons, CASE and exact arithmetic, which mean the same in every database.

Nothing is written that databases understand differently: GREATEST skips NULL in some of them, a decimal
literal is not everywhere the nearest double, and a year is taken from a date in many ways. Numbers are
quotients of integers and powers of two, and the others become CASE. No text of anybody's is in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from cape.data.expressions import days
from cape.data.expressions.tree import TINY, Node, ordered

__all__ = ["double", "to_sql"]

Sql = exp.Expression
_STEP = 62  # powers of two up to here are integers of 64 bits
_SIGNS = {"lt": exp.LT, "le": exp.LTE, "gt": exp.GT, "ge": exp.GTE, "eq": exp.EQ, "ne": exp.NEQ}
_ARITHMETIC = {"add": exp.Add, "sub": exp.Sub, "mul": exp.Mul}


def to_sql(root: Node, lookup: Callable[[str], Sql]) -> Sql:
    """Return a tree as SQL."""
    found: dict[Node, Sql] = {}
    used: set[Node] = set()
    for node in ordered(root):
        args = []
        for (
            each
        ) in node.args:  # a part that stands in several places is copied: sqlglot's nodes have one parent
            args.append(found[each].copy() if each in used else found[each])
            used.add(each)
        found[node] = lookup(node.data).copy() if node.op == "column" else _written(node, args)
    return found[root]


def double(value: float) -> Sql:
    """Return exactly this double, whatever a database makes of decimal literals."""
    mantissa, exponent = math.frexp(value)
    whole, power = int(mantissa * 2**53), exponent - 53
    while whole and whole % 2 == 0 and power < 0:
        whole, power = whole // 2, power + 1
    while power > 0 and abs(whole) < 2**52:
        whole, power = whole * 2, power - 1
    result = _cast(whole)
    if not whole:
        return result
    while power:
        step = min(abs(power), _STEP)
        result = exp.Paren(this=(exp.Mul if power > 0 else exp.Div)(this=result, expression=_cast(2**step)))
        power -= step if power > 0 else -step
    return result


def _cast(whole: int) -> Sql:
    number: Sql = exp.Literal.number(abs(whole))
    return exp.cast(exp.Neg(this=number) if whole < 0 else number, "double")


def _written(node: Node, args: list[Sql]) -> Sql:
    op = node.op
    if op == "literal":
        return _literal(node)
    if op == "null":
        return _null(node.kind)
    if op in _SIGNS:
        return _binary(_SIGNS[op], *args)
    if op in _ARITHMETIC:
        return _binary(_ARITHMETIC[op], *args)
    return _WRITE[op](node, args)


def _null(kind: str) -> Sql:
    """Return NULL with its type, which some databases ask for in conditions."""
    if kind == "text":
        return exp.Null()
    number = exp.cast(exp.Null(), "double")
    return _binary(exp.EQ, number, double(0.0)) if kind == "boolean" else number


def _literal(node: Node) -> Sql:
    if node.kind == "boolean":
        return exp.Boolean(this=node.data)
    return _integer(node.data) if node.kind == "text" else double(node.data)


def _integer(value: int) -> Sql:
    return exp.Literal.number(value)


def _binary(kind: Any, left: Sql, right: Sql) -> Sql:
    return exp.Paren(this=kind(this=left, expression=right))


def _joined(kind: Any, parts: Sequence[Sql]) -> Sql:
    result = parts[0]
    for each in parts[1:]:
        result = kind(this=result, expression=each)
    return exp.Paren(this=result)


def _choice(pairs: Sequence[tuple[Sql, Sql]], otherwise: Sql | None = None, of: Sql | None = None) -> Sql:
    ifs = [exp.If(this=condition, true=result) for condition, result in pairs]
    return exp.Paren(this=exp.Case(this=of, ifs=ifs, default=otherwise))


def _case(node: Node, args: list[Sql]) -> Sql:
    pairs = list(zip(args[:-1:2], args[1::2], strict=True))
    return _choice(pairs, None if node.args[-1].op == "null" else args[-1])


def _lookup(node: Node, results: Sequence[Sql | None], argument: Sql) -> Sql:
    """Return the result of each code."""
    pairs = [(_integer(code), result) for code, result in enumerate(results) if result is not None]
    return _choice(pairs, of=argument)


def _among(node: Node, args: list[Sql]) -> Sql:
    codes = [_integer(code) for code, flag in enumerate(node.data) if flag]
    if not codes:
        return _binary(exp.LT, args[0], _integer(0))
    return exp.Paren(this=exp.In(this=args[0], expressions=codes))


def _steps(x: Sql, ends: Sequence[float], results: Sequence[Sql]) -> Sql:
    """Return the first result below the first end, ..., and the last one from the last end on."""
    pairs = [
        (exp.LT(this=x.copy(), expression=double(end)), result)
        for end, result in zip(ends, results, strict=False)
    ]
    return _choice([*pairs, (exp.GTE(this=x.copy(), expression=double(ends[-1])), results[-1])])


def _year(node: Node, args: list[Sql]) -> Sql:
    first, last = int(node.interval.low), int(node.interval.high)
    if first == last:
        return _choice([(_not_null(args[0]), double(first))])
    ends = [days.of_year(each) for each in range(first + 1, last + 1)]
    return _steps(args[0], ends, [double(each) for each in range(first, last + 1)])


def _not_null(x: Sql) -> Sql:
    return exp.Not(this=exp.Paren(this=exp.Is(this=x, expression=exp.Null())))


def _extreme(node: Node, args: list[Sql]) -> Sql:
    sign = exp.LTE if node.op == "least" else exp.GTE
    pairs = []
    for at, x in enumerate(args):  # every use is a copy, also the first
        others = [each for place, each in enumerate(args) if place != at]
        tests = [_binary(sign, x.copy(), each.copy()) for each in others]
        pairs.append((_joined(exp.And, tests), x.copy()))
    return _choice(pairs)


def _sign(node: Node, args: list[Sql]) -> Sql:
    zero = double(0.0)
    return _choice(
        [
            (exp.GT(this=args[0].copy(), expression=zero.copy()), double(1.0)),
            (exp.LT(this=args[0].copy(), expression=zero.copy()), double(-1.0)),
            (exp.EQ(this=args[0], expression=zero), double(0.0)),
        ]
    )


def _flush(node: Node, args: list[Sql]) -> Sql:
    small = exp.LT(this=exp.Abs(this=args[0].copy()), expression=double(TINY))
    return _choice([(small, double(0.0))], args[0])


_WRITE: dict[str, Callable[[Node, list[Sql]], Sql]] = {
    "same": lambda node, args: args[0],
    "recode": lambda node, args: _lookup(
        node, [_integer(each) if each >= 0 else None for each in node.data], args[0]
    ),
    "decode": lambda node, args: _lookup(node, [double(each) for each in node.data], args[0]),
    "among": _among,
    "in": lambda node, args: exp.Paren(
        this=exp.In(this=args[0], expressions=[double(each) for each in node.data])
    ),
    "between": lambda node, args: exp.Paren(this=exp.Between(this=args[0], low=args[1], high=args[2])),
    "isnull": lambda node, args: exp.Paren(this=exp.Is(this=args[0], expression=exp.Null())),
    "and": lambda node, args: _joined(exp.And, args),
    "or": lambda node, args: _joined(exp.Or, args),
    "not": lambda node, args: exp.Paren(this=exp.Not(this=args[0])),
    "neg": lambda node, args: exp.Paren(this=exp.Neg(this=args[0])),
    "abs": lambda node, args: exp.Abs(this=args[0]),
    "sign": _sign,
    "flush": _flush,
    "case": _case,
    "coalesce": lambda node, args: exp.Coalesce(this=args[0], expressions=args[1:]),
    "least": _extreme,
    "greatest": _extreme,
    "cut": lambda node, args: _steps(args[0], node.data, [_integer(at) for at in range(len(node.values))]),
    "year": _year,
}
