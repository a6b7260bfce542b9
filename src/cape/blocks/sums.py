"""The sums of a block over parts of a table: integers, whichever parts the rows come in.

Claim. Results are the true integer sums: the same multiset of rows gives the same bits.
Reason. A part has at most 8192 rows of whole steps k with |k| <= 2^20. Its float64 sums of k, and of k^2
<= 2^40, have all partial sums at most 2^53 in magnitude, where float64 holds every integer: no addition
rounds, in whatever order numpy or BLAS adds. Grouped sums and counts are added as int64 outright, Gram
matrices by `cape.noise.exact_gram`; `tensors`, `newton` and `nearest` have reasons of their own. Parts are
added as int64, which is associative, and squares in two halves (`Total`): a total that passes 2^63 is
refused, or held there.
Tested in tests/blocks/test_exact.py against Python integers, and under permutations and batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.bins import Bins
from cape.blocks.block import (
    T_BITS,
    Axis,
    Block,
    Counts,
    Custom,
    Gradient,
    Gram,
    Held,
    Moments,
    Nearest,
    Newton,
    Tensors,
)
from cape.blocks.clip import LARGEST_SIZE, clip_rows
from cape.blocks.nearest import NearestSums
from cape.blocks.newton import NewtonSums
from cape.blocks.parts import Part, Summer, Total
from cape.blocks.sampling import sample
from cape.blocks.steps import ONE
from cape.blocks.tensors import TensorSums
from cape.data.schema import Category, Number, Schema
from cape.errors import DataError, InvalidInput
from cape.noise import SecureStream, exact_gram

__all__ = ["columns_of", "summer"]

Int64 = NDArray[np.int64]


def summer(
    site: str, schema: Schema, block: Block, stream: SecureStream | None = None, *, hold: bool = False
) -> Summer:
    """Return what adds up this block; samples are drawn from the stream.

    `hold` says what becomes of a total beyond 64 bits: see `Total`.
    """
    if isinstance(block, Moments):
        return _Moments(schema, block, hold) if block.by is None else _GroupedMoments(schema, block, hold)
    if isinstance(block, Gram):
        return _Gram(schema, block, hold)
    if isinstance(block, Counts):
        return _Counts(schema, block)
    if isinstance(block, Tensors):
        return TensorSums(schema, block, hold=hold)
    if isinstance(block, Newton):
        return NewtonSums(schema, block, hold=hold)
    if isinstance(block, Nearest):
        return NearestSums(schema, block)
    assert isinstance(block, Custom)  # a Gradient is added up over vectors in memory: see `kept`
    return _Custom(site, schema, block, stream)


def columns_of(block: Block) -> tuple[str, ...]:
    """Return the columns that a block reads."""
    if isinstance(block, Counts):
        return tuple(axis.column for axis in block.axes)
    if isinstance(block, Moments) and block.by is not None:
        return (*block.columns, block.by)
    if isinstance(block, (Tensors, Newton, Nearest, Gradient)):
        return block.design.columns
    assert not isinstance(block, Held)  # no table is asked for those
    return block.columns


class _Moments:
    def __init__(self, schema: Schema, block: Moments, hold: bool) -> None:
        self._columns = block.columns
        self._sums = [Total(array.shape, hold=hold) for array in block.arrays(schema)]

    def add(self, part: Part) -> None:
        for i, name in enumerate(self._columns):
            steps, count = part.steps(name), part.rows
            first = float(np.add.reduce(steps))
            if first != first:  # a cell is missing: only then is it worth looking which
                missing = np.isnan(steps)
                count -= int(np.count_nonzero(missing))
                steps = np.where(missing, 0.0, steps)
                first = float(np.add.reduce(steps))
            self._sums[0].add(count, i)
            self._sums[1].add(int(first), i)
            if len(self._sums) == 3:
                self._sums[2].add(int(np.dot(steps, steps)), i)

    def result(self) -> tuple[Int64, ...]:
        return tuple(total.result() for total in self._sums)


class _GroupedMoments:
    def __init__(self, schema: Schema, block: Moments, hold: bool) -> None:
        assert block.by is not None
        self._columns, self._by = block.columns, block.by
        self._shape = block.arrays(schema)[0].shape
        # one row per column and one cell more, for the rows that miss their group
        self._sums = [
            Total((len(block.columns), self._shape[0] + 1), hold=hold) for _ in block.arrays(schema)
        ]

    def add(self, part: Part) -> None:
        groups = part.codes(self._by)  # -1, for missing, is the cell at the end
        for i, name in enumerate(self._columns):
            steps, there = part.steps(name), groups
            missing = np.isnan(steps)
            if missing.any():
                steps, there = steps[~missing], groups[~missing]
            whole = steps.astype(np.int64)
            powers = (np.ones_like(whole), whole, whole * whole)
            for total, values in zip(self._sums, powers, strict=False):
                sums = np.zeros(total.shape[1], np.int64)
                np.add.at(sums, there, values)
                total.add(sums, i)

    def result(self) -> tuple[Int64, ...]:
        return tuple(np.ascontiguousarray(total.result()[:, :-1].T) for total in self._sums)


class _Gram:
    def __init__(self, schema: Schema, block: Gram, hold: bool) -> None:
        self._schema, self._block = schema, block
        self._width = block.width(schema)
        self._count = np.zeros(1, np.int64)
        self._first = np.zeros(self._width, np.int64)
        self._second = Total((self._width, self._width), hold=hold)

    def add(self, part: Part) -> None:
        matrix = np.empty((part.rows, self._width))
        complete = np.ones(part.rows, bool)
        place = 0
        for name in self._block.columns:
            column = self._schema[name]
            if isinstance(column, Category):
                codes = part.codes(name)
                complete &= codes >= 0
                for code in range(1, len(column.values)):
                    matrix[:, place] = codes == code
                    place += 1
            else:
                np.multiply(part.steps(name), 1 / ONE, out=matrix[:, place])
                complete &= ~np.isnan(matrix[:, place])
                place += 1
        gram = exact_gram(matrix if complete.all() else matrix[complete], bits=T_BITS)
        self._count += gram.rows
        self._first += gram.x
        self._second.add(gram.xx)

    def result(self) -> tuple[Int64, ...]:
        above, second = np.triu_indices(self._width, 1), self._second.result()
        return self._count, self._first, np.diagonal(second).copy(), second[above]


class _Counts:
    def __init__(self, schema: Schema, block: Counts) -> None:
        (array,) = block.arrays(schema)
        self._axes = [(axis, None if axis.edges is None else Bins.of(axis.edges)) for axis in block.axes]
        self._shape = array.shape
        self._cells = np.zeros(array.size, np.int64)

    def add(self, part: Part) -> None:
        cell = np.zeros(part.rows, np.int64)
        missing = np.zeros(part.rows, bool)
        for (axis, bins), size in zip(self._axes, self._shape, strict=True):
            place = _places(part, axis, bins)
            missing |= place < 0
            cell = cell * size + place
        np.add.at(self._cells, cell[~missing] if missing.any() else cell, 1)

    def result(self) -> tuple[Int64, ...]:
        return (self._cells.reshape(self._shape),)


def _places(part: Part, axis: Axis, bins: Bins | None) -> Int64:
    return part.codes(axis.column) if bins is None else bins.find(part.numbers(axis.column))


class _Custom:
    def __init__(self, site: str, schema: Schema, block: Custom, stream: SecureStream | None) -> None:
        (array,) = block.arrays(schema)
        if array.size > LARGEST_SIZE:
            raise InvalidInput(f"size must be at most {LARGEST_SIZE}, not {array.size}")
        self._site, self._schema, self._block = site, schema, block
        self._sums = np.zeros(array.size, np.int64)
        self._tried = False
        self._stream = stream
        if block.rate < 1 and stream is None:
            raise InvalidInput("a sample of rows needs a stream to draw it from")

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
        if self._stream is not None and self._block.rate < 1:
            rows = rows[sample(self._stream, len(rows), self._block.rate)]
        self._sums += clip_rows(rows, self._block.bound).sum(axis=0)

    def _require_row_by_row(self, batch: dict[str, NDArray[Any]], rows: NDArray[np.float64]) -> None:
        """Try the function on single rows: what it gives for one may not depend on the others.

        Clipping bounds what one *row* adds; a function that mixes rows (x - x.mean()) has no such bound.
        This catches a mistake, not a site's enemy: whoever allows a function has to read it.
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

    def result(self) -> tuple[Int64, ...]:
        return (self._sums,)


def _apply(
    site: str, function: Callable[[dict[str, NDArray[Any]]], Any], batch: dict[str, NDArray[Any]]
) -> NDArray[np.float64]:
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
