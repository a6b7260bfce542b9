"""All tables of counts over some columns, from one release."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from cape.analyses.tables.marginals import Measured, Workload, ask, spans
from cape.analyses.tables.plan import expected_errors, refuse_if_large
from cape.analyses.tables.tables_model import TablesModel
from cape.analyses.tables.whole_tables import ask_whole, measured_whole
from cape.blocks import Axis
from cape.blocks.bins import rising
from cape.blocks.residuals import Residuals, levels
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Noise, Query
from cape.privacy.residuals import groups_of, scales_effort
from cape.show import Table
from cape.stats.estimates import Estimates

__all__ = ["Tables", "cut"]

_MOST_BINS = 1 << 12
_MOST_COLUMNS = 300
_MOST_WAYS = 8
_MOST_LISTED = 10_000  # tables of a workload
_MOST_WEIGHT = 1e6


@dataclass(frozen=True, init=False)
class Tables(Analysis):
    """All tables of counts over up to `ways` of these columns, from one release.

    >>> Tables(["age", "sex", "stage", "ill"], edges={"age": [18, 40, 65, 90]})
    >>> Tables(["age", "sex", "stage", "ill"], ways=3, bins=5, workload={"age": 5})

    Any table, conditional shares, odds ratios, tests of independence, means and correlations are then made of
    what was released, as often as wanted: `release.table("sex", "ill")`, and what `TablesModel` offers. They
    agree with each other and with the public number of rows.

    Args:
        columns: categories, and numbers that `edges` or `bins` cut.
        ways: how many columns a table has at most.
        workload: which tables matter how much. By default all of `ways` columns matter alike. {"age": 5}
            gives tables five times the weight for having the column age; a list of tables, such as [["age",
            "ill"], ["sex", "ill"]], or [{"columns": ["age", "ill"], "weight": 5}], has only these, and those
            within them, released.
        edges: column -> edges of its bins, within its bounds. Bins are [a, b), the last one [a, b]; numbers
            outside go to the first or the last.
        bins: into how many equal parts the bounds of a number without edges are cut; or column -> so many. Of
            whole numbers (`integer = true`) at most one for each.

    A missing cell is a value of its own, where the schema says that cells may be missing; `missing = false`
    there makes tables smaller and less noisy. Counts are of the people in the tables: no sampling error.

    **Sensitivity** 1: the noise of each set of columns is such that one person costs exactly mu = 1, under
    replace-one and under add-remove. `cape.privacy.residuals` has the proof, and why no other noise is
    better. Without delta whole tables get Laplace noise: 2 in each of them in the L1 norm, 1 under
    add-remove (`cape.analyses.tables.whole_tables`).
    """

    kind: ClassVar[str] = "tables"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "sex", "disease"], "bins": 3}
    whole: ClassVar[bool] = True
    columns: tuple[str, ...]
    ways: int
    workload: tuple[tuple[tuple[str, ...], float], ...] | None
    weights: tuple[tuple[str, float], ...] | None
    edges: tuple[tuple[str, tuple[float, ...]], ...]
    bins: int | tuple[tuple[str, int], ...] | None

    def __init__(
        self,
        columns: Iterable[str],
        ways: int = 2,
        workload: Mapping[str, float] | Sequence[Any] | None = None,
        *,
        edges: Mapping[str, Iterable[float]] | None = None,
        bins: int | Mapping[str, int] | None = None,
    ) -> None:
        found = names((columns,) if isinstance(columns, str) else columns)
        if len(found) > _MOST_COLUMNS:
            raise InvalidInput(f"at most {_MOST_COLUMNS} columns can be asked for, not {len(found)}")
        ways = check.integer("ways", ways, least=1, most=_MOST_WAYS)
        weights, tables = _workload(workload, found, ways)
        self._set(
            columns=found,
            ways=ways,
            workload=tables,
            weights=weights,
            edges=_edges(edges, found),
            bins=_bins(bins, found),
        )

    def axes(self, schema: Schema) -> tuple[Axis, ...]:
        """Return the columns, cut at their edges."""
        return cut(schema, self.columns, dict(self.edges), self.bins)

    def tables_asked(self) -> Workload:
        """Return the tables that matter, by the places of their columns, with their weights."""
        return _asked(self.columns, self.ways, self.workload, self.weights)

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return the time for all sets of columns, and for the best noise of each group of them."""
        if self.workload is not None:
            sets = groups = sum(1 << len(columns) for columns, _ in self.workload)
            kinds = [1] * len(self.columns)
        else:
            sets = sum(math.comb(len(self.columns), many) for many in range(self.ways + 1))
            given = dict(self.weights or ())
            axes = zip(self.axes(schema), self.columns, strict=True)
            alike = Counter((levels(axis, schema), given.get(name, 1.0)) for axis, name in axes)
            kinds = list(alike.values())
            groups = groups_of(kinds, self.ways)
        best = 0.0 if self.laplace else scales_effort(kinds, groups)
        found: float = super().effort(schema, results)
        return found + 1e-5 * sets + best

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        axes = self.axes(schema)
        refuse_if_large(self, [levels(axis, schema) for axis in axes], schema)
        if self.laplace:
            return ask_whole(axes, schema, neighbours, self.tables_asked())
        given = dict(self.weights or ())
        alike = None if self.workload is not None else [given.get(name, 1.0) for name in self.columns]
        return ask(axes, schema, neighbours, self.tables_asked(), alike)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return the counts of each column's values, and the model that has all tables."""
        neighbours: Neighbours = "add-remove" if answer.rows is None else "replace-one"
        schema = answer.schema
        query = self.query(schema, neighbours)
        sets = query.blocks[0].sets if query.blocks and isinstance(query.blocks[0], Residuals) else ()
        measured = (measured_whole if self.laplace else Measured.of)(answer, self.axes(schema), sets)
        return AnalysisResult(_counts(measured), TablesModel(measured, schema, self._named()))

    def _named(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self.columns[i] for i in table) for table in self.tables_asked())

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of the counts of each column's values: it does not depend on the rows."""
        return expected_errors(self, schema, noise, neighbours).of_columns()

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return half the number of rows for each count."""
        return dict.fromkeys(self.expected(schema, noise, rows, neighbours), rows / 2)

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return the noise of every table, those of the same size together if there are many."""
        return expected_errors(self, schema, noise, neighbours).tables(rows)

    def describe(self) -> str:
        if self.workload is not None:
            return f"{len(self.workload)} tables of counts over {_few(self.columns)}, and all within them"
        ways = min(self.ways, len(self.columns))
        weights = "".join(f", {name} with weight {weight:g}" for name, weight in self.weights or ())
        return f"all tables of counts over up to {ways} of {_few(self.columns)}{weights}"

    def keys(self) -> dict[str, Any]:
        found: dict[str, Any] = {"columns": list(self.columns), "ways": self.ways}
        if self.weights is not None:
            found["workload"] = dict(self.weights)
        if self.workload is not None:
            found["workload"] = [{"columns": list(each), "weight": weight} for each, weight in self.workload]
        if self.edges:
            found["edges"] = {name: list(each) for name, each in self.edges}
        if self.bins is not None:
            found["bins"] = self.bins if isinstance(self.bins, int) else dict(self.bins)
        return found


def cut(
    schema: Schema,
    columns: Sequence[str],
    edges: Mapping[str, Sequence[float]],
    bins: int | Sequence[tuple[str, int]] | None,
) -> tuple[Axis, ...]:
    """Return columns as axes of tables, numbers cut at edges within their bounds or into equal bins.

    Whole numbers are cut between them, into bins that hold equally many, as nearly as can be.
    """
    many = {} if bins is None or isinstance(bins, int) else dict(bins)
    found = []
    for name in columns:
        column = schema[name]
        if not isinstance(column, Number):
            if name in edges or name in many:
                raise InvalidInput(
                    f"column {name!r} has categories in the schema: leave out its edges or bins"
                )
            found.append(Axis(name))
            continue
        column = schema.number(name)
        if name in edges:
            low, high = edges[name][0], edges[name][-1]
            if low < column.low or high > column.high:
                raise InvalidInput(
                    f"edges of {name!r} must lie within its bounds, {column.low:g} to {column.high:g}; "
                    f"they go from {low:g} to {high:g}"
                )
            found.append(_stated(Axis(name, edges[name]), column))
            continue
        parts = many.get(name, bins if isinstance(bins, int) else None)
        if parts is None:
            raise InvalidInput(
                f"column {name!r} has bounds in the schema: give its edges, as in edges = {{{name} = "
                f"[{column.low:g}, {column.middle:g}, {column.high:g}]}}, or bins = 5"
            )
        found.append(Axis(name, _equal(column, parts)))
    return tuple(found)


def _stated(axis: Axis, column: Number) -> Axis:
    """Return an axis with edges that people gave, or raise `InvalidInput` where a bin can hold no cell."""
    assert axis.edges is not None
    if column.integer:
        least, most = spans(axis.edges, column)
        for low, high in itertools.compress(itertools.pairwise(axis.edges), most < least):
            raise InvalidInput(
                f"edges of {axis.column!r} leave no whole number from {low:g} to below {high:g}, and the "
                "schema says integer = true; leave an edge out"
            )
    return axis


def _equal(column: Number, parts: int) -> Floats:
    """Return the edges of equal bins: of whole numbers the last one is above the largest."""
    if not column.integer:
        return np.linspace(column.low, column.high, parts + 1)
    many = column.high - column.low + 1
    return np.asarray(column.low + np.round(np.linspace(0, many, int(min(parts, many)) + 1)))


@lru_cache(maxsize=32)
def _asked(
    columns: tuple[str, ...],
    ways: int,
    workload: tuple[tuple[tuple[str, ...], float], ...] | None,
    weights: tuple[tuple[str, float], ...] | None,
) -> Workload:
    place = {name: i for i, name in enumerate(columns)}
    if workload is not None:
        found: dict[tuple[int, ...], float] = {}
        for table, weight in workload:
            key = tuple(sorted(place[name] for name in table))
            found[key] = found.get(key, 0.0) + weight
        return found
    given = dict(weights or ())
    each = [given.get(name, 1.0) for name in columns]
    return {
        table: math.prod(each[i] for i in table)
        for table in itertools.combinations(range(len(columns)), min(ways, len(columns)))
    }


def _counts(measured: Measured) -> Estimates:
    """Return the unbiased counts of each column's values."""
    labels: list[str] = []
    values, noise = [], []
    for each in measured.levels:
        table = measured.marginal((each.column,))
        labels += [each.label(i) for i in range(len(each))]
        values.append(table.values)
        noise.append(table.noise)
    return Estimates(labels, np.concatenate(values), 0.0, np.concatenate(noise))


def _workload(given: Any, columns: tuple[str, ...], ways: int) -> tuple[Any, Any]:
    """Return weights of columns, or tables with weights."""
    if given is None:
        return None, None
    if isinstance(given, Mapping):
        for name, weight in given.items():
            _known(name, columns, "workload")
            check.real(f"the weight of {name!r}", weight, above=0.0, most=_MOST_WEIGHT)
        return tuple((name, float(weight)) for name, weight in given.items()), None
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidInput(
            'workload must be weights of columns, as in {"age": 5}, or a list of tables, as in '
            '[["age", "ill"]], '
            f"not {check.show(given)}"
        )
    tables = []
    for each in given:
        table, weight = (
            (each.get("columns"), each.get("weight", 1.0)) if isinstance(each, Mapping) else (each, 1.0)
        )
        if isinstance(each, Mapping) and set(each) - {"columns", "weight"}:
            raise InvalidInput(
                f"a table of the workload has columns and weight, not {check.show(sorted(each))}"
            )
        table = names((table,) if isinstance(table, str) else table or ())
        for name in table:
            _known(name, columns, "workload")
        if len(table) > ways:
            raise InvalidInput(
                f"the table of {joined(table)} in the workload has {len(table)} columns, more than ways = "
                f"{ways}"
            )
        tables.append((table, float(check.real("weight", weight, above=0.0, most=_MOST_WEIGHT))))
        if len(tables) > _MOST_LISTED:
            raise InvalidInput(
                f"a workload may list at most {_MOST_LISTED:,} tables; leave it out to have all"
            )
    if not tables:
        raise InvalidInput("a workload must have at least one table; leave it out to have all")
    return None, tuple(tables)


def _edges(given: Any, columns: tuple[str, ...]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f'edges must be given by column, as in {{"age": [18, 40, 90]}}, not {check.show(given)}'
        )
    found = []
    for name, edges in given.items():
        _known(name, columns, "edges")
        if isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable):
            raise InvalidInput(
                f"edges of {name!r} must be numbers that rise, as in [18, 40, 90], not {edges!r}"
            )
        rise = tuple(rising(name, edges).tolist())
        if len(rise) > _MOST_BINS + 1:
            raise InvalidInput(f"edges of {name!r} must make at most {_MOST_BINS} bins, not {len(rise) - 1}")
        found.append((name, rise))
    return tuple(found)


def _bins(given: Any, columns: tuple[str, ...]) -> int | tuple[tuple[str, int], ...] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        return check.integer("bins", given, least=1, most=_MOST_BINS)
    for name in given:
        _known(name, columns, "bins")
    return tuple(
        (name, check.integer(f"bins of {name!r}", many, least=1, most=_MOST_BINS))
        for name, many in given.items()
    )


def _known(name: Any, columns: tuple[str, ...], where: str) -> None:
    if name not in columns:
        raise InvalidInput(
            f"{where} names {check.show(name)}, which is not among the columns: {_few(columns)}"
        )


def _few(columns: Sequence[str]) -> str:
    return (
        joined(columns)
        if len(columns) <= 6
        else f"{', '.join(columns[:5])} and {len(columns) - 5} more columns"
    )
