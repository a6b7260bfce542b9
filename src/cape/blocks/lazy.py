"""A lazy table: its columns as narwhals expressions, and the one query that blocks ask of them.

Claim. A lazy table (DuckDB, Dask, Spark, Ibis) gives the same integers as the same rows in memory.
Reason. The formulas of `steps`, `bins` and `categories` are the same float64 operations in the same order.
Whole numbers are float64 too and truncation is floor or ceil by sign: a cast to integers rounds to nearest
in some engines. Every number that the engine adds is an integer of magnitude at most 2^20 (a product p of two
steps is added as floor(p / 2^20) and what is left of it), so all sums stay below 2^53, and exact in float64,
up to 2^33 rows: no engine's rounding, order or integer type matters. Python integers put the halves together.
Tested in tests/blocks/test_backends.py.

Limits. Rows have no numbers here, so errors name the column only. Uneven edges become a tree of comparisons,
up to `MOST_EDGES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw

from cape.blocks.bins import Bins
from cape.blocks.block import Block, Sums
from cape.blocks.steps import ONE, Steps
from cape.data import faults
from cape.data.schema import Category, Column, Number, Schema
from cape.errors import DataError, OverflowRisk
from cape.noise import SecureStream

__all__ = ["MOST_EDGES", "Lazy", "Pushdown", "Totals"]

MOST_EDGES = 1024
_MOST_ROWS = 1 << 33
_WHAT, _ADVICE = "the lazy table", "check that it can be computed on its own"

Row = dict[str, Any]


class Totals(NamedTuple):
    """What an engine found over some rows.

    Attributes:
        rows: how many there are.
        counts: in how many of them each value is not missing.
        sums: the sum of each value.
        products: the sums of the products that were asked for.
    """

    rows: int
    counts: list[int]
    sums: list[int]
    products: list[int]


class Lazy:
    """The columns of a lazy table that are to be read, and sums over them.

    Args:
        site: how errors call the site.
        schema: what the rows are read by.
        frame: the table.
        wanted: the columns to be read. Their types are looked at here, their cells before the first sum.
    """

    def __init__(self, site: str, schema: Schema, frame: nw.LazyFrame[Any], wanted: Sequence[str]) -> None:
        self._site, self.schema, self._frame = site, schema, frame
        types = faults.guarded(site, _WHAT, _ADVICE, frame.collect_schema)
        self._types: dict[str, Any] = {}
        for name in wanted:
            if name not in types:
                raise faults.no_column(site, name, types)
            if not _fits(schema[name], types[name]):
                raise faults.wrong_type(site, name, schema[name], _say(types[name]))
            self._types[name] = types[name]
        self._checked = False

    def _raw(self, name: str) -> nw.Expr:
        """Return a column as it stands, with null for every missing cell."""
        kind, column = self._types[name], nw.col(name)
        if isinstance(self.schema[name], Number):
            return column.cast(nw.Float64()).fill_nan(None)
        if kind.is_float():
            return column.fill_nan(None)
        if kind.is_decimal() or kind == nw.Boolean:
            return column.cast(nw.Float64())
        return column if kind.is_integer() else column.cast(nw.String())

    def steps(self, name: str, column: Number | None = None) -> nw.Expr:
        """Return a numeric column in whole steps of 2^-20; cut at narrower bounds if given."""
        steps = Steps.of(column or self.schema.number(name))
        scaled = (self._clamped(name) - steps.middle) / steps.size
        return _truncated(_clamp(scaled, steps.least, steps.most))

    def whole(self, value: nw.Expr) -> nw.Expr:
        """Return a value cut at -2^20 and 2^20, in whole numbers toward 0: what `totals` can add up."""
        return _truncated(_clamp(value, -ONE, ONE))

    def code(self, name: str) -> nw.Expr:
        """Return a category column as codes, -1 for what is missing or unknown."""
        keys, kind = self.schema.category(name).codes, self._types[name]
        codes: dict[Any, int] = dict(keys.texts if _is_text(kind) else keys.numerals)
        if not _is_text(kind) and not kind.is_integer():
            codes = {float(key): code for key, code in codes.items()}
        return self._raw(name).replace_strict(
            list(codes), list(codes.values()), default=-1, return_dtype=nw.Int64()
        )

    def spread(self, name: str, cut: Number | None = None) -> list[nw.Expr]:
        """Return a column as `Gram` wants it: in steps, or one column per category but the first."""
        column = self.schema[name]
        if isinstance(column, Number):
            return [self.steps(name, cut)]
        code = self.code(name)
        return [
            nw.when(code == i).then(nw.lit(ONE)).otherwise(nw.lit(0.0)) for i in range(1, len(column.values))
        ]

    def refusal(self, what: str) -> DataError:
        """Return the error to raise for what no engine can compute."""
        return faults.not_lazy(self._site, what)

    def rows(self) -> int:
        (row,) = self._collect(self._frame.select(nw.len().alias("rows")))
        rows = int(row["rows"])
        if rows > _MOST_ROWS:
            raise OverflowRisk("a lazy table may have at most 2^33 rows; divide it into several sites")
        return rows

    def totals(
        self,
        values: Sequence[nw.Expr] = (),
        *,
        products: Sequence[tuple[int, int]] = (),
        complete: Sequence[str] = (),
        by: Sequence[tuple[str, Bins | None]] = (),
    ) -> dict[int, Totals]:
        """Add up whole numbers within 2^20, and return the totals of each group that has rows.

        Args:
            values: what to add up, null where it is missing.
            products: pairs of values, by their places, whose products are added up as well.
            complete: columns; rows that miss one of them are left out.
            by: columns that divide the rows into groups, by bins if they are numeric; rows that miss one
                are left out. Groups are numbered row by row. Without `by`, there is one group, 0.
        """
        for name, bins in by:
            self._require_few(name, bins)
        self.check()
        frame = self._frame
        if complete or by:
            names = dict.fromkeys([*complete, *(name for name, _ in by)])
            frame = frame.filter(*[~self._raw(name).is_null() for name in names])
        if values or by:
            frame = frame.select(
                *[value.alias(f"k{i}") for i, value in enumerate(values)],
                *[self._along(name, bins).alias(f"p{i}") for i, (name, bins) in enumerate(by)],
            )
        if products:
            frame = frame.with_columns(*[half for i, j in products for half in _halves(i, j)])
        wanted = [nw.len().alias("rows")]
        wanted += [nw.col(f"k{i}").count().alias(f"n{i}") for i in range(len(values))]
        wanted += [nw.col(f"k{i}").sum().alias(f"s{i}") for i in range(len(values))]
        wanted += [nw.col(f"{half}{i}_{j}").sum() for i, j in products for half in "hl"]
        if by:
            frame = frame.with_columns(*[_place(f"p{i}", bins) for i, (_, bins) in enumerate(by)])
            cell = nw.col("p0")
            for i, (name, bins) in enumerate(by[1:], 1):
                size = len(self.schema.category(name).values) if bins is None else bins.count
                cell = cell * size + nw.col(f"p{i}")
            found = self._collect(frame.with_columns(cell.alias("cell")).group_by("cell").agg(*wanted))
        else:
            found = self._collect(frame.select(*wanted))
        return {
            int(row["cell"]) if by else 0: Totals(
                _whole(row, "rows"),
                [_whole(row, f"n{i}") for i in range(len(values))],
                [_whole(row, f"s{i}") for i in range(len(values))],
                [_joined(row, f"{i}_{j}") for i, j in products],
            )
            for row in found
        }

    def outside(self) -> dict[str, int]:
        """Return how many cells of each numeric column lie outside its bounds."""
        bounds = {name: self.schema.number(name) for name in self._types}
        flags = [
            (self._raw(name) < column.low) | (self._raw(name) > column.high)
            for name, column in bounds.items()
        ]
        return dict(zip(bounds, self._how_often(flags), strict=True))

    def check(self) -> None:
        """Have the engine look at every cell of the columns, the first time that this is asked."""
        if self._checked:
            return
        self._checked = True
        self.rows()
        flags: dict[tuple[str, bool], nw.Expr] = {}  # by column, and whether cells are there
        for name in self._types:
            column, absent = self.schema[name], self._raw(name).is_null()
            if isinstance(column, Category):
                flags[name, True] = (self.code(name) < 0) & ~absent
            if not column.missing:
                flags[name, False] = absent
        for (name, there), often in zip(flags, self._how_often(list(flags.values())), strict=True):
            if often and there:
                raise faults.unknown_category(self._site, name, self.schema.category(name))
            if often:
                raise faults.missing_cell(self._site, name)

    def _collect(self, frame: nw.LazyFrame[Any]) -> list[Row]:
        """Return the rows of what was computed from the table: sums, and nothing else."""
        return faults.guarded(self._site, _WHAT, _ADVICE, lambda: list(frame.collect().iter_rows(named=True)))

    def _how_often(self, flags: Sequence[nw.Expr]) -> list[int]:
        """Return in how many rows each flag is true."""
        if not flags:
            return []
        names = [f"f{i}" for i in range(len(flags))]
        frame = self._frame.select(*[flag.alias(name) for flag, name in zip(flags, names, strict=True)])
        (row,) = self._collect(frame.select(*[nw.col(name).cast(nw.Int64()).sum() for name in names]))
        return [_whole(row, name) for name in names]

    def _require_few(self, name: str, bins: Bins | None) -> None:
        if bins is not None and bins.count >= MOST_EDGES and bins.width is None:
            raise DataError(
                self._site,
                f"column {name!r} has more than {MOST_EDGES} uneven edges, too many for a lazy table; use "
                "evenly spaced ones (numpy.linspace), or give this site its rows as Parquet",
            )

    def _along(self, name: str, bins: Bins | None) -> nw.Expr:
        """Return what is cut into bins along an axis: codes, or numbers between their bounds."""
        return self.code(name) if bins is None else self._clamped(name)

    def _clamped(self, name: str) -> nw.Expr:
        column = self.schema.number(name)
        return _clamp(self._raw(name), column.low, column.high)


class Pushdown:
    """Computes blocks inside the engine that holds the table."""

    def __init__(self, site: str, schema: Schema, frame: nw.LazyFrame[Any]) -> None:
        self._site, self._schema, self._frame = site, schema, frame

    def rows(self) -> int:
        return self._lazy([]).rows()

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[Sums]:
        """Return the sums of every block: a query that checks the cells, then what each block asks."""
        lazy = self._lazy([name for block in blocks for name in block.reads])
        if any(block.rate < 1 for block in blocks):
            raise lazy.refusal("sums over a sample of rows")
        return [block.pushed(lazy) for block in blocks]

    def clamped(self) -> dict[str, int]:
        return self._lazy([name for name, each in self._schema.items() if isinstance(each, Number)]).outside()

    def check(self) -> None:
        self._lazy(list(self._schema)).check()

    def _lazy(self, wanted: Sequence[str]) -> Lazy:
        return Lazy(self._site, self._schema, self._frame, wanted)


def _place(name: str, bins: Bins | None) -> nw.Expr:
    """Return the bin of every row along an axis: the arithmetic of `Bins.find`, or comparisons."""
    x = nw.col(name)
    if bins is None:
        return x
    if bins.width is None:
        return _tree(x, bins.edges.tolist(), 0, bins.count - 1).cast(nw.Int64()).alias(name)
    start, width, last = float(bins.edges[0]), bins.width, float(bins.count - 1)
    guess = _clamp(((x - start) / width).floor(), 0.0, last)
    down = nw.when(x < guess * width + start).then(guess - 1.0).otherwise(guess)
    up = nw.when(x >= (down + 1.0) * width + start).then(down + 1.0).otherwise(down)
    return _clamp(up, 0.0, last).cast(nw.Int64()).alias(name)


def _halves(i: int, j: int) -> list[nw.Expr]:
    product = nw.col(f"k{i}") * nw.col(f"k{j}")
    high = (product / ONE).floor()
    return [high.alias(f"h{i}_{j}"), (product - high * ONE).alias(f"l{i}_{j}")]


def _whole(row: Row, name: str) -> int:
    return int(row[name] or 0)


def _joined(row: Row, pair: str) -> int:
    total = _whole(row, f"h{pair}") * int(ONE) + _whole(row, f"l{pair}")
    if abs(total) >= 2**63:
        raise OverflowRisk(
            "a site's sum of squares would need more than 64 bits; divide its table into several sites"
        )
    return total


def _clamp(x: nw.Expr, low: float, high: float) -> nw.Expr:
    """Return x between two numbers, null where it is null: GREATEST of some engines skips a null."""
    held = nw.when(x > high).then(nw.lit(high)).otherwise(x)
    return nw.when(x < low).then(nw.lit(low)).otherwise(held)


def _truncated(x: nw.Expr) -> nw.Expr:
    return nw.when(x >= 0).then(x.floor()).otherwise(x.ceil())


def _tree(x: nw.Expr, edges: Sequence[float], first: int, last: int) -> nw.Expr:
    """Return the bin between `first` and `last` by halving: as deep as the logarithm of their number."""
    if first == last:
        return nw.lit(float(first))
    middle = (first + last + 1) // 2
    return (
        nw.when(x >= edges[middle])
        .then(_tree(x, edges, middle, last))
        .otherwise(_tree(x, edges, first, middle - 1))
    )


def _fits(column: Column, kind: Any) -> bool:
    number = kind.is_numeric() or kind == nw.Boolean
    if isinstance(column, Category):
        return _is_text(kind) or (number and bool(column.codes.numerals))
    return bool(number)


def _is_text(kind: Any) -> bool:
    return kind in (nw.String, nw.Categorical, nw.Enum)


def _say(kind: Any) -> str:
    return "a column of text" if _is_text(kind) else f"a column of type {faults.type_name(kind)}"
