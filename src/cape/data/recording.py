"""A third reading of cells, beside `Strict` and `Lenient`: it records what does not fit, and goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.core.arrays import Flags
from cape.data.cells import Cells, Lenient, Strict
from cape.data.notation import Notation
from cape.data.schema import Column, Schema
from cape.data.surveyed import Spots

__all__ = ["SHOWN", "LenientRecording", "Recording", "StrictRecording", "Tally", "as_text"]

SHOWN = 10
"""How many places and cells of one trouble are kept."""

_DISTINCT = 1000  # cells that are told apart


class Tally:
    """Counts cells of one trouble, with the first places and the cells themselves."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[int] = []
        self._cells: Counter[str] = Counter()

    def add(self, flags: Flags, offset: int, cells: pl.Series | None = None) -> None:
        """Count the flagged rows of a batch that starts at row `offset`."""
        rows = np.flatnonzero(flags)
        if not rows.size:
            return
        self.count += rows.size
        self._rows += [offset + int(row) for row in rows[: SHOWN - len(self._rows)]]
        if cells is not None and len(self._cells) < _DISTINCT:
            chosen = cells.filter(pl.Series(flags))
            found = as_text(chosen).str.strip_chars().alias("cell").value_counts(sort=True).head(_DISTINCT)
            self._cells.update(dict(found.iter_rows()))

    def spots(self, place: Callable[[int], str]) -> Spots:
        """Return what was counted, with the first rows as `place` names them."""
        common = sorted(self._cells.items(), key=lambda each: (-each[1], each[0]))
        places = tuple(place(row) for row in self._rows)
        return Spots(self.count, places, dict(common[:SHOWN]), len(self._cells))

    @property
    def cells(self) -> list[str]:
        """All different cells."""
        return list(self._cells)


def as_text(cells: pl.Series) -> pl.Series:
    """Return cells of any type as texts."""
    if cells.dtype != pl.Object:
        try:
            return cells.cast(pl.String)
        except pl.exceptions.PolarsError:
            pass
    texts = [None if each is None else _printable(str(each)) for each in cells]
    return pl.Series(cells.name, texts, dtype=pl.String)


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()  # polars refuses a lone surrogate


class Recording(Cells):
    """A reading that records what does not fit, in the place of an error or a replacement."""

    def __init__(self, site: str, schema: Schema, notation: Notation | None) -> None:
        super().__init__(site, schema, notation)
        self.misfits = {name: Tally() for name in schema}
        self.gaps = {name: Tally() for name in schema}
        self._bad: Flags | None = None

    def recorded(self, series: pl.Series, offset: int, broken: Flags) -> tuple[NDArray[Any], Flags]:
        """Return the column as read, and the cells that are there but do not fit."""
        self._bad, self._broken = None, broken
        values = self.read(series, offset)
        return values, np.zeros(len(series), bool) if self._bad is None else self._bad

    def _judge(self, series: pl.Series, column: Column, unreadable: pl.Series, offset: int) -> None:
        self._bad = unreadable.to_numpy() & ~self._broken
        self.misfits[series.name].add(self._bad, offset, series)

    def _complete(self, name: str, values: NDArray[Any], missing: Flags, offset: int) -> NDArray[Any]:
        gaps = missing & ~self._broken
        self.gaps[name].add(gaps if self._bad is None else gaps & ~self._bad, offset)
        return values


class StrictRecording(Recording, Strict):
    """Reads as a run does."""


class LenientRecording(Recording, Lenient):
    """Reads as a site's daemon does."""
