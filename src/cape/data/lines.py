"""A text file read so that every line is a row, whatever it contains.

Claim. What is read of a line depends on that line and the first one (the header) only: a file in which one
line is replaced by any other gives the same number of rows, and the same cells in all other rows.
Reason. The file is cut at line ends before anything else is looked at. A line with an odd number of quotes,
which could run on into the next, is put aside; so is one that the parser refuses, or makes anything but one
row of (by halving what it was read with), and one with more cells than the header. Every cell of a line that
was put aside is `BROKEN`, a text that is neither a number nor a category. Bytes that are invalid in the
file's encoding become U+FFFD, line by line (`cape.data.encodings`). A cell can therefore hold no line break:
a quoted one with a line break in it makes two broken lines.
Tested in tests/data/test_dirty_cells.py, with lines of random bytes among good ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import BinaryIO

import numpy as np
import polars as pl

from cape.data.encodings import opened
from cape.data.notation import BROKEN, Notation
from cape.data.readers import trimmed
from cape.errors import DataError

__all__ = ["BROKEN", "LineReader", "TextReader", "first_line"]

_CHUNK = 1 << 24
_LONGEST = 1 << 26  # bytes of a line; a longer one is put aside
_QUOTE, _END = b'"', b"\n"


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
                frame = self._parse(_put_aside(chunk, self._broken(len(names))), len(names))
                yield from self._cells(frame, names, columns).iter_slices(rows)

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

    def _broken(self, width: int) -> bytes:
        """A line with a cell too many."""
        return self._separator.encode() * width + b"-"

    def _parse(self, lines: bytes, width: int) -> pl.DataFrame:
        """Return one row for each line; the cell past the last column is empty unless the line is broken."""
        count = lines.count(_END)
        try:
            frame = pl.read_csv(
                io.BytesIO(self._separator.encode() * width + _END + lines),  # says how many cells there are
                has_header=False,
                separator=self._separator,
                infer_schema=False,
                truncate_ragged_lines=True,
                encoding="utf8-lossy",
            ).slice(1)
            if frame.height == count:
                return frame
        except pl.exceptions.PolarsError:
            pass
        if count == 1:
            return self._parse(self._broken(width) + _END, width)
        cut = lines.find(_END, len(lines) // 2)  # near the middle, and never the last
        if cut in (-1, len(lines) - 1):
            cut = lines.rfind(_END, 0, len(lines) - 1)
        halves = lines[: cut + 1], lines[cut + 1 :]
        return pl.concat([self._parse(half, width) for half in halves])

    def _cells(self, frame: pl.DataFrame, names: list[str], columns: Sequence[str]) -> pl.DataFrame:
        """Return the wanted columns by name, with broken lines marked."""
        broken = frame.columns[len(names)]
        cells = frame.select(pl.col(frame.columns[names.index(name)]).alias(name) for name in columns)
        if frame[broken].null_count() < len(frame):
            whole = frame[broken].is_null()
            cells = cells.with_columns(
                pl.when(whole).then(name).otherwise(pl.lit(BROKEN)).alias(name) for name in columns
            )
        return cells


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


def _put_aside(lines: bytes, broken: bytes) -> bytes:
    """Return the lines with `broken` in the place of each that is too long or has an odd number of quotes."""
    if _QUOTE not in lines and len(lines) <= _LONGEST:
        return lines
    signs = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(signs == _END[0])
    starts = np.concatenate([[0], ends[:-1] + 1])
    odd = np.bitwise_xor.reduceat((signs == _QUOTE[0]).view(np.uint8), starts)
    aside = np.flatnonzero(odd.view(bool) | (ends - starts > _LONGEST))
    if not aside.size:
        return lines
    parts, place = [], 0
    for number in aside.tolist():
        parts += [lines[place : starts[number]], broken]
        place = int(ends[number])
    return b"".join([*parts, lines[place:]])
