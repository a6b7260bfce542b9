"""All marginals up to some number of columns from one release: what is asked, and what the answer holds.

`ask` makes the query: residuals of all sets of columns with the scales that are best for a workload
(`cape.privacy.residuals` has the mathematics, `cape.blocks.residuals` the sums). `Measured` is the answer,
from which `marginal` makes the counts of any table, with the exact covariance of the noise in them.
Tested in tests/unit/analyses/tables/test_tables.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

import numpy as np

from cape.blocks import Axis, Residuals
from cape.blocks.residuals import basis, levels, rounding
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import digits_apart, written
from cape.engine.query import Answer, Neighbours, Query
from cape.privacy.residuals import Columns, Relation, Scales, optimal_scales
from cape.stats.law import GAUSSIAN, Law

__all__ = ["Levels", "Marginal", "Measured", "Workload", "ask", "relation_of", "spans"]

Workload = Mapping[Columns, float]
"""Tables, as places of columns that rise, with their weights."""

_SLACK = 1 + 1e-9  # what computing scales in floating point may be off by, and more


def relation_of(schema: Schema, neighbours: Neighbours) -> Relation:
    """Return which tables are neighbours: one row replaced, added or removed, or either."""
    return "open" if neighbours == "replace-one" and schema.open else neighbours


def ask(
    axes: Sequence[Axis],
    schema: Schema,
    neighbours: Neighbours,
    workload: Workload,
    alike: Sequence[object] | None = None,
) -> Query:
    """Return the query for all sets of columns that these tables are made of, with the best scales.

    **Sensitivity** 1, because scales are those of mu = 1 for the relation (`cape.privacy.residuals`), plus
    what rounding adds (`cape.blocks.residuals`).
    """
    values = tuple(levels(axis, schema) for axis in axes)
    found = _scales(values, tuple(workload.items()), relation_of(schema, neighbours), tuple(alike or ()))
    if not found.std:
        return Query((), (), 0.0)
    block = Residuals(tuple(axes), tuple(found.std))
    sizes = [array.size for array in block.arrays(schema)]
    scales = tuple(found.std.values())
    return Query((block,), (scales,), _SLACK + rounding(sizes, scales))


@lru_cache(maxsize=32)
def _scales(
    values: tuple[int, ...],
    workload: tuple[tuple[Columns, float], ...],
    relation: Relation,
    alike: tuple[object, ...],
) -> Scales:
    """Return the best scales; a column with a single value is in no set."""
    kept = [i for i, many in enumerate(values) if many > 1]
    place = {i: new for new, i in enumerate(kept)}
    tables: dict[Columns, float] = {}
    for columns, weight in workload:
        shorter = tuple(place[i] for i in columns if i in place)
        tables[shorter] = tables.get(shorter, 0.0) + weight
    labels = [alike[i] for i in kept] if alike else None
    found = optimal_scales([values[i] for i in kept], tables, relation, labels)
    return replace(found, std={tuple(kept[i] for i in b): std for b, std in found.std.items()})


@dataclass(frozen=True)
class Levels:
    """The values of one column of a table.

    Attributes:
        column: its name.
        names: how its values are called.
        values: the categories, or None where it is a bin or missing.
        edges: of a number that is cut, the edges of its bins.
        missing: whether the last value is that the cell is missing.
        ends: of a number that is cut, the least and the largest number of each bin.
        whole: whether it is of whole numbers.
    """

    column: str
    names: tuple[str, ...]
    values: tuple[object, ...]
    edges: tuple[float, ...] | None = None
    missing: bool = False
    ends: tuple[tuple[float, float], ...] | None = None
    whole: bool = False

    @classmethod
    def of(cls, axis: Axis, schema: Schema) -> Levels:
        """Return the values of an axis, of which "missing" is the last if cells may be."""
        missing = bool(schema.stated[axis.column].missing)
        if axis.edges is None:
            values: tuple[object, ...] = tuple(schema.category(axis.column).values)
            names, edges, ends, whole = tuple(map(str, values)), None, None, False
        else:
            column = schema.number(axis.column)
            whole = column.integer
            least, most = spans(axis.edges, column)
            edges = tuple(axis.edges.tolist())
            ends = tuple(zip(least.tolist(), most.tolist(), strict=True))
            values = names = _bins_named(ends, whole=whole)
        return cls(
            axis.column,
            (*names, "missing") if missing else names,
            (*values, None) if missing else values,
            edges,
            missing,
            ends,
            whole,
        )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def known(self) -> Levels:
        """The values without "missing"."""
        if not self.missing:
            return self
        return replace(self, names=self.names[:-1], values=self.values[:-1], missing=False)

    @property
    def middles(self) -> Floats:
        """What each value stands for as a number: the middle of a bin, else its place from 0 on."""
        if self.edges is None:
            return np.arange(len(self.known), dtype=np.float64)
        ends = np.array(self.ends or tuple(itertools.pairwise(self.edges)))
        return np.asarray(ends.mean(axis=1))

    def label(self, place: int) -> str:
        """Return how a number about one value is called: "sex=male", "age in [18, 40)", "visits=0"."""
        if self.missing and place == len(self) - 1:
            return f"{self.column} missing"
        single = self.ends is not None and self.ends[place][0] == self.ends[place][1]
        return f"{self.column}{'=' if self.edges is None or single else ' in '}{self.names[place]}"


def spans(edges: Floats, column: Number) -> tuple[Floats, Floats]:
    """Return the least and the largest number of each bin that a cell can be, or tends to.

    Of whole numbers those within; of a bin that holds one number (its edges are neighbours in float64), that.
    """
    low, high = np.maximum(edges[:-1], column.low), np.minimum(edges[1:], column.high)
    if column.integer:
        last = np.arange(len(low)) == len(low) - 1
        return np.ceil(low), np.where(last | (edges[1:] > column.high), np.floor(high), np.ceil(high) - 1)
    single = np.nextafter(edges[:-1], np.inf) == edges[1:]
    after = np.concatenate([[False], single[:-1]])  # the bin of one number ends there: it tends to that
    return np.where(after, np.concatenate([low[:1], low[:-1]]), low), np.where(single, low, high)


def _bins_named(ends: Sequence[tuple[float, float]], *, whole: bool) -> tuple[str, ...]:
    """Return how bins are called: "[18, 40)", "40 to 64" of whole numbers, "0" of a single number."""
    digits = digits_apart(sorted({each for pair in ends for each in pair}))
    found, after = [], False  # whether the bin before holds a single number, where this one begins
    for i, (low, high) in enumerate(ends):
        first, last = written(low, digits), written(high, digits)
        if low == high:
            found.append(first)
        elif whole:
            found.append(f"{first} to {last}")
        else:
            closed = i == len(ends) - 1
            found.append(f"{'(' if after else '['}{first}, {last}{']' if closed else ')'}")
        after = low == high
    return tuple(found)


@dataclass(frozen=True)
class Marginal:
    """A table of noisy counts, unbiased, with the covariance of its noise.

    Attributes:
        levels: of each direction of the table.
        values: the counts.
        terms: the covariance, as a sum of Kronecker products: a variance, and a matrix for each direction.
    """

    levels: tuple[Levels, ...]
    values: Floats
    terms: tuple[tuple[float, tuple[Floats, ...]], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(each.column for each in self.levels)

    @property
    def variance(self) -> Floats:
        """The variance of the noise in each cell."""
        found = np.zeros(self.values.shape)
        for square, factors in self.terms:
            found += square * reduce(np.multiply.outer, [np.diag(each) for each in factors], np.array(1.0))
        return np.maximum(found, 0.0)

    @property
    def noise(self) -> Floats:
        """The standard deviation of the noise in each cell."""
        return np.sqrt(self.variance)

    @property
    def covariance(self) -> Floats:
        """The covariance of the noise in all cells, row by row: cells x cells."""
        cells = self.values.size
        found = np.zeros((cells, cells))
        for square, factors in self.terms:
            product: Floats = np.ones((1, 1))
            for factor in factors:
                product = np.asarray(np.kron(product, factor), np.float64)
            found += square * product
        return found

    def variance_of(self, weights: Floats, other: Floats | None = None) -> float:
        """Return the variance of the noise in a weighted sum of cells, or its covariance with another."""
        other = weights if other is None else other
        found = 0.0
        for square, factors in self.terms:
            moved = other
            for direction, factor in enumerate(factors):
                moved = np.moveaxis(np.tensordot(factor, moved, (1, direction)), 0, direction)
            found += square * float(np.sum(weights * moved))
        return found

    def mapped(self, direction: int, matrix: Floats, into: Levels | None) -> Marginal:
        """Return it with sums of values along one direction, as the rows of a matrix say; None drops it."""
        values = np.moveaxis(np.tensordot(matrix, self.values, (1, direction)), 0, direction)
        terms = []
        for square, factors in self.terms:
            image = matrix @ factors[direction] @ matrix.T
            before, after = factors[:direction], factors[direction + 1 :]
            if into is None:
                terms.append((square * float(image[0, 0]), (*before, *after)))
            else:
                terms.append((square, (*before, image, *after)))
        left, right = self.levels[:direction], self.levels[direction + 1 :]
        if into is None:
            return Marginal((*left, *right), np.take(values, 0, axis=direction), tuple(terms))
        return Marginal((*left, into, *right), values, tuple(terms))

    def among(self, mask: Floats) -> Marginal:
        """Return the sums over the cells of its first directions for which a mask is 1."""
        many = mask.ndim
        values = np.tensordot(mask, self.values, (tuple(range(many)), tuple(range(many))))
        terms = []
        for square, factors in self.terms:
            moved = mask
            for direction, factor in enumerate(factors[:many]):
                moved = np.moveaxis(np.tensordot(factor, moved, (1, direction)), 0, direction)
            terms.append((square * float(np.sum(mask * moved)), factors[many:]))
        return Marginal(self.levels[many:], values, tuple(terms))

    def picked(self, direction: int, places: Sequence[int]) -> Marginal:
        """Return some values of one direction, in this order."""
        each = self.levels[direction]
        into = replace(
            each,
            names=tuple(each.names[i] for i in places),
            values=tuple(each.values[i] for i in places),
            edges=None,
            missing=False,
            ends=None,
            whole=False,
        )
        return self.mapped(direction, np.eye(len(each))[list(places)], into)

    def known(self) -> Marginal:
        """Return the table of rows that miss none of its columns."""
        found = self
        for direction, each in enumerate(self.levels):
            if each.missing:
                found = found.mapped(direction, np.eye(len(each))[:-1], each.known)
        return found

    def sums(self, *kept: str) -> Marginal:
        """Return the sums over all other columns."""
        found = self
        for direction in reversed(range(len(self.levels))):
            if self.levels[direction].column not in kept:
                found = found.mapped(direction, np.ones((1, len(self.levels[direction]))), None)
        return found


@dataclass(frozen=True)
class Measured:
    """What was released: coordinates of residuals, each set with independent noise of its own scale.

    Attributes:
        levels: the values of all columns.
        coordinates: set of columns, by place -> its coordinates, one less than values in each direction. The
            empty set is the number of rows.
        noise: the standard deviation of the noise in every coordinate of a set; 0 for a public number of
            rows.
        law: of the noise in a cell of the largest tables; sums of cells are nearer to a Gaussian.
    """

    levels: tuple[Levels, ...]
    coordinates: Mapping[Columns, Floats]
    noise: Mapping[Columns, float]
    law: Law = GAUSSIAN

    @classmethod
    def of(cls, answer: Answer, axes: Sequence[Axis], sets: Sequence[Columns]) -> Measured:
        """Return what an answer to `ask` holds; `sets` are those of its query's block."""
        coordinates: dict[Columns, Floats] = {}
        noise: dict[Columns, float] = {}
        if answer.rows is not None:
            coordinates[()], noise[()] = np.array(float(answer.rows)), 0.0
        if answer.sums:
            coordinates |= dict(zip(sets, answer.sums[0], strict=True))
            noise |= dict(zip(sets, answer.noise[0], strict=True))
        return cls(tuple(Levels.of(axis, answer.schema) for axis in axes), coordinates, noise)

    @property
    def rows(self) -> tuple[float, float]:
        """The number of rows, and the noise in it."""
        return float(self.coordinates[()]), self.noise[()]

    def place(self, column: str) -> int:
        """Return the place of a column, or raise an error that lists them."""
        for i, each in enumerate(self.levels):
            if each.column == column:
                return i
        named = ", ".join(each.column for each in self.levels)
        raise InvalidInput(f"column {column!r} is not among those of these tables: {named}")

    def marginal(self, columns: Sequence[str]) -> Marginal:
        """Return the table of these columns, in their order, "missing" among its values."""
        given = [self.place(name) for name in columns]
        if len(set(given)) != len(given):
            raise InvalidInput(f"the columns of a table must be different, not {', '.join(columns)}")
        places = sorted(given)
        shape = [len(self.levels[i]) for i in places]
        values, terms = np.zeros(shape), []
        for many in range(len(places) + 1):
            for chosen in itertools.combinations(places, many):
                if any(len(self.levels[i]) == 1 for i in chosen):  # such a column has no residual
                    continue
                if chosen not in self.coordinates:
                    raise InvalidInput(
                        f"the table of {', '.join(columns)} was not released: none has all of "
                        f"{', '.join(self.levels[i].column for i in chosen)}; ask for more ways, or name it "
                        "in the workload"
                    )
                values += self._spread(chosen, places)
                matrices = tuple(_factor(len(self.levels[i]), i in chosen) for i in places)
                terms.append((self.noise[chosen] ** 2, matrices))
        order = [places.index(i) for i in given]
        return Marginal(
            tuple(self.levels[i] for i in given),
            np.transpose(values, order),
            tuple((square, tuple(each[i] for i in order)) for square, each in terms),
        )

    def _spread(self, chosen: Columns, places: Sequence[int]) -> Floats:
        """Return what the residual of a set adds to each cell of a table; it may be broadcast."""
        found = np.asarray(self.coordinates[chosen])
        for direction, i in enumerate(chosen):
            found = np.moveaxis(np.tensordot(basis(len(self.levels[i])), found, (1, direction)), 0, direction)
        outside = math.prod(len(self.levels[i]) for i in places if i not in chosen)
        shape = [len(self.levels[i]) if i in chosen else 1 for i in places]
        return found.reshape(shape) / outside

    def measurements(self) -> Iterator[tuple[tuple[str, ...], Floats, Floats, float]]:
        """Yield each set's columns, the matrix from counts of its cells to coordinates, these, and their
        noise.

        The rows of a matrix are orthonormal, and the noise is independent: for fitting models.
        """
        for chosen, found in self.coordinates.items():
            matrix: Floats = np.ones((1, 1))
            for i in chosen:
                matrix = np.asarray(np.kron(matrix, basis(len(self.levels[i])).T), np.float64)
            names = tuple(self.levels[i].column for i in chosen)
            yield names, matrix, np.asarray(found).reshape(-1), self.noise[chosen]


def _factor(values: int, inside: bool) -> Floats:
    """Return the covariance of a direction: I - 11'/n of a residual, 11'/n² of what is spread evenly."""
    return np.eye(values) - 1 / values if inside else np.full((values, values), 1 / values**2)
