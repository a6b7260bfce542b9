"""Everything about a site's rows that a run would stumble over, listed at once: for those who hold the rows.

Claim. `survey` reads cells as a run does (`Strict`), or as a site's daemon does (`Lenient`), by their own
conversion, and finds a trouble exactly where the one raises an error or the other counts a cell as missing.
Nothing that it returns may leave a site: counts, lines and cells are exact. `Survey.shown` drops the cells.
Tested in tests/data/test_survey.py, against `Table.check` on files with random troubles.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from msgspec import structs
from numpy.typing import NDArray

from cape.arrays import Flags, Floats
from cape.data import faults
from cape.data.categories import Value
from cape.data.cells import Cells, Lenient, Strict
from cape.data.clinical import is_id
from cape.data.guesses import another_unit, codes_in, comma_is_decimal, means_missing, meant
from cape.data.lines import BROKEN
from cape.data.readers import FetchedReader, Reader
from cape.data.schema import Column, Number, Schema
from cape.data.sources import Csv, open_source
from cape.data.surveyed import Absent, ColumnSurvey, Ids, Spots, Survey, Unit
from cape.data.utf8 import header_line, not_utf8
from cape.errors import DataError

__all__ = ["survey"]

_BATCH_CELLS = 1 << 21  # 16 MB of float64
_FEWEST = 1 << 14  # rows of a batch
_SHOWN = 10  # places and cells of one trouble
_DISTINCT = 1000  # cells that are told apart
_BEYOND = 4096  # cells beyond bounds that another unit is looked for in
_FEW, _OFTEN = 5, 0.02  # cells beyond bounds, and their share, from which on another unit is looked for
_MOST_IDS = 1 << 26  # 512 MB of hashes


def survey(site: str, source: Any, schema: Schema, *, lenient: bool = False) -> Survey:
    """Read every cell that the schema names, and return all that is wrong. Raises nothing of the data's.

    `lenient` reads as a site's daemon does, which counts cells that do not fit as missing.
    """
    found = _surveyed(site, source, schema, lenient)
    path = _path(source)
    if found.separator is None or path is None:
        return found
    layout = source if isinstance(source, Csv) else Csv(path)
    cells = _surveyed(site, replace(layout, separator=found.separator), schema, lenient)
    return structs.replace(cells, separator=found.separator)


def _surveyed(site: str, source: Any, schema: Schema, lenient: bool) -> Survey:
    work = _Work(site, schema, lenient)
    try:
        work.read(source)
    except DataError as error:
        work.problems.append(error.problem)
    return work.result()


class _Tally:
    """Counts cells of one trouble, with the first places and the cells themselves."""

    def __init__(self) -> None:
        self.count = 0
        self._places: list[str] = []
        self._cells: Counter[str] = Counter()

    def add(self, flags: Flags, file: str, offset: int, cells: pl.Series | None = None) -> None:
        """Count the flagged rows of a batch that starts at line `offset` of a file."""
        rows = np.flatnonzero(flags)
        if not rows.size:
            return
        self.count += rows.size
        self._places += [f"{file}{offset + int(row)}" for row in rows[: _SHOWN - len(self._places)]]
        if cells is not None and len(self._cells) < _DISTINCT:
            chosen = cells.filter(pl.Series(flags))
            texts = (
                pl.Series("cell", [str(each) for each in chosen]) if _odd(chosen) else chosen.cast(pl.String)
            )
            found = texts.alias("cell").value_counts(sort=True).head(_DISTINCT)
            self._cells.update(dict(found.iter_rows()))

    def note(self, lines: Sequence[int], count: int, file: str) -> None:
        """Count lines that something else has found."""
        self.count += count
        self._places += [f"{file}{line}" for line in lines[: _SHOWN - len(self._places)]]

    def spots(self) -> Spots:
        common = sorted(self._cells.items(), key=lambda each: (-each[1], each[0]))
        return Spots(self.count, tuple(self._places), dict(common[:_SHOWN]), len(self._cells))

    @property
    def cells(self) -> list[str]:
        """All different cells."""
        return list(self._cells)


def _odd(cells: pl.Series) -> bool:
    """Return whether polars cannot write these cells as text."""
    return cells.dtype == pl.Object or cells.dtype.is_nested() or cells.dtype == pl.Binary


class _Recording(Cells):
    """A reading that records what does not fit, in the place of an error or a replacement."""

    def __init__(self, site: str, schema: Schema, *, text: bool) -> None:
        super().__init__(site, schema, text=text)
        self.misfits = {name: _Tally() for name in schema}
        self.gaps = {name: _Tally() for name in schema}
        self.file = ""
        self._bad: Flags | None = None

    def recorded(self, series: pl.Series, offset: int, broken: Flags) -> tuple[NDArray[Any], Flags]:
        """Return the column as read, and the cells that are there but do not fit."""
        self._bad, self._broken = None, broken
        values = self.read(series, offset)
        return values, np.zeros(len(series), bool) if self._bad is None else self._bad

    def _judge(self, series: pl.Series, column: Column, unreadable: pl.Series, offset: int) -> None:
        self._bad = unreadable.to_numpy() & ~self._broken
        self.misfits[series.name].add(self._bad, self.file, offset, series)

    def _complete(self, name: str, values: NDArray[Any], missing: Flags, offset: int) -> NDArray[Any]:
        gaps = missing & ~self._broken
        self.gaps[name].add(gaps if self._bad is None else gaps & ~self._bad, self.file, offset)
        return values


class _StrictRecording(_Recording, Strict):
    pass


class _LenientRecording(_Recording, Lenient):
    pass


class _Work:
    """One survey under way."""

    def __init__(self, site: str, schema: Schema, lenient: bool) -> None:
        self._site, self._schema, self._lenient = site, schema, lenient
        self.problems: list[str] = []
        self._rows, self._unit = 0, "row"
        self._wanted: list[str] = []
        self._absent: tuple[Absent, ...] = ()
        self._twice: tuple[str, ...] = ()
        self._separator: str | None = None
        self._ids: dict[str, list[pl.Series]] = {}
        self._broken, self._blank, self._encoding = _Tally(), _Tally(), _Tally()
        self._guess: str | None = None
        self._joined = False
        self._cells: _Recording | None = None
        self._missing = Counter[str]()
        self._below, self._above = Counter[str](), Counter[str]()
        self._beyond: dict[str, Floats] = {}

    def read(self, source: Any) -> None:
        """Go through the rows of all files."""
        files = _files(source)
        for file, each in files:
            reader = self._open(each)
            start = self._start(reader, each, file)
            if not self._header(reader, each):
                return
            self._through(reader, file, start)
        if self._rows == 0:
            self.problems.append("the table has no rows; a site takes part with at least one")
        if self._unit == "line" and not self._lenient and not self.result().fails(ignore_broken=True):
            self._joined = self._as_a_run(source)

    def _open(self, source: Any) -> Reader:
        opened = open_source(self._site, source, lenient=self._lenient)
        if isinstance(opened, nw.LazyFrame):
            return FetchedReader(opened)
        if opened.text and not self._lenient:  # line by line, so that all bad lines are found
            again = open_source(self._site, source, lenient=True)
            assert not isinstance(again, nw.LazyFrame)
            return again
        return opened

    def _start(self, reader: Reader, source: Any, file: str) -> int:
        """Return the number of the first row, as people find it: a text file's lines are counted from 1."""
        if not reader.text:
            return 1
        self._unit = "line"
        path = str(Path(_path(source) or "").expanduser())
        found = not_utf8(path)
        self._guess = self._guess or found.guess
        self._encoding.note(found.lines, found.count, file)
        named = isinstance(source, Csv) and source.columns is not None
        return 1 if named else header_line(path) + 1

    def _header(self, reader: Reader, source: Any) -> bool:
        """Look at the names of the columns; return whether any of them can be read."""
        names = faults.guarded(self._site, reader.what, reader.advice, reader.names)
        if not names:
            self.problems.append("the file is empty: it has no header and no rows")
            return False
        wanted = self._schema.sources(self._schema)
        self._twice = tuple(
            name
            for name in wanted
            if names.count(name) > 1 or (reader.text and f"{name}_duplicated_0" in names)  # as polars renames
        )
        self._absent = tuple(Absent.of(name, names) for name in wanted if name not in names)
        self._wanted = [name for name in wanted if name in names]
        if reader.text and not self._wanted:
            self._separator = _separator(names, source)
        for name in names:
            if is_id(name) and name not in self._schema:
                self._ids.setdefault(name, [])
        return bool(self._wanted)

    def _through(self, reader: Reader, file: str, start: int) -> None:
        if self._cells is None:
            kind = _LenientRecording if self._lenient else _StrictRecording
            self._cells = kind(self._site, self._schema, text=reader.text)
        self._cells.file = file
        columns = [*self._wanted, *self._ids]
        size = max(_FEWEST, _BATCH_CELLS // len(columns))
        batches = faults.guarded(
            self._site, reader.what, reader.advice, lambda: reader.batches(columns, size)
        )
        while True:
            batch = faults.guarded(self._site, reader.what, reader.advice, lambda: next(batches, None))
            if batch is None:
                return
            self._batch(self._cells, batch, reader.text, file, start)
            start += batch.height
            self._rows += batch.height

    def _batch(self, cells: _Recording, batch: pl.DataFrame, text: bool, file: str, offset: int) -> None:
        first = batch[self._wanted[0]]
        broken = (first == BROKEN).fill_null(False).to_numpy() if text else np.zeros(batch.height, bool)
        self._broken.add(broken, file, offset)
        blank = ~broken
        for name in self._wanted:
            values, bad = cells.recorded(batch[name], offset, broken)
            column = self._schema.stated[name]
            missing = (np.isnan(values) if isinstance(column, Number) else values < 0) & ~bad & ~broken
            blank &= missing
            self._missing[name] += int(np.count_nonzero(missing))
            if isinstance(column, Number):
                self._bounds(name, column, values)
        self._blank.add(blank, file, offset)
        for name, hashes in self._ids.items():
            hashes.append(_hashed(batch[name], broken))

    def _bounds(self, name: str, column: Number, values: Floats) -> None:
        below, above = values < column.low, values > column.high
        counts = int(np.count_nonzero(below)), int(np.count_nonzero(above))
        self._below[name] += counts[0]
        self._above[name] += counts[1]
        kept = self._beyond.get(name, np.empty(0))
        if any(counts) and kept.size < _BEYOND:
            more = values[below | above][: _BEYOND - kept.size]
            self._beyond[name] = np.concatenate([kept, more])

    def _as_a_run(self, source: Any) -> bool:
        """Read a text file as a run does; return whether its broken lines are no trouble there.

        A quoted cell may contain a line break in a run, but not at a daemon.
        """
        reader = open_source(self._site, source)
        assert not isinstance(reader, nw.LazyFrame)
        strict, offset = Strict(self._site, self._schema, text=True), 0
        batches = faults.guarded(
            self._site, reader.what, reader.advice, lambda: reader.batches(self._wanted, _FEWEST)
        )
        try:
            while True:
                batch = faults.guarded(self._site, reader.what, reader.advice, lambda: next(batches, None))
                if batch is None:
                    return True
                for name in self._wanted:
                    strict.read(batch[name], offset)
                offset += batch.height
        except DataError as error:
            if not self._broken.count:
                self.problems.append(error.problem)
            return False

    def result(self) -> Survey:
        return Survey(
            site=self._site,
            rows=self._rows,
            unit=self._unit,
            lenient=self._lenient,
            problems=tuple(self.problems),
            columns=tuple(self._column(name) for name in self._wanted) if self._cells else (),
            absent=self._absent,
            headless=bool(self._absent) and not self._wanted,
            separator=self._separator,
            twice=self._twice,
            broken=self._broken.spots(),
            joined=self._joined,
            blank=self._blank.spots(),
            encoding=self._encoding.spots(),
            encoding_guess=self._guess,
            ids=tuple(_counted(name, hashes) for name, hashes in self._ids.items() if hashes),
        )

    def _column(self, name: str) -> ColumnSurvey:
        assert self._cells is not None
        column, misfits = self._schema.stated[name], self._cells.misfits[name]
        missing = self._missing[name]
        found = ColumnSurvey(
            name=name,
            kind="category",
            present=self._rows - missing - misfits.count - self._broken.count,
            missing=missing,
            misfits=misfits.spots(),
            gaps=self._cells.gaps[name].spots(),
        )
        if isinstance(column, Number):
            return self._numeric(found, column, misfits.cells)
        likely = {cell: meant(cell, column) for cell in misfits.cells}
        recode = {cell: value for cell, value in likely.items() if value is not None}
        nulls = [cell for cell in misfits.cells if cell not in recode and means_missing(cell)]
        return structs.replace(found, recode=_first(recode), null_values=tuple(nulls[:_SHOWN]))

    def _numeric(self, found: ColumnSurvey, column: Number, misfits: list[str]) -> ColumnSurvey:
        name = found.name
        codes, beyond = codes_in(self._beyond.get(name, np.empty(0)))
        unit = None
        if not column.date and beyond.size >= max(_FEW, _OFTEN * min(found.present, _BEYOND)):
            factor = another_unit(name, column, beyond)
            unit = None if factor is None else Unit(factor.factor, factor.unit)
        return structs.replace(
            found,
            kind="date" if column.date else "number",
            low=column.low,
            high=column.high,
            below=self._below[name],
            above=self._above[name],
            unit=unit,
            codes={} if column.date else codes,
            null_values=tuple(cell for cell in misfits if means_missing(cell))[:_SHOWN],
            decimal_comma=not column.date and comma_is_decimal(misfits),
        )


def _first(found: dict[str, Value]) -> dict[str, Value]:
    return dict(list(found.items())[:_SHOWN])


def _files(source: Any) -> list[tuple[str, Any]]:
    """Return the files of a pattern one by one, each with what places in it start with."""
    path = _path(source)
    if path is None or "://" in path:
        return [("", source)]
    try:
        there = Path(path).expanduser()
        if there.is_file() or not any(sign in path for sign in "*?["):
            return [("", source)]
        found = sorted(glob.glob(str(there), recursive=True))
    except (OSError, ValueError, RuntimeError):  # `open_source` says what is wrong
        return [("", source)]
    if not found or Path(path).suffix.lower() in (".parquet", ".pq"):
        return [("", source)]
    return [
        (f"{Path(each).name}:", replace(source, path=each) if isinstance(source, Csv) else each)
        for each in found
    ]


def _path(source: Any) -> str | None:
    if isinstance(source, Csv):
        source = source.path
    return str(source) if isinstance(source, (str, Path)) else None


def _separator(names: Sequence[str], source: Any) -> str | None:
    """Return the sign that probably separates cells, if the header was taken for one name."""
    line = ",".join(names)
    used = source.separator if isinstance(source, Csv) else ","
    signs = [sign for sign in (";", "\t", "|", ",") if sign != used and line.count(sign) >= len(names)]
    return max(signs, key=line.count) if signs and len(names) <= 2 else None


def _hashed(ids: pl.Series, broken: Flags) -> pl.Series:
    if _odd(ids):
        ids = pl.Series(ids.name, [None if each is None else str(each) for each in ids], dtype=pl.String)
    return ids.filter(pl.Series(~broken)).drop_nulls().hash()


def _counted(name: str, hashes: list[pl.Series]) -> Ids:
    if sum(map(len, hashes)) > _MOST_IDS:
        return Ids(name, 0, 0, 0)
    every = pl.concat(hashes).alias("id")
    counts = every.value_counts()["count"]
    return Ids(name, len(every), len(counts), int(counts.max() or 0))  # type: ignore[arg-type]
