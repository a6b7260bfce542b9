"""Expressions of a study: right ones of every kind, bent ones, and words of SQL in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sqlglot import exp

from assurance.inputs.bend import bend_bytes, pick
from assurance.inputs.surface import Surface
from cape.data import Schema
from cape.data.expressions import Expression, parse

__all__ = ["SCHEMA", "Expressions", "inspect", "rows", "written"]

Random = np.random.Generator

SCHEMA = Schema(
    {
        "age": (18, 90),
        "bmi": (10.5, 60),
        "n": (0, 40),
        "delta": (-5, 5),
        "tiny": (0, 1),
        "huge": (-1e200, 1e200),
        "sex": ["female", "male"],
        "ward": ["a", "B", "é", "it's"],
        "stage": {"categories": [0, 1, 2]},
        "smoker": {"categories": [False, True]},
        "born": {"low": "1920-02-29", "high": "2004-12-31"},
        "seen": {"low": "2010-01-01", "high": "2024-06-30"},
        "a b": (1, 2),
    }
)
_NUMBERS = ("age", "bmi", "n", "delta", "tiny", "huge", "stage", '"a b"')
_EDGES = (0.0, 1e-320, 1e-200, 0.5, 1.0, 1 / 3, 1e200, -1e200)
_LITERALS = ("0", "1", "2", "0.1", "40", "65.5", "1e-3", "1e-200", "1e200", ".5", "3.", "100")
_DATES = ("date '2015-03-01'", "date '2000-02-29'", "date '1999-12-31'")
_CONDITIONS = ("smoker", "age > 40", "sex = 'male'", "ward in ('a', 'é')", "n is null", "true")
_AROUND = (("(", ")"), ("abs(", ")"), ("not ", ""), ("-", ""), ("date(", ")"), ("n + ", ""))
_TEXTS = ("'female'", "'male'", "'a'", "'B'", "'é'", "'it''s'", "'other'")
_WORDS = (
    *_NUMBERS, *_LITERALS, *_DATES, *_TEXTS, "sex", "ward", "smoker", "born", "seen", "nobody", "(", ")",
    "(", ")", ",", "+", "-", "*", "/", "%", "<", "<=", "=", "<>", "!=", "and", "or", "not", "between", "in",
    "is", "null", "case", "when", "then", "else", "end", "true", "false", "cut(", "round(", "coalesce(",
    "nullif(", "least(", "ln(", "exp(", "sqrt(", "power(", "year(", "days_between(", "date", "sum(",
    "count(*)", "select", "from", "over", "cast(", "as", "int", "::", ".", ";", "--", "/*", "*/", "||",
    "current_date", "random()", "interval", "'", '"', "`", "[", "]", "{", "}", "?", ":x", "@x", "$1",
    "distinct", "like", "exists", "\n", "\\", "\x00", "λ", "union", "if(", "array[1]", "x'1F'", "filter (",
    "order by", "collate", "->", ":=", "^", "**", "~", "!",
)  # fmt: skip


def rows(random: Random, count: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return cells as the schema reads them: within bounds, at the edges, missing."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, column in SCHEMA.items():
        if hasattr(column, "values"):
            found[name] = random.integers(-1, len(column.values), count)
            continue
        cells = random.uniform(column.low, column.high, count)
        if column.date:
            cells = np.round(cells)
        else:
            edges = np.array([*_EDGES, column.low, column.high])
            cells = np.where(
                random.random(count) < 0.3, edges[random.integers(len(edges), size=count)], cells
            )
            cells = np.where(random.random(count) < 0.3, np.round(cells), cells)
        cells = np.clip(cells, column.low, column.high)
        found[name] = np.where(random.random(count) < 0.15, np.nan, cells)
    return found


def written(random: Random, kind: str, depth: int, exact: bool = False) -> str:
    """Return an expression of that kind; `exact`: of operations that databases compute."""
    if kind == "number":
        return _number(random, depth, exact)
    if kind == "text":
        return _text(random, depth, exact)
    if kind == "date":
        return _date(random, depth, exact)
    return _condition(random, depth, exact)


def _chosen(random: Random, kind: str, depth: int, exact: bool) -> str:
    """Return a choice among values of a kind, which every kind has."""

    def one(of: str) -> str:
        return written(random, of, depth - 1, exact)

    return str(
        pick(
            random,
            (
                f"case when {one('boolean')} then {one(kind)} when {one('boolean')} then {one(kind)} end",
                f"case when {one('boolean')} then {one(kind)} else {one(kind)} end",
                f"case {one('number')} when 1 then {one(kind)} when 2 then null else {one(kind)} end",
                f"coalesce({one(kind)}, {one(kind)})",
                f"case when null then null else {one(kind)} end",
            ),
        )
    )


def _number(random: Random, depth: int, exact: bool) -> str:
    if depth <= 0:
        return str(pick(random, _NUMBERS if random.random() < 0.7 else _LITERALS))

    def one(of: str = "number") -> str:
        return written(random, of, depth - 1, exact)

    everywhere = [
        lambda: f"{one()} + {one()}",
        lambda: f"({one()} - {one()})",
        lambda: f"({one()}) * ({one()})",
        lambda: f"-({one()})",
        lambda: f"abs({one()})",
        lambda: f"sign({one()})",
        lambda: f"{pick(random, ('least', 'greatest'))}({one()}, {one()}, {one()})",
        lambda: f"days_between({one('date')}, {one('date')})",
        lambda: f"year({one('date')})",
        lambda: f"nullif({one()}, {pick(random, _LITERALS)})",
        lambda: _chosen(random, "number", depth, exact),
    ]
    site = [
        lambda: f"({one()}) / ({one()})",
        lambda: f"({one()}) % ({one()})",
        lambda: f"{pick(random, ('ln', 'log10', 'exp', 'sqrt', 'floor', 'ceil', 'round'))}({one()})",
        lambda: f"round({one()}, {int(random.integers(-3, 5))})",
        lambda: f"power({one()}, {one()})",
        lambda: f"power({one()}, 2)",
        lambda: f"month({one('date')})",
        lambda: f"years_between({one('date')}, {one('date')})",
    ]
    return str(pick(random, everywhere if exact else everywhere + site)())


def _text(random: Random, depth: int, exact: bool) -> str:
    if depth <= 0:
        return str(pick(random, ("sex", "ward", "'other'", "'é'")))

    def one(of: str) -> str:
        return written(random, of, depth - 1, exact)

    kinds = [
        lambda: f"cut({one('number')}, 1, 40, 65.5)",
        lambda: f"cut({one('date')}, '2000-01-01', '2015-01-01')",
        lambda: "nullif(ward, 'a')",
        lambda: _chosen(random, "text", depth, exact),
    ]
    return str(pick(random, kinds)())


def _date(random: Random, depth: int, exact: bool) -> str:
    if depth <= 0:
        return str(pick(random, ("born", "seen", "born", "seen", *_DATES)))
    extreme = f"greatest({_date(random, depth - 1, exact)}, {_date(random, depth - 1, exact)})"
    return str(pick(random, (extreme, _chosen(random, "date", depth, exact))))


def _condition(random: Random, depth: int, exact: bool) -> str:
    if depth <= 0:
        return str(
            pick(random, ("smoker", "age > 40", "sex = 'male'", "ward in ('a', 'é')", "n is null", "true"))
        )

    def one(of: str = "boolean") -> str:
        return written(random, of, depth - 1, exact)

    sign = pick(random, ("<", "<=", ">", ">=", "=", "<>"))
    kinds = [
        lambda: f"{one('number')} {sign} {one('number')}",
        lambda: f"{one('date')} {sign} {pick(random, _DATES)}",
        lambda: f"seen {sign} '2015-01-01'",
        lambda: f"{one('text')} {sign} {one('text')}",
        lambda: f"ward {sign} 'B'",
        lambda: f"({one()}) and ({one()})",
        lambda: f"({one()}) or ({one()}) or {pick(random, ('null', 'smoker'))}",
        lambda: f"not ({one()})",
        lambda: f"({one()}) {pick(random, ('=', '<>'))} ({one()})",
        lambda: f"{one(pick(random, ('number', 'text', 'date')))} is {pick(random, ('', 'not '))}null",
        lambda: f"{one('number')} {pick(random, ('', 'not '))}between {one('number')} and {one('number')}",
        lambda: f"{one('number')} {pick(random, ('', 'not '))}in (0, 1, 2.5, -3, 40)",
        lambda: _chosen(random, "boolean", depth, exact),
    ]
    return str(pick(random, kinds)())


class Expressions(Surface):
    """`parse`, and all that an expression can do with rows."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._rows = rows(np.random.default_rng(1), 40)

    def make(self, random: Random) -> str:
        """Write a right expression, bend one, or put words in any order."""
        way = random.random()
        if way < 0.35:
            count = int(random.integers(1, 12 if way < 0.34 else 2_000))
            return " ".join(str(pick(random, _WORDS)) for _ in range(count))
        kind = pick(random, ("number", "boolean", "text", "date"))
        text = written(random, kind, int(random.integers(0, 4)))
        if way < 0.65:
            return text
        if way < 0.67:
            around = pick(random, _AROUND)
            times = int(random.integers(1, 300))
            return str(around[0] * times + text + around[1] * times)
        return bend_bytes(text.encode(), random).decode(errors="replace")

    def feed(self, given: str) -> None:
        """Parse it; if it is one, all that it gives must be in order."""
        inspect(parse(given, SCHEMA), self._rows)


def inspect(expression: Expression, cells: dict[str, np.ndarray[Any, Any]]) -> None:
    """Check that an expression keeps its promises on rows."""
    again = parse(expression.text, SCHEMA)
    assert again == expression, "the canonical text must say the same"
    values = expression.evaluate(cells)
    np.testing.assert_array_equal(values, again.evaluate(cells))
    assert values.shape == cells["age"].shape
    if expression.kind == "boolean" and not expression.possible:
        assert not (values == 1).any(), "a condition that bounds rule out is true of a row"
    if expression.kind in ("number", "date"):
        present = values[~np.isnan(values)]
        interval = expression.root.interval
        assert np.isfinite(present).all()
        assert ((interval.low <= present) & (present <= interval.high)).all(), (
            "a value lies beyond its bounds"
        )
        small = present[(present != 0) & (np.abs(present) < interval.least)]
        assert not len(small), "a value is closer to 0 than can be"
    else:
        most = 2 if expression.kind == "boolean" else len(expression.values)
        assert ((values >= -1) & (values < most)).all()
    if expression.pushable:
        assert expression.sql(exp.column).sql("postgres")
