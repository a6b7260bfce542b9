"""The vectors of a table's rows, kept in memory for whoever passes over them again and again.

What is kept is a function of the rows alone, so the sums are those of a pass over the table itself.
Tested in tests/blocks/test_kept.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import Block, Gradient
from cape.blocks.design import Design
from cape.blocks.gradient import Records, Workspace, clipped_sum
from cape.blocks.parts import PART_ROWS, Part
from cape.blocks.rows import PADDING, Vectors
from cape.blocks.sampling import sample
from cape.blocks.steps import ONE
from cape.blocks.sums import summer
from cape.data.schema import Category, Schema
from cape.errors import InvalidInput
from cape.noise import SecureStream

__all__ = ["Kept"]

Float64 = NDArray[np.float64]


class Kept:
    """Complete rows as x (rows, width) and y (rows,) or None, in whole steps of 2^-20."""

    def __init__(self, site: str, schema: Schema, design: Design, rows: int, *, hold: bool = False) -> None:
        self._site, self._schema, self.design = site, schema, design
        self._filled, self._hold = 0, hold
        self._x = np.empty((rows, design.width(schema)))
        self._y = None if design.target is None else np.empty(rows)
        self._records: tuple[Records, Workspace] | None = None

    @property
    def x(self) -> Float64:
        """The vectors; not to be written to."""
        return _unwritable(self._x[: self._filled])

    @property
    def y(self) -> Float64 | None:
        """The targets; not to be written to."""
        return None if self._y is None else _unwritable(self._y[: self._filled])

    def add(self, part: Part) -> None:
        """Take in a part of the table."""
        rows = part.vectors(self.design)
        start, self._filled = self._filled, self._filled + rows.count
        self._x[start : self._filled] = rows.x.T
        if self._y is not None:
            self._y[start : self._filled] = rows.y

    def gradient(self, block: Gradient, stream: SecureStream | None) -> tuple[NDArray[np.int64], ...]:
        """Return the clipped gradients, over a sample drawn from the stream if the block says so."""
        if self._records is None or self._records[0].network != block.network:
            assert self._y is not None
            y = self._y if isinstance(self._schema[self.design.columns[-1]], Category) else self._y / ONE
            records = Records(block.network, self._x[: self._filled] / ONE, y[: self._filled])
            self._records = records, Workspace(block.network)
        records, workspace = self._records
        rows = None
        if block.rate < 1:
            if stream is None:
                raise InvalidInput("a sample of rows needs a stream to draw it from")
            rows = sample(stream, len(records), block.rate)
        found = clipped_sum(
            block.network,
            block.parameters,
            records,
            block.clip,
            rows=rows,
            loss_bound=block.loss_bound,
            workspace=workspace,
        )
        if found.loss is None or block.loss_bound is None:
            return (found.sums,)
        loss = math.floor(found.loss / block.loss_bound)
        return found.sums, np.array([found.below]), np.array([loss])

    def sums(self, blocks: Sequence[Block]) -> list[tuple[NDArray[np.int64], ...]]:
        """Return the sums of blocks over this design."""
        summers = [summer(self._site, self._schema, block, hold=self._hold) for block in blocks]
        width = self._x.shape[1]
        space = np.empty((width + (self._y is not None), PART_ROWS + PADDING))
        for start in range(0, self._filled, PART_ROWS):
            stop = min(start + PART_ROWS, self._filled)
            part = space[:, : stop - start]
            part[:width] = self._x[start:stop].T
            if self._y is not None:
                part[width] = self._y[start:stop]
            for each in summers:
                each.add(Part.kept(self._schema, self.design, Vectors(part, width)))
        return [each.result() for each in summers]


def _unwritable(array: Float64) -> Float64:
    array.flags.writeable = False
    return array
