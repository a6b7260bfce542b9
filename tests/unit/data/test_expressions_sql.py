"""What databases make of an expression is bit for bit what numpy makes of it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sqlglot import exp

from assurance.inputs.expressions import SCHEMA, rows, written
from cape.core.errors import InvalidInput
from cape.data import Category
from cape.data.expressions import Expression, parse
from cape.data.expressions.sql import double

ROWS = 60
CELLS = rows(np.random.default_rng(5), ROWS)
Run = Callable[[exp.Expression], list[Any]]


def column(name: str) -> exp.Expression:
    return exp.column(exp.to_identifier(name, quoted=True))


def cell(name: str, row: int) -> Any:
    found = CELLS[name][row].item()
    missing = found < 0 if isinstance(SCHEMA[name], Category) else math.isnan(found)
    return None if missing else found


@pytest.fixture(scope="module", params=["duckdb", "sqlite"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "duckdb":
        connection: Any = pytest.importorskip("duckdb").connect()
    else:
        connection = sqlite3.connect(":memory:")
    types = [
        f'"{name}" {"INTEGER" if isinstance(each, Category) else "DOUBLE"}' for name, each in SCHEMA.items()
    ]
    connection.execute(f"create table t (row_ integer, {', '.join(types)})")
    marks = ", ".join("?" * (len(SCHEMA) + 1))
    connection.executemany(
        f"insert into t values ({marks})",
        [(row, *(cell(name, row) for name in SCHEMA)) for row in range(ROWS)],
    )

    def ask(sql: exp.Expression) -> list[Any]:
        query = f"select {sql.sql(request.param)} from t order by row_"
        return [value for (value,) in connection.execute(query).fetchall()]

    return ask


def agree(expression: Expression, found: list[Any]) -> bool:
    """Whether a database's values are ours, of the right type and to the last bit."""
    ours = expression.evaluate(CELLS)
    if expression.kind in ("number", "date"):
        assert all(value is None or isinstance(value, float) for value in found)
        theirs = np.array([math.nan if value is None else value for value in found])
        return bool(np.array_equal(theirs, ours, equal_nan=True))
    return [-1 if value is None else int(value) for value in found] == ours.tolist()


@pytest.mark.parametrize("count", [pytest.param(40), pytest.param(2_000, marks=pytest.mark.slow(20))])
def test_random_expressions_mean_the_same(run: Run, count: int) -> None:
    compared = 0
    for number in range(count):
        kind = ("number", "boolean", "text", "date")[number % 4]
        text = written(np.random.default_rng([11, number]), kind, 1 + number % 3, exact=True)
        try:
            expression = parse(text, SCHEMA)
        except InvalidInput:  # it reads no column
            continue
        if expression.pushable:
            assert agree(expression, run(expression.sql(column))), text
            compared += 1
    assert compared > count * 0.6


def test_a_wrong_value_would_be_seen(run: Run) -> None:
    assert not agree(parse("age + 1", SCHEMA), run(parse("age + 2", SCHEMA).sql(column)))
    assert not agree(parse("age > 40", SCHEMA), run(parse("age > 40 or age is null", SCHEMA).sql(column)))


@pytest.mark.parametrize(
    "value", [0.0, 1.0, -3.0, 0.1, 1 / 3, -2.5e-7, 1e15, 2.0**53 + 2, 1e22, 1.7e300, 3e-300, 2.0**-496]
)  # fmt: skip
def test_a_number_is_written_exactly(run: Run, value: float) -> None:
    assert set(run(double(value))) == {value}


@pytest.mark.parametrize(
    ("text", "pushable"),
    [
        ("age * 2 - n >= 30 and sex = 'male'", True),
        ("cut(age, 40, 65)", True),
        ("year(seen) >= 2015", True),
        ("days_between(born, seen) > 30", True),
        ("least(age, bmi, n)", True),
        ("age / n > 2", False),
        ("age % 2 = 0", False),
        ("ln(age)", False),
        ("round(bmi)", False),
        ("month(seen)", False),
        ("huge * huge > 1", False),  # may overflow
        ("greatest(" * 9 + "age" + ", n)" * 9, False),  # each one writes its arguments several times
    ],
)
def test_what_databases_compute_is_exact_and_of_moderate_size(text: str, pushable: bool) -> None:
    found = parse(text, SCHEMA)
    assert found.pushable is pushable
    if not pushable:
        with pytest.raises(InvalidInput, match="is computed at the site"):
            found.sql(column)


def test_no_product_is_too_small_for_a_double() -> None:
    """PostgreSQL raises an error there, so both factors are checked unless bounds rule it out."""
    assert "ABS" in parse("tiny * delta", SCHEMA).sql(column).sql("postgres")
    assert "ABS" not in parse("age * bmi", SCHEMA).sql(column).sql("postgres")
    assert "ABS" not in parse("tiny * 2", SCHEMA).sql(column).sql("postgres")
    assert "ABS" not in parse("(age - 50) * (bmi - 25)", SCHEMA).sql(column).sql("postgres")


def test_a_part_that_stands_twice_is_written_twice() -> None:
    shared = parse("nullif(age + n, 40)", SCHEMA).sql(column)
    assert shared.sql().count('"age" + "n"') == 2
    assert all(each.parent is not None for each in shared.find_all(exp.Column))


def test_a_null_has_its_type() -> None:
    """Spark asks for it in conditions."""
    assert "WHEN NULL" not in parse("case when null then 1 else age end", SCHEMA).sql(column).sql("spark")
