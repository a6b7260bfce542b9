"""Everything about a site's rows that a run would stumble over, listed at once: for those who hold the rows.

Claim. `survey` reads cells as a run does (`Strict`), or as a site's daemon does (`Lenient`), by their own
conversion, and finds a trouble exactly where the one raises an error or the other counts a cell as missing.
Nothing that it returns may leave a site: counts, lines and cells are exact. `Survey.shown` drops the cells.
Tested in tests/unit/data/test_survey.py, against `Table.check` on files with random troubles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from msgspec import structs

from cape.core.arrays import Flags, Floats
from cape.core.errors import DataError
from cape.data import faults
from cape.data.categories import Value
from cape.data.cells import Strict
from cape.data.clinical import is_id
from cape.data.encodings import all_utf8
from cape.data.files import Csv, Excel, file_at
from cape.data.guesses import another_unit, codes_in, comma_is_decimal, means_missing, meant
from cape.data.identity import found
from cape.data.lines import BROKEN, LineReader
from cape.data.readers import Reader, RenamedReader
from cape.data.recording import SHOWN, LenientRecording, Recording, StrictRecording, Tally, as_text
from cape.data.schema import Number, Schema
from cape.data.sources import open_source
from cape.data.surveyed import Absent, ColumnSurvey, Ids, Spots, Survey, Unit
from cape.data.utf8 import NotUtf8, not_utf8

__all__ = ["likely_separator", "survey"]

_BATCH_CELLS = 1 << 21  # 16 MB of float64
_FEWEST = 1 << 14  # rows of a batch
_BEYOND = 4096  # cells beyond bounds that another unit is looked for in
_FEW, _OFTEN = 5, 0.02  # cells beyond bounds, and their share, from which on another unit is looked for
_FEW_VALUES = 6  # categories of a column for which blanks are offered
_SEPARATORS = (",", ";", "\t", "|")
_EMPTY = "the table has no rows; a site takes part with at least one"
_ENDS = "; if the file has some, a line feed must stand at the end of each line"
_MOST_IDS = 1 << 26  # 512 MB of hashes


def survey(site: str, source: Any, schema: Schema, *, lenient: bool = False) -> Survey:
    """Read every cell that the schema names, and return all that is wrong. Raises nothing of the data's.

    `lenient` reads as a site's daemon does, which counts cells that do not fit as missing.
    """
    if isinstance(source, (str, Path)):
        source = file_at(source)
    found = _surveyed(site, source, schema, lenient)
    if lenient:
        return structs.replace(found, supposed=_likely(found, {}))
    supposed: dict[str, str] = {}
    while isinstance(source, Csv) and (new := _likely(found, supposed)):  # to find all troubles at once
        source = replace(source, **cast(dict[str, Any], new))
        again = _surveyed(site, source, schema, lenient)
        if "decimal" in new and _misfits(again) >= _misfits(found):
            break
        supposed |= new
        found = structs.replace(again, encoding=found.encoding)
    return structs.replace(found, supposed=supposed)


def _misfits(found: Survey) -> int:
    return sum(column.misfits.count for column in found.columns)


def _likely(found: Survey, supposed: Mapping[str, str]) -> dict[str, str]:
    """Return what a text file's layout probably is, where it is neither as stated nor as supposed already."""
    layout: dict[str, str] = {}
    if found.separator is not None:
        layout["separator"] = found.separator
    if found.encoding_guess is not None and not found.joined:
        layout["encoding"] = found.encoding_guess
    if not layout and any(column.decimal_comma for column in found.columns):
        layout["decimal"] = ","
    return {key: value for key, value in layout.items() if key not in supposed}


def _surveyed(site: str, source: Any, schema: Schema, lenient: bool) -> Survey:
    work = _Work(site, schema, lenient)
    try:
        work.read(source)
    except DataError as error:
        work.problems.append(error.problem)
    return work.result()


class _Work:
    """One survey under way."""

    def __init__(self, site: str, schema: Schema, lenient: bool) -> None:
        self._site, self._schema, self._lenient = site, schema, lenient
        self.problems: list[str] = []
        self._rows, self._unit = 0, "row"
        self._wanted: list[str] = []
        self._named: dict[str, str] = {}  # what the file calls each of them
        self._read: list[str] = []
        self._absent: tuple[Absent, ...] = ()
        self._twice: tuple[str, ...] = ()
        self._separator: str | None = None
        self._ids: dict[str, list[pl.Series]] = {}
        self._broken, self._blank, self._encoding = Tally(), Tally(), NotUtf8()
        self._place: Callable[[int], str] = lambda row: str(row + 1)
        self._joined = False
        self._cells: Recording | None = None
        self._missing = Counter[str]()
        self._below, self._above = Counter[str](), Counter[str]()
        self._beyond: dict[str, Floats] = {}
        self._fractions: dict[str, Tally] = {}

    def read(self, source: Any) -> None:
        """Go through all rows."""
        reader = self._open(source)
        lines = reader.reader if isinstance(reader, RenamedReader) else reader
        if isinstance(lines, LineReader):
            paths = found(str(Path(source.path).expanduser()))
            self._unit, self._place = "line", _Lines(lines, several=len(paths) > 1)
            self._encoding = faults.guarded(
                self._site, reader.what, reader.advice, lambda: _not_utf8(source, paths)
            )
        elif isinstance(source, Excel):
            self._place = lambda row: str(row + 2)  # below the header
        if not self._header(reader, source):
            return
        self._through(reader)
        if self._rows == 0:
            self.problems.append(_EMPTY + (_ENDS if self._unit == "line" else ""))
        if self._unit == "line" and not self._lenient and not self.result().fails(but_lines=True):
            self._joined = self._as_a_run(source)

    def _open(self, source: Any) -> Reader:
        text = isinstance(source, Csv)  # line by line, so that all bad lines are found
        return open_source(self._site, source, self._schema, lenient=self._lenient or text)

    def _header(self, reader: Reader, source: Any) -> bool:
        """Look at the names of the columns; return whether any of them can be read."""
        names = faults.guarded(self._site, reader.what, reader.advice, reader.names)
        if not names:
            self.problems.append("the file is empty: it has no header and no rows")
            return False
        person = self._schema.person
        wanted = [*self._schema.sources(self._schema), *(() if person is None else (person.id,))]
        self._twice = tuple(
            name
            for name in wanted
            if names.count(name) > 1 or (reader.text and f"{name}_duplicated_0" in names)  # as polars renames
        )
        self._absent = tuple(Absent.of(name, names, wanted) for name in wanted if name not in names)
        self._named = {name: name for name in wanted if name in names} | {
            each.name: each.same[0] for each in self._absent if len(each.same) == 1
        }
        if person is not None and person.id in self._named:
            self._ids[self._named.pop(person.id)] = []
        self._wanted = list(self._named)
        if reader.text and not self._wanted:
            used = source.separator if isinstance(source, Csv) else None
            self._separator = used and likely_separator(names, used)
        unknown = reader.notation.unknown(names) if reader.notation else None
        if unknown is not None:
            raise faults.not_recoded(self._site, unknown)
        for name in names:
            if person is None and isinstance(name, str) and is_id(name) and name not in self._named.values():
                self._ids.setdefault(name, [])
        self._read = list(dict.fromkeys([*self._named.values(), *self._ids])) or names[:1]
        return bool(self._wanted) or not self._absent

    def _through(self, reader: Reader) -> None:
        kind = LenientRecording if self._lenient else StrictRecording
        self._cells = kind(self._site, self._schema, reader.notation)
        with self._batches(reader, max(_FEWEST, _BATCH_CELLS // len(self._read))) as batches:
            for batch in batches:
                self._batch(self._cells, batch, reader.text, self._rows)
                self._rows += batch.height

    def _batches(self, reader: Reader, rows: int) -> AbstractContextManager[Iterator[pl.DataFrame]]:
        return faults.guarded_batches(
            self._site, reader.what, reader.advice, lambda: reader.batches(self._read, rows)
        )

    def _batch(self, cells: Recording, batch: pl.DataFrame, text: bool, offset: int) -> None:
        first = batch[self._read[0]]
        broken = (first == BROKEN).fill_null(False).to_numpy() if text else np.zeros(batch.height, bool)
        self._broken.add(broken, offset)
        blank = ~broken if self._wanted else np.zeros(batch.height, bool)
        for name in self._wanted:
            values, bad = cells.recorded(batch[self._named[name]].alias(name), offset, broken)
            column = self._schema.stated[name]
            missing = (np.isnan(values) if isinstance(column, Number) else values < 0) & ~bad & ~broken
            blank &= missing
            self._missing[name] += int(np.count_nonzero(missing))
            if isinstance(column, Number):
                self._bounds(name, column, values)
                if column.integer:
                    odd = np.isfinite(values) & (values != np.floor(values))
                    self._fractions.setdefault(name, Tally()).add(odd, offset, batch[self._named[name]])
        self._blank.add(blank, offset)
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
        """Read a text file as a run does; return whether its odd lines are no trouble there.

        A quoted cell may contain a line break in a run, but not at a daemon; a header may be in any encoding.
        """
        reader = open_source(self._site, source)
        strict, offset = Strict(self._site, self._schema, reader.notation), 0
        try:
            with self._batches(reader, _BATCH_CELLS // len(self._read)) as batches:
                for batch in batches:
                    for name in self._wanted:
                        strict.read(batch[name], offset)
                    offset += batch.height
            if offset == 0:  # all of it was one quoted cell, say
                self.problems.append(_EMPTY)
            return True
        except DataError as error:
            if not self._broken.count and not self._encoding.count:
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
            supposed={},
            separator=self._separator,
            twice=self._twice,
            broken=self._broken.spots(self._place),
            joined=self._joined,
            blank=self._blank.spots(self._place),
            encoding=Spots(self._encoding.count, self._encoding.places),
            encoding_guess=self._encoding.guess,
            ids=tuple(self._counted(name, hashes) for name, hashes in self._ids.items() if hashes),
        )

    def _counted(self, name: str, hashes: list[pl.Series]) -> Ids:
        cells, person = sum(map(len, hashes)), self._schema.person
        if cells > _MOST_IDS:
            return Ids(name, cells, cells, 1)
        counts = pl.concat(hashes).alias("id").value_counts()["count"].to_numpy().astype(np.int64)
        found = Ids(name, cells, counts.size, int(counts.max(initial=0)))
        if person is None:
            return found
        beyond = 0 if person.row is not None else int(np.maximum(counts - person.rows, 0).sum())
        nobody = self._rows - self._broken.count - cells
        return structs.replace(found, rows=person.rows, beyond=beyond, nobody=nobody)

    def _column(self, name: str) -> ColumnSurvey:
        assert self._cells is not None
        column, misfits = self._schema.stated[name], self._cells.misfits[name]
        missing = self._missing[name]
        found = ColumnSurvey(
            name=name,
            kind="category",
            present=self._rows - missing - misfits.count - self._broken.count,
            missing=missing,
            misfits=misfits.spots(self._place),
            gaps=self._cells.gaps[name].spots(self._place),
        )
        if isinstance(column, Number):
            return self._numeric(found, column, misfits.cells)
        likely = {cell: meant(cell, column) for cell in misfits.cells}
        recode = {cell: value for cell, value in likely.items() if value is not None}
        nulls = [cell for cell in misfits.cells if cell not in recode and means_missing(cell)]
        unclear = [cell for cell in misfits.cells if cell not in recode and cell not in nulls]
        few = len(unclear) <= len(column.values) <= _FEW_VALUES and misfits.count > found.present
        blank = f"<{' or '.join(map(str, column.values))}>"
        return structs.replace(
            found,
            recode=_first(recode),
            null_values=tuple(nulls[:SHOWN]),
            unclear=dict.fromkeys(unclear, blank) if few else {},
        )

    def _numeric(self, found: ColumnSurvey, column: Number, misfits: list[str]) -> ColumnSurvey:
        name = found.name
        codes, beyond = codes_in(self._beyond.get(name, np.empty(0)), column)
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
            fractions=self._fractions.get(name, Tally()).spots(self._place),
            unit=unit,
            codes={} if column.date else codes,
            null_values=tuple(cell for cell in misfits if means_missing(cell))[:SHOWN],
            decimal_comma=not column.date and comma_is_decimal(misfits),
        )


def _first(found: dict[str, Value]) -> dict[str, Value]:
    return dict(list(found.items())[:SHOWN])


class _Lines:
    """Names a row by its line, and by its file if there are several."""

    def __init__(self, reader: LineReader, *, several: bool) -> None:
        self._reader, self._several = reader, several

    def __call__(self, row: int) -> str:
        path, line = self._reader.line_of(row)
        return f"{Path(path).name}:{line}" if self._several else str(line)


def _not_utf8(file: Csv, paths: list[str]) -> NotUtf8:
    """Return the lines of text files that are not UTF-8, unless they state another encoding."""
    if not all_utf8(paths, file.encoding, header=file.columns is None):
        return NotUtf8()
    every = [(Path(path).name, not_utf8(path)) for path in paths]
    places = [
        f"{name}:{line}" if len(paths) > 1 else str(line) for name, each in every for line in each.lines
    ]
    guess = next((each.guess for _, each in every if each.guess), None)
    return NotUtf8(guess, sum(each.count for _, each in every), places=tuple(places[:SHOWN]))


def likely_separator(names: Sequence[str], used: str) -> str | None:
    """Return the sign that probably separates cells, if the header was taken for one name."""
    line = ",".join(names)
    signs = [sign for sign in _SEPARATORS if sign != used and line.count(sign) >= len(names)]
    return max(signs, key=line.count) if signs and len(names) <= 2 else None


def _hashed(ids: pl.Series, broken: Flags) -> pl.Series:
    """Return the hashes of ids that are there, without the blanks around them."""
    ids = as_text(ids) if ids.dtype == pl.Object or ids.dtype.is_nested() else ids
    ids = ids.filter(pl.Series(~broken)).drop_nulls()
    if ids.dtype == pl.String:
        ids = ids.str.strip_chars()
        ids = ids.filter(ids != "")
    return ids.hash()
