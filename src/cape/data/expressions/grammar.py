"""From sqlglot's tree to ours, by a list: a node of any other type is refused, with its place.

A node that is on the list is read with the arguments named there; it is refused if it has others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.columns import Column
from cape.data.expressions import build
from cape.data.expressions.build import Misuse
from cape.data.expressions.tree import Node
from cape.data.expressions.words import FUNCTIONS, Source, is_plain, scan
from cape.data.schema import meant

__all__ = ["read"]

_DEEPEST = 60  # levels of the tree, such as terms of a sum


class _Reader(Parser):
    """sqlglot's parser without any function: whatever is called stays a name with arguments."""

    FUNCTIONS: ClassVar[Any] = {}
    FUNCTION_PARSERS: ClassVar[Any] = {}
    NO_PAREN_FUNCTIONS: ClassVar[Any] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Any] = {"CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


def read(text: str, columns: Mapping[str, Column]) -> tuple[Node, str, tuple[str, ...]]:
    """Return the tree of an expression, its canonical text and the columns that it reads."""
    source = Source(text)
    tree = _parsed(source, columns)
    grammar = _Grammar(source, columns)
    try:
        node = grammar.node(tree)
        if node.kind == "null":
            raise InvalidInput("the expression is always NULL")
        if not grammar.names:
            raise InvalidInput("an expression must read at least one column")
        return node, _canonical(tree), tuple(grammar.names)
    except RecursionError:  # called from deep inside something else
        raise InvalidInput("the expression is nested too deeply") from None


def _parsed(source: Source, columns: Mapping[str, Column]) -> exp.Expression:
    tokens = scan(source, columns)
    try:
        found = _Reader().parse_into(exp.Condition, tokens, source.text)[0]
    except SqlglotError as error:
        _explain(source, error)
    except Exception:  # a parser of others, fed by anybody: whatever it raises, the text is to blame
        found = None
    if not isinstance(found, exp.Expression):
        raise InvalidInput(f"cannot read {check.show(source.text, 60)} as an expression")
    return found


def _explain(source: Source, error: SqlglotError) -> NoReturn:
    """Say where the parser stopped."""
    faults = getattr(error, "errors", None) or [{}]
    before, part = faults[0].get("start_context"), faults[0].get("highlight")
    if part and before is not None:
        start = source.text.find(before + part) + len(before)
        source.fail("this cannot stand here, or something is missing", start, start + len(part) - 1)
    raise InvalidInput(f"cannot read {check.show(source.text, 60)} as an expression") from None


class _Grammar:
    """Reads one tree; `names` are the columns found, in order."""

    def __init__(self, source: Source, columns: Mapping[str, Column]) -> None:
        self._source, self._columns = source, columns
        self.names: dict[str, Node] = {}

    def node(self, tree: exp.Expression, depth: int = 0) -> Node:
        """Return our node for one of sqlglot's."""
        if depth > _DEEPEST:
            self._fail(tree, f"an expression has at most {_DEEPEST} levels")
        try:
            entry = _LIST.get(type(tree))
            if entry is None:
                raise Misuse(f"{type(tree).__name__} is not allowed in an expression")
            allowed, read = entry
            extra = [key for key, value in tree.args.items() if key not in allowed and value]
            if extra:
                raise Misuse(f"{extra[0]} is not allowed here")
            return read(self, tree, depth + 1)
        except Misuse as problem:
            self._fail(tree, str(problem))

    def _all(self, trees: Sequence[Any], depth: int) -> list[Node]:
        return [self.node(each, depth) for each in trees]

    def _fail(self, tree: exp.Expression, problem: str) -> NoReturn:
        places = [each.meta for each in tree.walk() if "start" in each.meta]
        if not places:
            raise InvalidInput(f"{problem}: in {check.show(self._source.text, 60)}") from None
        start, end = min(each["start"] for each in places), max(each["end"] for each in places)
        self._source.fail(problem, start, end)

    def _column(self, tree: Any, depth: int) -> Node:
        name = tree.name
        if name not in self._columns:
            raise Misuse(f"no column {check.show(name, 40)} in the schema{meant(name, self._columns)}")
        if name not in self.names:
            self.names[name] = build.column(name, self._columns[name])
        return self.names[name]

    def _literal(self, tree: Any, depth: int) -> Node:
        return build.text(tree.this) if tree.is_string else build.number(float(tree.this))

    def _date(self, tree: Any, depth: int) -> Node:
        literal = tree.this
        if not (isinstance(literal, exp.Literal) and literal.is_string):
            raise Misuse("a date is written as date '2020-01-31'")
        if tree.args["to"].this != exp.DataType.Type.DATE:
            raise Misuse("only dates are written like this")
        return build.date(literal.this)

    def _chain(self, tree: Any, depth: int) -> Node:
        """Read a and b and c ... as one, however many there are."""
        kind, parts, rest = type(tree), [], tree
        while isinstance(rest, kind):
            parts.append(rest.expression)
            rest = rest.this
        return build.logic(tree.key, *self._all([rest, *reversed(parts)], depth))

    def _binary(self, tree: Any, depth: int) -> Node:
        return build.arithmetic(tree.key, *self._all([tree.this, tree.expression], depth))

    def _comparison(self, tree: Any, depth: int) -> Node:
        op = _COMPARISONS[type(tree)]
        return build.compare(op, *self._all([tree.this, tree.expression], depth))

    def _is(self, tree: Any, depth: int) -> Node:
        if not isinstance(tree.expression, exp.Null):
            raise Misuse("IS takes NULL or NOT NULL only; a condition is written alone, or after NOT")
        return build.is_null(self.node(tree.this, depth))

    def _case(self, tree: Any, depth: int) -> Node:
        conditions, results = [], []
        subject = None if tree.this is None else self.node(tree.this, depth)
        for each in tree.args["ifs"]:
            if not isinstance(each, exp.If) or each.args.get("false"):
                raise Misuse("CASE is written as CASE WHEN ... THEN ... ELSE ... END")
            when = self.node(each.this, depth)
            conditions.append(when if subject is None else build.compare("eq", subject, when))
            results.append(self.node(each.args["true"], depth))
        default = tree.args.get("default")
        return build.case(conditions, results, build.null() if default is None else self.node(default, depth))

    def _call(self, tree: Any, depth: int) -> Node:
        name = str(tree.this).lower()
        if name not in FUNCTIONS:
            raise Misuse(f"no function {check.show(name, 40)} is allowed")
        fewest, most = FUNCTIONS[name]
        args = self._all(tree.expressions, depth)
        if not fewest <= len(args) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise Misuse(f"{name} takes {wanted} arguments, not {len(args)}")
        return _CALLS[name](*args)


def _of(make: Callable[..., Node], op: str) -> Callable[..., Node]:
    def call(*args: Node) -> Node:
        return make(op, *args)

    return call


_CALLS: dict[str, Callable[..., Node]] = {
    "coalesce": build.coalesce,
    "nullif": build.nullif,
    "round": build.rounding,
    "cut": build.cut,
    "days_between": build.days_between,
    **{op: _of(build.extreme, op) for op in ("least", "greatest")},
    **{op: _of(build.of_dates, op) for op in ("year", "month", "years_between")},
    **{
        op: _of(build.of_number, op)
        for op in ("abs", "sign", "floor", "ceil", "ln", "log10", "exp", "sqrt", "power")
    },
}
_COMPARISONS: dict[type, str] = {
    exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge", exp.EQ: "eq", exp.NEQ: "ne",
}  # fmt: skip
_BINARY = {"this", "expression"}
_LIST: dict[type, tuple[set[str], Callable[[_Grammar, Any, int], Node]]] = {
    exp.Column: ({"this"}, _Grammar._column),
    exp.Literal: ({"this", "is_string"}, _Grammar._literal),
    exp.Null: (set(), lambda grammar, tree, depth: build.null()),
    exp.Boolean: ({"this"}, lambda grammar, tree, depth: build.boolean(bool(tree.this))),
    exp.Cast: ({"this", "to", "_type"}, _Grammar._date),
    exp.Paren: ({"this"}, lambda grammar, tree, depth: grammar.node(tree.this, depth)),
    exp.Neg: ({"this"}, lambda grammar, tree, depth: build.negative(grammar.node(tree.this, depth))),
    exp.Not: ({"this"}, lambda grammar, tree, depth: build.logic("not", grammar.node(tree.this, depth))),
    exp.And: (_BINARY, _Grammar._chain),
    exp.Or: (_BINARY, _Grammar._chain),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod), (_BINARY, _Grammar._binary)),
    exp.Div: ({*_BINARY, "typed", "safe"}, _Grammar._binary),
    **dict.fromkeys(_COMPARISONS, (_BINARY, _Grammar._comparison)),
    exp.Is: (_BINARY, _Grammar._is),
    exp.Between: (
        {"this", "low", "high"},
        lambda grammar, tree, depth: build.between(
            *(grammar.node(tree.args[key], depth) for key in ("this", "low", "high"))
        ),
    ),
    exp.In: (
        {"this", "expressions"},
        lambda grammar, tree, depth: build.member(
            *(grammar.node(each, depth) for each in (tree.this, *tree.expressions))
        ),
    ),
    exp.Case: ({"this", "ifs", "default"}, _Grammar._case),
    exp.Anonymous: ({"this", "expressions"}, _Grammar._call),
}


def _canonical(tree: exp.Expression) -> str:
    """Return the text in one spelling: of keywords, spaces, numbers and quotation marks."""
    spelled: exp.Expression = tree.copy().transform(_spelled, copy=False)
    return str(spelled.sql(comments=False, normalize_functions=False))


def _spelled(tree: Any) -> Any:
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return exp.Literal.number(build.spelled_number(float(tree.this)))
    if isinstance(tree, exp.Identifier):
        return exp.to_identifier(tree.this, quoted=not is_plain(tree.this))
    if isinstance(tree, exp.Cast):
        return exp.Var(this=f"DATE '{tree.this.this}'")
    if isinstance(tree, exp.Anonymous):
        tree.set("this", str(tree.this).lower())
    if isinstance(tree, exp.Not) and isinstance(tree.parent, (exp.Binary, exp.Is, exp.Between, exp.In)):
        return tree if isinstance(tree.parent, exp.Connector) else exp.Paren(this=tree.copy())
    return tree
