"""A table that stays where it is: clamped, gridded sums as expressions, so that only sums come back.

Claim. A lazy table (DuckDB, Dask, Spark, Ibis) gives the same integers as the same rows in memory.
Reason. The formulas of `steps`, `bins` and `categories` are the same float64 operations. Every number that
the engine adds is an integer of magnitude at most 2^20 (a product p of two steps is added as floor(p / 2^20)
and what is left of it), so all sums stay below 2^53, and exact in float64, up to 2^33 rows: no engine's
rounding, order or integer type matters. Python integers put the halves together.
Tested in tests/blocks/test_backends.py.

Limits. Rows have no numbers here, so errors name the column only. Uneven edges become a tree of
comparisons, up to `MOST_EDGES`. A `Custom` function cannot travel to an
engine, and rows cannot be made into vectors there (`Tensors`, `Newton`, `Nearest`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from cape.blocks.bins import Bins
from cape.blocks.block import Block, Counts, Custom, Gram, Moments, Nearest, Newton, Tensors
from cape.blocks.expressions import Columns, place
from cape.blocks.steps import ONE
from cape.blocks.sums import columns_of
from cape.data import faults
from cape.data.schema import Category, Number, Schema
from cape.errors import DataError, OverflowRisk
from cape.noise import SecureStream

__all__ = ["MOST_EDGES", "Pushdown"]

MOST_EDGES = 1024
_MOST_ROWS = 1 << 33
_WHAT, _ADVICE = "the lazy table", "check that it can be computed on its own"

Int64 = NDArray[np.int64]
Row = dict[str, Any]


class Pushdown:
    """Computes blocks inside the engine that holds the table."""

    def __init__(self, site: str, schema: Schema, frame: nw.LazyFrame[Any]) -> None:
        self._site, self._schema, self._frame = site, schema, frame

    def rows(self) -> int:
        """Return the number of rows."""
        (row,) = self._collect(self._frame.select(nw.len().alias("rows")))
        rows = int(row["rows"])
        if rows > _MOST_ROWS:
            raise OverflowRisk("a lazy table may have at most 2^33 rows; divide it into several sites")
        return rows

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[tuple[Int64, ...]]:
        """Return the sums of every block: a query that checks the cells, then one per block.

        No block that can be asked here takes a sample: the stream is not used.
        """
        for block in blocks:
            self._possible(block)
        columns = self._checked([name for block in blocks for name in columns_of(block)])
        return [self._block(block, columns) for block in blocks]

    def clamped(self) -> dict[str, int]:
        """Return how many cells of each numeric column lie outside its bounds."""
        bounds = {name: column for name, column in self._schema.items() if isinstance(column, Number)}
        columns = Columns(self._site, self._schema, self._types(list(bounds)))
        outside = [
            ((columns.raw(name) < column.low) | (columns.raw(name) > column.high)).alias(f"o{i}")
            for i, (name, column) in enumerate(bounds.items())
        ]
        flags = [nw.col(f"o{i}").cast(nw.Int64()).sum() for i in range(len(outside))]
        (row,) = self._collect(self._frame.select(*outside).select(*flags))
        return {name: int(row[f"o{i}"] or 0) for i, name in enumerate(bounds)}

    def check(self) -> None:
        """Check every cell of the schema's columns."""
        self._checked(list(self._schema))

    def _possible(self, block: Block) -> None:
        if isinstance(block, Custom):
            raise faults.not_lazy(self._site, "a function")
        if isinstance(block, (Tensors, Newton, Nearest)):
            raise faults.not_lazy(self._site, "sums over vectors of whole rows")
        for axis in block.axes if isinstance(block, Counts) else ():
            if axis.edges is not None and len(axis.edges) > MOST_EDGES and Bins.of(axis.edges).width is None:
                raise DataError(
                    self._site,
                    f"column {axis.column!r} has more than {MOST_EDGES} uneven edges, too many for a lazy "
                    "table; use evenly spaced ones (numpy.linspace), or give this site its rows as Parquet",
                )

    def _checked(self, wanted: Sequence[str]) -> Columns:
        """Return the expressions of the columns, once the engine has found every cell in order."""
        wanted = list(dict.fromkeys(wanted))
        columns = Columns(self._site, self._schema, self._types(wanted))
        self.rows()
        flags = {}
        for name in wanted:
            column = self._schema[name]
            if isinstance(column, Category):
                flags[f"u{name}"] = (columns.code(name) < 0) & ~columns.raw(name).is_null()
            if not column.missing:
                flags[f"m{name}"] = columns.raw(name).is_null()
        if flags:
            names = {key: f"f{i}" for i, key in enumerate(flags)}
            frame = self._frame.select(*[flag.alias(names[key]) for key, flag in flags.items()])
            (row,) = self._collect(
                frame.select(*[nw.col(short).cast(nw.Int64()).sum() for short in names.values()])
            )
            for key, short in names.items():
                if row[short]:
                    self._refuse(key[0], key[1:])
        return columns

    def _refuse(self, kind: str, name: str) -> None:
        if kind == "u":
            raise faults.unknown_category(self._site, name, self._schema.category(name))
        raise faults.missing_cell(self._site, name)

    def _types(self, wanted: Sequence[str]) -> dict[str, Any]:
        schema = faults.guarded(self._site, _WHAT, _ADVICE, self._frame.collect_schema)
        for name in wanted:
            if name not in schema:
                raise faults.no_column(self._site, name, schema)
        return {name: schema[name] for name in wanted}

    def _collect(self, frame: nw.LazyFrame[Any]) -> list[Row]:
        return faults.guarded(self._site, _WHAT, _ADVICE, lambda: list(frame.collect().iter_rows(named=True)))

    def _block(self, block: Block, columns: Columns) -> tuple[Int64, ...]:
        if isinstance(block, Moments):
            return self._moments(block, columns)
        if isinstance(block, Gram):
            return self._gram(block, columns)
        assert isinstance(block, Counts)
        return self._counts(block, columns)

    def _moments(self, block: Moments, columns: Columns) -> tuple[Int64, ...]:
        arrays = block.arrays(self._schema)
        sums = [np.zeros(array.shape, np.int64) for array in arrays]
        if not block.columns:
            return tuple(sums)
        frame = self._frame.select(
            *[columns.steps(name).alias(f"k{i}") for i, name in enumerate(block.columns)],
            *([] if block.by is None else [columns.code(block.by).alias("group")]),
        )
        wanted = [expression for i in range(len(block.columns)) for expression in _counted(f"k{i}")]
        if block.squares:
            frame = frame.with_columns(
                *[e for i in range(len(block.columns)) for e in _halves(f"k{i}", f"k{i}")]
            )
            wanted += [e for i in range(len(block.columns)) for e in _sums_of_halves(f"k{i}", f"k{i}")]
        if block.by is None:
            found = self._collect(frame.select(*wanted))
        else:
            found = self._collect(frame.filter(nw.col("group") >= 0).group_by("group").agg(*wanted))
        for row in found:
            for i in range(len(block.columns)):
                place = (i,) if block.by is None else (int(row["group"]), i)
                sums[0][place] = _whole(row, f"n_k{i}")
                sums[1][place] = _whole(row, f"s_k{i}")
                if block.squares:
                    sums[2][place] = _joined(row, f"k{i}", f"k{i}")
        return tuple(sums)

    def _gram(self, block: Gram, columns: Columns) -> tuple[Int64, ...]:
        arrays = block.arrays(self._schema)
        sums = [np.zeros(array.shape, np.int64) for array in arrays]
        expressions = [e for name in block.columns for e in columns.spread(name)]
        names = [f"k{i}" for i in range(len(expressions))]
        if not names:
            sums[0][0] = self.rows()
            return tuple(sums)
        frame = self._frame.filter(*[~columns.raw(name).is_null() for name in block.columns]).select(
            *[e.alias(name) for e, name in zip(expressions, names, strict=True)]
        )
        pairs = [(i, j) for i in range(len(names)) for j in range(i, len(names))]
        frame = frame.with_columns(*[e for i, j in pairs for e in _halves(names[i], names[j])])
        wanted = [nw.len().alias("rows"), *[nw.col(name).sum().alias(f"s_{name}") for name in names]]
        wanted += [e for i, j in pairs for e in _sums_of_halves(names[i], names[j])]
        (row,) = self._collect(frame.select(*wanted))
        sums[0][0] = _whole(row, "rows")
        sums[1][:] = [_whole(row, f"s_{name}") for name in names]
        sums[2][:] = [_joined(row, name, name) for name in names]
        sums[3][:] = [_joined(row, names[i], names[j]) for i, j in pairs if i < j]
        return tuple(sums)

    def _counts(self, block: Counts, columns: Columns) -> tuple[Int64, ...]:
        (array,) = block.arrays(self._schema)
        cells = np.zeros(array.size, np.int64)
        if not block.axes:
            cells[0] = self.rows()
            return (cells.reshape(array.shape),)
        places = [f"p{i}" for i in range(len(block.axes))]
        frame = (
            self._frame.filter(*[~columns.raw(axis.column).is_null() for axis in block.axes])
            .select(*[columns.along(axis).alias(p) for axis, p in zip(block.axes, places, strict=True)])
            .select(*[place(nw.col(p), axis).alias(p) for axis, p in zip(block.axes, places, strict=True)])
        )
        cell = nw.col(places[0])
        for name, size in zip(places[1:], array.shape[1:], strict=True):
            cell = cell * size + nw.col(name)
        for row in self._collect(
            frame.select(cell.alias("cell")).group_by("cell").agg(nw.len().alias("rows"))
        ):
            cells[int(row["cell"])] = int(row["rows"])
        return (cells.reshape(array.shape),)


def _counted(name: str) -> list[nw.Expr]:
    return [nw.col(name).count().alias(f"n_{name}"), nw.col(name).sum().alias(f"s_{name}")]


def _halves(a: str, b: str) -> list[nw.Expr]:
    product = nw.col(a) * nw.col(b)
    high = (product / ONE).floor()
    return [high.alias(f"h_{a}_{b}"), (product - high * ONE).alias(f"l_{a}_{b}")]


def _sums_of_halves(a: str, b: str) -> list[nw.Expr]:
    return [nw.col(f"{half}_{a}_{b}").sum() for half in "hl"]


def _whole(row: Row, name: str) -> int:
    return int(row[name] or 0)


def _joined(row: Row, a: str, b: str) -> int:
    total = _whole(row, f"h_{a}_{b}") * int(ONE) + _whole(row, f"l_{a}_{b}")
    if abs(total) >= 2**63:
        raise OverflowRisk(
            "a site's sum of squares would need more than 64 bits; divide its table into several sites"
        )
    return total
