"""The words of an expression: what may stand in its text, checked before a parser sees it.

Claim. What passes has only words and signs on the list below, calls only functions on the list, and is so
short and flat that parsing it takes milliseconds, whoever wrote it.
Reason. sqlglot reads all of SQL, and goes back to try again: nested calls of a type's name, such as
date(date(...)), take it exponential time. No type but `date '...'` passes, two operands never stand side by
side, and brackets nest at most `DEEPEST` deep.
Tested in tests/unit/data/test_expressions_fuzz.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import Token, Tokenizer, TokenType
from sqlglot.errors import TokenError

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["DEEPEST", "FUNCTIONS", "LONGEST", "Source", "is_plain", "scan"]

LONGEST, MOST_WORDS, DEEPEST, _MOST_SIGNS = 4_000, 800, 16, 4
_SHOWN = 30

FUNCTIONS = {  # name -> fewest and most arguments
    "coalesce": (2, 50),
    "nullif": (2, 2),
    "abs": (1, 1),
    "sign": (1, 1),
    "round": (1, 2),
    "floor": (1, 1),
    "ceil": (1, 1),
    "least": (2, 20),
    "greatest": (2, 20),
    "ln": (1, 1),
    "log10": (1, 1),
    "exp": (1, 1),
    "sqrt": (1, 1),
    "power": (2, 2),
    "cut": (2, 51),
    "days_between": (2, 2),
    "years_between": (2, 2),
    "year": (1, 1),
    "month": (1, 1),
}
_ROWS = "mixes rows; an expression sees one row at a time"
_OTHER_DAY = "does not depend on the row alone; write a date, as in date '2020-01-31'"
_CAST = "may fail for a cell; the schema says what type a column has"
_REASONS: dict[str, str] = {
    **dict.fromkeys(("sum", "avg", "count", "min", "max", "median", "stddev", "variance", "mode"), _ROWS),
    **dict.fromkeys(("array_agg", "string_agg", "group_concat", "any_value", "first", "last"), _ROWS),
    **dict.fromkeys(("rank", "dense_rank", "row_number", "lag", "lead", "ntile", "percent_rank"), _ROWS),
    **dict.fromkeys(("over", "partition", "distinct", "filter", "within"), _ROWS),
    **dict.fromkeys(("select", "exists", "any", "all", "some", "with", "from", "join", "union"), _ROWS),
    **dict.fromkeys(("random", "rand", "uuid", "newid", "gen_random_uuid", "randn"), "is not the same twice"),
    **dict.fromkeys(("now", "today", "current_date", "current_timestamp", "current_time"), _OTHER_DAY),
    **dict.fromkeys(("getdate", "sysdate", "localtime", "localtimestamp"), _OTHER_DAY),
    **dict.fromkeys(("cast", "try_cast", "convert", "safe_cast", "::"), _CAST),
    **dict.fromkeys(("like", "ilike", "rlike", "similar"), "is not allowed; list the values with IN"),
    "||": "is not allowed; text comes from CASE",
    "log": "means different things in different databases; write ln or log10",
    "pow": "is spelt power",
    "ceiling": "is spelt ceil",
    "if": "is spelt CASE WHEN ... THEN ... ELSE ... END",
    "ifnull": "is spelt coalesce",
    "mod": "is spelt a % b",
    "datediff": "is spelt days_between(a, b), the days from a to b",
    "age": "is spelt years_between(a, b)",
    "--": "would be a comment",
}

_T = TokenType
_NAMES = (_T.VAR, _T.IDENTIFIER)
_STARTS = {_T.NUMBER, _T.STRING, _T.VAR, _T.IDENTIFIER, _T.NULL, _T.TRUE, _T.FALSE, _T.CASE, _T.DATE}
_ENDS = {_T.NUMBER, _T.STRING, _T.VAR, _T.IDENTIFIER, _T.NULL, _T.TRUE, _T.FALSE, _T.END, _T.R_PAREN}
_SIGNS = {_T.PLUS, _T.DASH, _T.NOT}
_ALLOWED = {
    *_STARTS, *_ENDS, *_SIGNS, _T.L_PAREN, _T.COMMA, _T.STAR, _T.SLASH, _T.MOD, _T.LT, _T.GT, _T.LTE, _T.GTE,
    _T.EQ, _T.NEQ, _T.BETWEEN, _T.IN, _T.IS, _T.AND, _T.OR, _T.WHEN, _T.THEN, _T.ELSE,
}  # fmt: skip
_NAME = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Source:
    """A text, and errors that show a place in it."""

    text: str

    def fail(self, problem: str, start: int, end: int) -> NoReturn:
        """Raise an error about the characters from start to end."""
        line = self.text.count("\n", 0, start) + 1
        place = start - (self.text.rfind("\n", 0, start) + 1) + 1
        part = check.plain(self.text[start : end + 1], _SHOWN) or "the end"
        raise InvalidInput(f"{problem}: at {part} (line {line}, character {place})")


def scan(source: Source, columns: Iterable[str]) -> list[Token]:
    """Return the words of a text, if all of them may stand where they stand."""
    if not source.text.strip():
        raise InvalidInput("an expression must not be empty; write one such as age >= 65")
    if len(source.text) > LONGEST:
        raise InvalidInput(f"an expression has at most {LONGEST:,} characters, not {len(source.text):,}")
    try:
        tokens = Tokenizer().tokenize(source.text)
    except (TokenError, ValueError, IndexError, RecursionError):
        raise InvalidInput(
            f"cannot read {check.show(source.text, 60)}; a quotation mark may be missing"
        ) from None
    if not tokens:
        raise InvalidInput("an expression must not be empty; write one such as age >= 65")
    if len(tokens) > MOST_WORDS:
        raise InvalidInput(f"an expression has at most {MOST_WORDS} words and signs, not {len(tokens)}")
    known = set(columns)
    before, depth, signs, cases = None, 0, 0, 0
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        _check(source, token, before, after, known)
        cases += (token.token_type == _T.CASE) - (token.token_type == _T.END)
        if cases < 0:
            _refuse(source, token, known, called=False)
        depth += token.token_type in (_T.L_PAREN, _T.CASE)
        depth -= token.token_type in (_T.R_PAREN, _T.END)
        signs = signs + 1 if token.token_type in _SIGNS else 0
        if depth > DEEPEST or signs > _MOST_SIGNS:
            _fail(
                source,
                token,
                f"an expression nests at most {DEEPEST} deep, with {_MOST_SIGNS} signs in a row",
            )
        before = token
    return tokens


def is_plain(name: str) -> bool:
    """Return whether a column of this name needs no quotation marks."""
    if not (_NAME.fullmatch(name) and name.isascii()):
        return False
    return [token.token_type for token in Tokenizer().tokenize(name)] == [_T.VAR]


def _check(source: Source, token: Token, before: Token | None, after: Token | None, known: set[str]) -> None:
    kind, text = token.token_type, token.text
    if token.comments:
        _fail(source, token, "comments are not allowed in an expression")
    called = after is not None and after.token_type == _T.L_PAREN
    if kind == _T.DOT:
        if _begins_number(token, before, after):
            return
        _fail(source, token, 'a name has no parts; write "a.b" in double quotes if it is a column')
    if kind not in _ALLOWED or (kind == _T.DATE and not _before_text(after)):
        _refuse(source, token, known, called)
    if kind == _T.VAR and not _NAME.fullmatch(text):
        _fail(source, token, "a name has letters, digits and _, or stands in double quotes")
    if called and kind in (*_NAMES, _T.DATE) and (kind != _T.VAR or text.lower() not in FUNCTIONS):
        _refuse(source, token, known, called)
    if kind == _T.NUMBER and not _NUMBER.fullmatch(text):
        _fail(source, token, "a number is written as 12, 0.5 or 1e-3")
    if before is not None and before.token_type in _ENDS and _begins(kind):
        if kind == _T.L_PAREN and before.token_type == _T.VAR:
            return
        _fail(source, token, "an operator or a comma is missing")


def _begins_number(token: Token, before: Token | None, after: Token | None) -> bool:
    """Return whether this is the point of .5"""
    if (before is not None and before.token_type in _ENDS) or after is None:
        return False
    return after.token_type == _T.NUMBER and after.start == token.end + 1 and "." not in after.text


def _before_text(after: Token | None) -> bool:
    return after is not None and after.token_type == _T.STRING


def _begins(kind: TokenType) -> bool:
    return kind in _STARTS or kind == _T.L_PAREN


def _refuse(source: Source, token: Token, known: set[str], called: bool) -> NoReturn:
    """Say why a word is not allowed: what it does, or what to write instead."""
    name = token.text.lower()
    if token.text in known and not called:
        _fail(source, token, f'this word means something else in SQL; write the column as "{token.text}"')
    if name in _REASONS:
        _fail(source, token, f"{check.plain(token.text, _SHOWN)} {_REASONS[name]}")
    if called:
        close = difflib.get_close_matches(name, FUNCTIONS, 1)
        meant = f"did you mean {close[0]}?" if close else f"the functions are {', '.join(sorted(FUNCTIONS))}"
        _fail(source, token, f"no function {check.show(token.text, _SHOWN)} is allowed; {meant}")
    _fail(source, token, f"{check.show(token.text, _SHOWN)} is not allowed in an expression")


def _fail(source: Source, token: Token, problem: str) -> NoReturn:
    source.fail(problem, token.start, token.end)
