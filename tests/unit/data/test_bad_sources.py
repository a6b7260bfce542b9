"""What the fuzzer found in tables and schemas, and small versions of the fuzzer itself."""

from __future__ import annotations

import subprocess
import sys
import traceback
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from polars.exceptions import PanicException

from cape.blocks import Moments, Table
from cape.core import check
from cape.core.check import hint
from cape.core.errors import CapeError, DataError, InvalidInput
from cape.data import Category, Csv, Number, Schema
from cape.data.faults import guarded
from tests.slices import examples

SECRET = "".join(["s3", "cr3t"])
SCHEMA = Schema(x=(0, 100), g=["a", "b"], n=Number(0, 1, missing=False))


def message(act: Any) -> str:
    """What an error says; it is short, printable, and carries no cell, not even in what it came from."""
    with pytest.raises(CapeError) as caught:
        act()
    error = caught.value
    text = str(error)
    assert text.count("\n") < 2
    assert len(text) < 1000
    assert text.replace("\n", "").isprintable()
    assert SECRET not in "".join(traceback.format_exception(error)) + str(error.__context__)
    return text


# --- text files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        f"x,g,n\r1,a,0\r{SECRET},b,1\r",  # lines end with a sign that the reader does not take for one
        f"x,g,n{SECRET},a,1\n2,b,0\n",  # the first line ran into the second
        f"x,g\n{SECRET},b\n",
    ],
)
def test_what_stands_in_a_first_line_is_not_shown(content: str, tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text(content)
    text = message(Table("alpha", path, SCHEMA).check)
    assert "no column" in text


def test_a_name_that_differs_in_case_and_signs_is_shown(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("X ,g,n\n1,a,0\n")
    assert "did you mean 'X" in message(Table("alpha", path, SCHEMA).check)


@pytest.mark.parametrize("path", ["a\0b.csv", "x" * 5000 + ".csv", "~nobody-of-that-name/a.csv"])
def test_paths_that_cannot_be(path: str):
    message(lambda: Table("alpha", path, SCHEMA))


@pytest.mark.parametrize("values", [1.5, 3, [1], None])
def test_signs_for_missing_cells_must_be_texts(values: Any):
    message(lambda: Csv("a.csv", null_values=values))


CELLS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["1", "0.5", "a", "b", "", SECRET, f'"{SECRET}', f"{SECRET},{SECRET}", "1e999", "nan"]),
)


@pytest.mark.slow(3)
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.sampled_from(["x,g,n", "x,g", "x,x,g,n", "", "n,g,x,note"]),
    rows=st.lists(st.lists(CELLS, max_size=5), max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(["utf-8", "utf-16", "latin-1"]),
)
def test_any_text_file(header: str, rows: list[list[str]], end: str, encoding: str, tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_bytes(end.join([header, *map(",".join, rows)]).encode(encoding, "replace"))
    said = ""
    try:
        table = Table("alpha", path, SCHEMA)
        table.check()
        table.sums([Moments(("x", "n"))])
    except CapeError as error:
        said = "".join(traceback.format_exception(error)) + getattr(error, "public", "")
    assert SECRET not in said


# --- files and frames ------------------------------------------------------------------------------


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1), change=st.binary(max_size=6), cut=st.booleans())
def test_any_parquet_file(at: float, change: bytes, cut: bool, tmp_path: Path):
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"x": [1.0, 2.0], "g": ["a", SECRET], "n": [0.0, 1.0]}).write_parquet(path)
    data = path.read_bytes()
    place = int(at * len(data))
    path.write_bytes(data[:place] if cut else data[:place] + change + data[place + len(change) :])
    with pytest.raises(CapeError) as caught:  # a cell of g fits no category, whatever else is wrong
        Table("alpha", path, SCHEMA).check()
    assert SECRET not in str(caught.value) + str(caught.value.__context__)


def test_a_panic_below_is_an_error_like_any_other():
    def panic() -> None:
        raise PanicException(SECRET)

    with pytest.raises(DataError) as caught:
        guarded("alpha", "the table", "look at it", panic)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


MIXED = """
import numpy as np, pandas as pd
from cape.blocks import Table
from cape.data import Schema
frame = pd.DataFrame({"x": pd.Series([np.datetime64("NaT"), np.int8(1)], dtype=object)})
Table("alpha", frame, Schema(x=(0, 2))).check()
"""


@pytest.mark.slow(1.8)
def test_mixed_objects_do_not_end_the_process():
    """In a process of its own, because Arrow would take this one with it."""
    done = subprocess.run([sys.executable, "-c", MIXED], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("value", [Decimal("inf"), Decimal("-inf"), Decimal("nan")])
def test_decimals_that_are_no_numbers(value: Decimal, capfd: pytest.CaptureFixture[str]):
    frame = pd.DataFrame({"x": pd.Series([value, Decimal(1)], dtype=object)})
    table = Table("alpha", frame, Schema(x=(0, 100)))
    table.check()
    (count, _, _) = table.sums([Moments(("x",))])[0]
    assert count[0] == (1 if value.is_nan() else 2)
    assert "panicked" not in capfd.readouterr().err


# --- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_",
    [
        "abc",
        3,
        [("a", (0, 1))],
        np.array([1.0, 2.0]),
        {"a": np.array(1.0)},
        {"a": [*range(10**5), None]},
        {"a": {"low": 0, "high": [0] * 10**5}},
        {"a": {"k" * 5000: 1}},
        {"\x1b[2J": 5},
        {"k" * 5000: 5},
        {"a": (10**5000, 1)},
        {"a": 10**5000},
    ],
    ids=lambda value: type(value).__name__,
)
def test_schemas_that_cannot_be(given_: Any):
    message(lambda: Schema(given_))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["low", "high", "categories", "missing", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow(4)
@given(st.dictionaries(st.text(max_size=4), PLAIN, max_size=3))
def test_any_schema_is_made_or_refused(columns: dict[str, Any]):
    said = ""
    try:
        schema = Schema(columns)
        assert dict(Schema(schema.to_dict())) == dict(schema)
        assert all(isinstance(column, (Number, Category)) for column in schema.values())
    except InvalidInput as error:
        said = str(error)
    assert said.isprintable()


# --- what errors show ------------------------------------------------------------------------------


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    "value",
    [10**5000, "x" * 10**6, "\x1b[31m\n", Unshowable(), [["a"] * 1000] * 1000],
    ids=lambda value: type(value).__name__,
)
def test_any_value_is_shown_short_and_in_one_line(value: Any):
    assert len(check.show(value)) <= 80
    assert check.show(value).isprintable()
    with pytest.raises(InvalidInput, match="must be a finite number"):
        check.real("x", value)


def test_hints_are_short_whatever_the_names():
    assert len(hint("k" * 10**6, ["k" * 10**5] * 1000)) < 1000
    assert hint("a", ["\x1b[2J"]).isprintable()
    assert hint("wieght", ["weight", "height"]) == "; did you mean 'weight'?"
