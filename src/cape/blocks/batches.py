"""A table that is read in batches: columns checked and converted once, then added up part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, partial
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.blocks.block import Block, Sums
from cape.blocks.design import Design
from cape.blocks.kept import Kept
from cape.blocks.made import Maker
from cape.blocks.parts import PART_ROWS, Part, Pass
from cape.blocks.persons import Choice, Chosen, Digest, as_texts, count_persons
from cape.blocks.rows import Converter
from cape.core.arrays import Integers
from cape.data import faults
from cape.data.cells import Lenient, Strict
from cape.data.databases import SqlReader
from cape.data.person import Person
from cape.data.readers import Reader
from cape.data.schema import Number, Schema
from cape.noise import SecureStream

__all__ = ["Batches"]

_BATCH_CELLS = 1 << 21  # 16 MB of float64
Found = TypeVar("Found")
Made = tuple[dict[str, NDArray[Any]], int, Integers | None]


class _Moved(Exception):
    """Rows are not where a choice among a person's found them."""


class Batches:
    """Computes blocks over a reader's batches, within the memory of a few batches.

    `key` is a secret by which rows of a person are chosen.
    """

    def __init__(
        self, site: str, schema: Schema, reader: Reader, *, lenient: bool = False, key: bytes = b""
    ) -> None:
        self._site, self._schema, self._reader = site, schema, reader
        self._lenient = lenient
        self._key = sha256(key + schema.key.encode()).digest()
        self._apart = False  # whether it is known of each row whose it is
        self.unreadable: dict[str, int] = {}  # of every column, in the last pass that read it to its end

    def rows(self) -> int:
        """Return the number of rows, or of persons, before any `where`."""
        return self._held if self._schema.person is None else self._persons

    @property
    def _held(self) -> int:
        return faults.guarded(self._site, self._reader.what, self._reader.advice, self._reader.rows)

    def pushes(self, blocks: Sequence[Block]) -> bool:
        """Return whether a database computes these blocks: here none does."""
        return False

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[Sums]:
        """Return the sums of every block, from one pass; samples are drawn from the stream."""
        self._tell_apart(any(getattr(block, "by_person", False) for block in blocks))
        return self._settled(lambda: self._sums(blocks, stream))

    def _sums(self, blocks: Sequence[Block], stream: SecureStream | None) -> list[Sums]:
        run = Pass(self._site, self._schema, stream)
        summers = [block.summer(run) for block in blocks]
        for part in self._parts([name for block in blocks for name in block.reads]):
            for each in summers:
                each.add(part)
        return [each.result() for each in summers]

    def keep(self, design: Design, most_cells: int) -> Kept | None:
        """Return the vectors of all complete rows, or None if they might have too many cells."""
        self._tell_apart(True)
        return self._settled(lambda: self._keep(design, most_cells))

    def _keep(self, design: Design, most_cells: int) -> Kept | None:
        person = self._schema.person
        # Whether they fit may show: it must not depend on how many rows of persons meet a condition.
        most = self._held if person is None else self._persons * person.rows
        if most * design.width(self._schema) > most_cells:
            return None
        rows = self._held if person is None else self._chosen.count
        run = Pass(self._site, self._schema)
        kept = Kept(run, design, rows, persons=self._apart)
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
        """Read every cell of the schema's columns, and of the id of persons."""
        ids = () if self._schema.person is None else (self._schema.person.id,)
        for _ in self._batches(self._schema.sources(self._schema), *ids):
            pass

    def _parts(self, wanted: Sequence[str]) -> Iterator[Part]:
        converter = cache(partial(Converter, self._schema))  # their buffers serve every part
        for columns, rows, persons in self._made(wanted):
            for start in range(0, rows, PART_ROWS):
                stop = min(start + PART_ROWS, rows)
                part = {name: values[start:stop] for name, values in columns.items()}
                people = None if persons is None else persons[start:stop]
                yield Part(self._schema, part, stop - start, converter, people)

    def _made(self, wanted: Sequence[str]) -> Iterator[Made]:
        """Yield the wanted columns of the rows that count, with their number and whose they are."""
        maker = Maker(self._site, self._schema, wanted)
        if self._schema.person is not None:
            yield from self._made_of_persons(maker)
            return
        for columns, rows in self._read(maker.reads):
            yield *maker.make(columns, rows), None

    def _made_of_persons(self, maker: Maker) -> Iterator[Made]:
        """Yield the same where rows are a person's; raise if they are not where the choice found them."""
        chosen, digest, one = self._chosen, Digest(self._key), self._person.row is not None
        for columns, ids in self._read_ids(maker.reads):
            columns |= maker.held_out(ids)
            start, rows = digest.rows, len(ids)
            digest.add(ids)
            flags = chosen.flags(start, rows)
            if one:
                columns = {name: cells[flags] for name, cells in columns.items()}
                yield *maker.make(columns | chosen.cells(start, rows), int(np.count_nonzero(flags))), None
            else:
                people = chosen.people(start, rows) if self._apart else None
                yield *maker.make(columns, rows, flags), people
        if digest != chosen.digest:
            raise _Moved

    def _tell_apart(self, wanted: bool) -> None:
        """See to it that a choice knows whose each row is, where that is wanted and several may be one's."""
        person = self._schema.person
        if wanted and person is not None and person.rows > 1 and not self._apart:
            self._apart = True
            self.__dict__.pop("_chosen", None)

    def _settled(self, work: Callable[[], Found]) -> Found:
        """Return what a pass finds; if rows are not where a choice found them, choose again, once."""
        for _ in range(2):
            try:
                return work()
            except _Moved:  # the file was changed since, or its rows have no order
                for known in ("_chosen", "_persons"):
                    self.__dict__.pop(known, None)
        raise faults.moved(self._site)

    @property
    def _person(self) -> Person:
        assert self._schema.person is not None
        return self._schema.person

    @cached_property
    def _chosen(self) -> Chosen:
        """Which rows of each person count."""
        choice = Choice(self._schema, self._key, apart=self._apart)
        maker = Maker(self._site, self._schema, self._person.reads)
        among = self._person.row is None  # else a person's row is made before `where` is looked at
        for columns, ids in self._read_ids(maker.reads if among else self._person.reads):
            seen = columns | maker.held_out(ids)
            choice.add(ids, columns, maker.matches(seen, len(ids)) if among else None)
        return choice.result()

    @cached_property
    def _persons(self) -> int:
        return count_persons(ids for _, ids in self._read_ids(()))

    def _read_ids(self, wanted: Sequence[str]) -> Iterator[tuple[dict[str, NDArray[Any]], pl.Series]]:
        """Yield the wanted columns, converted, with the id of each row's person."""
        notation = self._reader.notation
        for columns, batch in self._batches(wanted, self._person.id):
            ids = batch[self._person.id]
            yield columns, as_texts(ids if notation is None else notation.ids(ids))

    def _read(self, wanted: Sequence[str]) -> Iterator[tuple[dict[str, NDArray[Any]], int]]:
        """Yield the wanted columns, converted, with their number of rows."""
        for columns, batch in self._batches(wanted):
            yield columns, batch.height

    def _batches(
        self, wanted: Sequence[str], *beside: str
    ) -> Iterator[tuple[dict[str, NDArray[Any]], pl.DataFrame]]:
        """Yield the wanted columns, converted, with the batch itself, which has columns beside them."""
        reader, site = self._reader, self._site
        names = faults.guarded(site, reader.what, reader.advice, reader.names)
        if self._lenient and not names:
            return  # an empty file: a table without rows, like one that has only a header
        for name in (*wanted, *beside):
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
        wanted_cells = dict.fromkeys([*wanted, *beside])
        chosen = list(wanted_cells) or names[:1]  # without a column there are no rows to count
        size = max(PART_ROWS, _BATCH_CELLS // max(1, len(chosen)) // PART_ROWS * PART_ROWS)
        cells: Lenient | Strict = (Lenient if self._lenient else Strict)(site, self._schema, reader.notation)
        offset = 0
        with faults.guarded_batches(
            site, reader.what, reader.advice, lambda: _batches(reader, chosen, size, beside)
        ) as batches:
            for batch in batches:
                yield (
                    {name: cells.read(batch[name], offset) for name in dict.fromkeys(wanted)},
                    batch,
                )
                offset += batch.height
        if isinstance(cells, Lenient):
            self.unreadable.update({name: cells.unreadable[name] for name in wanted})


def _batches(reader: Reader, columns: Sequence[str], rows: int, ids: Sequence[str]) -> Iterator[pl.DataFrame]:
    if isinstance(reader, SqlReader):
        return reader.batches(columns, rows, ids)
    return reader.batches(columns, rows)
