"""Between x, a row as sites see it, and the columns' own units: for models, and predictions for new rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.arrays import Floats, Integers
from cape.blocks.design import Design
from cape.blocks.typical import vectors
from cape.data.cells import code_of, is_missing, number_of
from cape.data.schema import Category, Number, Schema
from cape.errors import InvalidInput

__all__ = ["Units"]


class Units:
    """From weights of (1, x), x as a site makes it, to coefficients in the columns' units, and back.

    Attributes:
        names: what each entry of x is called.
        unit: how much of the column's unit an entry of 1 stands for; 0 is the middle of the bounds.
        matrix: what turns weights of (1, x) into the intercept and the coefficients.
        low, high: the bounds of each entry in the column's unit; those of an indicator are 0 and 1.
    """

    def __init__(self, design: Design, schema: Schema) -> None:
        self.design, self.schema = design, schema
        self.names = design.names(schema)
        self._length = design.length(schema)
        entries: list[tuple[float, float, float, float]] = []
        for name in design.features:
            column = schema[name]
            if isinstance(column, Number):
                entries.append((column.middle, column.half, column.low, column.high))
            else:
                entries += [(0.0, 1.0, 0.0, 1.0)] * (len(column.values) - 1)
        self._middle, self._half, self.low, self.high = np.array(entries).T
        self.unit = self._half * self._length
        self.matrix = np.diag(np.concatenate([[1.0], 1 / self.unit]))
        self.matrix[0, 1:] = -self._middle / self.unit

    def values(self, weights: Floats) -> Floats:
        """Return the intercept and the coefficients."""
        return np.asarray(self.matrix @ weights)

    def covariance(self, matrix: Floats) -> Floats:
        """Return the covariance of the intercept and the coefficients."""
        return np.asarray(self.matrix @ matrix @ self.matrix.T)

    def typical(self) -> Floats:
        """Return the mean of (1, x)(1, x)' over typical rows (`cape.blocks.typical`)."""
        mean, covariance = vectors(self.design, self.schema)
        first = np.concatenate([[1.0], mean])
        second = np.outer(first, first)
        second[1:, 1:] += covariance
        return second

    def within(self, points: Floats) -> Floats:
        """Return vectors moved to where means of rows can be: within the bounds, and not longer than 1."""
        low, high = (self.low - self._middle) / self.unit, (self.high - self._middle) / self.unit
        cut = np.clip(points, low, high)
        return np.asarray(cut / np.fmax(np.linalg.norm(cut, axis=1, keepdims=True), 1.0))

    def back(self, points: Floats) -> Floats:
        """Return vectors in the columns' units, within their bounds; an indicator as a fraction."""
        return np.asarray(np.clip(self._middle + self.unit * points, self.low, self.high))

    def from_t(self, t: Floats) -> dict[str, Floats]:
        """Return rows of t by name, numbers in their columns' units."""
        return dict(zip(self.names, (self._middle + self._half * t).T, strict=True))

    def rows(self, data: Any) -> Floats:
        """Return x of each row of a table, as a site makes it, NaN where a column is missing.

        `data` maps columns to arrays (a DataFrame does), or is an array with one column a feature if all
        features are numbers.
        """
        width = len(self.design.features)
        parts: list[Floats] = []
        for i, name in enumerate(self.design.features):
            column = self.schema[name]
            cells = _cells(data, name, i, width, isinstance(column, Category))
            if parts and len(cells) != len(parts[0]):
                raise InvalidInput(
                    f"columns to predict from must have as many cells each: {name!r} has {len(cells)}, those "
                    f"before it {len(parts[0])}"
                )
            if isinstance(column, Number):
                t = np.clip((_numbers(cells, name) - column.middle) / column.half, -1.0, 1.0)
                parts.append(t[:, None])
                continue
            known = _codes(cells, name, column)
            hot = (known[:, None] == np.arange(1, len(column.values))).astype(np.float64)
            hot[known < 0] = np.nan
            parts.append(hot)
        x = np.concatenate(parts, axis=1) / self._length
        if self.design.cube:
            return x
        longer = np.linalg.norm(x, axis=1, keepdims=True)
        return np.asarray(x / np.fmax(longer, 1.0))


def _cells(data: Any, name: str, place: int, width: int, category: bool) -> NDArray[Any]:
    if isinstance(data, np.ndarray) and data.dtype.names is None:
        if category or data.ndim != 2 or data.shape[1] != width:
            raise InvalidInput(
                f"an array to predict from must have {width} columns, one column a feature, all numbers"
            )
        return np.asarray(data[:, place])
    try:
        column = data[name]
    except (KeyError, TypeError, IndexError, ValueError):
        raise InvalidInput(f"a table to predict from must have the column {name!r}") from None
    except Exception as error:  # a library's own error for a column that is not there
        raise InvalidInput(f"a table to predict from must have the column {name!r}") from error
    try:
        # a list may mix what numpy would make text of
        cells = np.asarray(column, dtype=object if isinstance(column, (list, tuple)) else None)
    except (TypeError, ValueError):
        cells = np.zeros(())
    if cells.ndim != 1:
        raise InvalidInput(f"column {name!r} of a table to predict from must be a list of cells")
    return cells


def _numbers(cells: NDArray[Any], name: str) -> Floats:
    """Return cells as sites read them: numbers and booleans, NaN where one is missing. Never shows a cell."""
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        number = number_of(cell)
        if number is not None:
            numbers[row] = number
        elif not is_missing(cell):
            raise InvalidInput(f"column {name!r} to predict from must hold numbers; row {row} has none")
    return numbers


def _codes(cells: NDArray[Any], name: str, column: Category) -> Integers:
    """Return the place of each cell among the categories, as sites find it; -1 where it is missing."""
    keys = column.codes
    codes = np.full(len(cells), -1, np.int64)
    for row, cell in enumerate(cells):
        code = code_of(cell, keys)
        if code is not None:
            codes[row] = code
        elif not is_missing(cell):
            raise InvalidInput(
                f"column {name!r} to predict from must be one of {list(column.values)!r}, or missing; row "
                f"{row} is not"
            )
    return codes
