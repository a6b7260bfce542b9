"""Files of SPSS, Stata and SAS, read by pyreadstat, many rows at a time.

Cells are read as the file stores them, codes and not labels: which of the two the schema lists as categories
decides (`Notation.labelled`). What a file declares as missing is missing. A date is converted here, by the
format of its column: pyreadstat would raise an error at one that no calendar has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from cape.core.errors import MissingExtra
from cape.data.notation import Notation

__all__ = ["StatisticsReader"]

_READS = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
_DAY = 86_400
_1582, _1960 = (
    -141_428,
    -3_653,
)  # where SPSS's days start (14 October 1582), and the others', in days since 1970
_CLOCKS = (  # suffixes, formats of columns, units in a day, where they start, whether they are dates alone
    (".sav .zsav .por", r"[AEJS]?DATE\d*|QYR\d*|MOYR\d*|WKYR\d*", _DAY, _1582, True),
    (".sav .zsav .por", r"(DATETIME|YMDHMS)[\d.]*", _DAY, _1582, False),
    (".dta", r"%-?t?d.*", 1, _1960, True),
    (".dta", r"%-?t[cC].*", 1000 * _DAY, _1960, False),
    (".sas7bdat .xpt", r"(DATETIME|E8601DT|B8601DT|DATEAMPM)[\d.]*", _DAY, _1960, False),
    (
        ".sas7bdat .xpt",
        r"(DATE|DDMMYY|MMDDYY|YYMMDD|MONYY|MMYY|YYMM|JULIAN|E8601DA|B8601DA|WORDDATE|WEEKDATE|NLDATE)[A-Z]?[\d.]*",
        1,
        _1960,
        True,
    ),
)
_CALENDAR = 2_900_000  # days since 1970, before the year 9999; none is further back than year 1 here


class StatisticsReader:
    """A file of a statistics program, in batches of rows."""

    text = False
    advice = "check that the path is right and that the program that wrote the file can open it"

    def __init__(self, path: str, notation: Notation) -> None:
        self.what = f"{path!r}"
        self._path, self._given = path, notation
        self._suffix = Path(path).suffix.lower()
        _library()

    @property
    def notation(self) -> Notation:
        labels = self._about.variable_value_labels
        return self._given.labelled(
            {
                name: {_code(code): str(label).strip() for code, label in said.items()}
                for name, said in labels.items()
            }
        )

    def names(self) -> list[str]:
        return list(self._about.column_names)

    def rows(self) -> int:
        known = self._about.number_rows  # not all formats say
        first = self.names()[:1]
        return int(known) if known is not None else sum(len(frame) for frame in self.batches(first, 1 << 16))

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        start = 0
        while True:
            cells, _ = self._read(usecols=list(columns), row_offset=start, row_limit=rows)
            frame = pl.DataFrame([self._column(name, cells[name]) for name in columns])
            if frame.height:
                yield frame
            if frame.height < rows:
                return
            start += frame.height

    @cached_property
    def _about(self) -> Any:
        return self._read(metadataonly=True)[1]

    def _read(self, **options: Any) -> tuple[Any, Any]:
        read = getattr(_library(), _READS[self._suffix])
        found: tuple[Any, Any] = read(
            self._path, disable_datetime_conversion=True, output_format="dict", **options
        )
        return found

    def _column(self, name: str, cells: Any) -> pl.Series:
        if self._about.readstat_variable_types[name] == "string":
            return pl.Series(name, cells, dtype=pl.String, strict=False)
        numbers = pl.Series(name, cells, dtype=pl.Float64, strict=False)
        written = self._about.original_variable_types[name] or ""
        for suffixes, formats, units, start, whole in _CLOCKS:
            if self._suffix in suffixes.split() and re.fullmatch(formats, written, re.IGNORECASE):
                return _dates(numbers, units, start, whole)
        return numbers


def _dates(numbers: pl.Series, units: int, start: int, whole: bool) -> pl.Series:
    """Return days, seconds or milliseconds as dates or times; null where no calendar has it."""
    days = numbers / units + start
    days = days.to_frame().select(pl.when(pl.first().abs() < _CALENDAR).then(pl.first())).to_series()
    if whole:
        return days.floor().cast(pl.Int32).cast(pl.Date)
    return (days * (_DAY * 1000)).round().cast(pl.Int64).cast(pl.Datetime("ms"))


def _code(code: Any) -> str:
    """Return a code as a study file would write it: 1 for 1.0."""
    return str(int(code)) if isinstance(code, float) and code.is_integer() else str(code)


def _library() -> Any:
    try:
        import pyreadstat
    except ImportError:
        raise MissingExtra("stats", "reading a file of SPSS, Stata or SAS") from None
    return pyreadstat
