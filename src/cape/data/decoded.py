"""Text files in another encoding than UTF-8, for people who hold the rows: what is wrong in them is an error.

As when polars scans UTF-8, a quoted cell may hold line ends, and a line with too many cells is an error. The
files are decoded and parsed many lines at a time, cut where no quote is open.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import polars as pl

from cape.core.errors import DataError
from cape.data.encodings import NotEncoded, opened
from cape.data.lines import TextReader, first_line
from cape.data.readers import trimmed

__all__ = ["DecodedReader"]

_CHUNK = 1 << 24
_QUOTE, _END = b'"', b"\n"


class DecodedReader(TextReader):
    """Text files with the same columns, decoded."""

    def rows(self) -> int:
        return sum(frame.height for frame in self._frames())

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        for frame in self._frames():
            yield from frame.select(columns).iter_slices(rows)

    def _frames(self) -> Iterator[pl.DataFrame]:
        for path in self._paths:
            with self._opened(path) as file:
                head = first_line(file)[0] + _END if self._columns is None else b""
                for lines in _records(file):
                    frame = pl.read_csv(
                        io.BytesIO(head + lines),
                        separator=self._separator,
                        has_header=self._columns is None,
                        new_columns=self._columns,
                        infer_schema=False,
                    )
                    if self._columns is None:
                        frame.columns = trimmed(frame.columns)
                    yield frame

    @contextmanager
    def _opened(self, path: str) -> Iterator[BinaryIO]:
        try:
            with opened(path, self._encoding, header=self._columns is None, strict=True) as file:
                yield file
        except NotEncoded as error:
            encoding, line = error.encoding, error.line
        else:
            return
        raise DataError(
            self._site,
            f"{path!r} is not {encoding} text at line {line}; correct the line, or say the encoding of the "
            "file, as in encoding = 'windows-1252'",
        )


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yield many lines at a time, cut at a line end outside quotes."""
    rest = b""
    while data := file.read(_CHUNK):
        rest += data
        cut = rest.rfind(_END) + 1
        if _QUOTE in rest:
            signs = np.frombuffer(rest, np.uint8)
            outside = np.cumsum(signs == _QUOTE[0]) % 2 == 0
            ends = np.flatnonzero(outside & (signs == _END[0]))
            cut = int(ends[-1]) + 1 if ends.size else 0
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest
