"""Between x, a row as sites see it, and the columns' own units: for models, and predictions for new rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.design import Design
from cape.blocks.typical import vectors
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.cells import code_of, is_missing, number_of
from cape.data.schema import Category, Number, Schema

__all__ = ["Units"]


class Units:
    """From weights of (1, x), x as a site makes it, to coefficients in the columns' units, and back.

    Attributes:
        names: what each coefficient is called.
        owners: which feature each belongs to.
        unit: how much of the column's unit an entry of 1 stands for; 0 is the middle of the bounds.
        matrix: what turns weights of (1, x) into the intercept and the coefficients.
        reach: the largest weight of each entry in units of t, if no column, whatever the others are, moves
            what is predicted by more than 1 as it goes through its range.
        low, high: the bounds of each entry in the column's unit; those of an indicator are 0 and 1, and those
            of an interaction or a spline are in units of t.
    """

    def __init__(self, design: Design, schema: Schema) -> None:
        self.design, self.schema = design, schema
        self._basis = design.basis(schema)
        self.names = design.names(schema)
        self.owners = tuple(design.features[place] for place in self._basis.owners)
        self._length = design.length(schema)
        entries, self.reach = np.zeros((len(self.names), 4)), np.zeros(len(self.names))
        for part in self._basis.parts:
            column = None if part.plain is None else part.plain[1]
            of = (0.0, 1.0, -1.0 if part.numbers else 0.0, 1.0)
            if isinstance(column, Number):
                of = (column.middle, column.half, column.low, column.high)
            entries[list(part.places)] = of
            self.reach[list(part.places)] = part.reach()
        self._middle, self._half, self.low, self.high = entries.T.copy()
        self.unit = self._half * self._length
        self.matrix = self._basis.matrix.copy()
        self.matrix[:, 1:] /= self._length

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

    @property
    def box(self) -> tuple[Floats, Floats]:
        """The ends between which each entry of x lies."""
        return (self.low - self._middle) / self.unit, (self.high - self._middle) / self.unit

    def within(self, points: Floats) -> Floats:
        """Return vectors moved to where means of rows can be: within the bounds, and not longer than 1."""
        cut = np.clip(points, *self.box)
        return np.asarray(cut / np.fmax(np.linalg.norm(cut, axis=1, keepdims=True), 1.0))

    def back(self, points: Floats) -> Floats:
        """Return vectors in the columns' units, within their bounds; an indicator as a fraction."""
        return np.asarray(np.clip(self._middle + self.unit * points, self.low, self.high))

    def from_t(self, t: Floats) -> dict[str, Floats]:
        """Return rows of t by name, numbers in their columns' units."""
        return dict(zip(self.names, (self._middle + self._half * t).T, strict=True))

    def rows(self, data: Any) -> Floats:
        """Return x of each row of a table, as a site makes it, NaN where a column is missing.

        `data` maps columns to arrays (a DataFrame does), or is an array with one column for each that
        features are made of, in their order, if all are numbers.
        """
        names = self.design.sources
        cells: dict[str, NDArray[Any]] = {}
        rows = -1
        for i, name in enumerate(names):
            column = self.schema[name]
            found = _cells(data, name, i, len(names), isinstance(column, Category))
            if rows not in (-1, len(found)):
                raise InvalidInput(
                    f"columns to predict from must have as many cells each: {name!r} has {len(found)}, those "
                    f"before it {rows}"
                )
            rows = len(found)
            cells[name] = _numbers(found, name) if isinstance(column, Number) else _codes(found, name, column)
        x = self._basis.evaluate(cells, rows) / self._length
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
