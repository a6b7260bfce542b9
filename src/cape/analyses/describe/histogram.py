"""How many people fall into each bin, category, or cell of a table of categories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cape.analyses.by_group import ByGroup
from cape.analyses.columns import OfColumns
from cape.blocks import Axis, Counts
from cape.blocks.bins import rising
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import conditions, digits_apart, names, written
from cape.engine.query import Answer, Neighbours, Query
from cape.engine.result import Release
from cape.show import Bars, Figure, HeatMap, Mark
from cape.show.numbers import count, p_said
from cape.stats.estimates import Estimate, Estimates, Labels
from cape.stats.independence import Independence, contrasts
from cape.stats.law import GAUSSIAN

__all__ = ["ContingencyTable", "Histogram", "one_hot"]

_MOST_BINS = 1 << 20
_MOST_BARS = 200  # that a figure holds
_BARS = "Released counts; lines are 95% intervals, from privacy noise."
_CELLS = "Released counts; point at a cell for its interval."


def one_hot(neighbours: Neighbours, cells: int) -> float:
    """Return the most that one row changes a table of counts: squared, or in the L1 norm, which is the same.

    A row is counted in one cell, or in none if it misses a column. Added or removed it changes one count
    by 1. Replaced, it takes 1 from one cell and gives 1 to another: 1 + 1 = 2, attained whenever there
    are two cells.
    """
    return 2.0 if neighbours == "replace-one" and cells > 1 else 1.0


def _table_query(block: Counts, schema: Schema, neighbours: Neighbours) -> Query:
    moved = one_hot(neighbours, block.arrays(schema)[0].size)
    return Query((block,), ((1.0,),), math.sqrt(moved), l1=moved)


def _estimates(labels: Sequence[str], answer: Answer, columns: Sequence[str]) -> Estimates:
    """Return counts that are not negative.

    If no cell of the columns is ever missing and the number of rows is public, the counts add up to it: the
    nearest counts that do have 1 - 1/cells of the variance.
    """
    ((counts,),), ((noise,),) = answer.sums, answer.noise
    flat = np.asarray(counts, np.float64).reshape(-1)
    most, law = math.inf if answer.rows is None else float(answer.rows), answer.law
    if _adds_up(most, answer.schema, columns):
        part = 1 / flat.size
        flat = flat + (most - flat.sum()) * part
        noise *= math.sqrt(1 - part)
        law = law.combined(1 - part, *[part] * min(flat.size - 1, _MOST_BARS))
    return Estimates(labels, np.clip(flat, 0.0, most), 0.0, noise, (0.0, most), law=law)


def _adds_up(rows: float, schema: Schema, columns: Sequence[str]) -> bool:
    """Return whether the counts are known to add up to a public number of rows."""
    return rows < math.inf and not any(schema[name].missing for name in columns)


@dataclass(frozen=True, init=False)
class Histogram(ByGroup):
    """How many people in the tables fall into each bin of a numeric column, or into each category.

    >>> Histogram("age", edges=[18, 40, 65, 90]), Histogram("age", bins=20), Histogram("sex")

    Bins are [a, b), the last one [a, b]; values outside go to the first or the last. `bins` cuts the public
    bounds into equal parts. Counts are about the people in the tables: no sampling error. A count that noise
    makes negative is given as 0.

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove; 2 and 1 in the L1 norm: `one_hot` has the
    proof.
    """

    kind: ClassVar[str] = "histogram"
    example: ClassVar[dict[str, Any]] = {"column": "age", "bins": 4}
    whole: ClassVar[bool] = True
    column: str
    edges: tuple[float, ...] | None
    bins: int | None

    def __init__(self, column: str, *, edges: Iterable[float] | None = None, bins: int | None = None) -> None:
        (name,) = names((column,))
        if edges is not None and bins is not None:
            raise InvalidInput("either edges or bins must be given, not both")
        if edges is not None and (isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable)):
            raise InvalidInput(f"edges must be numbers that rise, as in [18, 40, 65, 90], not {edges!r}")
        self._set(
            column=name,
            edges=None if edges is None else tuple(rising(name, edges).tolist()),
            bins=None if bins is None else check.integer("bins", bins, least=1, most=_MOST_BINS),
        )

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        return _table_query(Counts((self._axis(schema),)), schema, neighbours)

    def finish(self, answer: Answer) -> Estimates:
        axis = self._axis(answer.schema)
        if axis.edges is not None:
            column = answer.schema.number(self.column)
            labels = _BinLabels(self.column, axis.edges)
            labels = self._labels.setdefault((column.low, column.high), labels)
            return _estimates(labels, answer, (self.column,))
        return _estimates(_CellLabels.of(answer.schema, (self.column,)), answer, (self.column,))

    def adding_up(self, schema: Schema) -> Sequence[int]:
        return () if schema[self.column].missing else (0,)

    def describe(self) -> str:
        return f"histogram of {self.column}"

    def figures(self, release: Release) -> Sequence[Figure]:
        """Return the counts as bars; adjacent ones are added up where there are very many."""
        found, start = release.estimates, len(self.column)
        size = math.ceil(len(found) / _MOST_BARS)
        marks = []
        for first in range(0, len(found), size):
            last = min(first + size, len(found)) - 1
            names = (found[i].label[start:].removeprefix(" in ").removeprefix("=") for i in (first, last))
            value = float(found.values[first : last + 1].sum())
            noise = found[first].privacy * math.sqrt(last + 1 - first)
            together = Estimate(" to ".join(dict.fromkeys(names)), value, 0.0, noise, found[first].within)
            marks.append(Mark.of(together, most=0))
        return [Figure((Bars(tuple(marks), release.schema.title(self.column)),), _BARS)]

    def keys(self) -> dict[str, Any]:
        cut = {"edges": None if self.edges is None else list(self.edges), "bins": self.bins}
        given = {key: value for key, value in cut.items() if value is not None}
        return {"column": self.column, **given}

    @cached_property
    def _labels(self) -> dict[tuple[float, float], _BinLabels]:
        """Labels by the column's bounds: a plan finishes many answers, and writes them once."""
        return {}

    def _axis(self, schema: Schema) -> Axis:
        column = schema[self.column]
        if not isinstance(column, Number):
            if self.edges is not None or self.bins is not None:
                raise InvalidInput(
                    f"column {self.column!r} has categories in the schema: leave out edges and bins"
                )
            return Axis(self.column)
        if self.bins is not None:
            return Axis(self.column, np.linspace(column.low, column.high, self.bins + 1))
        if self.edges is None:
            raise InvalidInput(f"column {self.column!r} has bounds in the schema: give edges or bins")
        return Axis(self.column, self.edges)


@dataclass(frozen=True, eq=False)
class _BinLabels(Labels):
    """'age in [18, 40)', and ']' for the last bin."""

    column: str
    edges: Floats

    def __len__(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def _digits(self) -> int:
        return digits_apart(self.edges.tolist())

    def write(self, place: int) -> str:
        low, high = (written(float(edge), self._digits) for edge in self.edges[place : place + 2])
        return f"{self.column} in [{low}, {high}{']' if place == len(self) - 1 else ')'}"

    @cached_property
    def _all(self) -> list[str]:
        edges = [written(edge, self._digits) for edge in self.edges.tolist()]
        ends = [*[")"] * (len(self) - 1), "]"]
        each = zip(edges[:-1], edges[1:], ends, strict=True)
        return [f"{self.column} in [{low}, {high}{end}" for low, high, end in each]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)


@dataclass(frozen=True, eq=False)
class _CellLabels(Labels):
    """'sex=female, stage=II': one category of each column, those of the last column running fastest."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, schema: Schema, columns: tuple[str, ...]) -> _CellLabels:
        return cls(columns, tuple(tuple(schema.category(name).values) for name in columns))

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.values))

    def __len__(self) -> int:
        return math.prod(self._shape)

    def write(self, place: int) -> str:
        cell = zip(self.columns, self.values, np.unravel_index(place, self._shape), strict=True)
        return ", ".join(f"{column}={values[i]}" for column, values, i in cell)


class ContingencyTable(OfColumns):
    """How many people in the tables there are for each combination of two or more columns' categories.

    >>> consortium.release(ContingencyTable("sex", "ill"), share=0.1).to_polars()

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove; 2 and 1 in the L1 norm: `one_hot` has the
    proof.
    """

    kind: ClassVar[str] = "contingency-table"
    example: ClassVar[dict[str, Any]] = {"columns": ["sex", "disease"]}
    whole: ClassVar[bool] = True
    least: ClassVar[int] = 2

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        return _table_query(Counts(tuple(Axis(name) for name in self.columns)), schema, neighbours)

    def finish(self, answer: Answer) -> Estimates:
        """Return the count of each combination, the last column's categories running fastest."""
        return _estimates(_CellLabels.of(answer.schema, self.columns), answer, self.columns)

    def describe(self) -> str:
        return f"contingency table of {' by '.join(self.columns)}"

    def title(self, label: str, schema: Schema) -> str:
        return conditions(label, self.columns, schema)

    def figures(self, release: Release) -> Sequence[Figure]:
        if len(self.columns) != 2:
            return super().figures(release)
        schema, (down, across) = release.schema, self.columns
        rows = tuple(schema.title(f"{down}={value}") for value in schema.category(down).values)
        columns = tuple(map(str, schema.category(across).values))
        marks = tuple(Mark.of(each, release.title(each.label), most=0) for each in release.estimates)
        cells = tuple(marks[i * len(columns) : (i + 1) * len(columns)] for i in range(len(rows)))
        return [Figure((HeatMap(rows, columns, cells, schema.label(across)),), _CELLS)]

    def notes(self, release: Release) -> Sequence[str]:
        """Return a test of independence of two columns."""
        if len(self.columns) != 2:
            return ()
        test = self.independence(release.estimates, release.schema)
        if test is None:
            return ["There is too much noise for a test of independence."]
        return [
            f"Test of independence, privacy noise counted: chi-square = {test.statistic:.2f} with "
            f"{count(test.freedom, 'degree')} of freedom, {p_said(test.p_value)}."
        ]

    def independence(self, estimates: Sequence[Estimate], schema: Schema) -> Independence | None:
        """Return a chi-square test of independence of two columns that counts privacy noise.

        None if noise leaves a row or a column of the table without a clear count, or a column has one
        category only. Post-processing of what `finish` returned: it costs nothing. `independence` has the
        proof.
        """
        if len(self.columns) != 2:
            raise InvalidInput(f"independence must be asked of two columns, not of {len(self.columns)}")
        shape = tuple(len(schema.category(name).values) for name in self.columns)
        table = np.array([estimate.value for estimate in estimates]).reshape(shape)
        noise = estimates[0].privacy
        if _adds_up(estimates[0].within[1], schema, self.columns):
            noise *= math.sqrt(table.size / max(table.size - 1, 1))  # as before it was brought to the total
        law = estimates[0].law or GAUSSIAN
        found = contrasts(table, noise, law=law)
        return None if found is None else found.test
