"""Sums of a function that the user provides, each row clipped; see `clip` for why the bound holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.clip import LARGEST_SIZE, clip_rows, clip_sums
from cape.blocks.parts import Part, Pass
from cape.blocks.sampling import sample
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import DataError, InvalidInput
from cape.data.schema import Number, Schema

__all__ = ["Custom"]

_MOST_CELLS = 1 << 26  # 512 MB of int64


@dataclass(frozen=True)
class Custom(Block):
    """The sum over rows of any function of a row, clipped to an L2 norm of `bound`.

    `function` takes a batch, a dict of column name -> array (float64 within the schema's bounds, NaN for
    missing, or int64 codes of a category, -1 for missing), and returns an array (rows, size), or
    (rows,) if size is 1.
    One array, sums, in units of bound * 2^-T_BITS: each row is scaled down to the bound if it exceeds
    it, and rounded toward zero; a row that is not finite adds nothing.

    The bound holds for a function that treats each row by itself. That is tried on a few rows, which
    catches a mistake; a function made to leak can only be caught by reading it.
    """

    function: Callable[[dict[str, NDArray[Any]]], Floats]
    columns: tuple[str, ...]
    size: int
    bound: float
    rate: float = 1.0
    """The probability with which a row takes part, drawn in secret; 1 is every row."""
    by_person: bool = False
    """Whether what all rows of a person add up to is clipped to the bound, too."""

    brings_code: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return self.columns

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        for name in self.columns:
            schema[name]
        check.real("bound", self.bound, above=0.0)
        check.real("rate", self.rate, above=0.0, most=1.0)
        return (Array("sums", (check.integer("size", self.size, least=1),), T_BITS),)

    def summer(self, run: Pass) -> _Custom:
        return _Custom(self, run)


class _Custom:
    def __init__(self, block: Custom, run: Pass) -> None:
        (array,) = block.arrays(run.schema)
        if array.size > LARGEST_SIZE:
            raise InvalidInput(f"size must be at most {LARGEST_SIZE}, not {array.size}")
        if block.rate < 1 and run.stream is None:
            raise InvalidInput("a sample of rows needs a stream to draw it from")
        self._site, self._schema, self._stream, self._block = run.site, run.schema, run.stream, block
        self._sums = np.zeros(array.size, np.int64)
        self._persons = np.zeros((0, array.size), np.int64)  # what each person adds up to
        self._tried = False

    def add(self, part: Part) -> None:
        batch: dict[str, NDArray[Any]] = {
            name: part.numbers(name) if isinstance(self._schema[name], Number) else part.codes(name).copy()
            for name in self._block.columns
        }
        rows = _apply(self._site, self._block.function, batch)
        wanted = (part.rows, self._block.size)
        if rows.shape == (part.rows,) and self._block.size == 1:
            rows = rows[:, None]
        if rows.shape != wanted:
            raise DataError(
                self._site, f"the function must return one row of {wanted[1]} for each row of a batch"
            )
        if not self._tried and part.rows:
            self._require_row_by_row(batch, rows)
        # Not an error, which would tell of one row for sure: such a row adds nothing.
        rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
        if self._block.rate < 1:
            rows = rows[sample(self._stream, len(rows), self._block.rate)]
        clipped = clip_rows(rows, self._block.bound)
        if self._block.by_person:
            self._add_to_persons(clipped, part.persons)
        else:
            self._sums += clipped.sum(axis=0)

    def _add_to_persons(self, rows: Integers, persons: Integers | None) -> None:
        if persons is None:
            raise InvalidInput("a sum that is clipped by person needs a schema with persons of several rows")
        # Nothing is refused by how many persons there are: that is private where rows of some do not count.
        most = int(persons.max(initial=-1)) + 1
        if most > len(self._persons):
            more = np.zeros((max(most, 2 * len(self._persons)) - len(self._persons), rows.shape[1]), np.int64)
            self._persons = np.concatenate([self._persons, more])
        np.add.at(self._persons, persons, rows)

    def _require_row_by_row(self, batch: dict[str, NDArray[Any]], rows: Floats) -> None:
        """Try the function on single rows: what it gives for one may not depend on the others.

        Clipping bounds what one *row* adds; a function that mixes rows (x - x.mean()) has no such bound.
        This catches mistakes, not malice: anyone who approves a function must read it.
        """
        self._tried = True
        for i in {0, len(rows) // 2, len(rows) - 1}:
            alone = _apply(
                self._site, self._block.function, {name: c[i : i + 1] for name, c in batch.items()}
            )
            if alone.size != rows[i].size or not np.allclose(
                alone.reshape(-1), rows[i], rtol=1e-6, atol=1e-9 * self._block.bound, equal_nan=True
            ):
                raise DataError(
                    self._site,
                    "the function must treat each row by itself; here one row's result depends on others",
                )

    def result(self) -> Sums:
        return (self._sums + clip_sums(self._persons, T_BITS).sum(axis=0),)


def _apply(
    site: str, function: Callable[[dict[str, NDArray[Any]]], Any], batch: dict[str, NDArray[Any]]
) -> Floats:
    """Return what the function makes of a batch; of its failure, only the type and the line."""
    try:
        return np.asarray(function(batch), np.float64)
    except Exception as error:
        kind, trace = type(error).__name__, error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        line = trace.tb_lineno if trace is not None else 0
        file = trace.tb_frame.f_code.co_filename if trace is not None else ""
    raise DataError(site, f"the function raised {kind} ({file}, line {line})")
