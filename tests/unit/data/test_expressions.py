"""What expressions mean, which bounds they have, and what is refused where."""

from __future__ import annotations

import math
import time
from datetime import date

import numpy as np
import pytest

from assurance.inputs.expressions import SCHEMA as ALL
from assurance.inputs.expressions import inspect, rows, written
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from cape.data.expressions import parse
from cape.data.expressions.days import of_iso

NAN = math.nan
SCHEMA = Schema(
    {
        "a": (-10, 10),
        "b": (0, 40),
        "p": (1, 4),
        "wide": (-1e200, 1e200),
        "sex": ["female", "male"],
        "ward": ["b", "a", "é"],
        "stage": {"categories": [0, 1, 5]},
        "ill": {"categories": [False, True]},
        "born": {"low": "1920-01-01", "high": "2004-12-31"},
        "seen": {"low": "2010-01-01", "high": "2020-12-31"},
        "end": (0, 1),
    }
)
DAY = {text: of_iso(text) for text in ("1980-02-29", "2015-02-28", "2015-03-01", "2010-01-01")}
CELLS = {
    "a": np.array([-3.5, 0.0, 2.0, NAN]),
    "b": np.array([0.0, 4.0, NAN, 1e-200]),
    "p": np.array([1.0, 2.5, 4.0, NAN]),
    "wide": np.array([1e200, -1e200, 1e-200, 0.0]),
    "sex": np.array([0, 1, -1, 1]),
    "ward": np.array([0, 1, 2, -1]),
    "stage": np.array([0, 1, 2, -1]),
    "ill": np.array([0, 1, -1, 1]),
    "born": np.array([DAY["1980-02-29"], DAY["1980-02-29"], DAY["1980-02-29"], NAN]),
    "seen": np.array([DAY["2015-02-28"], DAY["2015-03-01"], NAN, DAY["2010-01-01"]]),
    "end": np.array([0.0, 1.0, 0.5, NAN]),
}


def value(text: str) -> list[object]:
    """The values of four rows; NaN and -1 are None, and codes of text are texts."""
    found = parse(text, SCHEMA)
    cells = found.evaluate(CELLS)
    if found.kind in ("number", "date"):
        assert cells.dtype == np.float64
        return [None if math.isnan(each) else each for each in cells.tolist()]
    if found.kind == "boolean":
        assert cells.dtype == np.int8
        return [{0: False, 1: True, -1: None}[each] for each in cells.tolist()]
    return [None if each < 0 else found.values[each] for each in cells.tolist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + 1", [-2.5, 1, 3, None]),
        ("a - b", [-3.5, -4, None, None]),
        ("7 / 2 + 0 * a", [3.5, 3.5, 3.5, None]),
        ("1 / a", [1 / -3.5, None, 0.5, None]),
        ("a / b", [None, 0, None, None]),
        ("a % 2", [-1.5, 0, 0, None]),
        ("a % b", [None, 0, None, None]),
        ("b * b", [0, 16, None, 0]),
        ("wide * wide", [None, None, 0, 0]),  # beyond 1e300 is missing, below 2^-496 counts as 0
        ("wide * 2", [2e200, -2e200, 2e-200, 0]),
        ("-a", [3.5, 0, -2, None]),
        ("- -a", [-3.5, 0, 2, None]),
        ("abs(a)", [3.5, 0, 2, None]),
        ("sign(a)", [-1, 0, 1, None]),
        ("round(a)", [-4, 0, 2, None]),
        ("round(p)", [1, 3, 4, None]),
        ("round(a / 3, 2)", [-1.17, 0, 0.67, None]),
        ("round(a * 100, -2)", [-400, 0, 200, None]),
        ("floor(a)", [-4, 0, 2, None]),
        ("ceil(a)", [-3, 0, 2, None]),
        ("ln(a)", [None, None, math.log(2), None]),
        ("log10(p * 100)", [2, math.log10(250), math.log10(400), None]),
        ("exp(a * 100)", [math.exp(-350), 1, math.exp(200), None]),
        ("exp(a * 1000)", [0, 1, None, None]),
        ("sqrt(a)", [None, 0, math.sqrt(2), None]),
        ("power(a, 2)", [12.25, 0, 4, None]),
        ("power(a, 0.5)", [None, 0, math.sqrt(2), None]),
        ("power(a, -1)", [1 / -3.5, None, 0.5, None]),
        ("power(a, 0)", [1, 1, 1, None]),
        ("least(a, p)", [-3.5, 0, 2, None]),
        ("greatest(a, b, 1)", [1, 4, None, None]),
        ("coalesce(a, b, 7)", [-3.5, 0, 2, 1e-200]),
        ("nullif(a, 0)", [-3.5, None, 2, None]),
        ("stage * 2", [0, 2, 10, None]),
        ("case when a > 0 then 1 when a = 0 then 2 else 3 end", [3, 2, 1, 3]),
        ("case when a > 0 then 1 when a = 0 then 2 end", [None, 2, 1, None]),
        ("case stage when 1 then 10 when 5 then 20 end", [None, 10, 20, None]),
        ("case sex when 'male' then 1 else 0 end", [0, 1, 0, 1]),
        ("days_between(born, seen)", [12783, 12784, None, None]),
        ("days_between('2010-01-01', seen)", [1884, 1885, None, 0]),
        ("years_between(born, seen)", [34, 35, None, None]),
        ("years_between(seen, born)", [-34, -35, None, None]),
        ("year(seen)", [2015, 2015, None, 2010]),
        ("month(seen)", [2, 3, None, 1]),
        ("year(born) + month(born)", [1982, 1982, 1982, None]),
        ('"end" + .5', [0.5, 1.5, 1, None]),
    ],
)
def test_a_number_is(text: str, expected: list[float | None]) -> None:
    assert value(text) == [each if each is None else pytest.approx(each, rel=1e-15) for each in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 0", [False, False, True, None]),
        ("a <> 0", [True, False, True, None]),
        ("not a > 0", [True, True, False, None]),
        ("a > 0 and b > 1", [False, False, None, False]),
        ("a > 0 or b > 1", [False, True, True, None]),
        ("a = 0 and null", [False, None, False, None]),
        ("a = 0 or null", [None, True, None, None]),
        ("a is null", [False, False, False, True]),
        ("a is not null and b is null", [False, False, True, False]),
        ("a between -4 and b", [True, True, None, None]),
        ("a between 1 and b", [False, False, None, None]),
        ("a not between 0 and 1", [True, False, True, None]),
        ("a in (0, -3.5)", [True, True, False, None]),
        ("a not in (0, -3.5)", [False, False, True, None]),
        ("sex = 'male'", [False, True, None, True]),
        ("'male' <> sex", [True, False, None, False]),
        ("ward in ('a', 'é')", [False, True, True, None]),
        ("ward < 'b'", [False, True, False, None]),  # by bytes: a < b < é
        ("ward > 'az'", [True, False, True, None]),
        ("'b' <= ward", [True, False, True, None]),
        ("ward between 'a' and 'b'", [True, True, False, None]),
        ("sex > ward", [True, True, None, None]),
        ("sex = 'male' and ward = 'a'", [False, True, False, None]),
        ("ill", [False, True, None, True]),
        ("not ill", [True, False, None, False]),
        ("ill = true", [False, True, None, True]),
        ("ill = (a = 0)", [True, True, None, None]),
        ("stage >= 1", [False, True, True, None]),
        ("stage in (0, 5)", [True, False, True, None]),
        ("seen >= '2015-03-01'", [False, True, None, False]),
        ("seen = date '2015-03-01'", [False, True, None, False]),
        ("seen in ('2015-03-01', '2010-01-01')", [False, True, None, True]),
        ("seen between '2015-01-01' and '2015-12-31'", [True, True, None, False]),
        ("coalesce(a > 0, false)", [False, False, True, False]),
        ("case when a > 0 then b = 1 else sex = 'male' end", [False, True, None, True]),
    ],
)
def test_a_condition_has_three_values(text: str, expected: list[bool | None]) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected", "values"),
    [
        (
            "cut(a, -1, 2)",
            ["under -1", "-1 to 2", "2 and over", None],
            ("under -1", "-1 to 2", "2 and over"),
        ),
        (
            "cut(seen, '2015-03-01')",
            ["before 2015-03-01", "2015-03-01 or later", None, "before 2015-03-01"],
            ("before 2015-03-01", "2015-03-01 or later"),
        ),
        ("sex", ["female", "male", None, "male"], ("female", "male")),
        ("coalesce(sex, 'other')", ["female", "male", "other", "male"], ("female", "male", "other")),
        ("nullif(sex, 'female')", [None, "male", None, "male"], ("male",)),
        (
            "case when a < 0 then 'low' when a >= 0 then 'it''s ' end",
            ["low", "it's ", "it's ", None],
            ("low", "it's "),
        ),
        (
            "case when a = 0 then 'a' else ward end",
            ["b", "a", "é", None],
            ("a", "b", "é"),
        ),
    ],
)
def test_a_text_is_a_code_of_a_public_list(
    text: str, expected: list[str | None], values: tuple[str, ...]
) -> None:
    assert (value(text), parse(text, SCHEMA).values) == (expected, values)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a + b", -10, 50),
        ("a - b", -50, 10),
        ("2 * a + 1", -19, 21),
        ("a * a", 0, 100),
        ("(a - 1) * (a - 1)", 0, 121),
        ("a * b", -400, 400),
        ("b / p", 0, 40),
        ("1 / p", 0.25, 1),
        ("a % 3", -3, 3),
        ("abs(a)", 0, 10),
        ("least(a, 3)", -10, 3),
        ("greatest(a, p)", 1, 10),
        ("greatest(a / b, 0) + a", None, None),
        ("coalesce(a, 99)", -10, 99),
        ("case when a > 0 then 1 else 0 end", 0, 1),
        ("sqrt(b)", 0, math.sqrt(40)),
        ("ln(b + 1)", 0, pytest.approx(math.log(41))),
        ("exp(a)", pytest.approx(math.exp(-10)), pytest.approx(math.exp(10))),
        ("power(a, 2)", 0, pytest.approx(100)),
        ("power(a, 3)", pytest.approx(-1000), pytest.approx(1000)),
        ("power(p, a)", pytest.approx(4.0**-10), pytest.approx(4.0**10)),
        ("floor(p / 3)", 0, 1),
        ("round(a)", -10, 10),
        ("stage", 0, 5),
        ("year(seen)", 2010, 2020),
        ("month(seen)", 1, 12),
        ("years_between(born, seen)", 5, 100),
        ("days_between(born, seen)", 1827, 36890),
        ("seen", of_iso("2010-01-01"), of_iso("2020-12-31")),
    ],
)
def test_bounds_follow_from_those_of_the_columns(text: str, low: float | None, high: float | None) -> None:
    found = parse(text, SCHEMA)
    if low is None:
        with pytest.raises(InvalidInput, match="its divisor may be 0; give low and high"):
            found.bounds  # noqa: B018
    else:
        assert found.bounds == (low, high)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("b / a", "its divisor may be 0"),
        ("ln(b)", "its argument may be near 0"),
        ("wide * wide", "it may become too large"),
        ("exp(b * 100)", "it may become too large"),
        ("power(a, p)", "it may become too large"),
        ("ward", "is a text and has no bounds"),
    ],
)
def test_bounds_that_nobody_can_know_are_asked_for(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse(text, SCHEMA).bounds  # noqa: B018


@pytest.mark.slow(1.2)
def test_random_values_stay_within_their_bounds() -> None:
    cells, found = rows(np.random.default_rng(2), 200), 0
    for number in range(300):
        text = written(np.random.default_rng([3, number]), "number", 1 + number % 3)
        try:
            expression = parse(text, ALL)
        except InvalidInput:
            continue
        inspect(expression, cells)
        found += 1
    assert found > 200


def test_no_random_row_meets_a_condition_that_bounds_rule_out() -> None:
    cells, found = rows(np.random.default_rng(2), 200), 0
    for number in range(200):
        text = written(np.random.default_rng([4, number]), "boolean", 1 + number % 3)
        try:
            expression = parse(text, ALL)
        except InvalidInput:
            continue
        inspect(expression, cells)
        found += not expression.possible
    assert found > 5


def test_an_expression_says_what_it_reads_and_how_it_is_spelt() -> None:
    found = parse('sex=\'male\'\n AND(B)>1.50 and "a"<.5 and "end" <> 0', Schema({**SCHEMA, "B": (0, 2)}))
    assert found.text == "sex = 'male' AND (B) > 1.5 AND a < 0.5 AND \"end\" <> 0"
    assert found.columns == ("sex", "B", "a", "end")
    other = parse(found.text, Schema({**SCHEMA, "B": (0, 2)}))
    assert (found == other, hash(found) == hash(other)) == (True, True)
    assert found != parse("sex = 'male'", SCHEMA)
    assert parse("seen>date'2015-01-01'", SCHEMA).text == "seen > DATE '2015-01-01'"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sum(a) > 1", r"sum mixes rows; .*: at sum \(line 1, character 1\)"),
        ("a > 1 and\n  count(*) > 2", r"count mixes rows; .*: at count \(line 2, character 3\)"),
        ("a > (select 1)", r"select mixes rows; .*: at select \(line 1, character 6\)"),
        ("a over (partition by b)", r"over mixes rows"),
        ("row_number() = 1", "row_number mixes rows"),
        ("random() < a", "random is not the same twice"),
        ("a < current_date", "current_date does not depend on the row alone"),
        ("cast(a as integer)", "cast may fail for a cell"),
        ("a::int", "may fail for a cell"),
        ("a like 'x%'", "like is not allowed; list the values with IN"),
        ("log(a)", "write ln or log10"),
        ("abz(a)", r"no function 'abz' is allowed; did you mean abs\?"),
        ("pg_sleep(10)", "no function 'pg_sleep' is allowed; the functions are"),
        ('"abs"(a)', "no function 'abs' is allowed"),
        ("A > 1", r"no column 'A' in the schema.*: at A \(line 1, character 1\)"),
        ("t.a > 1", "a name has no parts"),
        ("end > 1", 'write the column as "end": at end'),
        ("sex = 'mael'", r"'mael' is not among the values; did you mean 'male'\?: at sex = 'mael'"),
        ("sex in ('male', 'x')", "'x' is not among the values"),
        ("a + sex", r"arithmetic needs a number, not text: at a \+ sex"),
        ("b + seen", "needs a number, not a date; days_between"),
        ("a > 'x'", "needs values of one kind, not a number, text"),
        ("a and b > 1", r"AND needs a condition, not a number: at a and b > 1"),
        ("a < b < 3", "a comparison needs values of one kind"),
        ("a = null", "write IS NULL or IS NOT NULL"),
        ("a is true", "IS takes NULL or NOT NULL only"),
        ("a in (b, 1)", "must have literals only"),
        ("a in (1, null)", "must have literals only"),
        ("seen > '2015-02-30'", "'2015-02-30' is no date; write one as '2020-01-31'"),
        ("seen > 2015", "needs values of one kind, not a date, a number"),
        ("case when a > 1 then 'x' else 1 end", "CASE needs values of one kind, not text, a number"),
        ("cut(a, 3, 1)", "must rise"),
        ("cut(a, b)", "must be literals"),
        ("cut(sex, 1)", "cut needs a number or a date, not text"),
        ("round(a, b)", "must be a literal"),
        ("round(a, 99)", "whole number from -15 to 15"),
        ("power(a)", r"power takes 2 arguments, not 1: at power\(a"),
        ("a / 0", "the divisor is always 0"),
        ("ln(-abs(a))", "the argument of ln is never above 0"),
        ("1e999 > a", "a number must lie between"),
        ("a > 1 -- why", "comments are not allowed"),
        ("a > /* why */ 1", "comments are not allowed"),
        ("a > 1; drop table x", "';' is not allowed"),
        ("a b", "an operator or a comma is missing: at b"),
        ("a >", "something is missing"),
        ("(a > 1", "cannot"),
        ("a > 'x", "a quotation mark may be missing"),
        ("a ^ 2 > 1", r"'\^' is not allowed"),
        ("$$a$$ > 1", "a name has letters"),
        ("date(seen) > '2015-01-01'", "'date' is not allowed|no function 'date'"),
        ("1 < 2", "must read at least one column"),
        ("case when a > 1 then null end", "always NULL"),
        ("case when a > 1 then end end", "something is missing|'end' is not allowed|write the column"),
        ("  ", "must not be empty"),
        ("a + " * 1500 + "a", "at most 4,000 characters"),
        ("a+" * 500 + "a", "at most 800 words"),
        ("a + " * 70 + "a", "at most 60 levels"),
        ("(" * 17 + "a" + ")" * 17, "nests at most 16 deep"),
        ("not " * 30 + "ill", "4 signs in a row"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        parse(text, SCHEMA)
    assert len(str(caught.value).splitlines()) == 1


def test_an_expression_is_text() -> None:
    with pytest.raises(InvalidInput, match="must be text, as in 'age >= 65', not 5"):
        parse(5, SCHEMA)  # type: ignore[arg-type]


def test_long_conditions_are_no_deep_ones() -> None:
    text = " or ".join(f"a = {each}" for each in range(150))
    assert value(text) == [False, True, True, None]


def test_dates_of_all_centuries_are_the_calendars() -> None:
    schema = Schema({"d": Number("0001-01-01", "9999-12-31")})  # type: ignore[arg-type]
    random = np.random.default_rng(4)
    days = random.integers(-719162, 2932897, 2000).astype(float)
    years, months = (parse(f"{part}(d)", schema).evaluate({"d": days}) for part in ("year", "month"))
    dates = [date.fromordinal(int(day) + date(1970, 1, 1).toordinal()) for day in days]
    assert years.tolist() == [each.year for each in dates]
    assert months.tolist() == [each.month for each in dates]


@pytest.mark.slow(1)
def test_long_lists_of_categories_are_compared_in_time():
    """A site reads expressions of others before anything is paid for; this took minutes."""
    values = tuple(f"value {i}" for i in range(50_000))
    columns = {"age": (0, 9), "a": Category(values), "b": Category(values[::-1])}
    began = time.monotonic()
    schema = Schema({**columns, "c": {"sql": "case when a = b then a else 'other' end"}})
    assert len(schema.category("c").values) == 50_001
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("age > 200", False),
        ("age >= 90", True),
        ("age > 90", False),
        ("age < 18", False),
        ("age <= 18", True),
        ("age between 100 and 120", False),
        ("age between 60 and 40", False),
        ("age in (5, 200)", False),
        ("age in (5, 20)", True),
        ("age = 10", False),
        ("not age <= 90", False),
        ("not age <= 80", True),
        ("age > 200 and sex = 'male'", False),
        ("age > 200 or sex = 'male'", True),
        ("2 * age + 1 > 181", False),
        ("age * age < 300", False),
        ("sex > 'zzz'", False),
        ("age is null", True),
        ("age > 50 and false", False),
        ("coalesce(age > 200, sex = 'male')", True),
        ("age <> age", True),  # nothing is known of two values of one column together
    ],
)
def test_what_bounds_and_categories_rule_out_is_known_before_a_row_is_read(text, possible):
    schema = Schema(age=(18, 90), sex=["female", "male"])
    assert parse(text, schema).possible == possible
    if possible:
        schema.only(text)
    else:
        with pytest.raises(InvalidInput, match="no row can meet"):
            schema.only(text)


def test_a_condition_that_no_row_meets_is_refused_with_the_bounds():
    with pytest.raises(InvalidInput, match=r"no row can meet age > 200: the bounds of age are 18 to 90$"):
        Schema(age=(18, 90)).only("age > 200")
    with pytest.raises(InvalidInput, match=r"no row can meet .*: sex is one of female \| male$"):
        Schema(sex=["female", "male"]).only("sex > 'zzz'")
