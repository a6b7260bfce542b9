"""Cells of date columns: days since 1970-01-01, wherever they come from."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xlsxwriter

from cape.core.errors import DataError
from cape.data import Csv, Excel, Schema
from cape.data.dates import days_of
from tests.unit.data.test_notation import cells

SCHEMA = Schema(d=(date(1900, 1, 1), date(2100, 12, 31)))
DAYS = [18292.0, -1.0, None]  # 2020-01-31, 1969-12-31

DAY, OTHER = datetime(2020, 1, 31, 23, 59), datetime(1969, 12, 31, 12)
FRAMES = {
    "dates": pl.DataFrame({"d": [date(2020, 1, 31), date(1969, 12, 31), None]}),
    "times": pl.DataFrame({"d": [DAY, OTHER, None]}),
    "times with a zone": pl.DataFrame({"d": [DAY.replace(tzinfo=UTC), OTHER.replace(tzinfo=UTC), None]}),
    "texts": pl.DataFrame({"d": ["2020-01-31", " 1969-12-31T10:00:00 ", None]}),
    "pandas": pd.DataFrame({"d": pd.to_datetime(["2020-01-31", "1969-12-31", None])}),
    "objects": pd.DataFrame({"d": pd.Series([DAY, np.datetime64("1969-12-31T23"), pd.NaT], dtype=object)}),
    "mixed": pd.DataFrame({"d": pd.Series([date(2020, 1, 31), "31.12.1969", None], dtype=object)}),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("lenient", [False, True])
def test_dates_are_days(kind: str, lenient: bool) -> None:
    assert cells(FRAMES[kind], SCHEMA, lenient=lenient) == {"d": DAYS}


@pytest.mark.parametrize("lenient", [False, True])
def test_dates_in_files(lenient: bool, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("d,x\n 31.01.2020,1\n1969-12-31 08:15:00,1\nn/a,1\nunknown,1\n")
    source: Any = Csv(tmp_path / "rows.csv", recode={"d": {"unknown": "2020-01-31"}})
    assert cells(source, SCHEMA, lenient=lenient) == {"d": [*DAYS, DAYS[0]]}
    with xlsxwriter.Workbook(tmp_path / "rows.xlsx") as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["d", "x"])
        for row, day in enumerate((datetime(2020, 1, 31), datetime(1969, 12, 31, 12)), 1):
            sheet.write_datetime(row, 0, day, book.add_format({"num_format": "dd/mm/yyyy"}))
        sheet.write_row(3, 1, [1])
    assert cells(Excel(tmp_path / "rows.xlsx"), SCHEMA, lenient=lenient) == {"d": DAYS}


@pytest.mark.parametrize(
    "text", ["01/02/2020", "2020-02-30", "2020", "18292", "31.1.2020", "2020-01-31x", "x"]
)
def test_what_is_no_date_is_an_error_or_missing(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"d,x\n2020-01-31,1\n{text},1\n")
    for source in (tmp_path / "rows.csv", pl.DataFrame({"d": ["2020-01-31", text]})):
        with pytest.raises(DataError, match=r"row 1 .*expected a date, or a text such as 2020-01-31"):
            cells(source, SCHEMA)
        assert cells(source, SCHEMA, lenient=True) == {"d": [DAYS[0], None]}
    with pytest.raises(DataError, match="row 0"):
        cells(pl.DataFrame({"d": [18292.0]}), SCHEMA)
    with pytest.raises(DataError, match="gives 'soon', and the schema says that its cells are dates"):
        cells(Csv(tmp_path / "rows.csv", recode={"d": {text: "soon"}}), SCHEMA)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_moments_that_no_calendar_has_are_days_all_the_same(unit, zone):
    """polars panics at them, which is no Exception: a site's process would end at one person's cell."""
    ends = [-(2**63) + 1, -1, 0, None, 2**63 - 1]
    moments = pl.Series(ends).cast(pl.Int64).cast(pl.Datetime(unit, zone))
    found = days_of(moments).to_list()
    assert found[0] < -100_000
    assert found[1] == -1
    assert found[2] == (-1 if zone == "America/New_York" else 0)
    assert found[3] is None
    assert found[4] > 100_000
