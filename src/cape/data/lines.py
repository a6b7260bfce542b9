"""A text file read so that every line is a row, whatever it contains.

Claim. What is read of a line depends on that line and the first one (the header) only: a file in which one
line is replaced by any other gives the same number of rows, and the same cells in all other rows.
Reason. The file is cut at line ends before anything else is looked at. A line with an odd number of quotes,
which could run on into the next, is put aside, and so is one with more cells than the header. Where a cell
begins with a quote and another quote stands where none should, as in "F"x, a parser of many lines must not
see the line: what it makes of it depends on its place among 64 bytes, and so on the lines before. Such lines
are read one by one, by Python's parser, and put aside if it refuses them. Every cell of a line that was put
aside is `BROKEN`, a text that is neither a number nor a category. Bytes that are invalid in the file's
encoding become U+FFFD, line by line (`cape.data.encodings`). A cell can therefore hold no line break: a
quoted one with a line break in it makes two broken lines.
Nor does the time that other lines take depend on a line: all are looked at for quotes, and only one that is
read by itself takes longer, itself (`edge.row-time` measures it).
Tested in tests/unit/data/test_dirty_cells.py, with lines of random bytes among good ones.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.core.arrays import Flags, Integers
from cape.core.errors import DataError
from cape.data.encodings import opened
from cape.data.notation import BROKEN, Notation
from cape.data.readers import trimmed

__all__ = ["BROKEN", "LineReader", "TextReader", "first_line"]

_CHUNK = 1 << 24
_LONGEST = 1 << 26  # bytes of a line; a longer one is put aside
_QUOTE, _END, _RETURN = b'"', b"\n", b"\r"


class TextReader:
    """Text files with the same header: where they are, how they are written, which columns they have."""

    text = True

    def __init__(
        self,
        site: str,
        paths: Sequence[str],
        what: str,
        advice: str,
        notation: Notation,
        *,
        separator: str,
        columns: Sequence[str] | None,
        encoding: str | None,
    ) -> None:
        self.what, self.advice, self.notation = what, advice, notation
        self._site, self._paths, self._encoding = site, list(paths), encoding
        self._separator = separator
        self._columns = None if columns is None else list(columns)

    def names(self) -> list[str]:
        """Return the names of the columns; none if no file holds a line."""
        if self._columns is not None:
            return self._columns
        found: list[str] = []
        for path in self._paths:
            with self._opened(path) as file:
                names, _ = self._header(file)
            if found and names and names != found:
                raise DataError(self._site, f"the files of {self.what} have different first lines")
            found = found or names
        return found

    def _opened(self, path: str) -> AbstractContextManager[BinaryIO]:
        return opened(path, self._encoding, header=self._columns is None)

    def _header(self, file: BinaryIO) -> tuple[list[str], int]:
        """Read the first line that is not blank, and return the names in it and its number."""
        line, number = first_line(file)
        return names_in(line, self._separator.encode()) if line else [], number


class LineReader(TextReader):
    """Text files in batches of lines."""

    def rows(self) -> int:
        """Return the number of lines, but for headers."""
        return sum(chunk.count(_END) for path in self._paths for chunk in self._chunks(path))

    def line_of(self, row: int) -> tuple[str, int]:
        """Return the file and the line, counted from 1 as in an editor, of a row, counted from 0."""
        for path, above, rows in self._extents:
            if row < rows:
                return path, above + row + 1
            row -= rows
        raise IndexError(row)

    @cached_property
    def _extents(self) -> list[tuple[str, int, int]]:
        """Each file with the number of lines down to its header, and of those below."""
        found = []
        for path in self._paths:
            above = 0
            if self._columns is None:
                with self._opened(path) as file:
                    _, above = self._header(file)
            found.append((path, above, sum(chunk.count(_END) for chunk in self._chunks(path))))
        return found

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        names = self.names()
        for path in self._paths:
            for chunk in self._chunks(path):
                yield from self._cells(chunk, names, columns).iter_slices(rows)

    def _chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's lines below the header, many at a time; the last of them ends like the others."""
        with self._opened(path) as file:
            if self._columns is None:
                self._header(file)
            rest, skipping = b"", False
            while data := file.read(_CHUNK):
                cut = data.rfind(_END) + 1
                if not cut:
                    rest += b"" if skipping else data
                    if len(rest) > _LONGEST:
                        rest, skipping = b"", True
                    continue
                start = data.find(_END) if skipping else 0  # an empty line is left of what was skipped
                first = _QUOTE if skipping else rest  # and a quote in it puts it aside
                yield first + data[start:cut]
                rest, skipping = data[cut:], False
            if rest or skipping:
                yield (_QUOTE if skipping else rest) + _END

    def _cells(self, lines: bytes, names: list[str], columns: Sequence[str]) -> pl.DataFrame:
        """Return the wanted columns by name, one row for each line, with broken ones marked."""
        frame = self._parse(self._mended(lines, len(names)), len(names))
        whole = frame[frame.columns[len(names)]].is_null()
        broken = pl.Series([BROKEN])
        chosen = [frame[frame.columns[names.index(name)]].alias(name) for name in columns]
        return pl.DataFrame([cells.zip_with(whole, broken) for cells in chosen])

    def _mended(self, lines: bytes, width: int) -> bytes:
        """Return lines that a parser of many takes, one row each, after one that says how many cells are."""
        separator = self._separator.encode()
        given, place = memoryview(lines), 0
        parts: list[bytes | memoryview] = [separator * width + _END]
        for start, end, closed in _odd(lines, separator):
            parts += [given[place:start], self._rewritten(lines[start:end] if closed else _QUOTE, width)]
            place = end
        return b"".join([*parts, given[place:]])

    def _rewritten(self, line: bytes, width: int) -> bytes:
        """Return one line as every parser reads it; with a cell too many if it falls apart."""
        cells = self._alone(line)
        if cells is None:
            return self._separator.encode() * width + b"-"
        quoted = ['"' + cell.replace('"', '""') + '"' if cell else "" for cell in cells]
        return self._separator.join(quoted).encode()

    def _alone(self, line: bytes) -> list[str] | None:
        """Return the cells of one line, None if it falls apart."""
        try:
            text = line.removesuffix(_RETURN).decode(errors="replace")
            return next(csv.reader([text], delimiter=self._separator, strict=True), [])
        except csv.Error:
            return None

    def _parse(self, lines: bytes, width: int) -> pl.DataFrame:
        """Return one row for each line but the first; the cell past the last column is null but in a broken
        line."""
        try:
            frame = pl.read_csv(
                io.BytesIO(lines),
                has_header=False,
                separator=self._separator,
                infer_schema=False,
                truncate_ragged_lines=True,
                encoding="utf8-lossy",
            ).slice(1)
        except pl.exceptions.PolarsError:
            frame = pl.DataFrame()
        if frame.height == lines.count(_END) - 1:
            return frame
        # Never, as far as is known; and were there such a line, it must be no reason to refuse.
        each = [self._alone(line) or [] for line in lines.split(_END)[1:-1]]
        cells = [[*(cell or None for cell in row), *[None] * (width + 1)][: width + 1] for row in each]
        return pl.DataFrame(cells, [str(i) for i in range(width + 1)], orient="row").cast(pl.String)


def first_line(file: BinaryIO) -> tuple[bytes, int]:
    """Read the first line that is not blank, and return it without its end, and its number, from 1."""
    number = 0
    while line := file.readline(_LONGEST):
        number += 1
        if line.strip():
            return line.rstrip(b"\r\n"), number
    return b"", number


def names_in(line: bytes, separator: bytes) -> list[str]:
    """Return the names of columns in a first line."""
    text = io.BytesIO(line + _END)
    frame = pl.read_csv(text, separator=separator.decode(), infer_schema=False, encoding="utf8-lossy")
    return trimmed(frame.columns)


def _odd(lines: bytes, separator: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield where each line starts and ends that a parser of many must not see, and whether its quotes close.

    They do not if it has an odd number of them, or is too long to be looked at.
    """
    signs = np.frombuffer(lines, np.uint8)
    ends, quotes = np.flatnonzero(signs == _END[0]), np.flatnonzero(signs == _QUOTE[0])
    starts = np.concatenate([[0], ends[:-1] + 1])
    first = np.searchsorted(quotes, starts)  # of each line, among all quotes
    many = np.diff(first, append=len(quotes))
    closed = (many % 2 == 0) & (ends - starts <= _LONGEST)
    wrong = quotes[_misplaced(signs, quotes, np.repeat(first % 2 == 1, many), separator)]
    odd = _any_of(np.searchsorted(ends, wrong), len(ends))
    within = quotes[np.repeat(odd, many)]
    opening = within[_is_one_of(signs.take(within - 1, mode="clip"), separator + _END) | (within == 0)]
    odd &= _any_of(np.searchsorted(ends, opening), len(ends))  # else its quotes are signs like others
    for row in np.flatnonzero(odd | ~closed).tolist():
        yield int(starts[row]), int(ends[row]), bool(closed[row])


def _misplaced(signs: NDArray[np.uint8], quotes: Integers, second: Flags, separator: bytes) -> Flags:
    """Return which quotes neither open a cell nor close one, and are not one of two within.

    `second` says of each whether the first of its line has an odd number of quotes before it.
    """
    opens = second.copy()
    opens[::2] ^= True
    beside = signs.take(np.where(opens, quotes - 1, quotes + 1), mode="clip")  # itself, in the first place
    wrong = ~_is_one_of(beside, _QUOTE + separator + _END)
    last = np.flatnonzero((beside == _RETURN[0]) & ~opens)
    wrong[last[signs[quotes[last] + 2] == _END[0]]] = False
    return wrong


def _is_one_of(signs: NDArray[np.uint8], wanted: bytes) -> Flags:
    table = np.zeros(256, bool)
    table[list(wanted)] = True
    found: Flags = table[signs]
    return found


def _any_of(places: Integers, many: int) -> Flags:
    """Return so many flags, true at these places."""
    found = np.zeros(many, bool)
    found[places] = True
    return found
