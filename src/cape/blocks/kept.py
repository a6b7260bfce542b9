"""The vectors of a table's rows, kept in memory for repeated passes over them.

What is kept is a function of the rows alone, so the sums are those of a pass over the table itself.
Tested in tests/unit/blocks/test_kept.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from cape.blocks.block import Block, Sums
from cape.blocks.design import Design
from cape.blocks.parts import PART_ROWS, Part, Pass
from cape.blocks.rows import PADDING, Vectors
from cape.core.arrays import Floats, Integers
from cape.noise import SecureStream

__all__ = ["Kept"]

Made = TypeVar("Made")


class Kept:
    """Complete rows as x (rows, width) and y (rows,) or None, in whole steps of 2^-20, and whose they are."""

    def __init__(self, run: Pass, design: Design, rows: int, *, persons: bool = False) -> None:
        self._run, self.schema, self.design = run, run.schema, design
        self._filled = 0
        self._x = np.empty((rows, design.width(run.schema)))
        self._y = None if design.target is None else np.empty(rows)
        self._beside = np.empty((len(design.beside), rows))
        self._persons = np.empty(rows, np.int64) if persons else None
        self._made: tuple[Hashable, object] | None = None

    @property
    def x(self) -> Floats:
        """The vectors; not to be written to."""
        return _unwritable(self._x[: self._filled])

    @property
    def y(self) -> Floats | None:
        """The targets; not to be written to."""
        return None if self._y is None else _unwritable(self._y[: self._filled])

    @property
    def persons(self) -> Integers | None:
        """Whose each row is, where several may be one person's."""
        return None if self._persons is None else self._persons[: self._filled]

    def add(self, part: Part) -> None:
        """Take in a part of the table."""
        rows = part.vectors(self.design)
        start, self._filled = self._filled, self._filled + rows.count
        self._x[start : self._filled] = rows.x.T
        people = part.persons_of(rows.complete)
        if self._persons is not None and people is not None:
            self._persons[start : self._filled] = people
        if self._y is not None:
            self._y[start : self._filled] = rows.y
            self._beside[:, start : self._filled] = rows.beside

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what a block makes of the vectors for every step: kept until another key is asked for."""
        if self._made is None or self._made[0] != key:
            self._made = key, make()
        return self._made[1]  # type: ignore[return-value]

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[Sums]:
        """Return the sums of blocks over this design; samples are drawn from the stream."""
        run = replace(self._run, stream=stream)
        summers = [block.summer(run) for block in blocks]
        width = self._x.shape[1]
        height = width + (self._y is not None) + len(self._beside)
        space = np.empty((height, PART_ROWS + PADDING))
        for start in range(0, self._filled, PART_ROWS):
            stop = min(start + PART_ROWS, self._filled)
            part = space[:, : stop - start]
            part[:width] = self._x[start:stop].T
            if self._y is not None:
                part[width] = self._y[start:stop]
                part[width + 1 :] = self._beside[:, start:stop]
            people = None if self._persons is None else self._persons[start:stop]
            for each in summers:
                each.add(Part.kept(self.schema, self.design, Vectors(part, width), people))
        return [each.result() for each in summers]


def _unwritable(array: Floats) -> Floats:
    array.flags.writeable = False
    return array
