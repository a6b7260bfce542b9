"""Rows in batches: one small interface over what is in memory and what is scanned from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

import narwhals as nw
import polars as pl

from cape.data import faults
from cape.data.cells import is_missing
from cape.data.notation import Notation

__all__ = [
    "FetchedReader",
    "FrameReader",
    "LazyReader",
    "Reader",
    "RenamedReader",
    "from_values",
    "ipc_scan",
    "text_scan",
    "trimmed",
]

_IPC = b"ARROW1"  # how a file of the format starts
_EXACT = 2**53  # whole numbers up to it are doubles


class Reader(Protocol):
    """Gives the named columns in batches, in the order of the rows, as often as asked."""

    what: str
    advice: str
    text: bool  # every cell is text, because the file has no types

    @property
    def notation(self) -> Notation | None:
        """How the cells of a file are written; None for tables with a null of their own."""
        ...

    def names(self) -> list[str]:
        """Return the names of the table's columns."""
        ...

    def rows(self) -> int:
        """Return the number of rows."""
        ...

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield the columns, about `rows` rows at a time."""
        ...


class LazyReader:
    """A polars scan, run by the streaming engine; made anew each time, because it remembers its files."""

    def __init__(
        self,
        scan: Callable[[], pl.LazyFrame],
        what: str,
        advice: str,
        notation: Notation | None = None,
        *,
        text: bool = False,
    ) -> None:
        self._scan = scan
        self.what, self.advice, self.notation, self.text = what, advice, notation, text

    def names(self) -> list[str]:
        return self._scan().collect_schema().names()

    def rows(self) -> int:
        return int(self._scan().select(pl.len()).collect(engine="streaming").item())

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        # Of a text file every column is read: only then does polars notice a line with too many cells, such
        # as one whose decimal comma has shifted the others.
        chosen = self._scan() if self.text else self._scan().select(columns)
        batches = chosen.collect_batches(chunk_size=rows, maintain_order=True, engine="streaming")
        return (batch.select(columns) for batch in batches) if self.text else iter(batches)


class FrameReader:
    """A DataFrame or an Arrow table, in slices."""

    what, advice, text, notation = "the table", "check that its columns hold plain values", False, None

    def __init__(self, frame: nw.DataFrame[Any]) -> None:
        self._frame = frame

    def names(self) -> list[str]:
        return list(self._frame.columns)

    def rows(self) -> int:
        return len(self._frame)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        frame = self._frame.select(*columns)
        for start in range(0, len(frame), rows):
            yield _to_polars(frame[start : start + rows])


class FetchedReader:
    """A lazy table of another engine, whose columns are fetched whole."""

    what, advice, text = "the lazy table", "check that it can be computed on its own", False
    notation = None

    def __init__(self, frame: nw.LazyFrame[Any]) -> None:
        self._frame = frame

    def names(self) -> list[str]:
        return list(self._frame.collect_schema())

    def rows(self) -> int:
        return int(self._frame.select(nw.len()).collect().item())

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        return FrameReader(self._frame.select(*columns).collect()).batches(columns, rows)


class RenamedReader:
    """A file some of whose columns have other names in the schema: read under these."""

    def __init__(self, reader: Reader, rename: Mapping[str, str], site: str) -> None:
        self.reader, self._there, self._site = reader, dict(rename), site
        self.what, self.advice, self.text = reader.what, reader.advice, reader.text

    @property
    def notation(self) -> Notation | None:
        return self.reader.notation

    def names(self) -> list[str]:
        here, known = {there: name for name, there in self._there.items()}, self.reader.names()
        for there, name in here.items():
            if known and there not in known:
                raise faults.not_renamed(self._site, there)
            if name in known and name not in here:
                raise faults.renamed_twice(self._site, name)
        return [here.get(name, name) for name in known]

    def rows(self) -> int:
        return self.reader.rows()

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        there = [self._there.get(name, name) for name in columns]
        back = dict(zip(there, columns, strict=True))
        return (batch.rename(back) for batch in self.reader.batches(there, rows))


def text_scan(paths: Sequence[str], separator: str, columns: Sequence[str] | None) -> pl.LazyFrame:
    """Scan text files with every cell as text.

    Types are not guessed from the first lines: a cell that does not fit is then found at its row.
    """
    return pl.scan_csv(
        list(paths),
        glob="://" in paths[0],
        separator=separator,
        has_header=columns is None,
        new_columns=None if columns is None else list(columns),
        with_column_names=trimmed if columns is None else None,
        infer_schema=False,
    )


def ipc_scan(paths: Sequence[str]) -> pl.LazyFrame:
    """Scan files of Arrow's IPC format, which Feather is too; one in its streaming format is loaded."""
    frames = []
    for path in paths:
        with open(path, "rb") as file:
            whole = file.read(len(_IPC)) == _IPC
        frames.append(pl.scan_ipc(path, glob=False) if whole else pl.read_ipc_stream(path).lazy())
    return pl.concat(frames) if len(frames) > 1 else frames[0]


def trimmed(names: list[str]) -> list[str]:
    """Return the names of a header without the space around them, unless two would be the same."""
    plain = [name.strip() for name in names]
    return plain if len(set(plain)) == len(plain) else names


def from_values(name: str, values: list[Any]) -> pl.Series:
    """Return Python values as a column; as objects, to be looked at one by one, if their types differ.

    Claim. What a value is depends on that value alone.
    Reason. polars would make doubles of whole numbers that stand among fractions, and one of two above 2^53;
    1 of True among numbers; moments of a time zone out of those that have none; and decimals with as many
    digits after the point as any one has, or nulls where none are left before it.
    Tested in tests/unit/blocks/test_id_texts.py.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int, float} and all(type(value) is not int or abs(value) <= _EXACT for value in values):
        return pl.Series(name, values, dtype=pl.Float64)
    if _alike(kinds, values):
        try:
            return pl.Series(name, values, strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            pass
    return pl.Series(name, values, dtype=pl.Object)


def _alike(kinds: set[type], values: list[Any]) -> bool:
    """Return whether a column of one type holds values of these types as they are."""
    if kinds == {datetime}:
        return len({value.tzinfo is None for value in values if value is not None}) == 1
    return len(kinds) <= 1 and not kinds & {Decimal}


def _to_polars(frame: nw.DataFrame[Any]) -> pl.DataFrame:
    if frame.implementation.is_polars():
        native: pl.DataFrame = frame.to_native()
        return native
    if frame.implementation.is_pyarrow():
        return pl.DataFrame(frame.to_native())
    return pl.DataFrame([_column(name, frame[name].to_native()) for name in frame.columns])


def _column(name: str, values: Any) -> pl.Series:
    """Return a pandas column as a polars one; Arrow carries it if it is there and can.

    Python objects do not go through Arrow: some mixtures of them end the process there.
    """
    kind = getattr(values.dtype, "kind", "O")
    if kind in "biuf" and type(values.dtype).__module__.startswith("numpy"):
        return pl.Series(name, values.to_numpy())
    if str(values.dtype) != "object":
        try:
            return pl.Series(name, pl.from_pandas(values))
        except Exception:
            pass
    try:
        missing = values.isna()
    except Exception:  # at a signaling NaN
        missing = [is_missing(value) for value in values]
    return from_values(name, [None if absent else v for v, absent in zip(values, missing, strict=True)])
