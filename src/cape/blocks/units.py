"""A row as sites see it, x, and back: models in the columns' own units, and predictions for new rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.arrays import Floats, Integers
from cape.blocks.design import Design
from cape.data.cells import code_of, is_missing, number_of
from cape.data.schema import Category, Number, Schema
from cape.errors import InvalidInput

__all__ = ["Units"]


class Units:
    """From weights of (1, x), x as a site makes it, to coefficients in the columns' units."""

    def __init__(self, design: Design, schema: Schema) -> None:
        self.design, self.schema = design, schema
        self.names = design.names(schema)
        self._length = design.length(schema)
        width = len(self.names) + 1
        self._matrix = np.zeros((width, width))
        self._matrix[0, 0] = 1.0
        at = 1
        for name in design.features:
            column = schema[name]
            if isinstance(column, Number):
                self._matrix[at, at] = 1 / (self._length * column.half)
                self._matrix[0, at] = -column.middle / (self._length * column.half)
                at += 1
            else:
                for _ in column.values[1:]:
                    self._matrix[at, at] = 1 / self._length
                    at += 1

    def values(self, weights: Floats) -> Floats:
        """Return the intercept and the coefficients."""
        return np.asarray(self._matrix @ weights)

    def covariance(self, matrix: Floats) -> Floats:
        """Return the covariance of the intercept and the coefficients."""
        return np.asarray(self._matrix @ matrix @ self._matrix.T)

    def typical(self, square: float) -> Floats:
        """Return the mean of (1, x)(1, x)' for independent columns with mean t² of `square`."""
        means, covariance = [1.0], [np.zeros((1, 1))]
        for name in self.design.features:
            column = self.schema[name]
            if isinstance(column, Number):
                means.append(0.0)
                covariance.append(np.full((1, 1), square / self._length**2))
            else:
                share = 1 / len(column.values)
                many = len(column.values) - 1
                means += [share / self._length] * many
                covariance.append((share * np.eye(many) - share**2) / self._length**2)
        second = np.outer(means, means)
        at = 0
        for part in covariance:
            second[at : at + len(part), at : at + len(part)] += part
            at += len(part)
        return second

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

    def back(self, t: Floats) -> dict[str, Floats]:
        """Return rows of t by name, numbers in their columns' units."""
        found: dict[str, Floats] = {}
        place = 0
        for name in self.design.features:
            column = self.schema[name]
            if isinstance(column, Number):
                found[name] = column.middle + column.half * t[:, place]
                place += 1
            else:
                for value in column.values[1:]:
                    found[f"{name}={value}"] = t[:, place]
                    place += 1
        return found


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
