"""One SELECT: what a query that names a site's rows must be, whichever database reads it.

Claim. A text that `require_select` accepts is one statement that reads, as sqlglot understands this database.
Reason. Drivers run all statements of a text, whatever they do, as the process that holds the site's key. So a
text with a semicolon inside, with another first word, or that closes a bracket which it has not opened is
refused before a driver is chosen. MySQL and MariaDB run what stands in comments like /*! ... */, so these are
refused there. Where nothing else holds a database back (`strict`), the text must also parse as one query
without a part that writes.
What this cannot promise is that a database reads every text as sqlglot does. Those that compute sums are held
to it by themselves besides: read-only transactions, one prepared statement, no other file. For any other,
give a user who may read and nothing else.
Tested in tests/unit/data/databases/test_queries_only.py.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import accumulate

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from cape.core.errors import InvalidInput

__all__ = ["dialect_of", "require_select", "trimmed"]

_FIRST = (
    sqlglot.TokenType.TABLE,
    sqlglot.TokenType.PIVOT,
    sqlglot.TokenType.UNPIVOT,
    sqlglot.TokenType.SUMMARIZE,
    sqlglot.TokenType.SELECT,
    sqlglot.TokenType.WITH,
    sqlglot.TokenType.FROM,
    sqlglot.TokenType.VALUES,
)
_WRITES = (exp.DML, exp.DDL, exp.Into, exp.Command, exp.Drop, exp.Alter, exp.Merge, exp.Lock)
_RUN_COMMENT = re.compile(r"/\*M?!", re.IGNORECASE)
_DIALECTS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "redshift": "redshift",
    "mysql": "mysql",
    "mariadb": "mysql",
    "mssql": "tsql",
    "oracle": "oracle",
    "bigquery": "bigquery",
    "clickhouse": "clickhouse",
    "snowflake": "snowflake",
    "trino": "trino",
    "databricks": "databricks",
    "sqlite": "sqlite",
}


def dialect_of(scheme: str) -> str:
    """Return sqlglot's name of the dialect of a URI's scheme; its general one is empty."""
    return _DIALECTS.get(scheme.partition("+")[0].lower(), "")


def trimmed(query: str) -> str:
    """Return a query without a semicolon at its end."""
    return query.strip().rstrip(";").rstrip()


def require_select(query: str, dialect: str, *, strict: bool = False) -> None:
    """Raise `InvalidInput` unless a query, but for a semicolon at its end, is one SELECT."""
    query = trimmed(query)
    if not _begins_and_ends(query, dialect):
        raise InvalidInput("query must be one SELECT (or WITH ... SELECT), without a semicolon inside")
    if dialect in ("mysql", "") and _RUN_COMMENT.search(query):
        raise InvalidInput("query must be one SELECT, without comments like /*! ... */, which MariaDB runs")
    if strict and not _reads(query, dialect):
        raise InvalidInput(
            "query must be one SELECT that writes nothing, and cape cannot be sure of this one; make a view "
            "of it in the database, and select from that"
        )


def _begins_and_ends(query: str, dialect: str) -> bool:
    """Return whether a query begins as one, and is one statement within the brackets that it stands in."""
    kinds = sqlglot.TokenType
    found = None
    with suppress(SqlglotError):
        found = [token.token_type for token in sqlglot.tokenize(query, read=dialect)]
    if found is None or kinds.SEMICOLON in found:
        return False
    first = next((each for each in found if each != kinds.L_PAREN), kinds.SELECT)
    depths = accumulate((each == kinds.L_PAREN) - (each == kinds.R_PAREN) for each in found)
    return first in _FIRST and min(depths, default=0) >= 0


def _reads(query: str, dialect: str) -> bool:
    with suppress(SqlglotError, RecursionError, ValueError):  # one statement
        (found,) = sqlglot.parse(query, read=dialect)
        return isinstance(found, exp.Query) and next(found.find_all(*_WRITES), None) is None
    return False
