"""One sheet of a spreadsheet, read by calamine (fastexcel).

Every cell is read as text, and a date as YYYY-MM-DD: fastexcel would otherwise give all cells of a column one
type, and what is read of a cell must not depend on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from cape.core import check
from cape.core.errors import DataError, MissingExtra
from cape.data.notation import Notation

__all__ = ["SheetReader"]

_MIDNIGHT = r"^(\d{4}-\d{2}-\d{2})[ T]00:00:00(?:\.0+)?$"
_ROUNDED = 1e-9


class SheetReader:
    """A sheet, loaded when it is first asked for."""

    text = True
    advice = "check that it is a spreadsheet that other programs can open, and has no password"

    def __init__(
        self, site: str, path: str, sheet: str | int, notation: Notation, *, lenient: bool = False
    ) -> None:
        self.what, self.notation = f"{path!r}", notation
        self._site, self._path, self._sheet, self._lenient = site, path, sheet, lenient
        _library()

    def names(self) -> list[str]:
        return self._loaded[0]

    def rows(self) -> int:
        return self._loaded[1].height

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        names, frame = self._loaded
        chosen = [frame.to_series(names.index(name)).alias(name) for name in columns]
        return pl.DataFrame(chosen).iter_slices(rows)

    @cached_property
    def _loaded(self) -> tuple[list[str], pl.DataFrame]:
        """The names in the first row, of which two may be the same, and the rows below."""
        book = _library().read_excel(self._path)
        wanted, sheets = self._sheet, list(book.sheet_names)
        index = wanted - 1 if isinstance(wanted, int) else sheets.index(wanted) if wanted in sheets else -1
        if not 0 <= index < len(sheets):
            raise DataError(
                self._site,
                f"no sheet {check.show(wanted)} in {self.what}; choose from {check.show(sheets, 300)}",
            )
        frame: pl.DataFrame = book.load_sheet(index, dtypes="string").to_polars()
        if not frame.columns and not self._lenient:
            raise DataError(self._site, f"the sheet {check.show(sheets[index])} of {self.what} is empty")
        numbers: pl.DataFrame = book.load_sheet(index, dtypes="float").to_polars()
        cells = [_exact(frame.to_series(i), numbers.to_series(i)) for i in range(frame.width)]
        first = book.load_sheet(index, header_row=None, n_rows=1, dtypes="string").to_polars()
        names = [str(name or "").strip() for row in first.rows() for name in row]
        return names, pl.DataFrame(cells)


def _exact(texts: pl.Series, numbers: pl.Series) -> pl.Series:
    """Return the texts of a column with all digits of a number: fastexcel rounds them to nine decimals."""
    read = texts.cast(pl.Float64, strict=False)
    rounded = ((read != numbers) & ((read - numbers).abs() <= _ROUNDED)).fill_null(False)
    return numbers.cast(pl.String).zip_with(rounded, texts.str.replace(_MIDNIGHT, "$1"))


def _library() -> Any:
    try:
        import fastexcel
    except ImportError:
        raise MissingExtra("excel", "reading a spreadsheet") from None
    return fastexcel
