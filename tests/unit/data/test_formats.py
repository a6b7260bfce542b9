"""Spreadsheets, files of SPSS, Stata and SAS, Parquet, Arrow and Feather."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyreadstat
import pytest
import xlsxwriter

from cape.blocks import Table
from cape.core.errors import DataError, InvalidInput, MissingExtra
from cape.data import Category, Excel, File, Schema
from cape.data.sources import open_source
from tests.unit.data.test_notation import cells

SCHEMA = Schema(x=(0, 100), sex=["female", "male"], b=Category((False, True)))


# --- spreadsheets -----------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "rows.xlsx"
    with xlsxwriter.Workbook(path) as made:
        day = made.add_format({"num_format": "yyyy-mm-dd"})
        sheet = made.add_worksheet("rows")
        sheet.write_row(0, 0, ["x ", "sex", "b", "when", "code"])
        for row, (x, sex, b, when, code) in enumerate(
            [
                (1.5, "male", True, datetime(2020, 1, 31), 1),
                (2, " female", False, datetime(1950, 6, 1, 12, 30), 0),
                ("NA", "n/a", "yes", None, "."),
                (0.1 + 0.2, "f", 0, None, "1"),
            ],
            1,
        ):
            sheet.write_row(row, 0, [x, sex, b])
            if when is not None:
                sheet.write_datetime(row, 3, when, day)
            sheet.write(row, 4, code)
        made.add_worksheet("empty")
        other = made.add_worksheet("other")
        other.write_row(0, 0, ["x"])
        other.write_row(1, 0, [7])
    return path


@pytest.mark.parametrize("lenient", [False, True])
def test_a_sheet_is_read_cell_by_cell(book: Path, lenient: bool) -> None:
    schema = Schema({**SCHEMA, "code": {"categories": [0, 1]}})
    found = cells(Excel(book, recode={"sex": {"f": "female"}}), schema, lenient=lenient)
    assert found == {
        "x": [1.5, 2, None, 0.3],
        "sex": ["male", "female", None, "female"],
        "b": [True, False, True, False],
        "code": [1, 0, None, 1],
    }


def test_numbers_of_a_sheet_keep_their_digits(tmp_path: Path) -> None:
    numbers = [3.141592653589793, 1.5e-12, -1.234567890123e-7, 123456.7890123456, 1e300, 7.0, 0.0]
    with xlsxwriter.Workbook(tmp_path / "rows.xlsx") as made:
        sheet = made.add_worksheet()
        for row, cell in enumerate(["x", *numbers, "text", "3.141592654"]):
            sheet.write_string(row, 0, cell) if isinstance(cell, str) else sheet.write_number(row, 0, cell)
            sheet.write(row, 1, "y")
    found = cells(tmp_path / "rows.xlsx", Schema(x=(-1e301, 1e301)), lenient=True)["x"]
    assert found == [*(float(f"{number:.16G}") for number in numbers), None, 3.141592654]


def test_a_sheet_may_start_further_down_and_have_other_columns(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "rows.xlsx") as made:
        sheet = made.add_worksheet()
        for row, values in enumerate((["y", "y", "", "x"], [1, 2, 3, 4], [], [5, 6, 7, 8]), 2):
            sheet.write_row(row, 1, values)
    for lenient in (False, True):
        assert cells(tmp_path / "rows.xlsx", Schema(x=(0, 9)), lenient=lenient) == {"x": [4, None, 8]}
        with pytest.raises(DataError, match="more than one column 'y'"):
            cells(tmp_path / "rows.xlsx", Schema(y=(0, 9)), lenient=lenient)


def test_dates_of_a_sheet_are_dates(book: Path) -> None:
    reader = open_source("alpha", book)
    (batch,) = reader.batches(["when"], 10)  # type: ignore[union-attr]
    assert batch["when"].to_list() == ["2020-01-31", "1950-06-01 12:30:00", None, None]


def test_a_sheet_by_name_or_number(book: Path) -> None:
    for sheet in ("other", 3):
        assert cells(Excel(book, sheet=sheet), Schema(x=(0, 100))) == {"x": [7]}
    for missing in ("nowhere", 4):
        for lenient in (False, True):
            with pytest.raises(DataError, match=r"no sheet .* choose from \['rows', 'empty', 'other'\]"):
                cells(Excel(book, sheet=missing), SCHEMA, lenient=lenient)
    with pytest.raises(DataError, match=r"the sheet 'empty' of .* is empty"):
        cells(Excel(book, sheet="empty"), SCHEMA)
    assert Table("alpha", Excel(book, sheet="empty"), SCHEMA, unreadable="missing").rows() == 0
    for wrong in (0, True, "", 1.5, None):
        with pytest.raises(InvalidInput, match="sheet must be the name of a sheet"):
            Excel(book, sheet=wrong)  # type: ignore[arg-type]


# --- statistics programs ----------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "x": [1.5, 2.0, None, 4.0],
        "sex": [1.0, 2.0, 9.0, None],
        "word": ["a", "b", "", "NA"],
        "day": [date(2020, 1, 31), date(1950, 6, 1), None, date(1970, 1, 1)],
        "time": pd.to_datetime(["2020-01-31 12:30:15", None, "1960-01-01 00:00:00", None]),
    }
)
LABELS = {"sex": {1: "male", 2: "female", 9: "unknown"}}


def sav(path: Path) -> None:
    pyreadstat.write_sav(FRAME, path, variable_value_labels=LABELS, missing_ranges={"sex": [9]})


def zsav(path: Path) -> None:
    pyreadstat.write_sav(
        FRAME, path, compress=True, variable_value_labels=LABELS, missing_ranges={"sex": [9]}
    )


WRITES: dict[str, Callable[[Path], None]] = {
    ".sav": sav,
    ".zsav": zsav,
    ".dta": lambda path: pyreadstat.write_dta(
        FRAME, path, variable_value_labels={"sex": {1: "male", 2: "female"}}
    ),
    ".por": lambda path: pyreadstat.write_por(FRAME, path),
    ".xpt": lambda path: pyreadstat.write_xport(FRAME, path),
}


@pytest.mark.parametrize("suffix", WRITES)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_files_of_statistics_programs(suffix: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    WRITES[suffix](path)
    reader = open_source("alpha", path)
    names = reader.names()  # type: ignore[union-attr]
    assert [name.lower() for name in names] == list(FRAME)
    assert reader.rows() == 4  # type: ignore[union-attr]
    batches = list(reader.batches(names[::-1], size))  # type: ignore[union-attr]
    assert [len(batch) for batch in batches] == {1: [1, 1, 1, 1], 3: [3, 1], 100: [4]}[size]
    found = pl.concat(batches)
    assert found[names[0]].to_list() == [1.5, 2.0, None, 4.0]
    assert found[names[3]].to_list() == FRAME["day"].to_list()
    assert found[names[4]].to_list() == [datetime(2020, 1, 31, 12, 30, 15), None, datetime(1960, 1, 1), None]


@pytest.mark.parametrize("suffix", [".sav", ".zsav", ".dta"])
def test_labels_or_codes_as_the_schema_lists_them(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    WRITES[suffix](path)
    nulls = ["9"] if suffix == ".dta" else []
    for lenient in (False, True):
        source = File(path, null_values=nulls)
        assert cells(source, Schema(sex=["female", "male"]), lenient=lenient)["sex"] == [
            "male",
            "female",
            None,
            None,
        ]
        by_code = cells(source, Schema(sex={"categories": [2, 1]}), lenient=lenient)
        assert by_code == {"sex": [1, 2, None, None]}
        assert cells(source, Schema(word=["a", "b"]), lenient=lenient) == {"word": ["a", "b", None, None]}
    with pytest.raises(DataError, match="row 0"):
        cells(path, Schema(sex=["Female", "Male"]))
    recoded = File(path, null_values=nulls, recode={"sex": {"1": "M", "2": "F"}})
    assert cells(recoded, Schema(sex=["F", "M"]))["sex"] == ["M", "F", None, None]


def test_a_date_that_no_calendar_has_is_missing(tmp_path: Path) -> None:
    frame = pd.DataFrame({"day": [1e30, 13_797_302_400.0, float("nan")]})
    pyreadstat.write_sav(frame, tmp_path / "rows.sav", variable_format={"day": "DATE11"})
    (batch,) = open_source("alpha", tmp_path / "rows.sav").batches(["day"], 9)  # type: ignore[union-attr]
    assert batch["day"].to_list() == [None, date(2020, 1, 2), None]


# --- whatever kind ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".arrow", ".ipc", ".feather", "stream.arrow"])
def test_parquet_and_arrow(suffix: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1.5, None], "sex": ["male", " na "], "b": [True, None]})
    path = tmp_path / f"rows{suffix}"
    write = {
        ".parquet": frame.write_parquet,
        ".pq": frame.write_parquet,
        "stream.arrow": frame.write_ipc_stream,
    }
    write.get(suffix, frame.write_ipc)(path)
    for lenient in (False, True):
        found = cells(path, SCHEMA, lenient=lenient)
        assert found == {"x": [1.5, None], "sex": ["male", None], "b": [True, None]}


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    "suffix", [".xlsx", ".xls", ".ods", ".sav", ".por", ".dta", ".sas7bdat", ".xpt", ".arrow"]
)
def test_a_file_that_is_none_of_its_kind(suffix: str, lenient: bool, tmp_path: Path) -> None:
    for content in (b"", b"x,sex\n1,male\n" * 50):
        (tmp_path / f"rows{suffix}").write_bytes(content)
        with pytest.raises(DataError, match="could not be read") as caught:
            cells(tmp_path / f"rows{suffix}", SCHEMA, lenient=lenient)
        assert "male" not in str(caught.value)


@pytest.mark.parametrize(
    ("library", "name", "extra"), [("fastexcel", "a.xlsx", "excel"), ("pyreadstat", "a.sav", "stats")]
)
def test_a_missing_extra_is_named(
    library: str, name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'cape-dp\[{extra}\]'"):
        open_source("alpha", tmp_path / name)


def test_a_pattern_of_several_sheets_is_refused(book: Path, tmp_path: Path) -> None:
    (tmp_path / "more.xlsx").write_bytes(book.read_bytes())
    with pytest.raises(DataError, match="names several files"):
        open_source("alpha", tmp_path / "*.xlsx")
    (tmp_path / "rows.docx").write_bytes(b"")
    with pytest.raises(DataError, match=r"must end in \.csv, \.tsv, \.parquet"):
        open_source("alpha", tmp_path / "rows.docx")


def test_the_words_of_a_file_reach_typed_text(tmp_path: Path) -> None:
    pl.DataFrame({"x": ["1.5", "NA", "<1"]}).write_parquet(tmp_path / "rows.parquet")
    source: Any = File(tmp_path / "rows.parquet", recode={"x": {"<1": 0.5}})
    assert cells(source, Schema(x=(0, 100))) == {"x": [1.5, None, 0.5]}
