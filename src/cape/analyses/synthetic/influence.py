"""How a number that is computed from rows follows from them: which columns, and what one row more does.

The number is a function of a table, which is only called. A column that it uses shows when the column is
drawn anew. Its influence at a point, the derivative when a share of the rows moves there, is what it changes
by when one row is put there, times the number of rows.

The influence of two columns is a matrix, of low rank for means, shares and correlations: then some of its
rows and columns give the rest, C pinv(W) R with W where they cross. Points drawn at random say whether they
do; if not, more are tried, up to all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cape.analyses.synthetic.synthetic_model import SyntheticModel, cells
from cape.analyses.tables.marginals import Levels
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.engine.arguments import joined
from cape.stats.simulation import Random

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Computed", "Drawn", "Nodes", "influence_of", "used_columns"]

_MOST_NODES = 50_000  # rows that are tried out
_ENDS = (0.0, 1.0 - 1e-6)  # of the way through a bin
_SAME = 1e-9  # what computing in another order may change
_SKELETON = 6  # rows and columns of an influence that are tried first
_CHECKED = 60  # points that others are checked at
_RANK, _EXACT = 1e-7, 1e-3  # relative to the largest value


@dataclass(frozen=True)
class Drawn:
    """Rows of a model: as a table, and the place of each value among its column's levels."""

    frame: pl.DataFrame
    places: tuple[Integers, ...]

    @classmethod
    def of(cls, model: SyntheticModel, rows: int, random: Random) -> Drawn:
        """Return new rows of a model."""
        frame, places = model.drawn(rows, random)
        return cls(frame, tuple(places))

    def taking(self, rows: Integers) -> Drawn:
        """Return these rows of it, in this order."""
        return Drawn(self.frame[rows], tuple(each[rows] for each in self.places))


class Computed:
    """Numbers by name that a user's function computes from a table: always the same names."""

    def __init__(self, f: Callable[[pl.DataFrame], Any]) -> None:
        self._f = f
        self.names: tuple[str, ...] | None = None

    def __call__(self, table: pl.DataFrame) -> Floats:
        """Return the numbers, or raise `InvalidInput` if one is none."""
        return np.array(
            [check.real(f"f's {name or 'value'}", each) for name, each in self._of(table).items()]
        )

    def tried(self, table: pl.DataFrame) -> Floats:
        """Return the numbers, NaN for one that is none: where a table was made that nobody would have."""
        found = []
        for name, each in self._of(table).items():
            try:
                found.append(check.real(name, each))
            except InvalidInput:
                found.append(math.nan)
        return np.array(found)

    def _of(self, table: pl.DataFrame) -> Mapping[str, Any]:
        value = self._f(table)
        found = (
            {str(name): each for name, each in value.items()} if isinstance(value, Mapping) else {"": value}
        )
        names = tuple(found)
        if not names or (self.names is not None and names != self.names):
            raise InvalidInput("f must return the same names for every table")
        self.names = names
        return found


def used_columns(
    computed: Computed, rows: Drawn, levels: Sequence[Levels], random: Random
) -> list[tuple[int, ...]]:
    """Return the columns that each number depends on, by place: it changes if they are drawn anew."""
    own = computed(rows.frame)
    used: list[list[int]] = [[] for _ in own]
    many = rows.frame.height
    for i, each in enumerate(levels):
        anew = cells(each, random.integers(0, len(each), many), random.random(many)).alias(each.column)
        changed = computed.tried(rows.frame.with_columns(anew))
        for uses, before, after in zip(used, own.tolist(), changed.tolist(), strict=True):
            if not math.isclose(before, after, rel_tol=_SAME, abs_tol=_SAME * _SAME):
                uses.append(i)
    return [tuple(each) for each in used]


@dataclass(frozen=True)
class Nodes:
    """Points at which an influence is known: all combinations of levels, at both ends of wide ones.

    Attributes:
        places: by column, the level of each node.
        values: by node and number, the influence, but for a constant.
    """

    places: tuple[Integers, ...]
    values: Floats


def influence_of(
    computed: Computed, rows: Drawn, levels: Sequence[Levels], columns: Sequence[int], random: Random
) -> Nodes:
    """Return the influence of a row on each number, by what the row has in these columns."""
    each = [_points(levels[i]) for i in columns]
    many = math.prod(len(places) for places, _ in each)
    if many > _MOST_NODES:
        names = joined([levels[i].column for i in columns])
        raise InvalidInput(
            f"f depends on {names}, which have {many:,} combinations of values, more than {_MOST_NODES:,}: "
            "cut them more coarsely when they are released, as in bins = 32"
        )
    shape = tuple(len(places) for places, _ in each)
    first, rest, own = rows.frame.head(1), rows.frame.slice(1), computed(rows.frame)

    def tried(nodes: Integers) -> Floats:
        put = first[np.zeros(len(nodes), np.int64)].with_columns(
            cells(levels[i], np.array(places)[at], np.array(within)[at])
            .cast(rows.frame.dtypes[i])
            .alias(levels[i].column)
            for i, (places, within), at in zip(columns, each, np.unravel_index(nodes, shape), strict=True)
        )
        found = np.array([computed.tried(put.slice(j, 1).vstack(rest)) for j in range(len(nodes))])
        return np.asarray((found - own) * rows.frame.height)

    grid = np.unravel_index(np.arange(many), shape)
    places = tuple(np.array(points[0])[at] for points, at in zip(each, grid, strict=True))
    return Nodes(places, _matrix(tried, shape, random) if len(shape) == 2 else tried(np.arange(many)))


def _matrix(tried: Callable[[Integers], Floats], shape: tuple[int, ...], random: Random) -> Floats:
    """Return values at all combinations of two places, by as many as they take."""
    many, skeleton = math.prod(shape), _SKELETON
    places = np.arange(many).reshape(shape)
    check_at = random.choice(many, min(_CHECKED, many), replace=False)
    checked = None
    while skeleton * sum(shape) + _CHECKED < many:
        down, across = (np.unique(np.linspace(0, n - 1, skeleton).round().astype(np.int64)) for n in shape)
        lines = tried(places[down].reshape(-1)).reshape(len(down), shape[1], -1)
        columns = tried(places[:, across].reshape(-1)).reshape(shape[0], len(across), -1)
        checked = tried(check_at) if checked is None else checked
        if not all(np.isfinite(part).all() for part in (lines, columns, checked)):
            break
        found = np.stack(
            [
                columns[:, :, k] @ np.linalg.pinv(columns[down, :, k], rcond=_RANK) @ lines[:, :, k]
                for k in range(lines.shape[2])
            ],
            axis=-1,
        ).reshape(many, -1)
        if (np.abs(found[check_at] - checked).max(axis=0) <= _EXACT * np.abs(checked).max(axis=0)).all():
            return found
        skeleton *= 2
    return tried(np.arange(many))


def _points(levels: Levels) -> tuple[list[int], list[float]]:
    """Return the levels of a column, wide ones twice, and how far through each."""
    places, within = [], []
    for i in range(len(levels)):
        wide = levels.ends is not None and i < len(levels.ends) and levels.ends[i][0] < levels.ends[i][1]
        for part in _ENDS if wide else _ENDS[:1]:
            places.append(i)
            within.append(part)
    return places, within
