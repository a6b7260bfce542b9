"""A table that is read in batches: columns checked and converted once, then added up part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import Block, Sums
from cape.blocks.design import Design
from cape.blocks.kept import Kept
from cape.blocks.made import Maker
from cape.blocks.parts import PART_ROWS, Part, Pass
from cape.blocks.rows import Converter
from cape.data import faults
from cape.data.cells import Lenient, Strict
from cape.data.readers import Reader
from cape.data.schema import Number, Schema
from cape.noise import SecureStream

__all__ = ["Batches"]

_BATCH_CELLS = 1 << 21  # 16 MB of float64


class Batches:
    """Computes blocks over a reader's batches, within the memory of a few batches."""

    def __init__(self, site: str, schema: Schema, reader: Reader, *, lenient: bool = False) -> None:
        self._site, self._schema, self._reader = site, schema, reader
        self._lenient = lenient
        self.unreadable: dict[str, int] = {}  # of every column, in the last pass that read it to its end

    def rows(self) -> int:
        return faults.guarded(self._site, self._reader.what, self._reader.advice, self._reader.rows)

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[Sums]:
        """Return the sums of every block, from one pass; samples are drawn from the stream."""
        run = Pass(self._site, self._schema, stream, self._lenient)
        summers = [block.summer(run) for block in blocks]
        for part in self._parts([name for block in blocks for name in block.reads]):
            for each in summers:
                each.add(part)
        return [each.result() for each in summers]

    def keep(self, design: Design, most_cells: int) -> Kept | None:
        """Return the vectors of all complete rows, or None if they might have too many cells."""
        rows = self.rows()
        if rows * design.width(self._schema) > most_cells:
            return None
        kept = Kept(Pass(self._site, self._schema, hold=self._lenient), design, rows)
        for part in self._parts(design.columns):
            kept.add(part)
        return kept

    def clamped(self) -> dict[str, int]:
        stated = self._schema.stated
        names = self._schema.sources(self._schema)
        bounds = {name: column for name in names if isinstance(column := stated[name], Number)}
        counts = dict.fromkeys(bounds, 0)
        for columns, _ in self._read(list(bounds)):
            for name, column in bounds.items():
                outside = (columns[name] < column.low) | (columns[name] > column.high)
                counts[name] += int(np.count_nonzero(outside))
        return counts

    def check(self) -> None:
        """Read every cell of the schema's columns."""
        for _ in self._read(self._schema.sources(self._schema)):
            pass

    def _parts(self, wanted: Sequence[str]) -> Iterator[Part]:
        converter = cache(partial(Converter, self._schema))  # their buffers serve every part
        for columns, rows in self._made(wanted):
            for start in range(0, rows, PART_ROWS):
                stop = min(start + PART_ROWS, rows)
                part = {name: values[start:stop] for name, values in columns.items()}
                yield Part(self._schema, part, stop - start, converter)

    def _made(self, wanted: Sequence[str]) -> Iterator[tuple[dict[str, NDArray[Any]], int]]:
        """Yield the wanted columns of the rows that count, with their number."""
        maker = Maker(self._site, self._schema, wanted)
        for columns, rows in self._read(maker.reads):
            yield maker.make(columns, rows)

    def _read(self, wanted: Sequence[str]) -> Iterator[tuple[dict[str, NDArray[Any]], int]]:
        """Yield the wanted columns, converted, with their number of rows."""
        reader, site = self._reader, self._site
        names = faults.guarded(site, reader.what, reader.advice, reader.names)
        if self._lenient and not names:
            return  # an empty file: a table without rows, like one that has only a header
        for name in wanted:
            if name not in names:
                if reader.text and not any(column in names for column in self._schema):
                    raise faults.no_header(site, name)  # what stands there may be cells: show none of it
                if reader.text:
                    raise faults.not_in_header(site, name, names)
                raise faults.no_column(site, name, names)
            if names.count(name) > 1 or (
                reader.text and f"{name}_duplicated_0" in names
            ):  # as polars renames
                raise faults.twice(site, name)
        unknown = reader.notation.unknown(names) if reader.notation else None
        if unknown is not None:
            raise faults.not_recoded(site, unknown)
        chosen = list(dict.fromkeys(wanted)) or names[:1]  # without a column there are no rows to count
        size = max(PART_ROWS, _BATCH_CELLS // max(1, len(chosen)) // PART_ROWS * PART_ROWS)
        batches = faults.guarded(site, reader.what, reader.advice, lambda: reader.batches(chosen, size))
        cells: Lenient | Strict = (Lenient if self._lenient else Strict)(site, self._schema, reader.notation)
        offset = 0
        while True:
            batch = faults.guarded(site, reader.what, reader.advice, lambda: next(batches, None))
            if batch is None:
                break
            yield (
                {name: cells.read(batch[name], offset) for name in dict.fromkeys(wanted)},
                batch.height,
            )
            offset += batch.height
        if isinstance(cells, Lenient):
            self.unreadable.update({name: cells.unreadable[name] for name in wanted})
