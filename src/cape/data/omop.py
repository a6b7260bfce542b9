"""The members of a cohort in a database of OMOP's Common Data Model (version 5.4), as columns with set names.

Claim. A database is sent one SELECT, whose tables and columns are those written here, and no cell of the
types that the model prescribes makes it fail.
Reason. The statement is parsed by sqlglot from the texts below. What a study file says enters it as integers
that were checked (the cohort, concepts, the window) and as quoted identifiers (the database's schemas).
Infinite dates, and years, months and days of birth that no calendar has, count as missing.
Tested in tests/unit/data/test_omop.py, and on servers in tests/databases/test_omop.py.

There is a row for each entry of the cohort. Every column follows from the person and the first day of the
entry, the index: two entries of a person on one day are the same row twice. Rows are in order of both, so
that they are found where they were when they are read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.identity import Identity, of_query

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Omop"]

_MOST_CONCEPT, _MOST_COHORT, _MOST_DAYS = 2**31 - 1, 2**63 - 1, 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")
_ALL = 2**64 - 1  # rows: MariaDB drops the order of a subquery without a limit


class _Events(NamedTuple):
    """A table of what happened to persons: the columns of the concept and of the day."""

    table: str
    concept: str
    date: str


_FLAGS = {
    "condition": _Events("condition_occurrence", "condition_concept_id", "condition_start_date"),
    "drug": _Events("drug_exposure", "drug_concept_id", "drug_exposure_start_date"),
    "procedure": _Events("procedure_occurrence", "procedure_concept_id", "procedure_date"),
    "device": _Events("device_exposure", "device_concept_id", "device_exposure_start_date"),
    "observation": _Events("observation", "observation_concept_id", "observation_date"),
    "visit": _Events("visit_occurrence", "visit_concept_id", "visit_start_date"),
}
_MEASUREMENT = _Events("measurement", "measurement_concept_id", "measurement_date")
_KINDS = (*_FLAGS, "measurement")
_CONCEPT = re.compile(rf"({'|'.join(_KINDS)})_([1-9][0-9]{{0,9}})")
_TABLES = {"cohort", "concept_ancestor", "death", "observation_period", "person", "measurement"}
_TABLES |= {events.table for events in _FLAGS.values()}

_CAST = {
    "plain_date": "CAST(x AS DATE)",
    "day_number": "DATEDIFF(x, '1970-01-01')",
    "year_number": "CAST(EXTRACT(YEAR FROM plain_date(x)) AS INT)",
    "month_day": "CAST(EXTRACT(MONTH FROM plain_date(x)) * 100 + EXTRACT(DAY FROM plain_date(x)) AS INT)",
}
_FINITE = _CAST | {  # nothing can be subtracted from a date that is infinite
    "plain_date": "CASE WHEN ISFINITE(CAST(x AS DATE)) THEN CAST(x AS DATE) END",
    "day_number": "plain_date(x) - CAST('1970-01-01' AS DATE)",
}
_SPELLINGS = {  # of functions of dates that the statements below contain; month_day is month * 100 + day
    "postgres": _FINITE,
    "duckdb": {name: text.replace("CAST(x", "TRY_CAST(x") for name, text in _FINITE.items()},
    "mysql": _CAST,
    "spark": _CAST,
    "sqlite": {  # a date is a text, or, as OHDSI's tools store it, seconds since 1970
        "plain_date": "CASE TYPEOF(x) WHEN 'text' THEN DATE(x) ELSE DATE(x, 'unixepoch') END",
        "day_number": "CAST(JULIANDAY(plain_date(x)) - 2440587.5 AS INTEGER)",
        "year_number": "CAST(STRFTIME('%Y', plain_date(x)) AS INTEGER)",
        "month_day": "CAST(STRFTIME('%m%d', plain_date(x)) AS INTEGER)",
    },
}

_ENTRIES = (
    "SELECT subject_id AS person, cohort_start_date AS started, day_number(cohort_start_date) AS day_0 "
    "FROM cohort WHERE cohort_definition_id = {cohort}"
)
_PERSON = "LEFT JOIN person AS p ON p.person_id = entries.person"
_DEATH = (
    "LEFT JOIN (SELECT person_id, MIN(day_number(death_date)) AS day_1 FROM death GROUP BY person_id) AS d "
    "ON d.person_id = entries.person"
)
_FOLLOWED = (
    "LEFT JOIN (SELECT i.person, i.day_0, MAX(day_number(e.observation_period_end_date)) AS day_1 "
    "FROM entries AS i JOIN observation_period AS e ON e.person_id = i.person "
    "WHERE i.day_0 BETWEEN day_number(e.observation_period_start_date) "
    "AND day_number(e.observation_period_end_date) GROUP BY i.person, i.day_0) AS o "
    "ON o.person = entries.person AND o.day_0 = entries.day_0"
)
_BIRTHDAY = (  # no cell is an error: a month or a day that is none counts as missing
    "CASE WHEN p.month_of_birth BETWEEN 1 AND 12 THEN p.month_of_birth * 100 + "
    "CASE WHEN p.day_of_birth BETWEEN 1 AND 31 THEN p.day_of_birth ELSE 1 END ELSE 101 END"
)
_YEARS = (
    "year_number(entries.started) - CAST(p.year_of_birth AS BIGINT) - "
    f"CASE WHEN month_day(entries.started) < {_BIRTHDAY} THEN 1 ELSE 0 END"
)
_AGE = f"CASE WHEN p.year_of_birth BETWEEN 1 AND 9999 THEN CASE WHEN {_YEARS} >= 0 THEN {_YEARS} END END"
_PLAIN = {  # the column, and the join that it needs
    "person": ("entries.person", ""),
    "index_date": ("plain_date(entries.started)", ""),
    "age": (_AGE, _PERSON),
    "sex": ("CASE p.gender_concept_id WHEN 8532 THEN 'female' WHEN 8507 THEN 'male' END", _PERSON),
    "died": ("CASE WHEN d.day_1 IS NULL THEN 0 ELSE 1 END", _DEATH),
    "days_to_death": ("d.day_1 - entries.day_0", _DEATH),
    "observation_days": ("o.day_1 - entries.day_0", _FOLLOWED),
}
_WITHIN = (
    "FROM entries AS i JOIN {events.table} AS e ON e.person_id = i.person JOIN (SELECT "
    "descendant_concept_id AS concept FROM concept_ancestor WHERE ancestor_concept_id = {concept} "
    "UNION SELECT {concept} AS concept) AS c ON c.concept = e.{events.concept} "
    "WHERE day_number(e.{events.date}) - i.day_0 BETWEEN {low} AND {high}"
)
_FLAG = f"SELECT DISTINCT i.person, i.day_0 {_WITHIN}"
_LATEST = (
    "SELECT person, day_0, MAX(found) AS found FROM (SELECT i.person, i.day_0, e.value_as_number AS found, "
    "ROW_NUMBER() OVER (PARTITION BY i.person, i.day_0 ORDER BY day_number(e.measurement_date) DESC, "
    "e.measurement_datetime DESC NULLS LAST, e.measurement_id DESC) AS place "
    f"{_WITHIN} AND NOT e.value_as_number IS NULL) AS m WHERE place = 1 "
    "GROUP BY person, day_0"  # one number each: a planner sees by it that the join may be left out
)


@dataclass(frozen=True)
class Omop:
    """The entries of a cohort in a database of the OMOP Common Data Model, version 5.4.

    Columns are `person` (for `[person] id = "person"`), `index_date`, `age`, `sex`, `died`, `days_to_death`,
    `observation_days`; for a concept of OMOP `condition_201826`, `drug_1503297`, `procedure_...`,
    `device_...`, `observation_...` and `visit_...` (1 or 0: whether it, or a descendant, starts within the
    window) and `measurement_3004249` (the latest number in the window). Those that a schema names are asked.

    Args:
        connection: as that of `Database`: PostgreSQL, MariaDB, DuckDB, SQLite or Spark.
        cohort: the cohort_definition_id.
        window: the first and the last day, counted from the index, of which events count.
        schema: the schema of the database that has the tables of the model; None if they need no prefix.
        results: the schema that has the table `cohort`; as `schema` unless given.
        timeout: after how many seconds a statement is given up; None is never.
    """

    connection: Any = field(repr=False)
    cohort: int
    window: tuple[int, int] = (-365, 0)
    schema: str | None = None
    results: str | None = None
    timeout: float | None = 600.0

    advice: ClassVar[str] = (
        "check schema, which has the tables of OMOP's model 5.4, and results, which has the table cohort"
    )

    def __post_init__(self) -> None:
        if self.connection is None:
            raise InvalidInput("connection must be an open connection, a URI, or env:NAME")
        check.integer("cohort", self.cohort, least=0, most=_MOST_COHORT)
        object.__setattr__(self, "window", _window(self.window))
        if self.timeout is not None:
            check.real("timeout", self.timeout, above=0.0)
        for key in ("schema", "results"):
            name = getattr(self, key)
            if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
                raise InvalidInput(f"{key} must be the name of a database's schema, not {check.show(name)}")

    @property
    def identity(self) -> Identity:
        """Which cohort of which database; the window makes no other persons of them."""
        return of_query(f"omop {self.results or self.schema} {self.cohort}", self.connection)

    def query(self, names: Iterable[str], dialect: str) -> str:
        """Return the SELECT of these columns, and of the person, as sqlglot's dialect of this name writes it.

        Raises:
            InvalidInput: there is no such column; the text lists those that there are.
        """
        from sqlglot import parse_one

        chosen: dict[str, str] = {}
        joins: dict[str, None] = {}
        for i, name in enumerate(dict.fromkeys(["person", *names])):
            chosen[name], join = _PLAIN[name] if name in _PLAIN else self._of_concept(name, f"t{i}")
            joins[join] = None
        columns = ", ".join(f"{column} AS {name}" for name, column in chosen.items())
        text = (
            f"WITH entries AS ({_ENTRIES.format(cohort=self.cohort)}) SELECT {columns} FROM entries "
            f"{' '.join(joins)} ORDER BY entries.person, entries.day_0"
        )
        if dialect == "mysql":
            text += f" LIMIT {_ALL}"
        tree = parse_one(text).transform(lambda node: self._spelt(node, dialect))
        return str(tree.sql(dialect=dialect, identify=True))

    def _of_concept(self, name: str, alias: str) -> tuple[str, str]:
        """Return the column of a concept, and the join that it needs."""
        kind, concept = _parsed(name)
        low, high = self.window
        events = _FLAGS.get(kind, _MEASUREMENT)
        inner = (_FLAG if kind in _FLAGS else _LATEST).format(
            events=events, concept=concept, low=low, high=high
        )
        join = (
            f"LEFT JOIN ({inner}) AS {alias} ON {alias}.person = entries.person "
            f"AND {alias}.day_0 = entries.day_0"
        )
        if kind in _FLAGS:
            return f"CASE WHEN {alias}.person IS NULL THEN 0 ELSE 1 END", join
        return f"{alias}.found", join

    def _spelt(self, node: Any, dialect: str) -> Any:
        """Return a part of the statement with the schema of its table, or a function as it is spelt."""
        from sqlglot import exp

        if isinstance(node, exp.Table) and node.name in _TABLES:
            schema = self.schema if node.name != "cohort" else self.results or self.schema
            parts = [exp.to_identifier(part, quoted=True) for part in (schema or "").split(".") if part]
            node.set("db", parts[-1] if parts else None)
            node.set("catalog", parts[0] if len(parts) > 1 else None)
        elif isinstance(node, exp.Anonymous) and node.name in _SPELLINGS[dialect]:
            return _spelling(node.name, node.expressions[0], dialect)
        return node


def _window(window: Any) -> tuple[int, int]:
    if isinstance(window, str) or not hasattr(window, "__len__") or len(window) != 2:
        raise InvalidInput(f"window must be two days, as in [-365, 0], not {check.show(window)}")
    low, high = (
        check.integer("a day of the window", day, least=-_MOST_DAYS, most=_MOST_DAYS) for day in window
    )
    if low > high:
        raise InvalidInput(f"window must rise, as in [-365, 0], not [{low}, {high}]")
    return low, high


def _parsed(name: str) -> tuple[str, int]:
    """Return the kind and the concept that a column's name says."""
    found = _CONCEPT.fullmatch(name)
    if found and int(found[2]) <= _MOST_CONCEPT:
        return found[1], int(found[2])
    kind = name.partition("_")[0]
    if kind in _KINDS and name not in _PLAIN:
        raise InvalidInput(
            f"column {check.show(name)} must end in the number of an OMOP concept, as in condition_201826"
        )
    raise InvalidInput(
        f"no column {check.show(name)} in an OMOP database; there are {', '.join(_PLAIN)}, and "
        f"{', '.join(f'{kind}_ID' for kind in _KINDS)} for the number of a concept, as in condition_201826"
    )


def _spelling(function: str, x: exp.Expr, dialect: str) -> exp.Expr:
    """Return a function of a date as a database writes it."""
    from sqlglot import exp, parse_one

    written = _SPELLINGS[dialect][function].replace("plain_date(x)", _SPELLINGS[dialect]["plain_date"])
    found = parse_one(written, dialect=dialect)
    return exp.Paren(this=found.transform(lambda node: x.copy() if node == exp.column("x") else node))
