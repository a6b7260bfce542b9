"""Operations with types: each function checks kinds and makes a node, or raises `Misuse`.

What has several spellings in SQL becomes one thing here: comparisons of text become sets of codes, `nullif`
and both forms of `case` become one `case`, and texts of different lists get codes of one list.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Sequence

from cape.core import check
from cape.data.columns import Category, Column, Number
from cape.data.expressions import days
from cape.data.expressions.intervals import INTERVALS, flushed, hull, may_underflow, round_bounds, square
from cape.data.expressions.tree import TINY, TOP, UNKNOWN, Interval, Node

__all__ = [
    "Misuse",
    "arithmetic",
    "between",
    "boolean",
    "case",
    "coalesce",
    "column",
    "compare",
    "cut",
    "date",
    "days_between",
    "extreme",
    "is_null",
    "logic",
    "member",
    "negative",
    "null",
    "nullif",
    "number",
    "of_dates",
    "of_number",
    "rounding",
    "text",
]

_WHOLE = 2**53  # integers up to here are doubles
_MOST_DIGITS = 15
_SMALL = 100  # trees that are compared, to see that a product is a square
_MOST_YEARS = 200  # a year is looked up among so many in a database
_EXACT = {"add", "sub", "mul", "neg", "abs", "sign", "flush"}
_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_A = {"number": "a number", "date": "a date", "boolean": "a condition", "text": "text", "null": "NULL"}


class Misuse(Exception):
    """What is wrong with one operation; the caller knows where in the text it stands."""


def _node(
    op: str,
    kind: str,
    args: Sequence[Node] = (),
    data: object = None,
    *,
    interval: Interval = UNKNOWN,
    values: tuple[str, ...] = (),
    exact: bool = True,
    times: int = 1,
    more: int = 0,
) -> Node:
    return Node(
        op,
        kind,
        tuple(args),
        data,
        interval,
        values,
        exact and all(each.exact for each in args),
        min(1 + more + times * sum(each.size for each in args), 10**9),
    )


# leaves


def number(value: float) -> Node:
    """Return a literal; what is smaller than TINY is 0."""
    if not abs(value) <= TOP:
        raise Misuse(f"a number must lie between {-TOP:g} and {TOP:g}")
    value = 0.0 if abs(value) < TINY else value
    return _node("literal", "number", data=value, interval=Interval(value, value))


def text(value: str) -> Node:
    """Return a literal text: the only value of its list."""
    return _node("literal", "text", data=0, values=(value,))


def date(value: str) -> Node:
    """Return a literal date."""
    day = days.of_iso(value)
    if day is None:
        raise Misuse(f"{check.show(value, 40)} is no date; write one as '2020-01-31'")
    return _node("literal", "date", data=day, interval=Interval(day, day))


def boolean(value: bool) -> Node:
    """Return TRUE or FALSE."""
    return _node("literal", "boolean", data=value)


def null(kind: str = "null") -> Node:
    """Return NULL, of any kind until it stands beside something."""
    return _node("null", kind)


def column(name: str, given: Column) -> Node:
    """Return a column: categories that are all integers are numbers, and booleans are conditions."""
    if isinstance(given, Number):
        kind = "date" if given.date else "number"
        return _node("column", kind, data=name, interval=Interval(given.low, given.high))
    values = given.values
    codes = _node("column", "text", data=name, values=tuple(map(_spelled, values)))
    if all(isinstance(value, bool) for value in values):
        return _among(codes, [bool(value) for value in values])
    if _whole_numbers(given):
        return _numbers(codes, [float(value) for value in values])
    return codes


def _whole_numbers(given: Category) -> bool:
    return all(
        isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _WHOLE
        for value in given.values
    )


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# kinds


def _expect(kind: str, nodes: Sequence[Node], what: str) -> list[Node]:
    """Return the nodes as that kind, or say which is not."""
    found = []
    for node in nodes:
        if node.kind == "null":
            node = null(kind)
        elif kind == "date" and _is_text_literal(node):
            node = date(node.values[0])
        if node.kind != kind:
            raise Misuse(f"{what} needs {_A[kind]}, not {_A[node.kind]}{_about(node)}")
        found.append(node)
    return found


def _about(node: Node) -> str:
    if node.kind == "date":
        return "; days_between(a, b) counts the days from a to b"
    return ""


def _alike(nodes: Sequence[Node], what: str) -> list[Node]:
    """Return the nodes as one kind; texts as codes of one list."""
    kinds = [node.kind for node in nodes if node.kind != "null"]
    if not kinds:
        return list(nodes)
    kind = "date" if "date" in kinds else kinds[0]
    other = [node for node in nodes if node.kind not in (kind, "null")]
    if any(kind != "date" or not _is_text_literal(node) for node in other):
        given = ", ".join(dict.fromkeys(_A[each] for each in kinds))
        raise Misuse(f"{what} needs values of one kind, not {given}")
    found = _expect(kind, nodes, what)
    if kind != "text":
        return found
    values = tuple(dict.fromkeys(value for node in found for value in node.values))
    return [_recoded(node, values) for node in found]


def _is_text_literal(node: Node) -> bool:
    return node.kind == "text" and node.op == "literal"


def _recoded(node: Node, values: tuple[str, ...]) -> Node:
    """Return a text with the codes of another list; what is not in it is missing."""
    if node.op == "null":
        return _node("null", "text", values=values)
    if node.op == "literal":
        return _node("literal", "text", data=values.index(node.values[0]), values=values)
    if node.values == values:
        return node
    places = {value: code for code, value in enumerate(values)}
    codes = tuple(places.get(value, -1) for value in node.values)
    if codes == tuple(range(len(codes))):
        return _node("same", "text", [node], values=values)
    return _node("recode", "text", [node], codes, values=values, more=len(codes))


def _numbers(node: Node, numbers: Sequence[float]) -> Node:
    """Return the number that stands for each text."""
    interval = hull(Interval(each, each) for each in numbers)
    return _node("decode", "number", [node], tuple(numbers), interval=interval, more=len(numbers))


def _among(node: Node, flags: Sequence[bool]) -> Node:
    return _node("among", "boolean", [node], tuple(flags), more=len(flags))


# numbers


def arithmetic(op: str, left: Node, right: Node) -> Node:
    """Return left + right, left - right, ..."""
    x, y = _expect("number", [left, right], {"mod": "%"}.get(op, "arithmetic"))
    if op in ("div", "mod") and y.interval.low == y.interval.high == 0:
        raise Misuse("the divisor is always 0, so that every cell would be missing")
    if op == "mul" and may_underflow(x.interval, y.interval):
        x, y = _flush(x), _flush(y)
    twice = op == "mul" and _equal(x, y)
    interval = square(x.interval) if twice else INTERVALS[op](x.interval, y.interval)
    return _node(op, "number", [x, y], interval=interval, exact=op in _EXACT and interval.known)


def _equal(x: Node, y: Node) -> bool:
    """Return whether two small trees are the same."""
    if x is y:
        return True
    if (x.op, x.kind, x.data, x.values) != (y.op, y.kind, y.data, y.values) or len(x.args) != len(y.args):
        return False
    small = x.size == y.size <= _SMALL
    return small and all(_equal(a, b) for a, b in zip(x.args, y.args, strict=True))


def _flush(node: Node) -> Node:
    if node.interval.least >= TINY or node.op == "null":
        return node
    return _node("flush", "number", [node], interval=flushed(node.interval), times=2)


def negative(node: Node) -> Node:
    """Return -node; that of a literal is a literal."""
    if node.op == "literal" and node.kind == "number":
        return number(-node.data)
    (x,) = _expect("number", [node], "-")
    return _node("neg", "number", [x], interval=INTERVALS["neg"](x.interval))


def of_number(op: str, *given: Node) -> Node:
    """Return a function of one number, or `power` of two."""
    found = _expect("number", given, op)
    x = found[0].interval
    if (op in ("ln", "log10") and x.high <= 0) or (op == "sqrt" and x.high < 0):
        raise Misuse(f"the argument of {op} is never above 0, so that every cell would be missing")
    interval = INTERVALS[op](*(each.interval for each in found))
    return _node(op, "number", found, interval=interval, exact=op in _EXACT, times=3 if op == "sign" else 1)


def rounding(given: Node, digits: Node | None = None) -> Node:
    """Return the number rounded to a literal number of digits after the point."""
    (x,) = _expect("number", [given], "round")
    count = 0.0 if digits is None else digits.data
    if digits is not None and (digits.op != "literal" or digits.kind != "number"):
        raise Misuse("the digits of round must be a literal, as in round(x, 2)")
    if not float(count).is_integer() or abs(count) > _MOST_DIGITS:
        raise Misuse(f"the digits of round must be a whole number from -{_MOST_DIGITS} to {_MOST_DIGITS}")
    interval = round_bounds(x.interval, int(count))
    return _node("round", "number", [x], int(count), interval=interval, exact=False)


def extreme(op: str, *given: Node) -> Node:
    """Return the least or greatest of numbers or dates; missing where one of them is."""
    found = _alike(given, op)
    if found[0].kind not in ("number", "date"):
        raise Misuse(f"{op} needs numbers or dates, not {_A[found[0].kind]}")
    interval = INTERVALS[op](*(each.interval for each in found if each.op != "null"))
    return _node(op, found[0].kind, found, interval=interval, times=2 * len(found))


# dates


def days_between(first: Node, second: Node) -> Node:
    """Return the days from the first date to the second."""
    a, b = _expect("date", [first, second], "days_between")
    return _node("sub", "number", [b, a], interval=INTERVALS["sub"](b.interval, a.interval))


def of_dates(op: str, *given: Node) -> Node:
    """Return `year`, `month` or `years_between`: a year is looked up, so that databases agree."""
    found = _expect("date", given, op)
    interval = INTERVALS[op](*(each.interval for each in found))
    span = int(interval.high - interval.low) + 1
    exact = op == "year" and span <= _MOST_YEARS
    return _node(op, "number", found, interval=interval, exact=exact, times=span if exact else 1, more=span)


def cut(given: Node, *points: Node) -> Node:
    """Return the range between rising literals in which a number or a date lies, as text."""
    kind = given.kind
    if kind not in ("number", "date"):
        raise Misuse(f"cut needs a number or a date, not {_A[kind]}")
    places = _expect(kind, points, "cut")
    if any(each.op != "literal" for each in places):
        raise Misuse("the places of a cut must be literals, as in cut(age, 40, 65)")
    ends = tuple(each.data for each in places)
    if any(not a < b for a, b in itertools.pairwise(ends)):
        raise Misuse("the places of a cut must rise, as in cut(age, 40, 65)")
    below, above = ("before", "or later") if kind == "date" else ("under", "and over")
    names = [days.iso(each) if kind == "date" else spelled_number(each) for each in ends]
    inner = [f"{low} to {high}" for low, high in itertools.pairwise(names)]
    values = (f"{below} {names[0]}", *inner, f"{names[-1]} {above}")
    return _node("cut", "text", [given], ends, values=values, times=len(values))


def spelled_number(value: float) -> str:
    """Return the shortest text that reads as this number."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


# conditions


def compare(op: str, left: Node, right: Node) -> Node:
    """Return left < right, left = right, ..."""
    if "null" in (left.kind, right.kind):
        raise Misuse("a comparison with NULL is never true; write IS NULL or IS NOT NULL")
    if _is_text_literal(left) and not _is_text_literal(right):
        return compare(_FLIPPED[op], right, left)
    if left.kind == "text" and _is_text_literal(right):
        return _text_with_literal(op, left, right.values[0])
    x, y = _alike([left, right], "a comparison")
    if x.kind == "boolean" and op not in ("eq", "ne"):
        raise Misuse("conditions have no order; compare them with = or <>")
    if x.kind == "text":
        places = {value: float(i) for i, value in enumerate(sorted(x.values, key=_bytes))}
        ranks = [places[value] for value in x.values]
        x, y = _numbers(x, ranks), _numbers(y, ranks)
    return _node(op, "boolean", [x, y])


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


_TESTS: dict[str, Callable[[bytes, bytes], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def _text_with_literal(op: str, node: Node, literal: str) -> Node:
    if op in ("eq", "ne"):
        _check_value(node, literal)
    return _among(node, [_TESTS[op](_bytes(value), _bytes(literal)) for value in node.values])


def _check_value(node: Node, literal: str) -> None:
    """A value that is not in the list would never be found: most likely it is misspelt."""
    if literal not in node.values:
        close = difflib.get_close_matches(literal, node.values, 1)
        listed = check.plain(", ".join(node.values), 120)
        meant = f"did you mean {check.show(close[0], 40)}?" if close else f"the values are: {listed}"
        raise Misuse(f"{check.show(literal, 40)} is not among the values; {meant}")


def between(node: Node, low: Node, high: Node) -> Node:
    """Return node >= low and node <= high."""
    if node.kind in ("number", "date") and "null" not in (low.kind, high.kind):
        x, a, b = _alike([node, low, high], "between")
        return _node("between", "boolean", [x, a, b])
    return logic("and", compare("ge", node, low), compare("le", node, high))


def member(node: Node, *literals: Node) -> Node:
    """Return whether the value is in a list of literals."""
    if not literals:
        raise Misuse("the list of IN must have at least one literal")
    if any(each.op != "literal" for each in literals):
        raise Misuse("the list of IN must have literals only; for columns write a = b or a = c")
    if node.kind == "text":
        texts = [each.values[0] for each in _expect("text", literals, "this list of IN")]
        for each in texts:
            _check_value(node, each)
        return _among(node, [value in texts for value in node.values])
    if node.kind not in ("number", "date"):
        raise Misuse(f"IN needs a number, a date or text, not {_A[node.kind]}")
    found = _expect(node.kind, literals, "this list of IN")
    return _node("in", "boolean", [node], tuple(each.data for each in found), more=len(found))


def is_null(node: Node) -> Node:
    """Return whether the value is missing."""
    if node.kind == "null":
        raise Misuse("NULL is always NULL; name a column")
    return _node("isnull", "boolean", [node])


def logic(op: str, *given: Node) -> Node:
    """Return `and`, `or` or `not` of conditions."""
    return _node(op, "boolean", _expect("boolean", given, op.upper()))


# choices


def case(conditions: Sequence[Node], results: Sequence[Node], otherwise: Node) -> Node:
    """Return the result of the first condition that is true."""
    found = _alike([*results, otherwise], "CASE")
    checked = _expect("boolean", conditions, "WHEN")
    if found[0].kind == "null":
        return null()
    pairs = [each for pair in zip(checked, found, strict=False) for each in pair]
    args = [*pairs, found[-1]]
    return _node("case", found[0].kind, args, interval=_hull(found), values=found[0].values)


def coalesce(*given: Node) -> Node:
    """Return the first value that is not missing."""
    found = _alike(given, "coalesce")
    if found[0].kind == "null":
        return null()
    return _node("coalesce", found[0].kind, found, interval=_hull(found), values=found[0].values)


def _hull(nodes: Sequence[Node]) -> Interval:
    if nodes[0].kind not in ("number", "date"):
        return UNKNOWN
    return hull(node.interval for node in nodes if node.op != "null")


def nullif(left: Node, right: Node) -> Node:
    """Return the left value, or NULL where it equals the right one."""
    equal = compare("eq", left, right)
    if left.kind == "text" and _is_text_literal(right):
        kept = tuple(value for value in left.values if value != right.values[0])
        if not kept:
            raise Misuse("nothing would be left, so that every cell would be missing")
        return _recoded(left, kept) if left.op != "literal" else left
    return case([equal], [null()], left)
