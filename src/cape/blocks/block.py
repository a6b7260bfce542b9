"""What a site can be asked to add up over its rows: sums of exact integers, each kind in a module of its own.

A numeric cell x enters as its scaled value t = (clamp(x) - middle) / half, which lies in [-1, 1], rounded
toward zero to a multiple of 2^-T_BITS, so that |t| <= 1 still holds. A missing cell (null, NaN) contributes
nothing, to no sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cape.blocks.design import Design
from cape.blocks.parts import Part, Pass, Summer
from cape.blocks.steps import T_BITS
from cape.core.arrays import Floats, Integers
from cape.data.schema import Schema
from cape.noise import SecureStream

if TYPE_CHECKING:
    from cape.blocks.kept import Kept
    from cape.blocks.sql import Ask, Several, SqlColumns

__all__ = ["T_BITS", "Array", "Block", "Sums", "VectorBlock"]

Sums = tuple[Integers, ...]
"""A block's sums, in the shapes of its arrays."""


@dataclass(frozen=True)
class Array:
    """One array of a block's sums: its shape, and the unit 2^-bits that its integers count."""

    name: str
    shape: tuple[int, ...]
    bits: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Block(ABC):
    """A kind of sum over rows: plain data (a frozen dataclass), and all that is to be known about it.

    A block must say
      - `reads`: every column that its sums depend on. A site's policy is checked against it.
      - `arrays`: the arrays that its sums come in. It raises `InvalidInput` if schema and block do not fit.
      - `added`: what a part of a table (at most 8192 rows) adds to each array; or `summer`, if the sums over
        parts need a state, such as a buffer or a table of counts that is too large to make for every part.

    It may say
      - `pushed`: how a database computes the same sums (`cape.blocks.sql`). Otherwise its rows are read.
      - `typical`: the sums over typical rows (`cape.blocks.typical`), for plans. Otherwise plans
        take them to be 0.
      - `ways`, if it counts rows in the cells of tables: a site's policy may limit it.
      - `rate`, if it adds up a sample of the rows, which it draws from the stream of the pass.
      - `brings_code`, if it runs a function that came with it: a site never runs one for others.

    A sum over the vectors that a `Design` makes of rows is a `VectorBlock`. If it needs all vectors together,
    it is `at_once`, and says `over` instead of `added`.

    The integers may depend on nothing but the set of rows: not on their order, on the parts they come in, or
    on the engine. A module that adds other than by int64, or by float64 below 2^53, says why that is exact.
    How far one row moves the sums is for the analysis to say (`cape.engine.query.Query`).
    """

    brings_code: ClassVar[bool] = False
    """Whether it runs a function that came with it."""

    at_once: ClassVar[bool] = False
    """Whether it is added up by `over`, from all of its vectors at once."""

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """Every column that the sums depend on."""

    @abstractmethod
    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays that the sums come in, or raise `InvalidInput` if it does not fit the schema."""

    @property
    def ways(self) -> int:
        """How many columns the largest table of counts in its sums has; 0 if it counts no cells."""
        return 0

    @property
    def rate(self) -> float:
        """The probability with which a row takes part, drawn in secret; 1 is every row."""
        return 1.0

    @property
    def vectors(self) -> Design | None:
        """The design whose vectors it adds up, if it reads nothing else."""
        return None

    def added(self, part: Part) -> Sums:
        """Return what a part of the table adds to each array."""
        raise NotImplementedError(f"{type(self).__name__} must say what a part adds, or make a summer")

    def summer(self, run: Pass) -> Summer:
        """Return what adds up this block over the parts of one pass."""
        return _PartByPart(self, run)

    def over(self, kept: Kept, stream: SecureStream | None) -> Sums:
        """Return the sums over all vectors of a table; a sample is drawn from the stream."""
        raise NotImplementedError(f"{type(self).__name__} must say how it is added up at once")

    def pushed(self, columns: SqlColumns) -> Ask | Several | None:
        """Return what a database is asked to add up; None if the rows are read instead."""
        return None

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """Return the sums over typical rows, in units of 1, with no cell missing."""
        return tuple(np.zeros(array.shape) for array in self.arrays(schema))


@dataclass(frozen=True, eq=False)
class VectorBlock(Block):
    """A sum over the vectors and targets of complete rows, as a design makes them.

    A table keeps these vectors in memory when they are asked for a second time.
    """

    design: Design

    @property
    def reads(self) -> tuple[str, ...]:
        return self.design.columns

    @property
    def vectors(self) -> Design:
        return self.design


class _PartByPart:
    def __init__(self, block: Block, run: Pass) -> None:
        self._block = block
        self._totals = [run.total(*array.shape) for array in block.arrays(run.schema)]

    def add(self, part: Part) -> None:
        for total, found in zip(self._totals, self._block.added(part), strict=True):
            total.add(found)

    def result(self) -> Sums:
        return tuple(total.result() for total in self._totals)
