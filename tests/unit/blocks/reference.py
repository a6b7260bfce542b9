"""What the sums of a block are, said again in Python integers, one row at a time."""

from __future__ import annotations

import bisect
import math
from fractions import Fraction
from typing import Any

import numpy as np

from cape.blocks import (
    Axis,
    Block,
    Counts,
    Design,
    Gram,
    Grouped,
    Moments,
    OutsideBounds,
    Residuals,
    Squares,
)
from cape.data import Number, Schema

Row = dict[str, Any]


def steps(value: float | None, column: Number) -> int | None:
    """t in units of 2^-20, as the words of `blocks` have it."""
    if value is None or math.isnan(value):
        return None
    clamped = min(max(value, column.low), column.high)
    t = (clamped - column.middle) / column.half
    return math.trunc(min(max(t, -1.0), 1.0) * 2**20)


def place(row: Row, axis: Axis, schema: Schema) -> int | None:
    value = row[axis.column]
    if value is None or value != value:
        return None
    if axis.edges is None:
        return schema.category(axis.column).values.index(value)
    column = schema.number(axis.column)
    value = min(max(value, column.low), column.high)
    return min(max(bisect.bisect_right(axis.edges, value) - 1, 0), len(axis.edges) - 2)


def spread(row: Row, name: str, schema: Schema, cut=()) -> list[int] | None:
    column = dict(cut).get(name) or schema[name]
    if isinstance(column, Number):
        k = steps(row[name], column)
        return None if k is None else [k]
    code = place(row, Axis(name), schema)
    return None if code is None else [2**20 * (code == j) for j in range(1, len(column.values))]


def vector(row: Row, design: Design, schema: Schema) -> tuple[list[int], int | None] | None:
    """x and y of a row in steps, in Python's floats and integers; None if a cell is missing."""
    square = Fraction(design.intercept) ** 2
    limit = math.floor(2**40 / (1 + square))
    length, shrink = design.length(schema), math.hypot(1.0, design.intercept)
    longer = length < design.bound(schema)
    most = 2**20 if longer else math.isqrt(limit // len(design.features))
    divisor = 1.0 if longer else length * shrink
    scaled: list[float] = []
    for name in design.features:
        column, value = schema[name], row[name]
        if value is None or value != value:
            return None
        if isinstance(column, Number):
            size = column.half / 2**20 * divisor
            clamped = min(max(value, column.low), column.high)
            scaled.append(min(max((clamped - column.middle) / size, -most), most))
        else:
            scaled += [float(most * (value == other)) for other in column.values[1:]]
    if longer:
        total = 0.0
        for t in scaled:
            total += t * t
        factor = 2**20 / shrink / max(math.sqrt(total), length * 2**20)
        scaled = [t * factor for t in scaled]
    x = [math.trunc(value) for value in scaled]
    while sum(k * k for k in x) > limit:
        x = [k - (k > 0) + (k < 0) for k in x]
    if design.intercept:
        x = [math.isqrt(math.floor(2**40 * square / (1 + square))), *x]
    if design.target is None:
        return x, None
    target, value = schema[design.target], row[design.target]
    if value is None or value != value:
        return None
    if isinstance(target, Number):
        return x, steps(value, target)
    return x, 2**20 * (1 if value == target.values[1] else -1)


def vectors(rows: list[Row], design: Design, schema: Schema) -> list[tuple[list[int], int | None]]:
    return [found for row in rows if (found := vector(row, design, schema)) is not None]


def sums(rows: list[Row], block: Block, schema: Schema) -> tuple[np.ndarray, ...]:
    if isinstance(block, Squares):
        return squares(rows, block, schema)
    if isinstance(block, Grouped):
        by = [place(row, Axis(block.by), schema) for row in rows]
        return tuple(
            array
            for code, each in enumerate(block.blocks)
            if each is not None
            for array in sums([row for row, at in zip(rows, by, strict=True) if at == code], each, schema)
        )
    if isinstance(block, Residuals):
        return residuals(rows, block, schema)
    out = [np.zeros(array.shape, object) for array in block.arrays(schema)]
    for row in rows:
        if isinstance(block, Moments):
            group: tuple[int, ...] = ()
            if block.by is not None:
                code = place(row, Axis(block.by), schema)
                if code is None:
                    continue
                group = (code,)
            for i, name in enumerate(block.columns):
                k = steps(row[name], schema.number(name))
                if k is not None:
                    for array, amount in zip(out, (1, k, k * k), strict=False):
                        array[(*group, i)] += amount
        elif isinstance(block, Gram):
            cells = [spread(row, name, schema, block.cut) for name in block.columns]
            if any(cell is None for cell in cells):
                continue
            x = [k for cell in cells for k in cell]
            out[0][0] += 1
            above = [(i, j) for i in range(len(x)) for j in range(i + 1, len(x))]
            for i, k in enumerate(x):
                out[1][i] += k
                out[2][i] += k * k
            for n, (i, j) in enumerate(above):
                out[3][n] += x[i] * x[j]
        elif isinstance(block, OutsideBounds):
            for i, name in enumerate(block.columns):
                value, column = row[name], schema[name]
                if value is not None and value == value:
                    out[0][i, 0 if value < column.low else 2 if value > column.high else 1] += 1
        elif isinstance(block, Counts):
            places = [place(row, axis, schema) for axis in block.axes]
            if None not in places:
                out[0][tuple(places)] += 1
    return tuple(out)


def residuals(rows: list[Row], block: Residuals, schema: Schema) -> tuple[np.ndarray, ...]:
    """The coordinates of every set, contrast by contrast, in Python's integers."""
    missing = [bool(schema.stated[axis.column].missing) for axis in block.axes]
    bins = [axis.bins(schema) for axis in block.axes]
    cells = [
        tuple(bins[i] if at is None else at for i, at in enumerate(place(row, a, schema) for a in block.axes))
        for row in rows
    ]
    found = []
    for columns in block.sets:
        shape = [bins[i] - 1 + missing[i] for i in columns]
        array = np.zeros(shape, object)
        for js in np.ndindex(*shape):
            d, square = 0, 1
            for cell in cells:
                weights = [
                    1 if cell[i] <= j else -(j + 1) * (cell[i] == j + 1)
                    for i, j in zip(columns, js, strict=True)
                ]
                d += math.prod(weights)
            for j in js:
                square *= (j + 1) * (j + 2)
            length = math.sqrt(square)
            exponent = math.frexp(length)[1]
            weight = math.floor(math.ldexp(1.0, 31 + exponent) / length) - bool(columns)
            shift = 11 + exponent
            array[js] = (d * weight + (1 << shift - 1)) >> shift
        found.append(array)
    return tuple(found)


def squares(rows: list[Row], block: Squares, schema: Schema) -> tuple[np.ndarray, ...]:
    """The sums of squared forms, row by row, in Python's floats and integers."""
    totals = np.zeros(len(block.forms), object)
    if block.design.cube:
        names, cut = block.design.features, block.design.cut
        cells = [[spread(row, name, schema, cut) for name in names] for row in rows]
        whole = [[k for part in row for k in part] for row in cells if None not in row]
    else:
        whole = [x for x, _ in vectors(rows, block.design, schema)]
    for x in whole:
        c = [k / 2**20 - at for k, at in zip(x, block.centre, strict=True)]
        for at, form in enumerate(block.forms):
            value = None
            for i, j, weight in form.terms:
                term = c[i] * c[j] * weight
                value = term if value is None else value + term
            step = math.trunc(min(max(value * (2.0**20 / form.bound), -(2.0**20)), 2.0**20))
            totals[at] += step * step
    return (totals,)


def same(found: list[tuple[np.ndarray, ...]], wanted: list[tuple[np.ndarray, ...]]) -> bool:
    return len(found) == len(wanted) and all(
        len(a) == len(b)
        and all(
            x.shape == y.shape and (x.astype(object) == y.astype(object)).all()
            for x, y in zip(a, b, strict=True)
        )
        for a, b in zip(found, wanted, strict=True)
    )
