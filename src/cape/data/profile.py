"""What `cape init` may know of a site's file: its layout, the names of its columns, and the type of each.

Claim. `profile` takes nothing else from the rows: types are those of the file, or of a text file's first
rows, where a column of numbers is one in which most cells are numbers, so that hardly ever one row decides.
`values` reads bounds and categories from all rows; only `cape init --from-data` calls it.
Reason. Everything returned is a name in the header, a word out of five, or a sign of the layout.
Tested in tests/unit/cli/test_init.py, with files that differ in their cells only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from cape.core.errors import DataError, InvalidInput
from cape.data import faults
from cape.data.clinical import is_id, rounded
from cape.data.columns import as_date
from cape.data.dates import days_of
from cape.data.encodings import all_utf8
from cape.data.files import Csv, File, file_at
from cape.data.guesses import comma_is_decimal, means_missing
from cape.data.readers import Reader
from cape.data.sources import open_source
from cape.data.survey import likely_separator
from cape.data.utf8 import not_utf8

__all__ = ["FIRST", "Kind", "Profile", "profile", "values"]

FIRST = 1000
"""How many rows of a text file its columns' types are taken from."""

Kind = Literal["number", "date", "text", "unknown"]
_MOST = 0.5  # of the cells of a column
_MOST_CATEGORIES = 30
_BATCH = 1 << 16


@dataclass(frozen=True)
class Profile:
    """A file's layout (keys of a study's [sites]), the kinds of its columns by name, and those left out."""

    layout: Mapping[str, Any]
    kinds: Mapping[str, Kind]
    ids: tuple[str, ...]
    unnamed: int


def profile(path: Path) -> Profile:
    """Look at a file; raise `InvalidInput` if it cannot be used."""
    reader, layout = _opened(path)
    names = _names(reader, path)
    kept = [name for name in names if name.strip() and "_duplicated_" not in name]
    rows = next(iter(_batches(reader, kept, FIRST)), None)
    first = None if rows is None else rows.head(FIRST)
    kinds: dict[str, Kind] = {}
    for name in kept:
        if not is_id(name):
            kinds[name] = "unknown" if first is None else _kind(first[name], reader.text, layout)
    if not kinds:
        raise InvalidInput(f"{path} has no column that a study could use")
    return Profile(layout, kinds, tuple(filter(is_id, kept)), len(names) - len(kept))


def values(path: Path, found: Profile) -> dict[str, list[Any]]:
    """Return the least and the greatest number of each column of numbers, and the categories of each of text.

    They are read from all rows, and tell about them. A column with too many categories is left out.
    """
    reader, layout = _opened(path)
    ends: dict[str, list[Any]] = {}
    for batch in _batches(reader, [name for name, kind in found.kinds.items() if kind != "unknown"], _BATCH):
        for name in batch.columns:
            cells = _present(batch[name])
            if found.kinds[name] == "number":
                numbers = _numbers(cells, layout).drop_nulls().drop_nans()
                _widen(ends.setdefault(name, []), [numbers.min(), numbers.max()])
            elif found.kinds[name] == "date":
                days = days_of(cells).drop_nulls()
                _widen(ends.setdefault(name, []), [days.min(), days.max()])
            else:
                known = ends.setdefault(name, [])
                more = [value for value in cells.cast(pl.String).unique().to_list() if value not in known]
                known += more[: _MOST_CATEGORIES + 1 - len(known)]
    return {name: read for name, each in ends.items() if (read := _stated(found.kinds[name], each))}


def _stated(kind: Kind, found: list[Any]) -> list[Any]:
    """Return bounds, rounded outwards, or categories; nothing where there are none, or too many."""
    if not found:
        return []
    if kind == "number":
        return [rounded(found[0], up=False), rounded(found[1], up=True)]
    if kind == "date":
        return [as_date(day) for day in found]
    return sorted(found) if len(found) <= _MOST_CATEGORIES else []


def _widen(ends: list[Any], new: list[Any]) -> None:
    every = [each for each in (*ends, *new) if each is not None]
    ends[:] = [min(every), max(every)] if every else []


def _opened(path: Path) -> tuple[Reader, dict[str, Any]]:
    """Open a file, a text file by the layout that its first line shows."""
    file = file_at(path)
    try:
        if not isinstance(file, Csv):
            return _reader(file), {}
        layout: dict[str, Any] = {}
        opened = _reader(file)
        guess = faults.guarded("site", opened.what, opened.advice, lambda: _guess(str(path)))
        if guess is not None:
            layout["encoding"] = guess
        names = faults.guarded("site", opened.what, opened.advice, opened.names)
        separator = likely_separator(names, file.separator or ",")
        if separator is not None:
            layout["separator"] = separator
        return _reader(replace(file, **layout)) if layout else opened, layout
    except DataError as error:
        raise InvalidInput(error.problem) from None


def _guess(path: str) -> str | None:
    return not_utf8(path).guess if all_utf8([path], None, header=True) else None


def _reader(file: File) -> Reader:
    return open_source("site", file, lenient=True)


def _names(reader: Reader, path: Path) -> list[str]:
    try:
        names = faults.guarded("site", reader.what, reader.advice, reader.names)
    except DataError as error:
        raise InvalidInput(error.problem) from None
    if not names:
        raise InvalidInput(f"{path} is empty; give a file with a header, the names of its columns")
    if reader.text and any(_is_cell(name) for name in names):  # a row of a person must not get into the study
        raise InvalidInput(
            f"the first line of {path} seems to be a row, not the names of columns: write a header above it"
        )
    return names


def _is_cell(name: str) -> bool:
    try:
        float(name.replace(",", "."))
    except ValueError:
        return False
    return True


def _batches(reader: Reader, names: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
    try:
        with faults.guarded_batches(
            "site", reader.what, reader.advice, lambda: reader.batches(names, rows)
        ) as batches:
            yield from batches
    except DataError as error:
        raise InvalidInput(error.problem) from None


def _present(cells: pl.Series) -> pl.Series:
    """Return the cells that are there, without usual signs for missing ones."""
    if cells.dtype == pl.Object:
        cells = pl.Series(
            cells.name, [None if each is None else str(each) for each in cells], dtype=pl.String
        )
    if cells.dtype != pl.String:
        return cells.drop_nulls()
    cells = cells.drop_nulls().str.strip_chars()
    cells = cells.filter(cells != "")
    signs = [cell for cell in cells.unique().to_list() if means_missing(cell) and not _is_cell(cell)]
    return cells.filter(~cells.is_in(signs)) if signs else cells


def _numbers(cells: pl.Series, layout: Mapping[str, Any]) -> pl.Series:
    if cells.dtype == pl.String and layout.get("decimal") == ",":
        cells = cells.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    return cells.cast(pl.Float64, strict=False)


def _kind(column: pl.Series, text: bool, layout: dict[str, Any]) -> Kind:
    """Return the kind of a column; a decimal comma becomes part of the layout."""
    kind = column.dtype
    if kind.is_numeric():
        return "number"
    if kind in (pl.Date, pl.Datetime):
        return "date"
    cells = _present(column)
    if not len(cells):
        return "unknown"
    if not text:
        return "text"
    plain = _share(_numbers(cells, {}))
    comma = _share(_numbers(cells, {"decimal": ","})) if layout.get("separator") else 0.0
    if comma > plain and comma > _MOST and comma_is_decimal(cells.to_list()):
        layout["decimal"] = ","
    if max(plain, comma) > _MOST:
        return "number"
    return "date" if _share(days_of(cells)) > _MOST else "text"


def _share(read: pl.Series) -> float:
    return 1 - read.null_count() / len(read)
